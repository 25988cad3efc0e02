//! Loss recovery of a sender with one SACK block (RFC 2018). It has fast retransmit and its end (RFC 5681 section 3.2,
//! RFC 6582), and limited transmit (RFC 3042). What lies before the block is the hole, and it alone is sent again. What
//! lies beyond shows in the acknowledgement that comes when the hole is filled.
use wire::Seq;

/// Duplicate acknowledgements that mean loss (RFC 5681 section 3.2).
pub const DUPLICATES: u8 = 3;

/// State of loss recovery, beside the positions in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// What the peer has beyond the hole; empty for nothing.
    sacked: (Seq, Seq),
    /// Recovery ends where this is acknowledged.
    recover: Seq,
    /// What it has left of this was sent again. Empty blocks at the front stand for: unknown.
    leftmost: Seq,
    /// Up to where the hole was sent again, and where sending went on.
    resent: Seq,
    beyond: Seq,
    /// Duplicate acknowledgements since the front was sent again.
    duplicates: u8,
    active: bool,
    /// The hole was sent again, and sending went on after all that was sent before.
    jumped: bool,
}

impl Recovery {
    /// Nothing is lost of a stream that begins here.
    pub fn new(at: Seq) -> Recovery {
        let sacked = (at, at);
        Recovery {
            sacked,
            recover: at,
            leftmost: at,
            resent: at,
            beyond: at,
            duplicates: 0,
            active: false,
            jumped: false,
        }
    }

