//! FlexTOE: TCP's data-path as a data-parallel pipeline of modules (FlexTOE, NSDI '22, section 3; thesis sections 4.2
//! to 4.4). Modules keep private state and pass messages; only the protocol module must process a flow's works one
//! after the other. By default all modules run on one thread, batch by batch. They can be spread over threads and
//! replicated ([`Mapping`]), and are the same modules.
//!
//! | module | file | workflows |
//! |---|---|---|
//! | sequencer, netif | `netif`, `threads` | all |
//! | pre-processing | `preprocess` | RX: validate, look up, summarise, steer; TX: allocate; HC: steer |
//! | protocol | `protocol` | RX: windows, reassembly, loss; TX: sequence; HC: windows, FIN, go-back-N |
//! | post-processing | `postprocess` | RX: acknowledge, stamp, count; TX: head |
//! | DMA | `dma` | payload between frames and buffers |
//! | context queue | `context_queue` | HC: fetch; RX: notify |
//! | flow scheduler | `scheduler` | TX: which flow is next |
//! | all, of what is expected | `fast_path` | RX, TX: from the port to the application, and back, at once |
//! | modules of operators | `modules` | RX: before pre-processing and before protocol; TX: on the way out |
//!
//! Each module reports what happens to an observer (`observer`): to nobody, to counters, or to a stream of records.
#![forbid(unsafe_code)]

mod batch;
mod capture;
mod context_queue;
mod dma;
mod fast_path;
mod figures;
mod local;
mod lookup;
mod mapping;
mod message;
mod modules;
mod observer;
#[cfg(test)]
mod partition;
mod postprocess;
mod preprocess;
mod protocol;
mod reorder;
mod scheduler;
mod service;
mod slots;
mod threads;

pub use mapping::Mapping;

use batch::{BATCH, Batch};
use engine::stream::{self, FlowParams, Stream};
use engine::{
    Burst, Command, ContextId, DropReason, Engine, Event, Exception, Features, FlowId, Frame, FramePool, Limits,
    LoadedModule, Nanos, Slot, Stage, Worker,
};
use local::Local;
use message::{Aside, Buffers, Control, FlowCommand, Job, Relocation, Skips};
use modules::Chain;
pub use modules::native;
use service::Service;
use shm::ByteRing;
use std::collections::VecDeque;
use std::sync::Arc;
use threads::Threads;
use trace::{Tracer, Traces};
use wire::predicted::Parties;

/// Descriptors of applications taken in one round.
const DESCRIPTORS: usize = 256;
/// Received frames that wait at most while the pipeline drains for a command.
const WAITING: usize = 8192;

/// The FlexTOE engine.
pub struct FlexToe {
    /// The tracepoints of this thread.
    tracer: Tracer,
    service: Service,
    pipeline: Pipeline,
    commands: VecDeque<Step>,
    /// Frames received while a command waited.
    waiting: VecDeque<Box<Frame>>,
    /// The same of those that did not come from the port.
    waiting_back: VecDeque<(Exception, Box<Frame>)>,
    batch: Batch,
    /// Received frames that ingress modules let pass, where they did not let all; empty between rounds.
    arrivals: Vec<Box<Frame>>,
    /// Modules on the way out.
    egress: Chain,
    /// Modules see received frames.
    watched: bool,
    /// Frames came out that have not passed `egress`.
    emitted: bool,
    /// The flow group of each installed flow.
    groups: Vec<Option<u8>>,
    now: Nanos,
}

/// Where the modules are.
enum Pipeline {
    Local(Box<Local>),
    Threads(Box<Threads>),
}

/// A command, or the second half of one.
enum Step {
    Command(Command<Stream>),
    /// A flow's bytes have been copied to new buffers: use them, and the new name.
    Rebind {
        flow: FlowId,
        context: ContextId,
        slot: Slot,
        buffers: Buffers,
    },
    /// All that a context left has been taken, and may be on its way.
    Drained(ContextId),
}

impl FlexToe {
    /// An engine within `limits`, with its modules mapped as `mapping` has it (its factors brought within their
    /// limits). Modules on other threads get a handle to the frame pool.
    pub fn new(limits: Limits, mapping: Mapping, pool: FramePool) -> FlexToe {
        let mapping = mapping.clamped();
        let pipeline = if mapping.threads {
            Pipeline::Threads(Box::new(Threads::new(&limits, &mapping, &pool)))
        } else {
            Pipeline::Local(Box::new(Local::new(&limits, &mapping)))
        };
        FlexToe {
            tracer: Tracer::off(),
            service: Service::new(&limits, mapping.flow_groups, mapping.threads),
            pipeline,
            commands: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_back: VecDeque::new(),
            batch: Batch::default(),
            arrivals: Vec::with_capacity(BATCH),
            egress: Chain::new(Stage::Egress, 0),
            watched: false,
            emitted: false,
            groups: vec![None; limits.flows as usize],
            now: 0,
        }
    }

