//! Tail loss probes (RFC 8985 section 7). The control plane times them; what is sent, and what follows from it, is
//! decided here.
use super::state::ProtocolState;
use super::transmit::Cut;
use crate::message::Work;
use crate::observer::Observer;
use engine::Nanos;
use tcp::Owner;

impl ProtocolState {
    /// Nothing outstanding was acknowledged for two round trips. With SACK, one segment is sent that makes the peer
    /// report: a new one, whatever the congestion window, or the last one again.
    // Meets RFC 8985: 7.3-a, 7.3-b, 7.3-c.
    pub(super) fn probe_tail<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        let mss = u32::from(self.fixed.agreed.mss);
        let outstanding = self.max - self.una;
        if self.life == Owner::Dead || !self.recovery.is_idle() || outstanding == 0 {
            return;
        }
        if !self.fixed.agreed.sack {
            // Duplicate acknowledgements show too little of more than one segment.
            if outstanding <= mss {
                self.recovery.begin(self.max);
                self.go_back();
            }
            return;
        }
        let data = self.unsent().min(mss);
        let again = data == 0 || self.nxt != self.max || data > self.snd_wnd.saturating_sub(outstanding);
        if again {
            let fin = self.head.before(self.max);
            let len = (outstanding - fin as u32).min(mss);
            self.send_again(work, self.max - fin as u32 - len, Cut { len, fin }, now, observer);
        } else {
            self.send(work, Cut { len: data, fin: false }, now, observer);
        }
        self.recovery.begin_probe(self.max, again);
    }

    /// An acknowledgement came with a probe under way; it is a plain `duplicate`. What the probe repaired was a loss
    /// like another one.
    // Meets RFC 8985: 7.4-a, 7.4-b.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_probe<O: Observer>(&mut self, duplicate: bool, work: &mut Work, observer: O) {
        if self.recovery.judge_probe(work.summary.ack, work.sacked.dsack(), duplicate) {
            self.mark_lost(work, observer);
        }
    }
}
