//! TX in the protocol module (thesis section 4.3.1.2: Seq): how much of a flow may be sent, and the next segment.
use super::state::ProtocolState;
use crate::message::{Marks, Order, Report, Work};
use engine::Nanos;
use wire::ipv4::Ecn;
use wire::tcp::Flags;

/// How the next segment is cut.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    len: u32,
    fin: bool,
}

impl ProtocolState {
    /// The next segment's payload of at most `most` bytes, and whether it carries FIN; nothing where nothing may be
    /// sent. Sender's silly window avoidance is RFC 9293 section 3.8.6.2.1: full segments, or all there is, or half
    /// of the largest window; and the persist timer's override.
    // Meets RFC 9293: MUST-38, SHLD-28, SHLD-27.
    #[inline(always)]
    fn cut(&self, most: u32) -> Option<Cut> {
        let data = self.unsent();
        match !self.fin && self.rest_fits(data, most) {
            true => Some(Cut { len: data, fin: false }),
            false if data == 0 && !self.fin => None,
            false => self.cut_closely(data, most),
        }
    }

    /// As [`ProtocolState::cut`], where that is not plain; `data` bytes are to be sent.
    #[inline(never)]
    fn cut_closely(&self, data: u32, most: u32) -> Option<Cut> {
        let mss = self.fixed.mss as u32;
        let in_flight = self.nxt - self.una;
        let fin_waits = self.fin && self.nxt.at_or_before(self.head);
        if self.rest_fits(data, most) {
            return Some(Cut { len: data, fin: fin_waits && self.snd_wnd > in_flight + data });
        }
        if data == 0 {
            return (fin_waits && self.snd_wnd > in_flight).then_some(Cut { len: 0, fin: true });
        }
        let mut len = data.min(self.usable()).min(self.fixed.tx_most).min(most.max(mss));
        if len == 0 || (len < data && len < mss && !self.may_be_small()) {
            return None;
        }
        if len < data && len > mss {
            len -= len % mss;
        }
        let (left, right) = self.sacked;
        if left != right && self.nxt.before(left) {
            len = len.min(left - self.nxt);
        }
        Some(Cut { len, fin: fin_waits && len == data && self.snd_wnd > in_flight + len })
    }

    /// Bytes that the application wrote and that are to be sent from `nxt` on.
    #[inline(always)]
    fn unsent(&self) -> u32 {
        if self.nxt.before(self.head) { self.head - self.nxt } else { 0 }
    }

    /// All that is to be sent fits one segment: the usual case of small messages.
    #[inline(always)]
    fn rest_fits(&self, data: u32, most: u32) -> bool {
        let sacked = self.sacked.0 != self.sacked.1;
        data > 0 && data <= self.usable().min(self.fixed.tx_most).min(most) && !sacked
    }

    /// A segment may be sent although it is not full and more data waits. Not for what is left of the congestion window
    /// beside full segments: what is in flight opens it again.
    fn may_be_small(&self) -> bool {
        let alone = self.nxt == self.una;
        // What was sent before, in segments of whatever size, is not held back when it is sent again.
        let again = self.nxt.before(self.max);
        again || self.usable() >= self.max_wnd.div_ceil(2) || (alone && (self.overriding || self.cwnd <= self.snd_wnd))
    }

    /// What the scheduler should know after a work that sent so many payload bytes: nothing, where nothing is to be sent and it knows that.
    #[inline(always)]
    pub fn report(&mut self, sent: u32) -> Option<Report> {
        let segments = if self.nxt == self.end() { 0 } else { self.segments() };
        let known = segments == 0 && !self.reported;
        self.reported = segments > 0;
        (!known).then_some(Report { segments, sent })
    }

    /// Segments that may be sent now.
    #[inline(never)]
    fn segments(&self) -> u32 {
        if self.dead {
            0
        } else if self.rest_fits(self.unsent(), u32::MAX) {
            1
        } else if self.cut(u32::MAX).is_none() {
            0
        } else {
            let bytes = self.usable().min(self.end() - self.nxt);
            if bytes <= self.fixed.tx_most { 1 } else { bytes / self.fixed.tx_most }
        }
    }

