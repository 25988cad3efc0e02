//! RACK-TLP (RFC 8985): a sender's state of loss and reordering on its path, with order in the place of transmit times.
//!
//! RACK holds a segment for lost once a later one was delivered, and a reordering window has passed since. The RFC
//! stamps each segment with the time at which it was sent. It computes the end of its wait from that time and the round
//! trip of the later one. This sender stamps none, so a connection without loss pays nothing. The order in which
//! segments were sent follows from their numbers, and for what is sent again from a count ([`Rack::resent`]). The wait
//! begins when an acknowledgement first reports something later. The later segment was not sent before the other one,
//! so this is never too early. It is too late by the time between the two transmissions: a segment's time within a
//! burst. Times are kept for holes only, of which there are few: when one was sent again, and when its wait began.
use crate::Nanos;
use crate::prr::Prr;
use crate::spurious::SpuriousCheck;
use crate::undo::Undo;
use wire::Seq;

/// The reordering window is that many times as long at most.
const MOST_QUARTERS: u8 = 64;
/// Recoveries that a wider window lasts (RFC 8985 section 6.2, step 4).
const LASTS: u8 = 16;
/// A quarter of the least round trip, before one was measured.
const FIRST_QUARTER: Nanos = 250_000;

/// Inputs of the rules about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RackInput {
    /// Now.
    pub now: Nanos,
    /// The least round-trip time, nanoseconds; `u32::MAX` before the first one.
    pub least: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

/// A tail loss probe, until it is known what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probe {
    /// `TLP.end_seq`.
    end: Seq,
    /// `TLP.is_retrans`.
    again: bool,
}

/// State of a connection that had losses or disorder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rack {
    /// Bytes that were sent again so far, modulo 2^32.
    pub(crate) resent: u32,
    /// `resent` as of the latest of these bytes that the peer has.
    pub(crate) delivered: u32,
    pub(crate) undo: Undo,
    pub(crate) spurious: SpuriousCheck,
    /// In fast recovery.
    pub(crate) prr: Option<Prr>,
    /// The last check of the holes found another loss.
    pub(crate) found: bool,
    /// Something came that others, sent later, had overtaken (`RACK.reordering_seen`).
    pub(crate) reordered: bool,
    /// The timer for [`Rack::due`] runs.
    pub(crate) timed: bool,
    /// The reordering window in quarters of the least round trip, less one (`RACK.reo_wnd_mult`).
    wider: u8,
    /// Recoveries that this lasts (`RACK.reo_wnd_persist`).
    lasts: u8,
    /// It was widened in the round trip that ends here (`RACK.dsack_round`).
    round: Option<Seq>,
    probe: Option<Probe>,
    /// The timestamp of the latest retransmission, and whether a timeout calls for the next one.
    pub(crate) last_stamp: Option<u32>,
    /// See there.
    pub(crate) timed_out: bool,
    /// The latest round-trip time that was measured in disorder, nanoseconds: the smoothed one is elsewhere.
    pub(crate) latest: u32,
    /// When the wait of the first hole is over; none waits at 0.
    pub(crate) due: Nanos,
}

impl Rack {
    /// How long a segment may be late. Without reordering so far, not at all once losses are likely: within recovery,
    /// or where three segments have overtaken.
    // Meets RFC 8985: 6.2-d, 6.2-e.
    pub(crate) fn window(&self, likely: bool, moment: &RackInput) -> Nanos {
        if likely && !self.reordered {
            return 0;
        }
        let quarter = if moment.least == u32::MAX { FIRST_QUARTER } else { Nanos::from(moment.least) / 4 };
        let window = quarter * Nanos::from(self.wider + 1);
        if moment.least == u32::MAX { window } else { window.min(self.latest.max(moment.least).into()) }
    }

    /// The peer got something twice: what was late was held for lost. Once a round trip, the window is widened.
    // Meets RFC 8985: 6.2-f.
    pub(crate) fn widen(&mut self, una: Seq, max: Seq) {
        if self.round.is_none_or(|end| end.at_or_before(una)) {
            self.round = Some(max);
            (self.wider, self.lasts) = ((self.wider + 1).min(MOST_QUARTERS - 1), LASTS);
        }
    }

    /// A recovery is over.
    // Meets RFC 8985: 6.2-f.
    pub(crate) fn recovered(&mut self) {
        self.timed_out = false;
        self.lasts = self.lasts.saturating_sub(1);
        if self.lasts == 0 {
            self.wider = 0;
        }
    }

