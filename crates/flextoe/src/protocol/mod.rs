//! The protocol module: the only one that changes TCP state, one work of a flow after the other (thesis section 4.3).
mod header_prediction;
mod receive;
mod records;
mod spurious;
mod state;
mod tail_probe;
mod transmit;
mod urgent;

use crate::batch::Batch;
use crate::message::{Aside, Control, Events, FlowCommand, Job, Received, Relocation, Report, Sent, Summary, Work};
use crate::observer::Observer;
use crate::slots::Slots;
use engine::stream::FlowEnd;
use engine::{DropReason, Exception, Nanos};
use records::RecordFlows;
use state::{ProtocolState, RxRings};
use std::collections::VecDeque;
use tcp::{Owner, window};
use trace::{NO_FLOW, Point};
use urgent::UrgentFlows;

/// Flows that have something to acknowledge.
#[derive(Default)]
struct Due {
    /// At the end of the batch.
    urgent: Vec<u32>,
    /// It may wait, and until when.
    waiting: VecDeque<(Nanos, u32)>,
    /// Flows with holes that may be late, and when the first of these waits is over.
    holes: Vec<u32>,
    hole_due: Option<Nanos>,
}

impl Due {
    /// Notes a flow after a work, where it is not noted yet.
    #[inline(always)]
    fn note(&mut self, flow: u32, state: &mut ProtocolState, acknowledged_now: bool) {
        if state.ack_now && !acknowledged_now {
            self.urgent.push(flow);
        }
        if state.unacked > 0 && !state.ack_listed {
            self.wait(flow, state);
        }
    }

    /// The reordering timer (RFC 8985 section 6.2, step 5).
    // Meets RFC 8985: 6.2-g.
    #[cold]
    fn time_holes(&mut self, flow: u32, state: &mut ProtocolState) {
        let Some(due) = state.recovery.due() else { return };
        if !state.recovery.set_timed(true) {
            self.holes.push(flow);
        }
        self.hole_due = Some(self.hole_due.map_or(due, |first| first.min(due)));
    }

    /// When the module is to be asked again without another reason.
    fn next(&self) -> Nanos {
        let acknowledgement = self.waiting.front().map_or(Nanos::MAX, |(due, _)| *due);
        acknowledgement.min(self.hole_due.unwrap_or(Nanos::MAX))
    }

    #[cold]
    fn wait(&mut self, flow: u32, state: &mut ProtocolState) {
        state.ack_listed = true;
        self.waiting.push_back((state.ack_due, flow));
    }
}

/// Bytes of a flow's state here.
#[cfg(test)]
pub(crate) const STATE: usize = size_of::<Option<ProtocolState>>();

/// What few flows have, beside their state.
#[derive(Default)]
struct RareFlows {
    urgent: UrgentFlows,
    records: RecordFlows,
}

impl RareFlows {
    /// A flow is gone, or a new one has its number.
    fn forget(&mut self, flow: u32) {
        self.urgent.forget(flow);
        self.records.forget(flow);
    }
}

/// The protocol module of one flow group.
pub(crate) struct Protocol {
    group: u8,
    flows: Slots<ProtocolState>,
    rare: RareFlows,
    due: Due,
    /// Number of the next work that leaves; none where works stay in order by themselves.
    ticket: Option<u64>,
}

impl Protocol {
    /// The module of a flow group. Works that leave are `numbered` where what comes after may change their order.
    pub(crate) fn new(group: u8, flows: u32, numbered: bool) -> Protocol {
        let (rare, ticket) = (RareFlows::default(), numbered.then_some(0));
        Protocol { group, flows: Slots::new(flows), rare, due: Due::default(), ticket }
    }

    pub(crate) fn control(&mut self, control: &Control, now: Nanos) {
        if let Control::Install(params) = control {
            let state = ProtocolState::new(params, now);
            state.publish();
            self.flows.insert(params.flow.0, state);
            self.rare.forget(params.flow.0);
        }
    }

