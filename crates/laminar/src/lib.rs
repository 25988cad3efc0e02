//! Laminar: TCP's data-path as a P4 program for a match-action pipeline (thesis chapter 5). The program (`p4/`) is
//! compiled when the engine is made, and decides about every segment; around it is what a switch and a host have.
//!
//! | file | what |
//! |---|---|
//! | `program` | the compiled program, its tables and registers |
//! | `switch` | parser to deparser: ports, traffic manager, mirror |
//! | `descriptor` | the messages between pipeline and host |
//! | `contexts` | the applications' queues |
//! | `log`, `places` | shared logs: the host's half of the sequencer; one that another daemon had |
//! | `flow` | the host's half of a flow: credits, transmission head |
//! | `slow` | the switch's processor: FIN, RST, SYN, options, probes |
//! | `prefetch`, `flow_predictor` | prefetch of what a batch is going to need |
//! | `exchange` | program replacement under traffic |
//! | `frozen` | a flow that is stopped, and goes on |
//! | `resume` | a flow in the place of one that another daemon had |
//! | `pipeline_output`, `frames` | output of the pipeline: payload, completions, frames |
#![forbid(unsafe_code)]

mod buffers;
mod completions;
mod contexts;
mod descriptor;
mod exchange;
mod flow;
mod flow_predictor;
mod frames;
mod frozen;
mod log;
mod pipeline_output;
mod places;
mod prefetch;
mod program;
mod resume;
mod slow;
mod switch;

use context::Bump;
use contexts::Contexts;
use descriptor::{DMA_GRANT, DMA_SYNC, DMA_TX, Dma, PORT_CONTROL, PORT_HOST, PORT_NET, PORT_TIMER, TIMEOUT};
use engine::stream::{self, Carries, FlowParams, FourTuple, Stream};
use engine::{
    Burst, Command, ContextId, DropReason, Engine, Event, Features, FlowId, Limits, Nanos, ProgramSource, ROUND_BYTES,
    Runner, Slot,
};
use flow::{Bumped, Flow};
use flow_predictor::FlowPredictor;
use places::Logs;
use program::Program;
use std::collections::{HashMap, VecDeque};
use switch::{Carried, Switch};
use tcp::Owner;

pub use program::{Extensions, MOST_FLOWS, prepare};

/// Descriptors of applications taken in one round.
const DESCRIPTORS: usize = 256;
/// Descriptors whose flows are asked for at once.
const SOME: usize = 16;
/// Time between two rounds of the packet generator.
const TICK: Nanos = 100_000;
/// The Laminar engine.
pub struct Laminar {
    switch: Switch,
    contexts: Contexts,
    flows: Vec<Option<Box<Flow>>>,
    /// Installed flows by their addresses, for segments that the pipeline leaves to the slow path.
    tuples: HashMap<FourTuple, u32>,
    /// The same for frames that are still to be processed; of those of this batch, which flows they may be of.
    flow_predictor: FlowPredictor,
    ahead: Vec<u32>,
    /// Flows that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Flows whose credits come by rate.
    paced: Vec<u32>,
    last_tick: Nanos,
    /// Flows whose acknowledgement is delayed, each once, by the time when it is to be checked.
    delayed: VecDeque<(Nanos, u32)>,
    /// Bytes pushed in this round.
    pushed: u32,
    bumps: Vec<(u32, Bump)>,
    limits: Limits,
    logs: Logs,
    /// Flows that wait for the bytes before the peer's FIN, and got some.
    fins: Vec<u32>,
    /// The frame that is being processed was made plain by the slow path.
    slow_path_again: bool,
    rx_scale: u8,
    now: Nanos,
}

impl Laminar {
    /// An engine within `limits`, whose windows are advertised with the shift `rx_scale` (RFC 7323). The shift is the
    /// same for all flows, since a pipeline shifts by constants only. The program runs with these extensions.
    ///
    /// # Errors
    /// A sentence, where the limits are beyond what the tables hold.
    pub fn new(limits: Limits, rx_scale: u8, extensions: Extensions) -> Result<Laminar, String> {
        Laminar::on(&Runner::default(), limits, rx_scale, extensions)
    }

