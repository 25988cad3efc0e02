//! Receive processing of the protocol module (RX, thesis section 4.3.1.3): a received segment, in the order of RFC 9293
//! section 3.10.7.4.
use super::state::{Fixed, ProtocolState, age, age_ticks, timestamp};
use super::urgent::UrgentFlows;
use crate::message::{Aside, Events, Marks, PayloadPart, Summary, Work};
use crate::observer::Observer;
use engine::{DropReason, Nanos};
use std::sync::atomic::Ordering::Relaxed;
use tcp::window::ACK_DELAY;
use tcp::{DUPLICATES, Owner, PeerFin, RackInput, ReceiveWindow, Rejected, Unacceptable};
use trace::Point;
use wire::Seq;
use wire::tcp::Flags;

/// A received segment is processed no further. What was to be counted and answered has been noted.
struct Done;

/// The part of the segment that is new.
struct Part {
    seq: Seq,
    skip: u32,
    len: u32,
    fin: bool,
}

impl ProtocolState {
    /// Takes a received segment.
    pub(super) fn receive<O: Observer>(&mut self, work: &mut Work, now: Nanos, flows: &mut UrgentFlows, observer: O) {
        let before = (self.rcv_nxt, self.una);
        if work.summary.ce {
            let Summary { seq, payload_len, .. } = work.summary;
            observer.event(Point::EcnMarked, work.flow, [seq.0.into(), payload_len.into()]);
        }
        let _ = self.steps(work, now, flows, observer);
        let news = before != (self.rcv_nxt, self.una) || work.events.has(Events::URGENT);
        if news && self.life != Owner::Orphan {
            work.completion = Some(self.positions());
        }
    }

    fn steps<O: Observer>(
        &mut self,
        work: &mut Work,
        now: Nanos,
        flows: &mut UrgentFlows,
        observer: O,
    ) -> Result<(), Done> {
        let seg = work.summary;
        if self.life == Owner::Dead {
            work.drop_for(DropReason::AfterClose, observer);
            return Err(Done);
        }
        self.check_segment(&seg, now).map_err(|rejected| self.reject(rejected, work, now, observer))?;
        self.remember_timestamp(&seg, now);
        if seg.flags.has(Flags::URG) {
            self.take_urgent(work, flows);
        }
        self.take_ack(&seg, work, now, observer);
        self.take_congestion(&seg, work, now, observer);
        self.take_payload(&seg, work, now, observer);
        Ok(())
    }

    // Meets RFC 7323: 3.2-c, 5.3-a, 5.3-b, 5.5-a.
    fn check_timestamp(&self, seg: &Summary, now: Nanos) -> Result<(), Rejected> {
        if self.fixed.agreed.ts_offset.is_none() || seg.flags.has(Flags::RST) {
            return Ok(());
        }
        let value = seg.timestamps.map(|timestamps| timestamps.value);
        tcp::check_timestamp(value, seg.payload_len, self.ts_recent, age(self.ts_recent_at, now))
    }

    /// RFC 7323 section 4.3: the timestamp to echo is that of the segment that the last acknowledgement was for.
    // Meets RFC 7323: 4.3-a.
    fn remember_timestamp(&mut self, seg: &Summary, now: Nanos) {
        if let (Some(_), Some(timestamps)) = (self.fixed.agreed.ts_offset, seg.timestamps) {
            if seg.seq.at_or_before(self.last_ack) {
                (self.ts_recent, self.ts_recent_at) = (timestamps.value, age_ticks(now));
            }
        }
    }

    /// The segment's acceptability (RFC 9293 section 3.10.7.4, up to the fifth check).
    // Meets RFC 5961: 5.2-a.
    fn check_segment(&self, seg: &Summary, now: Nanos) -> Result<(), Rejected> {
        let window = ReceiveWindow { next: self.rcv_nxt, edge: self.rcv_adv };
        self.check_timestamp(seg, now)?;
        window.check_reset_and_syn(seg.flags, seg.seq)?;
        let ack = tcp::check_ack(seg.ack, self.una, self.max, self.max_wnd);
        window
            .check_sequence(seg.seq, seg.payload_len, seg.flags.has(Flags::FIN), self.last_ack)
            .map_err(|rejected| rejected.with_ack(ack))?;
        if !seg.flags.has(Flags::ACK) {
            return Err(Rejected::Dropped(Unacceptable::NoAck));
        }
        ack
    }

