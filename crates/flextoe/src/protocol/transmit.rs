//! Transmit processing of the protocol module (TX, thesis section 4.3.1.2: Seq): how much of a flow may be sent, and
//! the next segment.
use super::state::ProtocolState;
use crate::message::{Aside, FlowCommand, Marks, Report, TxSegment, Work};
use crate::observer::Observer;
use engine::Nanos;
use engine::stream::ticks;
use std::sync::atomic::Ordering::Relaxed;
use tcp::congestion::MAX_WINDOW;
use tcp::window::{Nagle, SmallSegment, Waiting};
use tcp::{Owner, PrrInput, Timeout};
use trace::Point;
use wire::Seq;
use wire::ipv4::Ecn;
use wire::tcp::Flags;

/// How the next segment is cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub len: u32,
    pub fin: bool,
}

impl ProtocolState {
    /// The next segment's payload of at most `most` bytes, and whether it carries FIN; nothing where nothing may be
    /// sent. Sender's silly window avoidance is RFC 9293 section 3.8.6.2.1: full segments, or all there is, or half of
    /// the largest window. The persist timer overrides it.
    // Meets RFC 9293: MUST-38, SHLD-28, SHLD-27.
    #[inline(always)]
    pub(super) fn cut(&self, most: u32) -> Option<Cut> {
        let data = self.unsent();
        match self.ends.may_write() && self.rest_fits(data, most) {
            true => Some(Cut { len: data, fin: false }),
            false if data == 0 && self.ends.may_write() => None,
            false => self.cut_closely(data, most),
        }
    }

    /// As [`ProtocolState::cut`], on the slow path; `data` bytes are to be sent.
    #[inline(never)]
    fn cut_closely(&self, data: u32, most: u32) -> Option<Cut> {
        let mss = self.fixed.agreed.mss as u32;
        let in_flight = self.nxt - self.una;
        let fin_waits = !self.ends.may_write() && self.nxt.at_or_before(self.head);
        if self.rest_fits(data, most) {
            return Some(Cut { len: data, fin: fin_waits && self.snd_wnd > in_flight + data });
        }
        if data == 0 {
            return (fin_waits && self.snd_wnd > in_flight).then_some(Cut { len: 0, fin: true });
        }
        let waiting = Waiting { data, usable: self.usable_now(), most: self.tx_most().min(most.max(mss)), mss };
        let len = waiting.cut(|| self.may_be_small())?;
        let len = if len == data && self.has_nagle() { self.collect(len, fin_waits)? } else { len };
        Some(Cut { len, fin: fin_waits && len == data && self.snd_wnd > in_flight + len })
    }

    /// With Nagle's algorithm: what of the last bytes that there are to send goes now. What the end follows does not
    /// wait, nor what is sent again.
    // Meets RFC 9293: SHLD-7.
    fn collect(&self, len: u32, fin_waits: bool) -> Option<u32> {
        let nagle = Nagle { short_end: self.fixed.short_end, una: self.una, max: self.max };
        let free = fin_waits || self.nxt != self.max;
        let len = if free { len } else { nagle.allows(len, self.fixed.agreed.mss.into()) };
        (len > 0).then_some(len)
    }

    /// Bytes that the application wrote and that are to be sent from `nxt` on.
    #[inline(always)]
    pub(super) fn unsent(&self) -> u32 {
        if self.nxt.before(self.head) { self.head - self.nxt } else { 0 }
    }

    /// All that is to be sent fits one segment, and need not wait: the usual case of small messages.
    #[inline(always)]
    fn rest_fits(&self, data: u32, most: u32) -> bool {
        data > 0 && data <= self.usable().min(self.fixed.at_once).min(most) && !self.recovery.has_block()
    }

    /// A segment may be sent although it is not full and more data waits. What was sent before, in segments of whatever
    /// size, is not held back when it is sent again.
    fn may_be_small(&self) -> bool {
        let small = SmallSegment {
            usable: self.usable_now(),
            window: self.snd_wnd,
            largest: self.max_wnd,
            cwnd: self.flight.cwnd(),
            alone: self.nxt == self.una,
            overriding: self.overriding,
        };
        self.nxt.before(self.max) || small.is_due()
    }

