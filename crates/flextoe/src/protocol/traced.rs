//! The protocol module's tracepoints. While one of them is on, works go through [`Protocol::traced_step`], which reads
//! a flow before and after. Otherwise they cost one branch a batch.
use super::Protocol;
use super::state::ProtocolState;
use crate::batch::Batch;
use crate::message::{Events, FlowCommand, Job, Marks, Work};
use crate::traced::Runs;
use engine::{DropReason, Nanos};
use trace::{NO_FLOW, Point, Tracer};

impl Protocol {
    /// As [`Protocol::flush`].
    #[cold]
    #[inline(never)]
    pub(super) fn traced_flush(&mut self, batch: &mut Batch, now: Nanos, tracer: &Tracer) {
        let (start, before) = (tracer.sample(), batch.len());
        self.flush(batch, now);
        tracer.since(Point::FlushTime, NO_FLOW, start);
        if !tracer.is_streaming() {
            return batch[before..].iter().for_each(|work| count_rare(work, tracer));
        }
        for work in &batch[before..] {
            let shift = self.flows.get(work.flow).map_or(0, |state| state.fixed.agreed.rcv_shift);
            acknowledged(work, shift, tracer);
            if let (Job::Overdue, Some(state)) = (work.job, self.flows.get(work.flow)) {
                Said { work, window: state.snd_wnd, state, tracer }.lost();
            }
        }
    }

    /// A step that is timed.
    #[cold]
    #[inline(never)]
    pub(super) fn timed_step(&mut self, work: &mut Work, now: Nanos, tracer: &Tracer) {
        let (job, start) = (work.job, tracer.now());
        self.any_step(work, now);
        if let Some(point) = time_of(job, work) {
            tracer.since(point, work.flow, start);
        }
    }

    /// A step, with all that tracepoints need of it.
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
                Job::Bump { tx_head, rx_head, .. } => said.bumped(tx_head, rx_head),
                Job::FlowCommand(flow_command) => said.ordered(flow_command),
                _ => {}
            }
            said.dropped();
            said.answered();
        }
    }
}

/// Counts what the works of a flow group were, where no observer watches records: once a batch.
#[cold]
#[inline(never)]
pub(crate) fn count(batch: &[Work], group: u8, tracer: &Tracer) {
    let (mut in_order, mut acked, mut windows, mut bumps, mut sent) = (0, 0, 0, 0, 0);
    let mut rtt = Runs::new(Point::Rtt);
    for work in batch.iter().filter(|work| work.group == group) {
        let tally = &work.tally;
        match work.job {
            Job::Receive => {
                in_order += (tally.delivered > 0) as u64;
                acked += (tally.acked > 0) as u64;
                windows += tally.marks.has(Marks::WINDOW_CHANGED) as u64;
                rtt.add(tally.rtt.into(), tracer);
                let is_plain = work.events.is_empty() && work.drops.is_empty() && work.send.is_none();
                if !is_plain || work.summary.ce || tally.marks.has(Marks::RARE) || tally.marks.has(Marks::WINDOW_CLOSED)
                {
                    count_rare(work, tracer);
                }
            }
            Job::Bump { .. } if work.drops.is_empty() && !tally.marks.has(Marks::RETRANSMITTED) => {
                bumps += 1;
                sent += work.send.is_some() as u64;
            }
            Job::Void => {}
            _ => count_rare(work, tracer),
        }
    }
    let counts = [
        (Point::InOrder, in_order),
        (Point::Acked, acked),
        (Point::WindowChanged, windows),
        (Point::Bump, bumps),
        (Point::Sent, sent),
    ];
    counts.iter().for_each(|(point, times)| tracer.add(*point, *times));
    rtt.end(tracer);
}