    /// Processes the works of this module's flow group in order, and appends acknowledgements that are due where the
    /// batch holds [`Job::Flush`].
    pub(crate) fn process<O: Observer>(&mut self, batch: &mut Batch, now: Nanos, observer: O) {
        let flush = self.each(batch, now, observer);
        if let Some(at) = flush {
            let start = observer.sample();
            self.flush(batch, now, observer);
            observer.since(Point::FlushTime, NO_FLOW, start);
            batch[at].job = Job::Flush { due: self.due.next() };
        }
        if let Some(ticket) = &mut self.ticket {
            let ours = |at: usize, work: &Work| work.group == self.group && Some(at) != flush;
            let works = batch.iter_mut().enumerate().filter(|(at, work)| ours(*at, work)).map(|(_, work)| work);
            works.for_each(|work| work.number(ticket));
            // Numbered last: once it has left, all acknowledgements have.
            flush.into_iter().for_each(|at| batch[at].number(ticket));
        }
    }

    /// Does all works of this flow group but the flush; returns where that is. Flushes are at the end of a batch: one
    /// for each flow group where those are of one thread.
    #[inline(always)]
    fn each<O: Observer>(&mut self, batch: &mut [Work], now: Nanos, observer: O) -> Option<usize> {
        let flushes = batch.iter().rev().take_while(|work| matches!(work.job, Job::Flush { .. })).count();
        let (works, flushes) = batch.split_at_mut(batch.len() - flushes);
        let group = self.group;
        for work in works.iter_mut().filter(|work| work.group == group) {
            self.step(work, now, observer);
        }
        flushes.iter().position(|work| work.group == group).map(|at| works.len() + at)
    }