    /// The same, whose program runs like this (docs/RTL.md).
    ///
    /// # Errors
    /// Likewise; or where the model of the RTL cannot be built or started.
    pub fn on(runner: &Runner, limits: Limits, rx_scale: u8, extensions: Extensions) -> Result<Laminar, String> {
        Ok(Laminar {
            switch: Switch::new(Program::new(&limits, rx_scale, &extensions.source(), runner)?),
            contexts: Contexts::new(limits.contexts),
            flows: (0..limits.flows).map(|_| None).collect(),
            tuples: HashMap::new(),
            flow_predictor: FlowPredictor::new(limits.flows),
            ahead: Vec::new(),
            ready: VecDeque::new(),
            paced: Vec::new(),
            last_tick: 0,
            delayed: VecDeque::new(),
            pushed: 0,
            bumps: Vec::with_capacity(DESCRIPTORS),
            limits,
            logs: Logs::default(),
            fins: Vec::new(),
            slow_path_again: false,
            rx_scale,
            now: 0,
        })
    }

    fn flow(&mut self, id: u32) -> Option<&mut Flow> {
        self.flows.get_mut(id as usize)?.as_deref_mut()
    }

    fn take_commands(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        let mut commands = std::mem::take(burst.commands);
        let count = commands.len();
        for command in commands.drain(..) {
            self.command(command, burst);
        }
        *burst.commands = commands;
        count
    }

    fn command(&mut self, command: Command<Stream>, burst: &mut Burst<'_, Stream>) {
        match command {
            Command::Attach(context, end) => self.contexts.attach(context.0, end),
            Command::Drain(context) => self.contexts.drain(context.0),
            Command::Detach(context) => {
                self.close_log(context.0);
                self.contexts.detach(context.0);
            }
            Command::Install(params) => self.install(*params),
            Command::Remove(id) => self.remove(id, burst),
            Command::NextHop(id, mac) => {
                if let Some(flow) = self.flows.get_mut(id.0 as usize).and_then(Option::as_deref_mut) {
                    flow.params.remote_mac = mac;
                    self.switch.program.set_headers(&flow.params, flow.clock.unwrap_or(0));
                }
            }
            // Its features name no stage.
            Command::Modules(_) => {}
            Command::Transport(command) => self.stream_command(command, burst),
        }
    }

    fn stream_command(&mut self, command: stream::Command, burst: &mut Burst<'_, Stream>) {
        match command {
            stream::Command::Rename { flow, context, slot } => {
                self.end_membership(flow.0);
                self.rename(flow.0, context, slot);
            }
            stream::Command::OpenLog(context, end) => self.open_log(context, *end),
            stream::Command::JoinLog { flow, rx_head, mark } => self.join_log(flow.0, rx_head, mark, burst),
            stream::Command::GiveUpLog(context) => self.give_up_log(context, burst),
            stream::Command::ResumeLog(context, end, state) => self.resume_log(context, *end, &state),
            stream::Command::Move { flow, context, slot, rx, tx } => self.move_to(flow.0, context, slot, rx, tx),
            stream::Command::Freeze { flow, tx_head, rx_head } => self.freeze(flow, tx_head, rx_head, burst),
            stream::Command::Thaw(flow) => self.thaw(flow.0),
            stream::Command::Resume(id, end) => self.resume(id, &end, burst),
            stream::Command::Advance { flow, tx_head, rx_head, fin } => {
                let slot = Slot::default();
                self.bump(flow.0, &Bump { slot, tx_head, rx_head, fin, ring: u8::MAX }, burst);
            }
            stream::Command::Orphan(id) => {
                self.leave_log(id.0);
                if let Some(flow) = self.flow(id.0) {
                    flow.life.orphan();
                }
            }
            stream::Command::Window(id, cwnd) => {
                if let Some(flow) = self.flow(id.0) {
                    flow.set_window(cwnd);
                    self.may_send(id.0, burst);
                }
            }
            stream::Command::Growth(id, growth) => self.flow(id.0).into_iter().for_each(|flow| flow.set_growth(growth)),
            stream::Command::Rate(id, rate) => {
                self.set_rate(id.0, rate);
                // It may have waited for credits that come no more.
                self.may_send(id.0, burst);
            }
            stream::Command::Offer(id, bytes) => self.offer(id.0, bytes),
            stream::Command::Grown(id, ring) => {
                if let Some(flow) = self.flow(id.0) {
                    flow.rx_ring = ring;
                }
            }
            stream::Command::Mss(id, mss) => {
                if let Some(flow) = self.flow(id.0) {
                    flow.set_mss(mss);
                    flow.go_back();
                    self.may_send(id.0, burst);
                }
            }
            stream::Command::Nagle(..) => {}
            stream::Command::Retransmit(id, _) => self.timeout(id.0, burst),
            stream::Command::Overdue(id) => {
                if self.flow(id.0).is_some_and(Flow::overdue) {
                    self.may_send(id.0, burst);
                }
            }
            stream::Command::ProbeTail(id) => {
                if self.flow(id.0).is_some_and(Flow::probe_tail) {
                    self.may_send(id.0, burst);
                }
            }
            stream::Command::Probe(id) => {
                if let Some(flow) = self.flow(id.0) {
                    flow.overriding = true;
                }
                self.probe(id.0, burst);
                self.may_send(id.0, burst);
            }
            stream::Command::Untrack(id) => {
                if let Some(flow) = self.flow(id.0) {
                    flow.tracked = false;
                    self.may_send(id.0, burst);
                }
            }
        }
    }