    /// Sends the collected works into the pipeline: received frames.
    fn run_received(&mut self, burst: &mut Burst<'_, Stream>) {
        if self.batch.is_empty() {
            return;
        }
        if let Pipeline::Local(local) = &mut self.pipeline {
            local.receive(&mut self.batch, self.now, &self.tracer, &self.service, burst);
        }
        self.run(burst);
    }

    /// Sends the collected works into the pipeline.
    fn run(&mut self, burst: &mut Burst<'_, Stream>) {
        if self.batch.is_empty() {
            return;
        }
        match &mut self.pipeline {
            Pipeline::Local(local) => local.run(&mut self.batch, self.now, &self.tracer, &mut self.service, burst),
            Pipeline::Threads(threads) => threads.admit(&mut self.batch),
        }
    }

    fn is_idle(&self) -> bool {
        match &self.pipeline {
            Pipeline::Local(_) => true,
            Pipeline::Threads(threads) => threads.is_idle(),
        }
    }

    fn is_full(&self) -> bool {
        match &self.pipeline {
            Pipeline::Local(_) => false,
            Pipeline::Threads(threads) => threads.is_full(),
        }
    }

    /// Carries out commands in order; returns how many. A command that changes the state of several modules waits until
    /// nothing is on its way through them. With all modules on one thread, that is always.
    fn take_commands(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        if !burst.commands.is_empty() {
            self.commands.extend(burst.commands.drain(..).map(Step::Command));
        }
        let mut done = 0;
        while let Some(step) = self.commands.pop_front() {
            if needs_drained(&step) {
                self.run(burst);
                // What has passed old modules inside must meet old ones on the way out, too.
                let half_way = self.emitted && matches!(step, Step::Command(Command::Modules(_)));
                if half_way || !self.is_idle() {
                    self.commands.push_front(step);
                    break;
                }
            }
            if let Some(step) = self.take_step(step, burst) {
                self.commands.push_front(step);
                break;
            }
            done += 1;
        }
        self.run(burst);
        done
    }

    /// Carries out one step; gives it back where the modules' rings had no room.
    fn take_step(&mut self, step: Step, burst: &mut Burst<'_, Stream>) -> Option<Step> {
        let command = match step {
            Step::Command(command) => command,
            Step::Drained(context) => {
                burst.events.push(Event::Drained(context));
                return None;
            }
            Step::Rebind { flow, context, slot, buffers } => {
                if !self.change_state(flow, &Control::Rebind(flow, buffers.clone())) {
                    return Some(Step::Rebind { flow, context, slot, buffers });
                }
                // Not before the bytes are there: a completion that still waited would send the application to them.
                if let Some(group) = self.group(flow) {
                    self.name(flow, group, context, slot, &buffers.rx);
                }
                self.flow_command(flow, Job::FlowCommand(FlowCommand::Announce));
                return None;
            }
        };
        match command {
            Command::Attach(context, end) => self.service.contexts.attach(context.0, end),
            Command::Drain(context) => self.service.contexts.drain(context.0),
            Command::Detach(context) => self.service.contexts.detach(context.0),
            Command::Install(params) => return self.install(params),
            Command::Remove(flow) => return self.remove(flow),
            Command::NextHop(flow, mac) => {
                let changed = self.change_state(flow, &Control::NextHop(flow, mac));
                return (!changed).then_some(Step::Command(Command::NextHop(flow, mac)));
            }
            Command::Modules(list) => return self.change(list),
            Command::Transport(command) => self.stream_command(command),
        }
        None
    }

