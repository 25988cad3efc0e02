//! The protocol module's tracepoints. While one of them is on, works go through [`Protocol::traced_step`], which looks
//! at a flow before and after; otherwise they cost one branch a batch.
use super::Protocol;
use super::state::ProtocolState;
use crate::message::{Events, Job, Order, Work};
use engine::{Drop, Nanos};
use trace::{NO_FLOW, Point, Tracer};

impl Protocol {
    /// As [`Protocol::flush`].
    #[cold]
    #[inline(never)]
    pub(super) fn traced_flush(&mut self, batch: &mut Vec<Work>, now: Nanos, tracer: &Tracer) {
        let (start, before) = (tracer.start(Point::FlushTime), batch.len());
        self.flush(batch, now);
        tracer.since(Point::FlushTime, NO_FLOW, start);
        for work in &batch[before..] {
            let shift = self.flows.get(work.flow).map_or(0, |state| state.fixed.rcv_wscale);
            acknowledged(work, shift, tracer);
        }
    }

    /// A step, with all that is to say of it.
    #[cold]
    #[inline(never)]
    pub(super) fn traced_step(&mut self, work: &mut Work, now: Nanos, tracer: &Tracer) {
        let (job, window) = (work.job, self.flows.get(work.flow).map(|state| state.snd_wnd));
        let start = tracer.sample();
        self.step(work, now);
        if start != 0 {
            if let Some(point) = time_of(job, work) {
                tracer.since(point, work.flow, start);
            }
        }
        if let (Some(window), Some(state)) = (window, self.flows.get(work.flow)) {
            let said = Said { work, window, state, tracer };
            match job {
                Job::Receive => said.received(),
                Job::Transmit { .. } => said.transmitted(),
                Job::Bump { tx_head, rx_head, .. } => said.event(Point::Bump, [tx_head.into(), rx_head.into()]),
                Job::Order(order) => said.ordered(order),
                _ => {}
            }
            said.dropped();
            said.answered();
        }
    }
}

/// An acknowledgement without payload.
fn acknowledged(work: &Work, rcv_shift: u8, tracer: &Tracer) {
    if let Some(segment) = &work.send {
        let window = u64::from(segment.window) << rcv_shift;
        tracer.event(Point::AckSent, work.flow, [segment.ack.0.into(), window]);
        if segment.window == 0 {
            tracer.event(Point::OwnWindowClosed, work.flow, [segment.ack.0.into(), 0]);
        }
    }
}

fn outstanding(state: &ProtocolState) -> u64 {
    (state.max - state.una).into()
}

fn unsent(state: &ProtocolState) -> u64 {
    (state.end() - state.max).into()
}

/// Which critical section a work was.
fn time_of(job: Job, work: &Work) -> Option<Point> {
    match job {
        Job::Receive if work.summary.payload_len > 0 => Some(Point::ReceiveDataTime),
        Job::Receive => Some(Point::ReceiveAckTime),
        Job::Transmit { .. } => Some(Point::TransmitTime),
        Job::Bump { .. } => Some(Point::BumpTime),
        Job::Order(_) => Some(Point::OrderTime),
        _ => None,
    }
}

/// A work that was done, and what it changed.
struct Said<'a> {
    work: &'a Work,
    /// The peer's window before.
    window: u32,
    state: &'a ProtocolState,
    tracer: &'a Tracer,
}

impl Said<'_> {
    #[inline(always)]
    fn event(&self, point: Point, values: [u64; 2]) {
        self.tracer.event(point, self.work.flow, values);
    }

    fn received(&self) {
        let (seg, tally, state) = (&self.work.summary, &self.work.tally, self.state);
        let (seq, ack, payload) = (seg.seq.0.into(), seg.ack.0.into(), seg.payload_len.into());
        if tally.delivered > 0 {
            self.event(Point::InOrder, [seq, tally.delivered.into()]);
        }
        if tally.acked > 0 {
            self.event(Point::Acked, [ack, tally.acked.into()]);
        }
        if tally.rtt > 0 {
            self.tracer.value(Point::Rtt, self.work.flow, tally.rtt.into());
        }
        if self.window != state.snd_wnd {
            self.event(Point::WindowChanged, [state.snd_wnd.into(), self.window.into()]);
            if state.snd_wnd == 0 {
                self.event(Point::WindowClosed, [ack, unsent(state)]);
            }
        }
        if seg.ce {
            self.event(Point::EcnMarked, [seq, payload]);
        }
        if tally.out_of_order {
            self.event(Point::OutOfOrder, [seq, payload]);
        }
        if tally.ecn_echoed {
            self.event(Point::EcnEchoed, [ack, tally.acked.into()]);
        }
        if tally.duplicate_ack {
            self.event(Point::DuplicateAck, [ack, outstanding(state)]);
        }
        if tally.fast_retransmit {
            self.event(Point::FastRetransmit, [state.una.0.into(), outstanding(state)]);
        }
        self.ended(seq);
    }

    /// What a received segment ended.
    fn ended(&self, seq: u64) {
        let events = self.work.events;
        if events.is_empty() {
            return;
        }
        if events.has(Events::PEER_FIN) {
            self.event(Point::PeerFin, [self.state.rcv_nxt.0.into(), 0]);
        }
        if events.has(Events::FIN_ACKED) {
            self.event(Point::FinAcked, [self.state.una.0.into(), 0]);
        }
        if events.has(Events::RESET) {
            self.event(Point::Reset, [seq, 0]);
        }
    }

    fn transmitted(&self) {
        match &self.work.send {
            None => self.event(Point::TurnUnused, [unsent(self.state), self.state.usable().into()]),
            Some(segment) => {
                let point = if self.work.tally.retransmitted { Point::SentAgain } else { Point::Sent };
                self.event(point, [segment.seq.0.into(), segment.len.into()]);
            }
        }
    }

    fn ordered(&self, order: Order) {
        let (una, outstanding) = (self.state.una.0.into(), outstanding(self.state));
        match order {
            Order::Window(cwnd) => self.event(Point::WindowSet, [cwnd.into(), outstanding]),
            Order::Retransmit => self.event(Point::TimeoutRetransmit, [una, outstanding]),
            _ => {}
        }
    }

    fn dropped(&self) {
        let (seq, payload) = (self.work.summary.seq.0.into(), self.work.summary.payload_len.into());
        for reason in self.work.drops.iter() {
            self.event(Point::ProtocolDropped, [reason as u64, seq]);
            if reason == Drop::Duplicate {
                self.event(Point::Duplicate, [seq, payload]);
            }
        }
    }

    /// An acknowledgement in answer to this work.
    fn answered(&self) {
        if self.work.send.is_some() && !self.work.tally.sent {
            acknowledged(self.work, self.state.fixed.rcv_wscale, self.tracer);
        }
    }
}