/// Counts what [`count`] does not.
fn count_rare(work: &Work, tracer: &Tracer) {
    let marks = work.tally.marks;
    let marked = |mark: Marks, point: Point| tracer.add(point, marks.has(mark) as u64);
    match work.job {
        Job::Receive => {
            marked(Marks::WINDOW_CLOSED, Point::WindowChanged);
            marked(Marks::WINDOW_CLOSED, Point::WindowClosed);
            marked(Marks::OUT_OF_ORDER, Point::OutOfOrder);
            marked(Marks::ECN_ECHOED, Point::EcnEchoed);
            marked(Marks::DUPLICATE_ACK, Point::DuplicateAck);
            marked(Marks::FAST_RETRANSMIT, Point::FastRetransmit);
            marked(Marks::DSACK, Point::Dsack);
            marked(Marks::UNDONE, Point::Undone);
            tracer.add(Point::EcnMarked, work.summary.ce as u64);
            let ends = [
                (Events::PEER_FIN, Point::PeerFin),
                (Events::FIN_ACKED, Point::FinAcked),
                (Events::RESET, Point::Reset),
            ];
            ends.iter().for_each(|(event, point)| tracer.add(*point, work.events.has(*event) as u64));
        }
        Job::Transmit { .. } if work.send.is_none() => tracer.add(Point::TurnUnused, 1),
        Job::Overdue => marked(Marks::FAST_RETRANSMIT, Point::FastRetransmit),
        Job::Transmit { .. } | Job::Bump { .. } | Job::FlowCommand(FlowCommand::ProbeTail) => {
            let again = marks.has(Marks::RETRANSMITTED);
            tracer.add(Point::Bump, matches!(work.job, Job::Bump { .. }) as u64);
            tracer.add(if again { Point::SentAgain } else { Point::Sent }, work.send.is_some() as u64);
        }
        Job::FlowCommand(FlowCommand::Window(_)) => tracer.add(Point::WindowSet, 1),
        Job::FlowCommand(FlowCommand::Retransmit) => tracer.add(Point::TimeoutRetransmit, 1),
        _ => {}
    }
    for reason in work.drops.iter() {
        tracer.add(Point::ProtocolDropped, 1);
        tracer.add(Point::Duplicate, (reason == DropReason::Duplicate) as u64);
    }
    if let Some(segment) = work.send.filter(|_| !marks.has(Marks::SENT)) {
        tracer.add(Point::AckSent, 1);
        tracer.add(Point::OwnWindowClosed, (segment.fields.window == 0) as u64);
    }
}

/// An acknowledgement without payload.
fn acknowledged(work: &Work, rcv_shift: u8, tracer: &Tracer) {
    if let Some(segment) = &work.send {
        let fields = &segment.fields;
        let window = u64::from(fields.window) << rcv_shift;
        tracer.event(Point::AckSent, work.flow, [fields.ack.0.into(), window]);
        if fields.window == 0 {
            tracer.event(Point::OwnWindowClosed, work.flow, [fields.ack.0.into(), 0]);
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
        Job::FlowCommand(_) => Some(Point::OrderTime),
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
        if tally.marks.has(Marks::OUT_OF_ORDER) {
            self.event(Point::OutOfOrder, [seq, payload]);
        }
        if tally.marks.has(Marks::ECN_ECHOED) {
            self.event(Point::EcnEchoed, [ack, tally.acked.into()]);
        }
        if tally.marks.has(Marks::DUPLICATE_ACK) {
            self.event(Point::DuplicateAck, [ack, outstanding(state)]);
        }
        self.lost();
        if let Some((left, right)) = self.work.sacked.dsack().filter(|_| tally.marks.has(Marks::DSACK)) {
            self.event(Point::Dsack, [left.0.into(), right.0.into()]);
        }
        if tally.marks.has(Marks::UNDONE) {
            self.event(Point::Undone, [state.una.0.into(), outstanding(state)]);
        }
        self.ended(seq);
    }

    fn lost(&self) {
        if self.work.tally.marks.has(Marks::FAST_RETRANSMIT) {
            self.event(Point::FastRetransmit, [self.state.una.0.into(), outstanding(self.state)]);
        }
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

    fn bumped(&self, tx_head: u32, rx_head: u32) {
        self.event(Point::Bump, [tx_head.into(), rx_head.into()]);
        if self.work.send.is_some() {
            self.transmitted();
        }
    }

    fn transmitted(&self) {
        match &self.work.send {
            None => self.event(Point::TurnUnused, [unsent(self.state), self.state.usable_now().into()]),
            Some(segment) => {
                let point =
                    if self.work.tally.marks.has(Marks::RETRANSMITTED) { Point::SentAgain } else { Point::Sent };
                self.event(point, [segment.fields.seq.0.into(), segment.fields.payload_len.into()]);
            }
        }
    }

    fn ordered(&self, flow_command: FlowCommand) {
        let (una, outstanding) = (self.state.una.0.into(), outstanding(self.state));
        match flow_command {
            FlowCommand::Window(cwnd) => self.event(Point::WindowSet, [cwnd.into(), outstanding]),
            FlowCommand::Retransmit => self.event(Point::TimeoutRetransmit, [una, outstanding]),
            FlowCommand::ProbeTail if self.work.send.is_some() => self.transmitted(),
            _ => {}
        }
    }

    fn dropped(&self) {
        let (seq, payload) = match self.work.job {
            Job::Receive => (self.work.summary.seq.0.into(), self.work.summary.payload_len.into()),
            _ => (0, 0),
        };
        for reason in self.work.drops.iter() {
            self.event(Point::ProtocolDropped, [reason as u64, seq]);
            if reason == DropReason::Duplicate {
                self.event(Point::Duplicate, [seq, payload]);
            }
        }
    }

    /// An acknowledgement in answer to this work.
    fn answered(&self) {
        if self.work.send.is_some() && !self.work.tally.marks.has(Marks::SENT) {
            acknowledged(self.work, self.state.fixed.agreed.rcv_shift, self.tracer);
        }
    }
}