    /// One segment of at most `most` payload bytes, where something may be sent.
    // Meets RFC 9293: MUST-60, MUST-61.
    // Meets RFC 3168: 6.1.4-a, 6.1.5-a, 6.1.6-a.
    pub fn transmit(&mut self, work: &mut Work, most: u32, now: Nanos) {
        if self.dead {
            return;
        }
        self.skip_sacked();
        let Some(cut) = self.cut(most) else { return };
        let seq = self.nxt;
        let after = seq + cut.len + cut.fin as u32;
        let new = seq == self.max;
        let mut flags = Flags(0);
        if cut.fin {
            flags |= Flags::FIN;
        }
        if cut.len > 0 && seq + cut.len == self.head {
            flags |= Flags::PSH;
        }
        if new && cut.len > 0 && std::mem::take(&mut self.cwr) {
            flags |= Flags::CWR;
        }
        let mut segment = self.segment(seq, flags, now);
        segment.pos = seq - self.fixed.tx_base;
        segment.fields.payload_len = cut.len;
        segment.segment_size = if cut.len > self.fixed.mss as u32 { self.fixed.mss } else { 0 };
        // ECT on new data only (RFC 3168 sections 6.1.4 and 6.1.5).
        segment.fields.ecn = if self.fixed.ecn && new && cut.len > 0 { Ecn::Ect0 } else { Ecn::NotEct };
        work.send = Some(segment);
        work.tally.marks.add(Marks::SENT);
        if !new {
            work.tally.marks.add(Marks::RETRANSMITTED);
        }
        self.nxt = after;
        self.max = self.max.max(after);
        self.overriding = false;
        if new && !self.timing {
            (self.timing, self.rtt_end, self.rtt_start) = (true, after, now);
        }
    }

    /// Where the peer has what follows, only the hole is sent again; what lies beyond shows in the acknowledgement
    /// that comes when the hole is filled.
    // Meets RFC 2018: 5-b.
    // Meets RFC 5681: 4.3-a.
    #[inline(always)]
    fn skip_sacked(&mut self) {
        let (left, right) = self.sacked;
        if left != right && self.nxt.within(left, right - left) {
            (self.jumped, self.resent) = (true, self.nxt);
            self.nxt = self.max;
        }
    }

    /// Goes back to the oldest unacknowledged byte (go-back-N; thesis section 4.3.1.1: Reset). A timed round trip is
    /// given up: it may be that of a segment sent twice (Karn's algorithm, RFC 6298 section 3).
    // Meets RFC 6298: 3.
    pub fn go_back(&mut self) {
        self.nxt = self.una;
        self.timing = false;
        self.jumped = false;
        self.dup_acks = 0;
        self.limit_transmit(0);
    }

    /// So many bytes may be in flight beyond the congestion window.
    #[inline]
    pub fn limit_transmit(&mut self, beyond: u32) {
        (self.limited, self.allowed) = (beyond, self.cwnd.saturating_add(beyond));
    }

    /// Commands of the control plane.
    // Meets RFC 3168: 6.1.2-b.
    pub fn order(&mut self, order: Order, work: &mut Work, now: Nanos) {
        match order {
            Order::Window(cwnd) => {
                self.cwr |= self.fixed.ecn && cwnd < self.cwnd;
                self.cwnd = cwnd;
                self.limit_transmit(self.limited);
            }
            Order::Mss(mss) => {
                self.set_mss(mss);
                self.go_back();
            }
            Order::Retransmit => self.timeout(work, now),
            Order::Probe => self.probe(work, now),
            Order::Untrack => self.tracked = false,
            Order::Orphan => self.orphan = true,
            Order::Thaw => {
                self.frozen = false;
                self.ack_now |= self.unacked > 0;
                work.notice = (!self.orphan).then(|| self.positions());
            }
            // Where bytes lie is nothing to this module.
            Order::Look => {}
            Order::Announce => work.notice = (!self.orphan).then(|| self.positions()),
        }
    }

    // Meets RFC 2018: 8-a.
    fn timeout(&mut self, work: &mut Work, now: Nanos) {
        // After a timeout, what was selectively acknowledged counts for nothing (RFC 2018 section 8).
        self.sacked = (self.una, self.una);
        (self.recovering, self.recover) = (true, self.max);
        self.go_back();
        if self.snd_wnd == 0 {
            // The window was closed over data in flight: only a probe can find out about it.
            self.probe(work, now);
        }
    }

    // Meets RFC 9293: SHLD-12.
    fn probe(&mut self, work: &mut Work, now: Nanos) {
        if !self.dead {
            self.overriding = true;
            work.send = Some(self.segment(self.una - 1, Flags(0), now));
        }
    }
}
