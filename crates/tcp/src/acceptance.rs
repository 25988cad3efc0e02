//! Acceptance of segments by a synchronised connection (RFC 9293 section 3.10.7.4, with RFC 5961 and RFC 7323 section
//! 5).
use crate::{Nanos, Unacceptable};
use wire::Seq;
use wire::tcp::Flags;

/// How long a timestamp is remembered: 24 days (RFC 7323 section 5.5).
const TIMESTAMP_AGE: Nanos = 24 * 24 * 3600 * 1_000_000_000;

/// A segment that is not processed further, and how it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It is the reset that ends the connection.
    Reset,
    /// It is dropped in silence.
    Dropped(Unacceptable),
    /// It is answered with an acknowledgement.
    Answered(Unacceptable),
    /// It is answered with a challenge ACK, within the connection's limit.
    Challenged(Unacceptable),
}

impl Rejected {
    /// The same for a segment whose acknowledgement number was checked as well: where that is wrong, too, the answer is
    /// a challenge. Two ends that are one number apart, each behind the other, would take all answers for keepalives.
    #[inline]
    pub fn with_ack(self, ack: Result<(), Rejected>) -> Rejected {
        match (self, ack) {
            (Rejected::Answered(reason @ Unacceptable::OutsideWindow), Err(_)) => Rejected::Challenged(reason),
            (rejected, _) => rejected,
        }
    }
}

/// The receive window that was advertised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveWindow {
    /// The next sequence number expected (RCV.NXT).
    pub next: Seq,
    /// The right edge of the advertised window (RCV.NXT + RCV.WND). A FIN at this edge takes `next` beyond it.
    pub edge: Seq,
}

impl ReceiveWindow {
    /// Bytes that the window holds.
    #[inline]
    pub fn size(&self) -> u32 {
        if self.next.before(self.edge) { self.edge - self.next } else { 0 }
    }

    /// RST and SYN (RFC 5961 sections 3.2 and 4.2): only a reset with exactly the next number is accepted.
    // Meets RFC 9293: MUST-66.
    // Meets RFC 5961: 3.2-a, 3.2-b, 3.2-c, 4.2-a.
    #[inline]
    pub fn check_reset_and_syn(&self, flags: Flags, seq: Seq) -> Result<(), Rejected> {
        if flags.has(Flags::RST) {
            return Err(match seq {
                next if next == self.next => Rejected::Reset,
                inside if inside.within(self.next, self.size()) => Rejected::Challenged(Unacceptable::RstChallenged),
                _ => Rejected::Dropped(Unacceptable::OutsideWindow),
            });
        }
        if flags.has(Flags::SYN) {
            return Err(Rejected::Challenged(Unacceptable::SynChallenged));
        }
        Ok(())
    }

    /// The sequence number (RFC 9293 section 3.4), lenient as Linux is. A segment may begin before what was received,
    /// as long as it ends at or after what was acknowledged last. The acknowledgement in it is worth having.
    // Meets RFC 9293: 3.10.7.4-a.
    #[inline]
    pub fn check_sequence(&self, seq: Seq, payload: u32, fin: bool, last_ack: Seq) -> Result<(), Rejected> {
        let old = (seq + payload + fin as u32).before(last_ack);
        // FIN takes no place in the buffer, so it may stand at the edge; so may an empty segment.
        let beyond = self.edge.max(self.next).before(seq);
        if !old && !beyond {
            return Ok(());
        }
        let reason = if old && payload > 0 { Unacceptable::Duplicate } else { Unacceptable::OutsideWindow };
        // Data is always answered; so is what resembles a keepalive or a window probe. Other empty segments could be a
        // loop of acknowledgements between two ends that disagree.
        let asks = payload > 0 || seq == self.next - 1;
        Err(if asks { Rejected::Answered(reason) } else { Rejected::Challenged(reason) })
    }
}

/// The acknowledgement number (RFC 5961 section 5.2). `una` to `max` is sent and not acknowledged; `largest` is the
/// peer's largest window so far, bytes.
#[inline]
pub fn check_ack(ack: Seq, una: Seq, max: Seq, largest: u32) -> Result<(), Rejected> {
    if max.before(ack) {
        return Err(Rejected::Challenged(Unacceptable::AckBeyondSent));
    }
    if ack.before(una) && una - ack > largest {
        return Err(Rejected::Challenged(Unacceptable::AckTooOld));
    }
    Ok(())
}

/// An acknowledgement counts although its segment's own number is not acceptable, for this reason. After a kill, all
/// that was written is taken for sent (docs/RESTART.md), so `una` to `max` may be more than the peer's window held.
/// Then `max` is no number that the peer accepts. Two ends of this kind would wait for each other's acknowledgement.
#[inline]
pub fn ack_counts_alone(rejected: Rejected, ack: Seq, una: Seq, max: Seq, largest: u32) -> bool {
    use Unacceptable::{Duplicate, OutsideWindow};
    let of_its_number =
        matches!(rejected, Rejected::Answered(Duplicate | OutsideWindow) | Rejected::Challenged(OutsideWindow));
    of_its_number && max - una > largest && una.at_or_before(ack) && ack.at_or_before(max)
}