    /// Drops a segment, and answers it where that is due.
    // Meets RFC 5961: 7-a, 10-a.
    #[cold]
    fn reject<O: Observer>(&mut self, rejected: Rejected, work: &mut Work, now: Nanos, observer: O) -> Done {
        let seg = Summary { seq: self.rcv_nxt, ..work.summary };
        let has_ack = seg.flags.has(Flags::ACK);
        if has_ack && tcp::ack_counts_alone(rejected, seg.ack, self.una, self.max, self.max_wnd) {
            self.take_ack(&seg, work, now, observer);
        }
        match rejected {
            Rejected::Reset => {
                self.life = Owner::Dead;
                work.events.add(Events::RESET);
                observer.event(Point::Reset, work.flow, [work.summary.seq.0.into(), 0]);
            }
            Rejected::Dropped(reason) => work.drop_for(reason.into(), observer),
            Rejected::Answered(reason) => {
                self.acknowledge(self.received_before(&work.summary), work, now, observer);
                work.drop_for(reason.into(), observer);
            }
            Rejected::Challenged(reason) => {
                if self.challenges.allow(now) {
                    self.acknowledge(None, work, now, observer);
                } else {
                    work.drop_for(DropReason::ChallengeLimit, observer);
                }
                work.drop_for(reason.into(), observer);
            }
        }
        Done
    }

    // Meets RFC 7323: 2.3-b, 2.2-c.
    fn take_ack<O: Observer>(&mut self, seg: &Summary, work: &mut Work, now: Nanos, observer: O) {
        let window = (seg.window as u32) << self.fixed.agreed.snd_shift;
        let advances = self.una.before(seg.ack);
        let repeats = seg.ack == self.una && seg.payload_len == 0 && window == self.snd_wnd;
        if advances {
            self.advance(seg, work, now, observer);
        } else if seg.ack == self.una && self.is_duplicate(work, window) {
            self.count_duplicate(work, now, observer);
        } else if seg.sack {
            self.take_late_sack(work, now, observer);
        } else if repeats && self.recovery.awaits_answer() {
            self.check_spurious(self.una, work, now, observer);
            self.find_lost(work, now, observer);
        }
        if self.recovery.is_probing() {
            self.judge_probe(repeats && !seg.sack, work, observer);
        }
        // An acknowledgement of something new is fresh even on a segment that is sent again. The window counts from
        // `una`, so one that stayed while that moves on would reach too far.
        let fresher = advances || self.wl1.before(seg.seq) || (self.wl1 == seg.seq && self.wl2.at_or_before(seg.ack));
        if fresher && self.una.at_or_before(seg.ack) {
            self.report_window(window, seg.ack, work.flow, observer);
            (self.snd_wnd, self.wl1, self.wl2) = (window, seg.seq, seg.ack);
            self.max_wnd = self.max_wnd.max(window);
        }
    }