    #[inline(always)]
    fn step<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        match work.job {
            Job::Receive => {
                if let Some(received) = self.receive_fast(work.flow, &work.summary, now, observer) {
                    return received.note(work);
                }
            }
            Job::Bump { .. } => {
                if let Some(sent) = self.bump_fast(work, now, observer) {
                    return sent.note(work);
                }
            }
            _ => {}
        }
        self.slow_step(work, now, observer);
    }

    /// Prefetches a flow's state.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: u32) {
        self.flows.prefetch(flow);
    }

    /// The stream position of what comes next on a flow.
    #[inline(always)]
    pub(crate) fn next_place(&self, flow: u32) -> Option<u32> {
        self.flows.get(flow).map(|state| state.rcv_nxt - state.fixed.rx_base)
    }

    /// The fast path of a received segment; nothing where it is to take the slow path.
    #[inline(always)]
    pub(crate) fn receive_fast<O: Observer>(
        &mut self,
        flow: u32,
        summary: &Summary,
        now: Nanos,
        observer: O,
    ) -> Option<Received> {
        let start = observer.sample();
        let state = self.flows.get_mut(flow).filter(|state| state.fast)?;
        let received = state.receive_fast(flow, summary, &mut self.due, now, observer)?;
        state.check();
        let time = if summary.payload_len > 0 { Point::ReceiveDataTime } else { Point::ReceiveAckTime };
        observer.since(time, flow, start);
        Some(received)
    }

    /// The same of a descriptor with a grant.
    #[inline(always)]
    pub(crate) fn bump_fast<O: Observer>(&mut self, work: &Work, now: Nanos, observer: O) -> Option<Sent> {
        let Job::Bump { tx_head, rx_head, fin: false, grant: true } = work.job else { return None };
        let start = observer.sample();
        let state = self.flows.get_mut(work.flow).filter(|state| state.fast)?;
        let sent = state.bump_fast(work.flow, (tx_head, rx_head), &mut self.due, now, observer)?;
        state.check();
        observer.since(Point::BumpTime, work.flow, start);
        Some(sent)
    }

    /// The slow path of any work.
    #[inline(never)]
    pub(crate) fn slow_step<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        let (time, start) = (time_of(work), observer.sample());
        self.slow(work, now, observer);
        if let Some(point) = time {
            observer.since(point, work.flow, start);
        }
    }

    #[inline(always)]
    fn slow<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        let Some(state) = self.flows.get_mut(work.flow).filter(|state| !state.frozen) else {
            return self.rare(work, now, observer);
        };
        let acknowledged_now = state.ack_now;
        match work.job {
            Job::Receive => state.receive(work, now, &mut self.rare.urgent, observer),
            Job::Transmit { most } => {
                transmit(state, work, most, &self.rare, now, observer);
                if work.send.is_none() {
                    state.report_unused(work.flow, observer);
                }
            }
            Job::Bump { tx_head, rx_head, fin, grant } => {
                observer.event(Point::Bump, work.flow, [tx_head.into(), rx_head.into()]);
                let ends = fin && state.ends.may_write() && state.life != Owner::Dead;
                if !state.bump(tx_head, rx_head, fin) {
                    work.drop_for(DropReason::BumpRange, observer);
                } else if ends {
                    work.events.add(Events::LOCAL_FIN);
                }
                if grant {
                    transmit(state, work, u32::MAX, &self.rare, now, observer);
                }
            }
            _ => return self.rare(work, now, observer),
        }
        settle(state, work, &mut self.rare);
        self.due.note(work.flow, state, acknowledged_now);
        if state.recovery.has_block() {
            self.due.time_holes(work.flow, state);
        }
    }

    /// Requests of the control plane, and works of flows that stand still or are not here.
    #[cold]
    #[inline(never)]
    fn rare<O: Observer>(&mut self, work: &mut Work, now: Nanos, observer: O) {
        if matches!(work.job, Job::Remove) {
            self.rare.forget(work.flow);
            work.aside = self.flows.remove(work.flow).map(|state| Box::new(Aside::End(state.flow_end())));
            return;
        }
        let Some(state) = self.flows.get_mut(work.flow) else {
            if matches!(work.job, Job::Receive) {
                work.exception = Some(Exception::NoFlow);
            }
            work.job = Job::Void;
            return;
        };
        if state.frozen && !matches!(work.job, Job::FlowCommand(_)) {
            return frozen(state, work, observer);
        }
        let acknowledged_now = state.ack_now;
        match work.job {
            Job::FlowCommand(FlowCommand::Urge(position)) => {
                state.write_urgent(position, work, &mut self.rare.urgent, observer);
            }
            Job::FlowCommand(FlowCommand::EndRecord(position)) => {
                state.end_record(position, work, &mut self.rare.records, observer);
            }
            Job::FlowCommand(flow_command) => state.flow_command(flow_command, work, now, observer),
            Job::Move => {
                if let Some(Aside::Move(relocation)) = work.aside.as_deref_mut() {
                    state.relocate(relocation);
                }
            }
            Job::Resume => {
                if let Some(Aside::Resume(end)) = work.aside.take().as_deref() {
                    state.resume(end);
                    // The application may have given a false state of its ring.
                    work.aside = state.outgrown(state.rcv_data_end());
                    work.completion = Some(state.positions());
                }
            }
            Job::Freeze { tx_head, rx_head } => {
                work.aside = Some(Box::new(Aside::Frozen(state.freeze(tx_head, rx_head))));
            }
            _ => {}
        }
        settle(state, work, &mut self.rare);
        self.due.note(work.flow, state, acknowledged_now);
        if state.recovery.has_block() {
            self.due.time_holes(work.flow, state);
        }
    }

    /// [`Job::Flush`] would send nothing.
    #[inline]
    pub(crate) fn has_nothing_due(&self, now: Nanos) -> bool {
        self.due.urgent.is_empty() && self.due.next() > now
    }

    /// When a flush is due next, of a module that has nothing due now: all that [`Job::Flush`] would report.
    #[inline]
    pub(crate) fn next_flush<O: Observer>(&self, observer: O) -> Nanos {
        let start = observer.sample();
        let next = self.due.next();
        observer.since(Point::FlushTime, NO_FLOW, start);
        next
    }

    /// Sends the acknowledgements that no data segment took along.
    // Meets RFC 9293: MUST-59.
    fn flush<O: Observer>(&mut self, batch: &mut Batch, now: Nanos, observer: O) {
        let mut urgent = std::mem::take(&mut self.due.urgent);
        for flow in urgent.drain(..) {
            if let Some(state) = self.flows.get_mut(flow).filter(|state| state.ack_now) {
                acknowledge(state, flow, self.group, batch, now, observer);
                if state.urgent {
                    batch.last_mut().into_iter().for_each(|work| self.rare.urgent.urge(work));
                }
            }
        }
        self.due.urgent = urgent;
        if self.due.hole_due.is_some_and(|due| due <= now) {
            self.find_overdue(batch, now, observer);
        }
        while let Some((due, flow)) = self.due.waiting.front().copied().filter(|(due, _)| *due <= now) {
            self.due.waiting.pop_front();
            let Some(state) = self.flows.get_mut(flow) else { continue };
            state.ack_listed = state.unacked > 0 && state.ack_due > now;
            if state.ack_listed {
                // Acknowledged meanwhile, and again something to acknowledge.
                debug_assert!(state.ack_due >= due);
                self.due.waiting.push_back((state.ack_due, flow));
            } else if state.unacked > 0 && state.last_ack.before(state.rcv_nxt) {
                acknowledge(state, flow, self.group, batch, now, observer);
            } else {
                // Nothing since, or what the SYN-ACK has acknowledged.
                state.unacked = 0;
            }
        }
    }

    /// Waits of holes that are over.
    #[cold]
    fn find_overdue<O: Observer>(&mut self, batch: &mut Batch, now: Nanos, observer: O) {
        self.due.hole_due = None;
        for flow in std::mem::take(&mut self.due.holes) {
            let Some(state) = self.flows.get_mut(flow) else { continue };
            state.recovery.set_timed(false);
            if state.recovery.due().is_some_and(|due| due <= now) {
                let work = batch.add(flow, Job::Overdue);
                work.begin();
                work.group = self.group;
                state.find_lost(work, now, observer);
                settle(state, work, &mut self.rare);
            }
            self.due.time_holes(flow, state);
        }
    }
}