    fn stream_command(&mut self, command: stream::Command) {
        match command {
            stream::Command::Rate(flow, rate) => self.service.scheduler.set_rate(flow.0, rate, self.now),
            stream::Command::Rename { flow, context, slot } => {
                if let Some(group) = self.group(flow) {
                    self.service.contexts.name((flow.0, group), context.0, slot);
                    self.flow_command(flow, Job::FlowCommand(FlowCommand::Announce));
                }
            }
            stream::Command::Move { flow, context, slot, rx, tx } => {
                if let Some(group) = self.group(flow) {
                    let buffers = Buffers { rx, tx };
                    let relocation = Relocation { new: buffers.clone(), rx: (0, 0), tx: (0, 0) };
                    let work = self.batch.add(flow.0, Job::Move);
                    (work.group, work.aside) = (group, Some(Box::new(Aside::Move(relocation))));
                    self.commands.push_front(Step::Rebind { flow, context, slot, buffers });
                }
            }
            stream::Command::Resume(flow, end) => {
                if let Some(group) = self.group(flow) {
                    let work = self.batch.add(flow.0, Job::Resume);
                    (work.group, work.aside) = (group, Some(Box::new(Aside::Resume(end))));
                }
            }
            stream::Command::Advance { flow, tx_head, rx_head, fin } => {
                self.flow_command(flow, Job::FlowCommand(FlowCommand::CheckGrowth));
                self.flow_command(flow, Job::Bump { tx_head, rx_head, fin, grant: false });
            }
            stream::Command::Freeze { flow, tx_head, rx_head } => {
                self.flow_command(flow, Job::FlowCommand(FlowCommand::CheckGrowth));
                self.flow_command(flow, Job::Freeze { tx_head, rx_head });
            }
            stream::Command::Thaw(flow) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Thaw)),
            stream::Command::Orphan(flow) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Orphan)),
            stream::Command::Window(flow, cwnd) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Window(cwnd))),
            stream::Command::Growth(flow, growth) => {
                self.flow_command(flow, Job::FlowCommand(FlowCommand::Growth(growth)));
            }
            stream::Command::Offer(flow, bytes) => {
                self.flow_command(flow, Job::FlowCommand(FlowCommand::Offer(bytes)));
            }
            stream::Command::Mss(flow, mss) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Mss(mss))),
            stream::Command::Nagle(flow, on) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Nagle(on))),
            stream::Command::Retransmit(flow, recent) => {
                self.flow_command(flow, Job::FlowCommand(FlowCommand::Retransmit(recent)));
            }
            stream::Command::Grown(flow, ring) => self.service.contexts.grown(flow.0, ring),
            // The protocol module has a timer of its own.
            stream::Command::Overdue(_) => {}
            stream::Command::ProbeTail(flow) => self.flow_command(flow, Job::FlowCommand(FlowCommand::ProbeTail)),
            stream::Command::Probe(flow) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Probe)),
            stream::Command::Untrack(flow) => self.flow_command(flow, Job::FlowCommand(FlowCommand::Untrack)),
            // It keeps none, as its features have it.
            stream::Command::OpenLog(..)
            | stream::Command::JoinLog { .. }
            | stream::Command::GiveUpLog(_)
            | stream::Command::ResumeLog(..) => {}
        }
    }

    /// Gives a flow with this receive ring a name.
    fn name(&mut self, flow: FlowId, group: u8, context: ContextId, slot: Slot, rx: &ByteRing) {
        self.service.contexts.name((flow.0, group), context.0, slot);
        if rx.has_grown() {
            self.service.contexts.grown(flow.0, rx.number());
        }
    }

    fn group(&self, flow: FlowId) -> Option<u8> {
        self.groups.get(flow.0 as usize).copied().flatten()
    }

    fn flow_command(&mut self, flow: FlowId, job: Job) {
        if let Some(group) = self.group(flow) {
            self.batch.add(flow.0, job).group = group;
        }
    }

    /// Sends a change to all modules with state of the flow. False where a ring has no room now.
    fn change_state(&mut self, flow: FlowId, control: &Control) -> bool {
        let Some(group) = self.group(flow) else { return true };
        match &mut self.pipeline {
            Pipeline::Local(local) => local.control(control, group as usize, self.now),
            Pipeline::Threads(threads) => return threads.control(control, group as usize),
        }
        true
    }

    fn install(&mut self, params: Box<FlowParams>) -> Option<Step> {
        let params: Arc<FlowParams> = Arc::from(params);
        let flow = params.flow;
        let free = self.groups.get(flow.0 as usize).is_some_and(Option::is_none);
        debug_assert!(free, "{flow:?} is beyond the limit or in use");
        let (parties, _) = Parties::of_received(&params.tuple).filter(|_| free)?;
        let group = (lookup::hash(&parties) % self.service.flush_due.len() as u32) as u8;
        self.groups[flow.0 as usize] = Some(group);
        if !self.change_state(flow, &Control::Install(Arc::clone(&params))) {
            self.groups[flow.0 as usize] = None;
            return Some(Step::Command(Command::Install(Box::new(FlowParams::clone(&params)))));
        }
        self.name(flow, group, params.context, params.slot, &params.rx);
        self.service.scheduler.install(flow.0, group, params.rate);
        None
    }

    fn remove(&mut self, flow: FlowId) -> Option<Step> {
        let group = self.group(flow)?;
        if !self.change_state(flow, &Control::Forget(flow)) {
            return Some(Step::Command(Command::Remove(flow)));
        }
        self.groups[flow.0 as usize] = None;
        self.service.contexts.part(flow.0);
        self.service.scheduler.remove(flow.0);
        self.batch.add(flow.0, Job::Remove).group = group;
        None
    }

    /// From now on these modules of operators run. Gives the command back where the modules' rings had no room.
    fn change(&mut self, list: Vec<LoadedModule>) -> Option<Step> {
        match &mut self.pipeline {
            Pipeline::Local(local) => local.change(&list),
            Pipeline::Threads(threads) => {
                if !threads.change(&list) {
                    return Some(Step::Command(Command::Modules(list)));
                }
            }
        }
        self.egress.change(&list);
        self.watched = list.iter().any(|module| module.source.stage() != Stage::Egress);
        None
    }

    /// Received frames enter; where a command waits, they wait behind it.
    fn take_frames(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        let blocked = !self.commands.is_empty();
        let count = burst.rx.len() + burst.back.len();
        if count == 0 && self.waiting.is_empty() && self.waiting_back.is_empty() {
            return 0;
        }
        if blocked || !self.waiting.is_empty() || !self.waiting_back.is_empty() {
            self.wait(burst);
            if blocked {
                return 0;
            }
            burst.rx.extend(self.waiting.drain(..));
            burst.back.extend(self.waiting_back.drain(..));
        }
        if !burst.back.is_empty() {
            for (why, frame) in burst.back.drain(..) {
                self.batch.receive(frame);
                if let Some(work) = self.batch.last_mut() {
                    work.skips = if why == Exception::Redirected { Skips::Modules } else { Skips::Ingress };
                }
            }
            self.run_received(burst);
        }
        let mut frames = std::mem::take(burst.rx);
        if self.watched {
            // Another host's modules may have left something.
            frames.iter_mut().for_each(|frame| frame.metadata = [0; 4]);
        }
        if let Pipeline::Local(local) = &mut self.pipeline {
            if !local.ingress.is_empty() && !frames.is_empty() {
                modules::admit(&mut local.ingress, &mut frames, &mut self.arrivals, self.now, burst);
            }
        }
        let mut left = frames.drain(..);
        while left.len() > 0 {
            let FlexToe { pipeline, batch, tracer, service, now, .. } = self;
            match pipeline {
                Pipeline::Local(local) => {
                    local.arrive(&mut left.by_ref().take(BATCH), batch, *now, tracer, service, burst);
                }
                Pipeline::Threads(_) => batch.receive_most(&mut left, BATCH),
            }
            self.run_received(burst);
        }
        drop(left);
        *burst.rx = frames;
        count
    }

    /// Keeps received frames until a command has been carried out, as many as there is room for.
    #[cold]
    fn wait(&mut self, burst: &mut Burst<'_, Stream>) {
        for frame in burst.rx.drain(..) {
            if self.waiting.len() < WAITING {
                self.waiting.push_back(frame);
            } else {
                capture::refused(&frame, DropReason::PortQueue, self.now, &mut burst.recorder);
                burst.drops.count(DropReason::PortQueue);
                burst.pool.put(frame);
            }
        }
        for (why, frame) in burst.back.drain(..) {
            if self.waiting_back.len() < WAITING {
                self.waiting_back.push_back((why, frame));
            } else {
                capture::refused(&frame, DropReason::PortQueue, self.now, &mut burst.recorder);
                burst.drops.count(DropReason::PortQueue);
                burst.pool.put(frame);
            }
        }
    }

    /// The applications' descriptors, then the segments that the flow scheduler grants.
    fn take_descriptors(&mut self, burst: &mut Burst<'_, Stream>) -> usize {
        if !self.commands.is_empty() || self.is_full() {
            return 0;
        }
        let mut done = 0;
        while done < DESCRIPTORS {
            let Service { contexts, scheduler, counts, .. } = &mut self.service;
            let taken = contexts.poll(&mut self.batch, scheduler, burst.drops, burst.events, &self.tracer);
            if taken.descriptors == 0 {
                break;
            }
            counts[0].batch(taken.descriptors);
            counts[1].batch(taken.grants);
            self.run(burst);
            done += taken.descriptors;
        }
        let drained = self.service.contexts.drained();
        if !drained.is_empty() {
            self.commands.extend(drained.into_iter().map(|context| Step::Drained(ContextId(context))));
        }
        let Service { scheduler, counts, .. } = &mut self.service;
        scheduler.pick(self.now, BATCH, &mut self.batch, &self.tracer);
        counts[1].batch(self.batch.len());
        done += self.batch.len();
        self.run(burst);
        done
    }
}