    /// The message to the scheduler after a work that sent so many payload bytes. None where nothing is to be sent and
    /// the scheduler has that already.
    #[inline(always)]
    pub(super) fn report(&mut self, sent: u32) -> Option<Report> {
        let done = self.nxt == self.end() && !self.recovery.has_block();
        let segments = if done { 0 } else { self.segments() };
        let known = segments == 0 && !self.reported;
        self.reported = segments > 0;
        (!known).then_some(Report { segments, sent })
    }

    /// Segments that may be sent now.
    #[inline(never)]
    fn segments(&self) -> u32 {
        if self.life == Owner::Dead {
            0
        } else if self.rest_fits(self.unsent(), u32::MAX) {
            1
        } else if self.recovery.has_block() && self.cut_lost(u32::MAX).is_some() {
            let room = self.flight.bytes().saturating_sub(self.in_flight()) / self.fixed.agreed.mss as u32;
            self.recovery.lost_segments(self.tx_most()).min(room).max(1)
        } else if self.cut(u32::MAX).is_none() {
            0
        } else {
            let bytes = self.usable_now().min(self.end() - self.nxt);
            if bytes <= self.tx_most() { 1 } else { bytes / self.tx_most() }
        }
    }

    /// One segment of at most `most` payload bytes, where something may be sent.
    // Meets RFC 9293: MUST-60, MUST-61.
    // Meets RFC 3168: 6.1.4-a, 6.1.5-a, 6.1.6-a.
    pub(super) fn transmit<O: Observer>(&mut self, work: &mut Work, most: u32, now: Nanos, observer: O) {
        if self.life == Owner::Dead {
            return;
        }
        if self.recovery.has_block() && self.send_lost(work, most, now, observer) {
            return;
        }
        if let Some(cut) = self.cut(most) {
            self.send_cut(work, cut, now, observer);
        }
    }

    /// Sends what was cut.
    #[inline(always)]
    pub(super) fn send_cut<O: Observer>(&mut self, work: &mut Work, cut: Cut, now: Nanos, observer: O) {
        if self.has_nagle() && cut.len % u32::from(self.fixed.agreed.mss) != 0 {
            self.fixed.short_end = self.nxt + cut.len;
        }
        self.send(work, cut, now, observer);
    }

    /// Reports to tracepoints that a grant found nothing that may be sent.
    #[inline(always)]
    pub(super) fn report_unused<O: Observer>(&self, flow: u32, observer: O) {
        observer.event(Point::GrantUnused, flow, [(self.end() - self.max).into(), self.usable_now().into()]);
    }

    /// Sends a segment from `nxt` on.
    #[inline(always)]
    pub(super) fn send<O: Observer>(&mut self, work: &mut Work, cut: Cut, now: Nanos, observer: O) {
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
        let mut segment = self.with_payload(seq, cut.len, flags, now);
        // ECT on new data only (RFC 3168 sections 6.1.4 and 6.1.5).
        segment.fields.ecn = if self.fixed.agreed.ecn && new && cut.len > 0 { Ecn::Ect0 } else { Ecn::NotEct };
        work.send = Some(segment);
        work.tally.marks.add(Marks::SENT);
        self.nxt = after;
        self.max = self.max.max(after);
        if !new {
            work.tally.marks.add(Marks::RETRANSMITTED);
        }
        let point = if new { Point::Sent } else { Point::SentAgain };
        observer.event(point, work.flow, [seq.0.into(), cut.len.into()]);
        self.overriding = false;
        if new && self.rtt.start(now, after) {
            self.fixed.stats.timed_ticks.store(ticks(now), Relaxed);
        }
    }

    #[inline(always)]
    fn with_payload(&mut self, seq: Seq, len: u32, flags: Flags, now: Nanos) -> TxSegment {
        let mut segment = self.segment(seq, flags, now);
        segment.pos = seq - self.fixed.tx_base;
        segment.fields.payload_len = len;
        if len > self.fixed.agreed.mss as u32 {
            segment.segment_size = self.fixed.agreed.mss;
            // As Linux has it: the last segment of a super-segment ends what a receiver's GRO collects.
            segment.fields.flags |= Flags::PSH;
        }
        segment
    }