    /// SACK blocks of an acknowledgement that another one has overtaken. What they report beyond a hole is news all the
    /// same (RFC 6675 section 4, Update).
    #[cold]
    #[inline(never)]
    fn take_late_sack<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        let is_late = work.summary.ack.before(self.una) && self.recovery.has_block();
        if !is_late || work.sacked.kept().next().is_none() {
            return self.note_dsack(work, observer);
        }
        self.note_sack(work, now, observer);
        if self.recovery.is_active() {
            self.check_spurious(self.una, work, now, observer);
        }
        self.find_lost(work, now, observer);
    }

    /// Reports to tracepoints where an acknowledgement changes the peer's window.
    #[inline(always)]
    pub(super) fn report_window<O: Observer>(&self, window: u32, ack: Seq, flow: u32, observer: O) {
        if window != self.snd_wnd {
            observer.event(Point::WindowChanged, flow, [window.into(), self.snd_wnd.into()]);
            if window == 0 {
                observer.event(Point::WindowClosed, flow, [ack.0.into(), (self.end() - self.max).into()]);
            }
        }
    }

    /// Bytes that are not acknowledged, for tracepoints.
    pub(super) fn outstanding(&self) -> u64 {
        (self.max - self.una).into()
    }

    /// A loss was found.
    pub(super) fn mark_lost<O: Observer>(&self, work: &mut Work, observer: O) {
        if !work.tally.marks.has(Marks::FAST_RETRANSMIT) {
            work.tally.marks.add(Marks::FAST_RETRANSMIT);
            work.events.add(Events::CONGESTION);
            observer.event(Point::FastRetransmit, work.flow, [self.una.0.into(), self.outstanding()]);
        }
    }

    // Meets RFC 7323: 4.1-a.
    fn advance<O: Observer>(&mut self, seg: &Summary, work: &mut Work, now: Nanos, observer: O) {
        work.tally.acked = seg.ack - self.una;
        // A window that is being reduced follows what is delivered (RFC 9937). After a timeout it grows again. With an
        // echo of congestion it does not grow: it is to be reduced (RFC 3168 section 6.1.2).
        if !self.recovery.is_reducing() && !seg.flags.has(Flags::ECE) {
            self.grow_window(work.tally.acked.saturating_sub(self.reported_before(seg.ack)));
        }
        let old = std::mem::replace(&mut self.una, seg.ack);
        if self.nxt.before(self.una) {
            self.nxt = self.una;
        }
        self.dup_acks = 0;
        self.flight.reset();
        let (offset, echo) = (self.fixed.agreed.ts_offset, seg.timestamps.map(|timestamps| timestamps.echo));
        work.tally.rtt = self.rtt.take_if(now, self.una, |sent| {
            offset.zip(echo).is_some_and(|(offset, echo)| Seq(timestamp(sent, offset)).at_or_before(Seq(echo)))
        });
        if work.tally.rtt > 0 {
            observer.value(Point::Rtt, work.flow, work.tally.rtt.into());
        }
        if !self.ends.may_write() && !self.ends.all_acknowledged() && self.una == self.end() {
            self.ends.acknowledge();
            work.tally.acked -= 1;
            work.events.add(Events::FIN_ACKED);
            observer.event(Point::FinAcked, work.flow, [self.una.0.into(), 0]);
        }
        let (ack, acked) = (seg.ack.0.into(), work.tally.acked.into());
        if acked > 0 {
            observer.event(Point::Acked, work.flow, [ack, acked]);
        }
        if seg.flags.has(Flags::ECE) {
            work.tally.marks.add(Marks::ECN_ECHOED);
            observer.event(Point::EcnEchoed, work.flow, [ack, acked]);
        }
        if seg.sack || !self.recovery.is_idle() {
            self.update_recovery(old, work, now, observer);
        }
    }

    /// Of what is acknowledged now, the bytes that the peer had reported before. Without SACK, each duplicate reports a
    /// segment.
    fn reported_before(&self, ack: Seq) -> u32 {
        if self.recovery.is_idle() && self.dup_acks == 0 {
            0
        } else if self.fixed.agreed.sack {
            self.recovery.sacked_before(ack)
        } else {
            u32::from(self.dup_acks) * u32::from(self.fixed.agreed.mss)
        }
    }

    /// The losses that the acknowledgement shows, `old` being the one before.
    #[cold]
    #[inline(never)]
    fn update_recovery<O: Observer>(&mut self, old: Seq, work: &mut Work, now: Nanos, observer: O) {
        let (moment, active) = (self.moment(now), self.recovery.is_active());
        if work.tally.rtt > 0 {
            self.recovery.note_rtt(work.tally.rtt);
        }
        self.recovery.acknowledge(old, self.una, self.fixed.agreed.sack, &moment);
        self.note_sack(work, now, observer);
        if active {
            self.check_spurious(old, work, now, observer);
        }
        self.find_lost(work, now, observer);
    }

    /// Takes in the SACK blocks: what the peer has.
    // Meets RFC 2018: 5-a.
    fn note_sack<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        if !work.summary.sack || !self.fixed.agreed.sack {
            return;
        }
        self.note_dsack(work, observer);
        let moment = self.moment(now);
        // In the order of their numbers: the lower one of two that are news was not overtaken by the higher one.
        let (mut from, lower) =
            (self.una, |one: (Seq, Seq), other: (Seq, Seq)| if other.0.before(one.0) { other } else { one });
        while let Some((left, right)) = work.sacked.kept().filter(|block| from.before(block.0)).reduce(lower) {
            from = left;
            let news = self.recovery.note_block(left, right, self.una, self.max, &moment);
            if news && self.rtt.is_within(left, right) {
                work.tally.rtt = self.rtt.take(now, right);
                if work.tally.rtt > 0 {
                    observer.value(Point::Rtt, work.flow, work.tally.rtt.into());
                }
                self.recovery.note_rtt(work.tally.rtt);
            }
        }
    }

    /// A D-SACK: the peer got something twice, of what was sent within the last windows.
    // Meets RFC 2883: 5-a.
    // Meets RFC 3708: 3-a, 3-b.
    #[cold]
    #[inline(never)]
    fn note_dsack<O: Observer>(&mut self, work: &mut Work, observer: O) {
        let Some((left, right)) = work.sacked.dsack().filter(|_| self.fixed.agreed.sack) else { return };
        let most = 2 * self.max_wnd.max(self.fixed.tx_size);
        if self.max.before(right) || self.max - left > most {
            return;
        }
        work.tally.marks.add(Marks::DSACK);
        observer.event(Point::Dsack, work.flow, [left.0.into(), right.0.into()]);
        if self.recovery.note_dsack(left, right, self.una, self.max) {
            self.end_undone(work, observer);
        }
    }

    /// Recovery begins with the first hole that is lost; within recovery, more of them are sent again.
    // Meets RFC 8985: 6.2-a, 6.2-b, 6.2-c, 6.2-d, 6.2-e, 6.2-f, 6.2-h.
    pub(super) fn find_lost<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        let lost = self.recovery.find_lost(self.una, &self.moment(now));
        let before = self.fixed.stats.sacked.load(Relaxed);
        self.fixed.stats.sacked.store(self.recovery.sacked(), Relaxed);
        if lost && !self.recovery.is_active() {
            self.recovery.lose(self.una, self.max);
            self.recovery.begin_reduction(self.una - work.tally.acked, self.max, before);
            self.dup_acks = 0;
            self.flight.reset();
            self.mark_lost(work, observer);
        }
        self.limit_flight(work.tally.acked > 0);
    }

    // Meets RFC 8985: 6.2-i.
    fn moment(&self, now: Nanos) -> RackInput {
        RackInput { now, least: self.rtt.least(), mss: self.fixed.agreed.mss.into() }
    }

    /// RFC 5681 section 2; with SACK, an acknowledgement of something beyond a hole (RFC 6675
    /// section 2).
    fn is_duplicate(&self, work: &Work, window: u32) -> bool {
        let outstanding = self.una.before(self.max);
        let seg = &work.summary;
        if self.fixed.agreed.sack {
            return outstanding && seg.sack && work.sacked.kept().next().is_some();
        }
        let empty = seg.payload_len == 0 && !seg.flags.has(Flags::FIN);
        outstanding && empty && window == self.snd_wnd
    }

    /// Fast retransmit (RFC 5681 section 3.2 step 2). Before it, limited transmit: the first two duplicates send a new
    /// segment each, with SACK only where they report something new (step 1; RFC 3042). What the peer has is not in
    /// flight.
    // Meets RFC 5681: 3.2-c, 3.2-e, 3.2-f.
    fn count_duplicate<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        work.tally.marks.add(Marks::DUPLICATE_ACK);
        observer.event(Point::DuplicateAck, work.flow, [work.summary.ack.0.into(), self.outstanding()]);
        let active = self.recovery.is_active();
        self.dup_acks += !active as u8;
        let enough = !active && self.dup_acks >= DUPLICATES;
        if self.fixed.agreed.sack {
            self.note_sack(work, now, observer);
            if active {
                self.check_spurious(self.una, work, now, observer);
            }
            if enough {
                self.recovery.lose_front();
            }
            self.find_lost(work, now, observer);
            return;
        }
        if !active && self.nxt == self.max {
            self.flight.extend(self.fixed.agreed.mss.into());
        }
        if enough {
            self.recovery.lose(self.una, self.max);
            self.go_back();
            self.mark_lost(work, observer);
        }
    }

    /// Congestion experienced: what the acknowledgements echo (RFC 3168 section 6.1.3, RFC 8257 section 3.2).
    // Meets RFC 3168: 6.1.3-a.
    fn take_congestion<O: Observer>(&mut self, seg: &Summary, work: &mut Work, now: Nanos, observer: O) {
        if !self.fixed.agreed.ecn || seg.payload_len == 0 {
            return;
        }
        if self.dctcp_echo {
            if seg.ce != self.ece {
                if self.unacked > 0 {
                    self.acknowledge(None, work, now, observer);
                }
                self.ece = seg.ce;
                self.ack_now = true;
            }
        } else {
            self.ece = seg.ce || (self.ece && !seg.flags.has(Flags::CWR));
        }
    }

    // Meets RFC 5681: 3.2-a.
    fn take_payload<O: Observer>(&mut self, seg: &Summary, work: &mut Work, now: Nanos, observer: O) {
        let fin = seg.flags.has(Flags::FIN);
        if seg.payload_len == 0 && !fin {
            // An empty segment below what is expected asks for an acknowledgement (keepalive, window probe).
            self.ack_now |= seg.seq.before(self.rcv_nxt) && seg.seq == self.rcv_nxt - 1;
            // In TIME-WAIT, one beyond the end comes from a peer that disagrees: as Linux, and as `tcp::TimeWait`.
            if self.ends.are_over() && self.rcv_nxt.before(seg.seq) {
                self.reject(Rejected::Challenged(Unacceptable::OutsideWindow), work, now, observer);
            }
            return;
        }
        let before = self.received_before(seg);
        let Some(part) = self.trim(seg, fin, work, observer) else {
            return self.answer(before, work, now, observer);
        };
        let dsack = before.or_else(|| self.ooo.overlap(part.seq, part.seq + part.len));
        if self.life == Owner::Orphan && part.len > 0 {
            work.drop_for(DropReason::AfterClose, observer);
            work.events.add(Events::ORPHAN_DATA);
            return;
        }
        if part.seq == self.rcv_nxt {
            self.take_in_order(&part, work, now, observer);
            if dsack.is_some() {
                self.answer(dsack, work, now, observer);
            }
        } else {
            self.take_out_of_order(&part, work, observer);
            // Each one is answered at once, so that the sender can count (RFC 5681 section 4.2).
            self.answer(dsack, work, now, observer);
        }
    }

    /// The part of a segment that was received before, in order.
    fn received_before(&self, seg: &Summary) -> Option<(Seq, Seq)> {
        let end = seg.seq + seg.payload_len;
        let end = if self.rcv_nxt.before(end) { self.rcv_nxt } else { end };
        seg.seq.before(end).then_some((seg.seq, end))
    }

    /// Acknowledges at once, where that is not done yet. Something came `dsack`.
    fn answer<O: Observer>(&mut self, dsack: Option<(Seq, Seq)>, work: &mut Work, now: Nanos, observer: O) {
        if work.send.is_none() {
            self.acknowledge(dsack, work, now, observer);
        }
    }

    /// Cuts off what was received before and what is beyond the window (Win). Nothing where nothing is left.
    // Meets RFC 7323: 2.4-a.
    fn trim<O: Observer>(&mut self, seg: &Summary, fin: bool, work: &mut Work, observer: O) -> Option<Part> {
        let old = if seg.seq.before(self.rcv_nxt) { self.rcv_nxt - seg.seq } else { 0 };
        if old > seg.payload_len || (old == seg.payload_len && !fin) {
            work.drop_for(DropReason::Duplicate, observer);
            return None;
        }
        let mut part = Part { seq: seg.seq + old, skip: old, len: seg.payload_len - old, fin };
        if self.ends.peer_ended() {
            work.drop_for(DropReason::AfterClose, observer);
            return None;
        }
        let room = if part.seq.before(self.rcv_adv) { self.rcv_adv - part.seq } else { 0 };
        if part.len > room {
            work.drop_for(DropReason::Trimmed, observer);
            (part.len, part.fin) = (room, false);
        }
        (part.len > 0 || part.fin).then_some(part)
    }

    /// Where what is received up to `end` is too much for the stream's place: it grows.
    pub(super) fn outgrown(&mut self, end: Seq) -> Option<Box<Aside>> {
        let held = end - self.rcv_head;
        (held > self.fixed.rx_place).then(|| {
            let Fixed { rx_rings, rx_base, .. } = self.fixed;
            self.fixed.rx_place = rx_rings.holding(held);
            Box::new(Aside::Grow { from: self.rcv_head - rx_base, end: end - rx_base })
        })
    }

    fn place(&mut self, part: &Part, work: &mut Work) {
        if let Some(growth) = self.outgrown(part.seq + part.len) {
            work.aside = Some(growth);
        }
        work.place = PayloadPart { pos: part.seq - self.fixed.rx_base, skip: part.skip, len: part.len };
    }

    // Meets RFC 5681: 3.2-b.
    fn take_in_order<O: Observer>(&mut self, part: &Part, work: &mut Work, now: Nanos, observer: O) {
        let before = self.rcv_nxt;
        self.place(part, work);
        self.rcv_nxt += part.len;
        if !self.ooo.is_empty() {
            self.rcv_nxt = self.ooo.advance(self.rcv_nxt);
            // What fills a hole, or a part of it, is acknowledged at once (RFC 5681 section 4.2).
            self.ack_now = true;
        }
        let delivered = self.rcv_nxt - before;
        work.tally.delivered = delivered;
        if delivered > 0 {
            observer.event(Point::InOrder, work.flow, [work.summary.seq.0.into(), delivered.into()]);
        }
        let fin_here = part.fin && part.seq + part.len == self.rcv_nxt;
        if fin_here || (self.holds_fin && self.held_fin == self.rcv_nxt) {
            self.holds_fin = false;
            self.ooo.clear();
            self.rcv_nxt += 1;
            self.ack_now = true;
            work.events.add(Events::PEER_FIN);
            observer.event(Point::PeerFin, work.flow, [self.rcv_nxt.0.into(), 0]);
            if self.ends.end_peer() == PeerFin::Second {
                work.events.add(Events::ENDED_BEFORE);
            }
        }
        self.delay_ack(delivered, now);
    }

    /// At least every second full segment is acknowledged at once (RFC 9293 section 3.8.6.3), each one without delayed
    /// acknowledgements.
    // Meets RFC 9293: SHLD-18, MUST-40, SHLD-19, MUST-58.
    // Meets RFC 5681: 4.2-a.
    fn delay_ack(&mut self, delivered: u32, now: Nanos) {
        if self.unacked == 0 {
            self.ack_due = now + ACK_DELAY;
        }
        self.unacked += delivered;
        self.ack_now |= delivered > 0 && self.unacked >= self.ack_after();
    }

    /// Several intervals are kept in place, each grows at either end (thesis section 4.3.1.3 has one).
    // Meets RFC 9293: SHLD-31.
    fn take_out_of_order<O: Observer>(&mut self, part: &Part, work: &mut Work, observer: O) {
        let end = part.seq + part.len;
        if part.len > 0 {
            if !self.ooo.insert(part.seq, end, self.intervals) {
                work.drop_for(DropReason::OutOfOrder, observer);
                return;
            }
            self.place(part, work);
            work.tally.marks.add(Marks::OUT_OF_ORDER);
            let Summary { seq, payload_len, .. } = work.summary;
            observer.event(Point::OutOfOrder, work.flow, [seq.0.into(), payload_len.into()]);
        }
        if part.fin {
            (self.holds_fin, self.held_fin) = (true, end);
        }
    }
}
