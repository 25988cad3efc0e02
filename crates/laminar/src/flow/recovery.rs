//! What the host's half does about loss: limited transmit, fast retransmit, go-back-N but for what the peer has.
use super::Flow;
use crate::descriptor::{DUP_ACK, Dma, FAST_RETRANSMIT, TIMEOUT};
use std::sync::atomic::Ordering::Relaxed;
use wire::{Seq, tcp};

impl Flow {
    /// The pipeline tells of a loss, or of a duplicate acknowledgement that may mean one.
    // Meets RFC 5681: 3.2-c.
    // Meets RFC 2018: 8-a.
    #[cold]
    pub(super) fn lost(&mut self, dma: &Dma) {
        if dma.flags & DUP_ACK != 0 {
            self.transmit_limited();
        }
        if dma.flags & FAST_RETRANSMIT != 0 {
            self.credits = dma.credits;
            if !self.recovering {
                let stats = &self.stats;
                stats.fast_retransmits.fetch_add(1, Relaxed);
                stats.duplicate_acks.fetch_add(3, Relaxed);
                self.go_back();
            } else if self.is_lost_again() {
                self.go_back();
            }
        }
        if dma.flags & TIMEOUT != 0 {
            // What was selectively acknowledged counts for nothing then (RFC 2018 section 8).
            self.sacked = (self.una, self.una);
            self.go_back();
        }
    }

    /// The first two duplicate acknowledgements send a new segment each, with SACK only where they tell of something
    /// new (RFC 5681 section 3.2 step 1; RFC 3042).
    // Meets RFC 5681: 3.2-e, 3.2-f.
    fn transmit_limited(&mut self) {
        let news = !self.params.sack || self.sacked != self.sacked_before;
        self.sacked_before = self.sacked;
        if !self.recovering && self.nxt == self.max && news {
            self.limit_transmit(self.limited + self.mss);
        }
    }

    /// So many bytes may be in flight beyond the congestion window.
    pub(super) fn limit_transmit(&mut self, beyond: u32) {
        self.losing |= beyond > 0;
        (self.limited, self.allowed) = (beyond, self.cwnd.saturating_add(beyond));
    }

    /// The control plane sets the congestion window, bytes.
    pub fn set_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd;
        self.limit_transmit(self.limited);
    }

    /// Recovery ends when all that was sent before it is acknowledged; without SACK, when more than that is: the
    /// segments that go-back-N sent twice bring duplicate acknowledgements (RFC 6582 section 4.1).
    #[cold]
    pub(super) fn recover_further(&mut self) {
        let una = self.una;
        let past = self.recover.before(una) || una == self.max || (self.params.sack && self.recover == una);
        self.recovering &= !past;
        if self.sacked.0.at_or_before(una) {
            self.sacked = (una, una);
        }
        // The hole is filled and there is another one (a partial acknowledgement, RFC 6582 section 3.2 step 3).
        if self.skipped.is_some_and(|hole| hole.at_or_before(una)) {
            self.skipped = None;
            if una.before(self.recover) {
                self.nxt = una;
                self.timing = false;
            }
        }
        self.limit_transmit(0);
        self.losing = self.recovering || self.sacked.0 != self.sacked.1 || self.skipped.is_some();
    }

    /// What the peer has beyond a hole, as this acknowledgement tells (thesis 5.5.4.3). The pipeline knows nothing of
    /// it: what to send again is the host's.
    // Meets RFC 2018: 5-a.
    pub fn note_blocks(&mut self, header: &tcp::Header) {
        let sent = |right: Seq| self.params.sack && right.at_or_before(self.max) && self.una.at_or_before(header.ack);
        if let Some(block) = header.options.lowest_block_above(header.ack).filter(|(_, right)| sent(*right)) {
            self.sacked = block;
            self.losing = true;
        }
    }

    /// Within recovery: what is being sent again has come beyond a hole. The peer keeps one interval, so the hole's
    /// bytes were on their way before these.
    fn is_lost_again(&self) -> bool {
        let (left, right) = self.sacked;
        left != right && self.skipped.is_none() && left.before(self.nxt)
    }

    /// Where the peer has what follows, only the hole is sent again; what lies beyond shows in the acknowledgement that
    /// comes when the hole is filled.
    // Meets RFC 2018: 5-b.
    // Meets RFC 5681: 4.3-a.
    pub(super) fn skip_sacked(&mut self) {
        let (left, right) = self.sacked;
        if left != right && self.nxt.within(left, right - left) {
            self.skipped = Some(self.nxt);
            self.nxt = self.max;
        }
    }

    /// Sends again from the oldest byte that is not acknowledged (go-back-N), but for what the peer has.
    pub fn go_back(&mut self) {
        self.limit_transmit(0);
        self.recover_from_here();
        self.nxt = self.una;
        self.skipped = None;
        self.timing = false;
    }

    /// What was sent before is lost, or sent again from the front.
    pub fn recover_from_here(&mut self) {
        (self.losing, self.recovering, self.recover) = (true, true, self.max);
    }
}