    /// Where there are holes: sends a part of one that is lost, if there is one.
    // Meets RFC 3522: 3.2-a.
    #[cold]
    #[inline(never)]
    pub(super) fn send_lost<O: Observer>(&mut self, work: &mut Work, most: u32, now: Nanos, observer: O) -> bool {
        let Some((seq, cut)) = self.cut_lost(most) else { return false };
        let end = seq + cut.len + cut.fin as u32;
        self.send_again(work, seq, cut, now, observer);
        self.recovery.note_resent(end, self.max, now);
        if let Some(stamp) = work.send.as_ref().and_then(|segment| segment.fields.timestamps) {
            if self.recovery.note_stamp(seq, stamp.value) {
                self.rtt.start_again(now, end);
            }
        }
        true
    }

    /// Sends again what was sent from `seq` on.
    pub(super) fn send_again<O: Observer>(&mut self, work: &mut Work, seq: Seq, cut: Cut, now: Nanos, observer: O) {
        let mut flags = if cut.fin { Flags::FIN } else { Flags(0) };
        if cut.len > 0 && seq + cut.len == self.head {
            flags |= Flags::PSH;
        }
        work.send = Some(self.with_payload(seq, cut.len, flags, now));
        work.tally.marks.add(Marks::SENT);
        work.tally.marks.add(Marks::RETRANSMITTED);
        observer.event(Point::SentAgain, work.flow, [seq.0.into(), cut.len.into()]);
        if self.rtt.is_within(seq, seq + cut.len + cut.fin as u32) {
            self.rtt.cancel();
        }
    }

    /// The next part of a hole that is lost, of at most `most` bytes, as far as both windows allow. The first
    /// segment of all goes whatever is in flight (RFC 6675 section 5, step 4.3).
    fn cut_lost(&self, most: u32) -> Option<(Seq, Cut)> {
        let (seq, len) = self.recovery.next_lost()?;
        let (end, mss) = (seq + len, self.fixed.agreed.mss as u32);
        let fin = self.head.before(end);
        let data = len - fin as u32;
        if data == 0 {
            return Some((seq, Cut { len: 0, fin }));
        }
        let window = self.snd_wnd.saturating_sub(seq - self.una);
        let flight = self.flight.bytes().saturating_sub(self.in_flight());
        let flight = if seq == self.una { flight.max(mss) } else { flight };
        let waiting = Waiting { data, usable: window.min(flight), most: self.tx_most().min(most.max(mss)), mss };
        // Nothing is in flight before the front whose acknowledgement could open a window.
        let len = waiting.cut(|| seq == self.una)?;
        Some((seq, Cut { len, fin: fin && len == data }))
    }

    /// All that is not acknowledged is to be sent again, from the oldest byte on (go-back-N; thesis section 4.3.1.1:
    /// Reset). With SACK, what the peer has meanwhile is left out. A timed round trip is given up: it may be that of a
    /// segment sent twice (Karn's algorithm, RFC 6298 section 3).
    // Meets RFC 6298: 3.
    pub(super) fn go_back(&mut self) {
        if self.fixed.agreed.sack {
            self.recovery.lose_all(self.una, self.max);
            self.nxt = self.max;
        } else {
            self.nxt = self.una;
        }
        self.forget_flight();
    }

    fn forget_flight(&mut self) {
        self.rtt.cancel();
        self.dup_acks = 0;
        self.flight.reset();
    }