/// The command changes the state of several modules.
fn needs_drained(step: &Step) -> bool {
    match step {
        Step::Rebind { .. } | Step::Drained(_) => true,
        Step::Command(command) => {
            use Command::{Install, Modules, NextHop, Remove, Transport};
            matches!(
                command,
                Install(_) | Remove(_) | NextHop(..) | Modules(_) | Transport(stream::Command::Move { .. })
            )
        }
    }
}

impl Engine<Stream> for FlexToe {
    fn name(&self) -> &'static str {
        "flextoe"
    }

    fn poll(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        self.now = now;
        self.tracer.refresh();
        let sent_before = burst.tx.len();
        let mut done = 0;
        if let Pipeline::Threads(threads) = &mut self.pipeline {
            done += threads.pump(now, &self.tracer, &mut self.service, burst);
            self.emitted |= burst.tx.len() > sent_before;
        }
        done += self.take_commands(burst);
        done += self.take_frames(burst);
        done += self.take_descriptors(burst);
        match &mut self.pipeline {
            Pipeline::Local(local) => done += local.flush(done > 0, now, &self.tracer, &mut self.service, burst),
            Pipeline::Threads(threads) => done += threads.pump(now, &self.tracer, &mut self.service, burst),
        }
        self.service.contexts.deliver(&self.tracer);
        self.emitted |= burst.tx.len() > sent_before;
        done
    }

    fn egress(&mut self, now: Nanos, from: usize, burst: &mut Burst<'_, Stream>) {
        self.emitted = false;
        if !self.egress.is_empty() && burst.tx.len() > from {
            modules::depart(&mut self.egress, from, now, burst);
        }
    }

    fn features(&self) -> Features<stream::Features> {
        // On threads of their own, others could be copying to the small ring when the stream leaves it.
        let grows = matches!(self.pipeline, Pipeline::Local(_));
        let (starts_small, v6, rack, urgent) = (grows, true, true, true);
        let transport = stream::Features { grows, starts_small, v6, rack, urgent, ..Default::default() };
        Features { hands_over: true, stages: &[Stage::Ingress, Stage::Flow, Stage::Egress], transport }
    }

    fn has_work(&self, now: Nanos) -> bool {
        let moving = match &self.pipeline {
            Pipeline::Local(_) => false,
            Pipeline::Threads(threads) => threads.has_work(),
        };
        moving
            || !self.commands.is_empty()
            || self.service.contexts.has_work()
            || self.service.scheduler.has_work(now)
            || (0..self.service.flush_due.len()).any(|group| self.service.flush_is_due(group, now))
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let acknowledgement = self.service.flush_due.iter().copied().min().filter(|due| *due != Nanos::MAX);
        let room = self.service.contexts.next_deadline(self.now);
        [acknowledgement, room, self.service.scheduler.next_deadline()].into_iter().flatten().min()
    }

    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        match &mut self.pipeline {
            Pipeline::Local(_) => Vec::new(),
            Pipeline::Threads(threads) => threads.workers(),
        }
    }

    fn trim(&mut self) {
        match &mut self.pipeline {
            Pipeline::Local(_) => {}
            Pipeline::Threads(threads) => threads.trim(),
        }
    }

    fn trace(&mut self, traces: &Traces) {
        self.tracer = traces.tracer("flextoe");
        if let Pipeline::Threads(threads) = &mut self.pipeline {
            threads.trace(traces);
        }
    }

    fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        let mut list = Vec::new();
        match &self.pipeline {
            Pipeline::Local(local) => local.counts().iter().for_each(|count| count.list(&mut list)),
            Pipeline::Threads(threads) => threads.list(&mut list),
        }
        self.service.list(&mut list);
        list
    }
}