    /// Nothing is lost, and the peer has nothing beyond a hole.
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.active && !self.jumped && !self.has_block()
    }

    /// A loss was found, and not all of what was sent before it is acknowledged.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// The peer has something beyond a hole.
    #[inline(always)]
    pub fn has_block(&self) -> bool {
        self.sacked.0 != self.sacked.1
    }

    /// Bytes that the peer has beyond a hole.
    pub fn sacked(&self) -> u32 {
        self.sacked.1 - self.sacked.0
    }

    /// A loss was found: what was sent up to `max` is sent again from the front (go-back-N).
    #[inline]
    pub fn begin(&mut self, max: Seq) {
        (self.active, self.recover, self.jumped) = (true, max, false);
        (self.leftmost, self.duplicates) = (self.sacked.0, 0);
    }

    /// A timeout: what was selectively acknowledged counts for nothing (RFC 2018 section 8).
    // Meets RFC 2018: 8-a.
    pub fn time_out(&mut self, una: Seq, max: Seq) {
        let leftmost = if self.has_block() { self.sacked.0 } else { max };
        self.sacked = (una, una);
        self.begin(max);
        self.leftmost = leftmost;
    }

    /// Sending goes back to the front for another reason than a loss.
    pub fn go_back(&mut self) {
        self.jumped = false;
    }

    /// The peer's lowest block beyond a hole, where what it reports was sent at all. True where that is new.
    // Meets RFC 2018: 5-a.
    #[inline]
    pub fn note_block(&mut self, left: Seq, right: Seq, max: Seq) -> bool {
        let is_new = right.at_or_before(max) && (left, right) != self.sacked;
        if is_new {
            if self.leftmost == self.sacked.0 && !self.has_block() {
                self.leftmost = left;
            }
            self.sacked = (left, right);
        }
        is_new
    }

    /// Everything before `una` is acknowledged. True where a hole is filled and there is another one (a partial
    /// acknowledgement, RFC 6582 section 3.2 step 3): sending goes back to `una`.
    ///
    /// Recovery ends when all that was sent before it is acknowledged. Without SACK it ends when more than that is:
    /// segments that go-back-N sent twice bring duplicate acknowledgements (RFC 6582 section 4.1).
    pub fn acknowledge(&mut self, una: Seq, with_sack: bool) -> bool {
        let past = self.recover.before(una) || (with_sack && self.recover == una);
        self.active &= !past;
        if self.sacked.0.at_or_before(una) {
            self.sacked = (una, una);
        }
        let filled = self.jumped && self.resent.at_or_before(una);
        self.jumped &= !filled;
        let goes_back = filled && una.before(self.recover);
        self.duplicates = 0;
        if self.leftmost.at_or_before(una) {
            // What was on its way before the hole was sent again has come, or never will.
            self.leftmost = if goes_back { self.beyond } else { self.sacked.0 };
        }
        goes_back
    }

    /// Puts an empty block at `una`: where it stands means nothing.
    pub fn settle(&mut self, una: Seq) {
        if !self.has_block() {
            self.sacked = (una, una);
        }
    }

    /// The next position to send from `nxt` on: after all that was sent, where the peer has what follows.
    // Meets RFC 2018: 5-b.
    // Meets RFC 5681: 4.3-a.
    #[inline(always)]
    pub fn skip(&mut self, nxt: Seq, max: Seq) -> Seq {
        let (left, right) = self.sacked;
        if left == right || !nxt.within(left, right - left) {
            return nxt;
        }
        (self.jumped, self.resent, self.beyond) = (true, nxt, max);
        max
    }

    /// Of `len` bytes from `nxt` on, those before what the peer has.
    #[inline]
    pub fn clip(&self, nxt: Seq, len: u32) -> u32 {
        let (left, right) = self.sacked;
        if left != right && nxt.before(left) { len.min(left - nxt) } else { len }
    }

    /// An acknowledgement of nothing new has come, within recovery, with sending at `nxt`. The peer has
    /// so much of what was sent after the front was sent again that the front is lost again. That shows where its block
    /// grows to the left, into what was sent again, or to the right, into what was sent after the hole. What it had
    /// before means nothing: that was on its way before.
    ///
    /// So much is three segments, or one with three acknowledgements (RFC 6675 section 2), or all (RFC 5827).
    pub fn is_lost_again(&mut self, una: Seq, nxt: Seq, mss: u32) -> bool {
        if !self.active || !self.has_block() {
            return false;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        let (left, right) = self.sacked;
        let (end, sent_on) = if self.jumped { (self.resent, nxt - self.beyond) } else { (nxt, 0) };
        let behind = |from: Seq, to: Seq| if from.before(to) { to - from } else { 0 };
        let after = behind(una + mss, end) + sent_on;
        let grown = behind(left, right).min(behind(left, self.leftmost)).min(behind(left, end));
        let came = grown + if self.jumped { behind(self.beyond, right) } else { 0 };
        came > 0 && (self.duplicates >= DUPLICATES || came >= after.min(u32::from(DUPLICATES) * mss))
    }

    /// The same, reported by three duplicates: what is being sent again, up to `nxt`, has come beyond a hole. A peer
    /// that keeps one block has nothing there but what was sent again.
    pub fn is_lost_again_by_duplicates(&self, nxt: Seq) -> bool {
        self.has_block() && !self.jumped && self.sacked.0.before(nxt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: Seq = Seq(u32::MAX - 1999);
    const MAX: Seq = Seq(8000);
    const MSS: u32 = 1000;

    fn at(off: u32) -> Seq {
        UNA + off
    }

    // Checks RFC 2018: 5-a, 5-b.
    #[test]
    fn only_the_hole_is_sent_again() {
        let mut recovery = Recovery::new(UNA);
        assert!(!recovery.note_block(at(1000), MAX + 1, MAX), "more than was sent");
        assert!(recovery.note_block(at(1000), at(3000), MAX) && !recovery.note_block(at(1000), at(3000), MAX));
        recovery.begin(MAX);
        assert_eq!((recovery.skip(UNA, MAX), recovery.clip(UNA, 5000)), (UNA, 1000));
        assert_eq!(recovery.skip(at(1000), MAX), MAX, "what follows the hole the peer has");
        assert!(!recovery.acknowledge(at(500), true), "the hole is not filled");
        assert!(recovery.acknowledge(at(3000), true) && recovery.is_active(), "there is another one");
        assert!(!recovery.acknowledge(MAX, true));
        assert!(recovery.is_idle());
    }

    /// RFC 6582 section 4.1: without blocks, duplicates of what was sent twice would be taken for another loss.
    #[test]
    fn recovery_without_sack_ends_beyond_what_was_sent() {
        for (with_sack, active) in [(true, false), (false, true)] {
            let mut recovery = Recovery::new(UNA);
            recovery.begin(MAX);
            recovery.acknowledge(MAX, with_sack);
            assert_eq!(recovery.is_active(), active);
            recovery.acknowledge(MAX + 1, with_sack);
            assert!(recovery.is_idle());
        }
    }

    // Checks RFC 2018: 8-a.
    #[test]
    fn a_timeout_forgets_what_the_peer_had() {
        let mut recovery = Recovery::new(UNA);
        recovery.note_block(at(1000), at(3000), MAX);
        recovery.time_out(UNA, MAX);
        assert_eq!((recovery.has_block(), recovery.is_active()), (false, true));
        assert_eq!(recovery.skip(at(1000), MAX), at(1000));
    }

    #[test]
    fn what_was_sent_again_may_be_lost_again() {
        let mut recovery = Recovery::new(UNA);
        recovery.begin(MAX);
        recovery.note_block(at(1000), at(2000), MAX);
        let by_duplicates = |recovery: &Recovery, nxt| recovery.is_lost_again_by_duplicates(nxt);
        assert!(!by_duplicates(&recovery, at(1000)) && by_duplicates(&recovery, at(1001)));
        recovery.skip(at(1000), MAX);
        assert!(!by_duplicates(&recovery, MAX), "sending went on beyond");
    }

    #[test]
    fn a_block_that_covers_a_retransmission_shows_a_new_loss() {
        let mut recovery = Recovery::new(UNA);
        recovery.note_block(at(3000), at(4000), MAX);
        recovery.begin(MAX);
        assert!(!recovery.is_lost_again(UNA, at(3000), MSS), "it was there before");
        recovery.skip(at(3000), MAX);
        for right in [at(5000), at(6000), at(7000)] {
            recovery.note_block(at(3000), right, MAX);
            assert!(!recovery.is_lost_again(UNA, MAX, MSS), "that was on its way before");
        }
        recovery.note_block(at(2500), at(7000), MAX);
        assert!(recovery.is_lost_again(UNA, MAX, MSS), "one segment, and three acknowledgements");
        recovery.begin(MAX);
        recovery.skip(at(2500), MAX);
        recovery.note_block(at(1500), at(7000), MAX);
        assert!(!recovery.is_lost_again(UNA, MAX, MSS), "it may have been overtaken");
        recovery.note_block(at(1000), at(7000), MAX);
        assert!(recovery.is_lost_again(UNA, MAX, MSS), "all that was sent after it");
        recovery.begin(MAX);
        recovery.skip(at(1000), MAX);
        recovery.note_block(at(1000), MAX + 3000, MAX + 8000);
        assert!(recovery.is_lost_again(UNA, MAX + 8000, MSS), "three segments, sent after the hole");
    }

    #[test]
    fn a_hole_is_filled_and_the_front_of_what_follows_is_lost_again() {
        let mut recovery = Recovery::new(UNA);
        recovery.note_block(at(1000), at(2000), MAX);
        recovery.begin(MAX);
        recovery.skip(at(1000), MAX);
        assert!(recovery.acknowledge(at(2000), true));
        recovery.note_block(at(3000), at(5000), MAX);
        assert!(!recovery.is_lost_again(at(2000), at(7000), MSS));
        recovery.note_block(at(3000), at(6000), MAX);
        assert!(recovery.is_lost_again(at(2000), at(7000), MSS));
    }

    #[test]
    fn after_a_timeout_only_new_acks_show_another_loss_in_front() {
        for had_block in [true, false] {
            let mut recovery = Recovery::new(UNA);
            if had_block {
                recovery.note_block(at(1000), at(4000), MAX);
            }
            recovery.time_out(UNA, MAX);
            recovery.note_block(at(1000), at(4000), MAX);
            assert_eq!(recovery.is_lost_again(UNA, at(6000), MSS), !had_block, "{had_block}");
        }
    }
}