/// One segment of a flow, where something may be sent.
#[inline(always)]
fn transmit<O: Observer>(
    state: &mut ProtocolState,
    work: &mut Work,
    most: u32,
    rare: &RareFlows,
    now: Nanos,
    observer: O,
) {
    match state.has_records {
        false => state.transmit(work, most, now, observer),
        true => state.transmit_record(work, most, &rare.records, now, observer),
    }
}

/// Acknowledges what a flow has received, without data.
#[inline(always)]
fn acknowledge<O: Observer>(
    state: &mut ProtocolState,
    flow: u32,
    group: u8,
    batch: &mut Batch,
    now: Nanos,
    observer: O,
) {
    if state.life == Owner::Dead {
        (state.ack_now, state.unacked) = (false, 0);
        return;
    }
    let work = batch.add(flow, Job::Ack);
    work.begin();
    work.group = group;
    state.acknowledge(None, work, now, observer);
}

/// A work for a flow that stands still: its segments are the control plane's, all else is dropped.
#[cold]
fn frozen<O: Observer>(state: &ProtocolState, work: &mut Work, observer: O) {
    match work.job {
        Job::Transmit { .. } => state.report_unused(work.flow, observer),
        Job::Bump { tx_head, rx_head, .. } => {
            observer.event(Point::Bump, work.flow, [tx_head.into(), rx_head.into()]);
        }
        _ => {}
    }
    match work.job {
        Job::Receive => work.exception = Some(Exception::NoFlow),
        _ if work.is_grant() => return work.report = Some(Report { segments: 0, sent: 0 }),
        // It stands still already.
        Job::Freeze { .. } => work.aside = Some(Box::new(Aside::Frozen(None))),
        _ => {}
    }
    work.job = Job::Void;
}

/// The tracepoint that measures the critical section of a work.
fn time_of(work: &Work) -> Option<Point> {
    match work.job {
        Job::Receive if work.summary.payload_len > 0 => Some(Point::ReceiveDataTime),
        Job::Receive => Some(Point::ReceiveAckTime),
        Job::Transmit { .. } => Some(Point::TransmitTime),
        Job::Bump { .. } => Some(Point::BumpTime),
        Job::FlowCommand(_) => Some(Point::OrderTime),
        _ => None,
    }
}