    /// A probe is sent that ends before `end`: something sent `again`, or something new.
    pub(crate) fn begin_probe(&mut self, end: Seq, again: bool) {
        self.probe = Some(Probe { end, again });
    }

    /// Recovery or a timeout: nothing follows from a probe any more.
    pub(crate) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// The begin of the probe that is under way, which sends again one segment at most.
    pub(crate) fn probe_begin(&self, mss: u32) -> Option<Seq> {
        self.probe.filter(|probe| probe.again).map(|probe| probe.end - mss)
    }

    /// The end of the probe that is under way.
    pub(crate) fn probe_end(&self) -> Option<Seq> {
        self.probe.map(|probe| probe.end)
    }

    /// An acknowledgement up to `ack` came that reports `dsack`, or is a `duplicate` without SACK blocks. Whether the
    /// probe is over, and whether it has repaired a loss.
    // Meets RFC 8985: 7.4-a, 7.4-b.
    pub(crate) fn judge_probe(&mut self, ack: Seq, dsack: Option<(Seq, Seq)>, duplicate: bool) -> Option<bool> {
        let probe = self.probe.filter(|probe| probe.end.at_or_before(ack))?;
        let vain = dsack.is_some_and(|(_, right)| right == probe.end) || duplicate;
        let beyond = probe.end.before(ack);
        if probe.again && !vain && !beyond {
            return None;
        }
        self.probe = None;
        Some(probe.again && !vain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: RackInput = RackInput { now: 0, least: 8000, mss: 1000 };
    const UNA: Seq = Seq(u32::MAX - 999);

    // Checks RFC 8985: 6.2-d, 6.2-e.
    #[test]
    fn reordering_makes_the_window_a_quarter_round_trip() {
        let mut rack = Rack::default();
        assert_eq!((rack.window(false, &MOMENT), rack.window(true, &MOMENT)), (2000, 0));
        rack.reordered = true;
        assert_eq!((rack.window(false, &MOMENT), rack.window(true, &MOMENT)), (2000, 2000));
        assert_eq!(rack.window(true, &RackInput { least: u32::MAX, ..MOMENT }), FIRST_QUARTER);
    }

    // Checks RFC 8985: 6.2-f.
    #[test]
    fn the_window_widens_once_a_round_trip_for_16_recoveries() {
        let mut rack = Rack { reordered: true, latest: 10_000, ..Rack::default() };
        rack.widen(UNA, UNA + 500);
        rack.widen(UNA + 499, UNA + 900);
        assert_eq!(rack.window(true, &MOMENT), 4000);
        rack.widen(UNA + 500, UNA + 900);
        assert_eq!(rack.window(true, &MOMENT), 6000);
        for at in 1..=100 {
            rack.widen(UNA + 1000 * at, UNA + 1000 * at + 500);
        }
        assert_eq!(rack.window(true, &MOMENT), 10_000, "not more than a round trip");
        (1..LASTS).for_each(|_| rack.recovered());
        assert_eq!(rack.window(true, &MOMENT), 10_000);
        rack.recovered();
        assert_eq!(rack.window(true, &MOMENT), 2000);
    }

    // Checks RFC 8985: 7.4-a, 7.4-b.
    #[test]
    fn a_probe_that_repairs_a_loss_is_recognised() {
        let judge = |again, ack: u32, dsack: Option<(u32, u32)>, duplicate| {
            let mut rack = Rack::default();
            rack.begin_probe(UNA + 1000, again);
            let judged = rack.judge_probe(UNA + ack, dsack.map(|(left, right)| (UNA + left, UNA + right)), duplicate);
            assert_eq!(rack.probe_end().is_none(), judged.is_some());
            judged
        };
        assert_eq!(judge(true, 999, None, false), None, "it is not acknowledged");
        assert_eq!(judge(true, 1000, None, false), None, "it may be either of the two");
        assert_eq!(judge(true, 1000, Some((0, 1000)), false), Some(false));
        assert_eq!(judge(true, 2000, Some((0, 1000)), false), Some(false));
        assert_eq!(judge(true, 1000, Some((0, 400)), false), None, "another one came twice");
        assert_eq!(judge(true, 1000, None, true), Some(false), "a peer without D-SACK");
        assert_eq!(judge(true, 1001, None, false), Some(true));
        assert_eq!(judge(false, 1000, None, false), Some(false), "what was new was not lost");
    }
}
