//! Losses that were none (RFC 3522, RFC 5682): what follows from the verdict of the rules in `tcp`.
use super::state::ProtocolState;
use crate::message::{Events, Marks, Work};
use crate::observer::Observer;
use engine::Nanos;
use tcp::{AckUpdate, Verdict};
use trace::Point;
use wire::Seq;

/// Timestamps count milliseconds: of a shorter round trip, rounding is more than a hundredth, and congestion control
/// computes with it.
const EXACT_MS: u32 = 100;

impl ProtocolState {
    /// An acknowledgement came in recovery, `old` being the one before; its blocks are taken in.
    // Meets RFC 3522: 3.2-b.
    // Meets RFC 5682: 3.1-b, 3.1-c, 3.1-d.
    #[cold]
    #[inline(never)]
    pub(super) fn check_spurious<O: Observer>(&mut self, old: Seq, work: &mut Work, now: Nanos, observer: O) {
        let echo = self.fixed.agreed.ts_offset.and(work.summary.timestamps).map(|timestamps| timestamps.echo);
        match self.recovery.check_spurious(&AckUpdate { old, una: self.una, echo }) {
            Verdict::Open => {}
            Verdict::Spurious => {
                self.time_by_echo(old, work, now);
                self.end_undone(work, observer);
            }
            Verdict::SendNew => {
                // Two segments (RFC 5682 section 3.1, step 2).
                self.flight.extend(self.fixed.agreed.mss.into());
                if self.cut(u32::MAX).is_none_or(|cut| cut.len == 0) {
                    self.recovery.send_lost_all_the_same();
                    self.flight.reset();
                }
            }
        }
    }

    /// A loss was none: congestion control gives the window back (RFC 4015 section 3.2).
    // Meets RFC 4015: 3.2-a.
    pub(super) fn end_undone<O: Observer>(&mut self, work: &mut Work, observer: O) {
        work.tally.marks.add(Marks::UNDONE);
        work.events.add(Events::CONGESTION);
        observer.event(Point::Undone, work.flow, [self.una.0.into(), self.outstanding()]);
        self.flight.reset();
    }

    /// The round trip that was longer than the timeout, by its timestamp: the next timeout is to be later (RFC 4015
    /// section 3.2, step 7). What is timed otherwise was given up at the timeout.
    // Meets RFC 4015: 3.2-b.
    fn time_by_echo(&self, old: Seq, work: &mut Work, now: Nanos) {
        let echo = work.summary.timestamps.filter(|_| old.before(self.una) && work.tally.rtt == 0);
        let Some((own, peers)) = self.stamp(now).zip(echo) else { return };
        let ms = own.value.wrapping_sub(peers.echo);
        // Odd, as all that are measured.
        let is_exact = (EXACT_MS..1 << 31).contains(&ms);
        work.tally.rtt = if is_exact { ms.saturating_mul(1_000_000) | 1 } else { 0 };
    }
}