    fn install(&mut self, params: FlowParams) {
        let id = params.flow.0;
        let free = self.flows.get(id as usize).is_some_and(Option::is_none);
        debug_assert!(free, "flow {id} is beyond the limit or in use");
        let clock = params.agreed.ts_offset.filter(|_| self.switch.program.has_timestamps());
        let same_family = params.tuple.local_ip.is_v4() == params.tuple.remote_ip.is_v4();
        if !free || !same_family || !self.switch.program.install(&params, clock.unwrap_or(0)) {
            return;
        }
        self.tuples.insert(bare(&params.tuple), id);
        self.flow_predictor.learn(&params.tuple, id);
        self.contexts.name(id, params.context.0, params.slot);
        let rate = params.rate;
        let mut flow = Flow::new(params);
        (flow.clock, flow.stamped_at) = (clock, self.now);
        flow.publish();
        self.flows[id as usize] = Some(Box::new(flow));
        self.set_rate(id, rate);
    }

    fn forget_tuple(&mut self, tuple: &FourTuple) {
        self.tuples.remove(&bare(tuple));
    }

    fn remove(&mut self, id: FlowId, burst: &mut Burst<'_, Stream>) {
        let Some(mut flow) = self.flows.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.leave_log_with(id.0, &mut flow);
        let end = self.flow_end(&flow);
        self.switch.program.remove(&flow.params);
        self.forget_tuple(&flow.params.tuple);
        self.contexts.forget(id.0, flow.params.context.0, flow.params.slot);
        if flow.completion_pending && flow.life != Owner::Orphan {
            self.contexts.part(flow.params.context.0, flow.completion(flow.params.slot));
        }
        self.paced.retain(|paced| *paced != id.0);
        self.ready.retain(|ready| *ready != id.0);
        burst.events.push(Event::Removed(id, end));
    }