/// PAWS (RFC 7323 section 5.3) for a segment other than RST of a connection that agreed on timestamps. The segment's
/// value, where it has one, and its payload bytes are compared with the value `recent`, which is `age` nanoseconds old.
/// A segment without the option is dropped silently (section 3.2).
#[inline]
pub fn check_timestamp(value: Option<u32>, payload: u32, recent: u32, age: Nanos) -> Result<(), Rejected> {
    let Some(value) = value else { return Err(Rejected::Dropped(Unacceptable::Paws)) };
    if !Seq(value).before(Seq(recent)) || age >= TIMESTAMP_AGE {
        return Ok(());
    }
    // No endless exchange of empty segments.
    let answered = payload > 0;
    Err(if answered { Rejected::Answered(Unacceptable::Paws) } else { Rejected::Challenged(Unacceptable::Paws) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: ReceiveWindow = ReceiveWindow { next: Seq(u32::MAX - 99), edge: Seq(900) };
    const NEXT: Seq = WINDOW.next;

    // Checks RFC 5961: 3.2-a, 3.2-b, 3.2-c, 4.2-a.
    #[test]
    fn only_the_exact_reset_ends_a_connection() {
        let check = |flags, off: u32| WINDOW.check_reset_and_syn(flags, NEXT + off);
        assert_eq!(check(Flags::ACK, 5000), Ok(()));
        assert_eq!(check(Flags::RST, 0), Err(Rejected::Reset));
        assert_eq!(check(Flags::RST | Flags::SYN, 0), Err(Rejected::Reset));
        for off in [1, 999] {
            assert_eq!(check(Flags::RST, off), Err(Rejected::Challenged(Unacceptable::RstChallenged)), "{off}");
        }
        for off in [1000, u32::MAX, 1 << 31] {
            assert_eq!(check(Flags::RST, off), Err(Rejected::Dropped(Unacceptable::OutsideWindow)), "{off}");
            assert_eq!(check(Flags::SYN, off), Err(Rejected::Challenged(Unacceptable::SynChallenged)), "{off}");
        }
        let closed = ReceiveWindow { edge: NEXT, ..WINDOW };
        assert_eq!(
            closed.check_reset_and_syn(Flags::RST, NEXT),
            Err(Rejected::Reset),
            "a closed window keeps none out"
        );
    }

    // Checks RFC 9293: MUST-1, 3.10.7.4-a.
    #[test]
    fn the_window_is_the_one_that_was_advertised() {
        let check = |off: u32, len, fin| WINDOW.check_sequence(NEXT + off, len, fin, NEXT);
        for (off, len, fin) in [(0, 0, false), (0, 1000, false), (999, 10, false), (1000, 0, true), (1000, 0, false)] {
            assert_eq!(check(off, len, fin), Ok(()), "{off} {len} {fin}");
        }
        assert_eq!(check(1001, 10, false), Err(Rejected::Answered(Unacceptable::OutsideWindow)));
        assert_eq!(check(1001, 0, false), Err(Rejected::Challenged(Unacceptable::OutsideWindow)));
        assert_eq!(check(u32::MAX, 0, false), Err(Rejected::Answered(Unacceptable::OutsideWindow)), "a keepalive");
        assert_eq!(check(u32::MAX, 1, false), Ok(()), "it reaches what was acknowledged last");
        assert_eq!(check(u32::MAX - 9, 5, false), Err(Rejected::Answered(Unacceptable::Duplicate)));
    }

    // Checks RFC 5961: 5.2-a.
    #[test]
    fn acknowledgements_are_of_what_was_sent() {
        let check = |ack| check_ack(Seq(ack), Seq(50), Seq(80), 100);
        assert_eq!([check(50), check(80), check(50u32.wrapping_sub(100))], [Ok(()); 3]);
        assert_eq!(check(81), Err(Rejected::Challenged(Unacceptable::AckBeyondSent)));
        assert_eq!(check(50u32.wrapping_sub(101)), Err(Rejected::Challenged(Unacceptable::AckTooOld)));
    }

    #[test]
    fn a_keepalive_that_acknowledges_too_much_is_challenged() {
        let keepalive = WINDOW.check_sequence(NEXT - 1, 0, false, NEXT).unwrap_err();
        let with_ack = |ack| keepalive.with_ack(check_ack(Seq(ack), Seq(50), Seq(80), 100));
        assert_eq!(with_ack(80), Rejected::Answered(Unacceptable::OutsideWindow));
        assert_eq!(with_ack(81), Rejected::Challenged(Unacceptable::OutsideWindow));
        assert_eq!(Rejected::Reset.with_ack(check_ack(Seq(81), Seq(50), Seq(80), 100)), Rejected::Reset);
    }

    // Checks RFC 7323: 3.2-c, 5.3-a, 5.5-a.
    #[test]
    fn old_timestamps_are_refused_for_24_days() {
        assert_eq!(check_timestamp(None, 10, 5, 0), Err(Rejected::Dropped(Unacceptable::Paws)));
        assert_eq!(
            [check_timestamp(Some(5), 10, 5, 0), check_timestamp(Some(5), 10, 5u32.wrapping_sub(9), 0)],
            [Ok(()); 2]
        );
        assert_eq!(check_timestamp(Some(4), 10, 5, 0), Err(Rejected::Answered(Unacceptable::Paws)));
        assert_eq!(check_timestamp(Some(4), 0, 5, 0), Err(Rejected::Challenged(Unacceptable::Paws)));
        assert_eq!(check_timestamp(Some(4), 0, 5, TIMESTAMP_AGE), Ok(()));
    }
}