/// After a work on the slow path: what other modules need of the flow's state.
fn settle(state: &mut ProtocolState, work: &mut Work, rare: &mut RareFlows) {
    if track(state) {
        work.events.add(Events::ACTIVE);
    }
    if state.urgent {
        state.settle_urgent(work, &mut rare.urgent);
    }
    if state.has_records {
        state.settle_records(work.flow, &mut rare.records);
    }
    work.report = state.report(work.sent());
    if state.asked {
        state.report_sent(work);
    }
    state.fast = state.is_fast();
    state.publish();
    state.check();
}

/// The control plane times a flow as long as something is to be sent or acknowledged. Whether it is to begin now.
#[inline(always)]
fn track(state: &mut ProtocolState) -> bool {
    let begins = !state.tracked && state.life != Owner::Dead && state.una != state.end();
    state.tracked |= begins;
    begins
}

impl ProtocolState {
    /// The application's positions (thesis section 4.3.1.1: Win, Fin). False where they are impossible; older ones
    /// change nothing.
    #[inline(always)]
    fn bump(&mut self, tx_head: u32, rx_head: u32, fin: bool) -> bool {
        let newer = |position: u32, old: u32| {
            let step = position.wrapping_sub(old);
            if step as i32 > 0 { step } else { 0 }
        };
        let written = newer(tx_head, self.head - self.fixed.tx_base);
        let taken = newer(rx_head, self.rcv_head - self.fixed.rx_base);
        let unacked = if !self.ends.may_write() { 0 } else { self.head - self.una };
        let extends = written > 0 && (!self.ends.may_write() || written > self.fixed.tx_size - unacked);
        if extends || taken > self.rcv_data_end() - self.rcv_head {
            return false;
        }
        self.head += written;
        self.rcv_head += taken;
        if fin {
            self.ends.end_local();
        }
        if taken > 0 {
            self.update_window();
        }
        true
    }

    /// Stops if nothing is under way in either direction, and reports where the flow stands.
    fn freeze(&mut self, tx_head: u32, rx_head: u32) -> Option<FlowEnd> {
        let sent_all = self.bump(tx_head, rx_head, false) && self.una == self.head && self.max == self.head;
        let read_all = self.rcv_head == self.rcv_nxt && self.ooo.is_empty();
        let open = self.ends.are_open() && !self.holds_fin && self.life != Owner::Dead;
        self.frozen = sent_all && read_all && open;
        self.frozen.then(|| self.flow_end())
    }

    /// Notifies the peer of a larger window where it may be waiting for it (RFC 9293 section 3.8.6.2.2).
    fn update_window(&mut self) {
        if self.unadvertised() < self.fixed.window_step {
            return;
        }
        let gain = self.window_gain();
        let (largest, mss) = (self.fixed.largest_window, self.fixed.agreed.mss.into());
        self.ack_now |= !self.ends.peer_ended() && window::is_worth_advertising(gain, self.open_window(), largest, mss);
    }

    /// From now on the peer may be offered so many bytes, as far as the stream's rings hold them. How much they do hold
    /// shows when bytes come ([`ProtocolState::outgrown`]).
    pub(super) fn offer(&mut self, bytes: u32) {
        let bytes = bytes.min(self.fixed.rx_rings.most());
        if bytes > self.fixed.rx_size {
            self.fixed.set_offer(bytes);
            self.update_window();
        }
    }

    /// Which bytes a move to other buffers has to copy: what is unread or out of order, and what is not acknowledged.
    /// Nothing begins small there.
    fn relocate(&mut self, relocation: &mut Relocation) {
        self.fixed.rx_rings = RxRings::of(&relocation.new.rx);
        self.fixed.rx_place = relocation.new.rx.ease();
        let received = self.ooo.end().unwrap_or(self.rcv_data_end());
        relocation.rx = (self.rcv_head - self.fixed.rx_base, received - self.rcv_head);
        let from = if self.ends.all_acknowledged() { self.head } else { self.una };
        relocation.tx = (from - self.fixed.tx_base, self.head - from);
    }
}
