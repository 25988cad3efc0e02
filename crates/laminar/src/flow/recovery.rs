//! Loss recovery in the host's half: limited transmit, fast retransmit, go-back-N but for what the peer has.
use super::Flow;
use crate::descriptor::{DUP_ACK, Dma, FAST_RETRANSMIT, TIMEOUT};
use ::tcp::DUPLICATES;
use std::sync::atomic::Ordering::Relaxed;
use wire::tcp::{self, Growth};

impl Flow {
    /// The pipeline reports a loss, or a duplicate acknowledgement that may mean one.
    // Meets RFC 5681: 3.2-c.
    #[cold]
    pub(super) fn lost(&mut self, dma: &Dma) {
        if dma.flags & DUP_ACK != 0 {
            self.transmit_limited();
        }
        if dma.flags & FAST_RETRANSMIT != 0 {
            self.credits = dma.credits;
            if !self.recovery.is_active() {
                let stats = &self.stats;
                stats.fast_retransmits.fetch_add(1, Relaxed);
                stats.duplicate_acks.fetch_add(DUPLICATES.into(), Relaxed);
                self.go_back();
            } else if self.recovery.is_lost_again_by_duplicates(self.nxt) {
                self.go_back();
            }
        }
        if dma.flags & TIMEOUT != 0 {
            self.recovery.time_out(self.una, self.max);
            self.publish_block();
            self.go_back();
        }
    }

    /// For the control plane, which times holes.
    fn publish_block(&self) {
        self.stats.sacked.store(self.recovery.sacked(), Relaxed);
    }

    /// The hole at the front had its time (RFC 8985 section 6.2, step 5). True where it is sent again.
    pub(crate) fn overdue(&mut self) -> bool {
        let lost = !self.recovery.is_active() && self.recovery.has_block();
        if lost {
            self.stats.fast_retransmits.fetch_add(1, Relaxed);
            self.go_back();
        }
        lost
    }

    /// What is outstanding, at most one segment, may be lost (RFC 8985 section 7). True where it is sent again.
    pub(crate) fn probe_tail(&mut self) -> bool {
        let outstanding = self.max - self.una;
        let single = self.recovery.is_idle() && outstanding > 0 && outstanding <= self.mss;
        if single {
            self.go_back();
        }
        single
    }

    /// The first two duplicate acknowledgements send a new segment each. With SACK, they do so only where they report
    /// something new (RFC 5681 section 3.2 step 1; RFC 3042).
    // Meets RFC 5681: 3.2-e, 3.2-f.
    fn transmit_limited(&mut self) {
        let is_new = std::mem::take(&mut self.block_is_new) || !self.params.agreed.sack;
        if !self.recovery.is_active() && self.nxt == self.max && is_new {
            self.flight.extend(self.mss);
            self.losing = true;
        }
    }

    /// The control plane sets the congestion window, bytes.
    pub(crate) fn set_window(&mut self, cwnd: u32) {
        self.cwr |= self.params.agreed.ecn && cwnd < self.flight.cwnd();
        self.flight.set_cwnd(cwnd);
    }

    /// The control plane sets how that window grows.
    pub(crate) fn set_growth(&mut self, growth: Growth) {
        self.flight.set_growth(&mut self.window_use, growth);
    }

    /// Something is acknowledged while something is lost.
    #[cold]
    pub(super) fn recover_further(&mut self) {
        if self.recovery.acknowledge(self.una, self.params.agreed.sack) {
            self.nxt = self.una;
            self.rtt.cancel();
        }
        self.publish_block();
        self.flight.reset();
        self.losing = !self.recovery.is_idle();
    }

    /// What the peer has beyond a hole, as this acknowledgement reports (thesis 5.5.4.3). The pipeline has no state of
    /// it: what to send again is the host's. True where that shows that something has to be sent again: the pipeline
    /// reports three duplicates once for each byte that they acknowledge.
    // Meets RFC 2018: 5-a.
    #[must_use]
    pub(crate) fn note_blocks(&mut self, header: &tcp::Header) -> bool {
        let is_new = self.params.agreed.sack && self.una.at_or_before(header.ack);
        let Some((left, right)) = header.options.lowest_block_above(header.ack).filter(|_| is_new) else {
            return false;
        };
        self.block_is_new |= self.recovery.note_block(left, right, self.max);
        self.publish_block();
        self.losing |= self.recovery.has_block();
        let again = header.ack == self.una && self.recovery.is_lost_again(self.una, self.nxt, self.mss);
        if again {
            self.go_back();
        }
        again
    }

    /// Skips data that the peer has: only the hole is sent again.
    #[inline]
    pub(super) fn skip_block(&mut self) {
        self.nxt = self.recovery.skip(self.nxt, self.max);
    }

    /// Sends again from the oldest byte that is not acknowledged (go-back-N), but for what the peer has.
    pub(crate) fn go_back(&mut self) {
        self.flight.reset();
        self.recover_from_here();
        self.nxt = self.una;
        self.rtt.cancel();
    }

    /// Recovery begins here: all sent before is lost, or sent again from the front.
    pub(crate) fn recover_from_here(&mut self) {
        self.losing = true;
        self.recovery.begin(self.max);
    }
}