    fn rename(&mut self, id: u32, context: ContextId, slot: Slot) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        self.contexts.forget(id, flow.params.context.0, flow.params.slot);
        self.switch.program.disown(id, flow.params.context.0);
        (flow.params.context, flow.params.slot) = (context, slot);
        flow.completion_pending = false;
        if !flow.frozen {
            self.switch.program.own(&flow.params, flow.tx_base);
        }
        self.contexts.name(id, context.0, slot);
        self.notify(id);
    }

    /// Credits by rate come from the packet generator: what a tick gives, and no more held than two ticks give, or two
    /// segments. Flows without a rate are granted their congestion window when they need it.
    fn set_rate(&mut self, id: u32, rate: u64) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        flow.rate = rate;
        self.paced.retain(|paced| *paced != id);
        if rate == 0 {
            return self.switch.program.pause(id);
        }
        let bytes = (rate * TICK / 1_000_000_000).clamp(1, 1 << 30) as u32;
        self.switch.program.grant_by_rate(id, flow.params.context.0, bytes, (2 * bytes).max(2 * flow.mss));
        self.paced.push(id);
    }

    /// The application's positions.
    fn bump(&mut self, id: u32, bump: &Bump, burst: &mut Burst<'_, Stream>) {
        if id == contexts::LOG {
            return self.trim_log(bump.slot.index, bump.rx_head, burst);
        }
        let Some(mut flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        if flow.frozen {
            return;
        }
        match flow.bump(bump) {
            Bumped::Taken => {}
            Bumped::Ended => burst.events.push(stream::Event::LocalFin(FlowId(id)).into()),
            Bumped::Impossible => return self.count_drop(Some(id), DropReason::BumpRange, burst),
        }
        if let Some(amount) = flow.replenish() {
            self.sync(id, amount, burst);
            let Some(again) = self.flows[id as usize].as_deref_mut() else { return };
            flow = again;
        }
        let asked = flow.asked;
        // With no flow ahead of it, it need not wait.
        if self.ready.is_empty() && self.pushed < ROUND_BYTES && flow.has_more() {
            self.push_of(id, burst);
        } else {
            flow.may_send(id, &mut self.ready, burst.events);
            flow.publish_sent();
        }
        if asked {
            self.report_sent(id);
        }
    }

    /// Receive buffer goes back to the pipeline, which notifies the peer.
    fn sync(&mut self, id: u32, amount: u32, burst: &mut Burst<'_, Stream>) {
        let Some(flow) = self.flow(id) else { return };
        flow.ack_due = None;
        let (context, edge) = (flow.params.context.0 as u16, flow.rcv_nxt().0);
        let dma = Dma { op: DMA_SYNC, context, flow: id as u16, position: amount, edge, ..Dma::default() };
        self.inject(PORT_HOST, &dma, burst);
    }

    /// An acknowledgement of what is there.
    fn acknowledge(&mut self, id: u32, burst: &mut Burst<'_, Stream>) {
        self.sync(id, 0, burst);
    }

    /// Retransmission timeout: the pipeline notifies the host to start again from the oldest byte.
    fn timeout(&mut self, id: u32, burst: &mut Burst<'_, Stream>) {
        let Some(flow) = self.flow(id).filter(|flow| flow.life != Owner::Dead) else { return };
        let context = flow.params.context.0 as u16;
        let closed = flow.edge.at_or_before(flow.una);
        let dma = Dma { op: DMA_GRANT, flags: TIMEOUT, context, flow: id as u16, ..Dma::default() };
        self.inject(PORT_CONTROL, &dma, burst);
        self.may_send(id, burst);
        if closed {
            // The window was closed over data in flight: only a probe can find out about it.
            self.probe(id, burst);
        }
    }

    /// The flow may have something to send.
    fn may_send(&mut self, id: u32, burst: &mut Burst<'_, Stream>) {
        if let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) {
            flow.may_send(id, &mut self.ready, burst.events);
            flow.publish();
        }
    }

    fn take_frames(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        // No modules of operators run here: frames that come back are as those from the port, and come first.
        if !burst.back.is_empty() {
            burst.rx.splice(0..0, burst.back.drain(..).map(|(_, frame)| frame));
        }
        let count = burst.rx.len();
        let mut frames = std::mem::take(burst.rx);
        self.prefetch_ahead(&frames);
        for (at, mut frame) in frames.drain(..).enumerate() {
            self.before_frame(at);
            match frames::verify(&mut frame) {
                Ok(()) => self.frame(PORT_NET, frame, burst),
                Err(reason) => self.refuse(frame, reason, None, burst),
            }
        }
        self.settle(burst);
        *burst.rx = frames;
        count
    }

    fn take_descriptors(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        let mut bumps = std::mem::take(&mut self.bumps);
        self.contexts.take(DESCRIPTORS, &mut bumps, burst.drops, burst.events);
        let count = bumps.len();
        for some in bumps.chunks(SOME) {
            self.before_bumps(some);
            some.iter().for_each(|(flow, bump)| self.bump(*flow, bump, burst));
        }
        bumps.clear();
        self.bumps = bumps;
        self.contexts.report_drained(burst.events);
        count
    }

    /// The packet generator: credits by rate, for flows that have a use for them (thesis 5.3.2.1).
    fn tick(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        if self.paced.is_empty() || self.now < self.last_tick + TICK {
            return 0;
        }
        // After a pause, credits do not pile up beyond what the grants allow.
        let rounds = ((self.now - self.last_tick) / TICK).min(4);
        self.last_tick = self.now;
        let active: Vec<u32> = self.paced.iter().copied().filter(|id| self.needs_credits(*id)).collect();
        for _ in 0..rounds {
            for id in &active {
                // The packet generator's header has its `packet_id` where a descriptor has its flow.
                let tick = Dma { flow: *id as u16, ..Dma::default() };
                self.inject(PORT_TIMER, &tick, burst);
            }
        }
        active.iter().for_each(|id| self.may_send(*id, burst));
        active.len()
    }

    fn needs_credits(&self, id: u32) -> bool {
        self.flows[id as usize].as_ref().is_some_and(|flow| flow.life != Owner::Dead && flow.nxt != flow.end())
    }

    /// Acknowledgements that the pipeline delayed and nothing took along. Thesis 5.5.3 leaves the timer to the control
    /// plane; here it is the host's half.
    fn late_acknowledgements(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        let mut count = 0;
        while let Some((_, id)) = self.delayed.front().copied().filter(|(time, _)| *time <= self.now) {
            self.delayed.pop_front();
            let now = self.now;
            let Some(flow) = self.flow(id) else { continue };
            match flow.ack_due {
                Some(due) if due > now => self.delayed.push_back((due, id)),
                due => {
                    flow.ack_listed = false;
                    if due.is_some() {
                        self.sync(id, 0, burst);
                        count += 1;
                    }
                }
            }
        }
        count
    }

    /// Pushes segments of flows that are next into the pipeline (thesis 5.3.2.2).
    fn push(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        let mut count = 0;
        while count < DESCRIPTORS && self.pushed < ROUND_BYTES {
            let Some(id) = self.ready.pop_front() else { break };
            count += self.push_of(id, burst) as usize;
        }
        count
    }

    /// A segment of a flow that stands in no list; whether it had one.
    fn push_of(&mut self, id: u32, burst: &mut Burst<'_, Stream>) -> bool {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return false };
        flow.track(id, burst.events);
        let Some(push) = flow.next_push() else {
            flow.ready = false;
            flow.publish_sent();
            return false;
        };
        let context = flow.params.context.0 as u16;
        let missing = flow.missing_credits(&push);
        let edge = flow.rcv_nxt().0;
        flow.credits += missing.unwrap_or(0);
        let flags = flow.tx_flags(&push);
        flow.pushed(&push, now);
        self.pushed += push.len;
        flow.ready = flow.has_more();
        if flow.ready {
            self.ready.push_back(id);
        }
        flow.publish_sent();
        let asked = flow.asked;
        if let Some(position) = missing {
            let (flow, edge) = (id as u16, i32::MAX as u32);
            let grant = Dma { op: DMA_GRANT, context, flow, position, edge, ..Dma::default() };
            self.inject(PORT_CONTROL, &grant, burst);
        }
        let dma = Dma {
            op: DMA_TX,
            flags,
            context,
            flow: id as u16,
            length: push.len as u16,
            position: push.position,
            edge,
            ..Dma::default()
        };
        let carried = Carried::Payload { flow: id, position: push.position, len: push.len };
        self.entry(PORT_HOST, &dma, carried, burst);
        if asked {
            self.report_sent(id);
        }
        true
    }
}