    /// Commands of the control plane.
    // Meets RFC 3168: 6.1.2-b.
    pub(super) fn flow_command<O: Observer>(
        &mut self,
        flow_command: FlowCommand,
        work: &mut Work,
        now: Nanos,
        observer: O,
    ) {
        match flow_command {
            FlowCommand::Window(cwnd) => {
                let reduces = cwnd < self.flight.cwnd();
                self.cwr |= self.fixed.agreed.ecn && reduces;
                self.flight.set_cwnd(cwnd);
                if reduces {
                    self.recovery.note_reduced();
                }
                self.limit_flight(false);
                observer.event(Point::WindowSet, work.flow, [cwnd.into(), self.outstanding()]);
            }
            FlowCommand::Growth(growth) => self.flight.set_growth(&mut self.window_use, growth),
            FlowCommand::Offer(bytes) => self.offer(bytes),
            FlowCommand::Mss(mss) => {
                self.set_mss(mss);
                self.go_back();
            }
            FlowCommand::Nagle(on) => self.set_nagle(on),
            FlowCommand::Retransmit(recent) => self.timeout(recent, work, now, observer),
            FlowCommand::ProbeTail => self.probe_tail(work, now, observer),
            FlowCommand::Probe => self.probe(work, now, observer),
            FlowCommand::Untrack => self.tracked = false,
            FlowCommand::Orphan => self.life.orphan(),
            FlowCommand::Thaw => {
                self.frozen = false;
                self.ack_now |= self.unacked > 0;
                work.completion = (self.life != Owner::Orphan).then(|| self.positions());
            }
            FlowCommand::ReportSent(position) => (self.asked, self.asked_for) = (true, self.fixed.tx_base + position),
            // Where bytes lie is nothing to this module; what is urgent is apart, and so are records.
            FlowCommand::CheckGrowth | FlowCommand::Urge(_) | FlowCommand::EndRecord(_) => {}
            FlowCommand::Announce => work.completion = (self.life != Owner::Orphan).then(|| self.positions()),
        }
    }

    /// The retransmission timer ended. The first segment is lost; what was sent from `recent` on did not have its time.
    // Meets RFC 8985: 6.3-a.
    // Meets RFC 5682: 3.1-a.
    fn timeout<O: Observer>(&mut self, recent: Option<Seq>, work: &mut Work, now: Nanos, observer: O) {
        observer.event(Point::TimeoutRetransmit, work.flow, [self.una.0.into(), self.outstanding()]);
        if self.fixed.agreed.sack {
            let mss = self.fixed.agreed.mss.into();
            let recent = recent.map_or(self.max, |recent| recent.max(self.una + mss));
            let recent = if recent.before(self.max) { recent } else { self.max };
            self.recovery.time_out(&Timeout { una: self.una, max: self.max, recent, mss });
            self.nxt = self.max;
            self.forget_flight();
        } else {
            self.recovery.lose(self.una, self.max);
            self.go_back();
        }
        if self.snd_wnd == 0 {
            // The window was closed over data in flight: only a probe can find out about it.
            self.probe(work, now, observer);
        }
    }

    /// In fast recovery, with a policy that has a window: what may be in flight until the next acknowledgement
    /// (RFC 9937). This one `advances` where it acknowledges something.
    // Meets RFC 9937: 6-a, 6-b, 6-c, 6-d.
    pub(super) fn limit_flight(&mut self, advances: bool) {
        let cwnd = self.flight.cwnd();
        if !self.recovery.is_active() || cwnd >= MAX_WINDOW {
            return;
        }
        let (in_flight, mss) = (self.in_flight(), self.fixed.agreed.mss.into());
        let standing = PrrInput { una: self.una, max: self.max, in_flight, cwnd, mss };
        if let Some(room) = self.recovery.room(&standing, advances) {
            self.flight.limit(in_flight.saturating_add(room));
        }
    }

    /// The application has asked how far its bytes were sent: a completion reports it once that is far enough.
    #[cold]
    #[inline(never)]
    pub(super) fn report_sent(&mut self, work: &mut Work) {
        if self.max.before(self.asked_for) || work.aside.is_some() {
            return;
        }
        self.asked = false;
        let sent = if self.head.before(self.max) { self.head } else { self.max };
        work.aside = Some(Box::new(Aside::Sent(sent - self.fixed.tx_base)));
        work.completion = (self.life != Owner::Orphan).then(|| self.positions());
    }

    // Meets RFC 9293: SHLD-12.
    fn probe<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        if self.life != Owner::Dead {
            self.overriding = true;
            let segment = self.segment(self.una - 1, Flags(0), now);
            self.report_acknowledgement(&segment, work.flow, observer);
            work.send = Some(segment);
            // The probe itself is old to the peer, which takes no urgent pointer from it.
            self.ack_now |= self.urgent;
        }
    }
}