/// The connection as in headers: without zones.
fn bare(tuple: &FourTuple) -> FourTuple {
    FourTuple { local_ip: tuple.local_ip.in_zone(0), remote_ip: tuple.remote_ip.in_zone(0), ..*tuple }
}

impl Engine<Stream> for Laminar {
    fn name(&self) -> &'static str {
        "laminar"
    }

    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        self.now = now;
        self.pushed = 0;
        self.switch.program.set_time(now);
        let mut done = self.take_commands(burst);
        done += self.take_frames(burst);
        done += self.take_descriptors(burst);
        done += self.tick(burst);
        done += self.push(burst);
        done += self.late_acknowledgements(burst);
        self.advance_logs();
        self.deliver();
        done
    }

    fn load(&mut self, source: &ProgramSource) -> Result<(), String> {
        self.exchange(source)
    }

    fn registers(&mut self) -> Option<&mut dyn engine::Registers> {
        Some(&mut self.switch.program)
    }

    fn failure(&self) -> Option<String> {
        self.switch.program.pipeline.failure()
    }

    /// What the program's extensions write into headers.
    fn features(&self) -> Features<stream::Features> {
        let program = &self.switch.program;
        let (timestamps, sack) = (program.has_timestamps(), program.has_sack());
        // Meets RFC 3168: 6.1.3-a.
        let carries = Carries { timestamps, sack, echoes_until_cwr: false };
        let transport = stream::Features {
            carries,
            keeps_logs: program.has_logs(),
            grows: true,
            starts_small: true,
            v6: true,
            rack: false,
            urgent: false,
        };
        Features { hands_over: true, stages: &[], transport }
    }

    fn has_work(&self, now: Nanos) -> bool {
        let tick = self.next_tick().is_some_and(|due| due <= now);
        let late = self.delayed.front().is_some_and(|(due, _)| *due <= now);
        !self.ready.is_empty() || tick || late || self.contexts.has_work()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let room = self.contexts.waits().then_some(self.now + contexts::RETRY);
        let late = self.delayed.front().map(|(due, _)| *due);
        [room, self.next_tick(), late].into_iter().flatten().min()
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        let [ingress, egress, pseudo] = self.switch.counts;
        let row = |module: &str, value| (module.to_string(), "packets", value);
        let mut rows = vec![row("ingress", ingress), row("egress", egress), row("mirror", pseudo)];
        if self.switch.program.has_logs() {
            let counters = ["records", "holes", "filled"].into_iter().zip(self.logs.counts);
            rows.extend(counters.map(|(counter, value)| ("log".to_string(), counter, value)));
        }
        rows
    }
}

impl Laminar {
    fn next_tick(&self) -> Option<Nanos> {
        let active = self.paced.iter().any(|id| self.needs_credits(*id));
        active.then_some(self.last_tick + TICK)
    }
}
