//! The pipeline on several threads: replicated modules, joined by bounded rings (thesis section 4.3.2). The modules are
//! the same as in [`crate::local`]; here is only how works get from one to the next:
//!
//! ```text
//! sequencer -> preprocess.* -> reorder, steer -> protocol.* -> postprocess.* -> dma.* -> reorder -> out
//! (engine's thread)            (engine's thread)                                         (engine's thread)
//! ```
//!
//! The engine's thread never waits for a ring: what does not fit stays in its queues. A worker that cannot pass its
//! results on takes nothing more until it can. So there is back-pressure, nothing is lost, and nothing can lock up.
use crate::batch::{BATCH, Batch};
use crate::capture;
use crate::dma::Dma;
use crate::figures::{Count, ModuleName};
use crate::mapping::Mapping;
use crate::message::{Control, Job, Work};
use crate::modules::{self, Chain};
use crate::observer::observed;
use crate::postprocess::Postprocess;
use crate::preprocess::Preprocess;
use crate::protocol::Protocol;
use crate::reorder::Reorder;
use crate::service::Service;
use crossbeam_queue::ArrayQueue;
use engine::stream::Stream;
use engine::{Burst, FramePool, Limits, LoadedModule, Nanos, Worker};
use std::collections::VecDeque;
use std::sync::Arc;
use trace::{NO_FLOW, Point, Tracer, Traces};

/// Works in a ring, and works on their way at most.
const RING: usize = 1024;

/// What a ring carries. Works are moved, not boxed: an allocation each would cost more than the copy.
#[allow(clippy::large_enum_variant)]
enum Message {
    Work(Work),
    Control(Control),
}

type Ring = Arc<ArrayQueue<Message>>;

fn ring() -> Ring {
    Arc::new(ArrayQueue::new(RING))
}

/// The engine's side of the workers.
pub(crate) struct Threads {
    /// Works that wait to enter.
    entry: VecDeque<Work>,
    /// Number of the next work that enters.
    ticket: u64,
    /// Works that entered and have not left.
    in_flight: usize,
    preprocess: Vec<Ring>,
    preprocessed: Ring,
    ingress: Reorder<Work>,
    /// For each flow group, works in order that wait for its protocol module.
    steered: Vec<VecDeque<Work>>,
    protocol: Vec<Ring>,
    postprocess: Vec<Ring>,
    dma: Vec<Ring>,
    finished: Ring,
    egress: Vec<Reorder<Work>>,
    stages: Vec<ModuleWorker>,
    /// What each worker did, and its ring.
    figures: Vec<(Arc<Count>, Ring)>,
}

impl Threads {
    pub(crate) fn new(limits: &Limits, mapping: &Mapping, pool: &FramePool) -> Threads {
        let rings = |count: u8| (0..count).map(|_| ring()).collect::<Vec<Ring>>();
        let (preprocess, protocol) = (rings(mapping.preprocess), rings(mapping.flow_groups));
        let (postprocess, dma) = (rings(mapping.postprocess), rings(mapping.dma));
        let (preprocessed, finished) = (ring(), ring());
        let mut stages = Vec::new();
        let mut add = |name: &str, index: usize, module: Module, input: &Ring, outputs: &[Ring]| {
            let count = Count::new(format!("{name}.{index}"));
            stages.push(ModuleWorker::new(module, input, outputs, pool.clone(), count));
        };
        for (i, input) in preprocess.iter().enumerate() {
            let module = Preprocess::new(limits.flows, mapping.flow_groups);
            let module = Module::Preprocess(Chain::new(engine::Stage::Ingress, i as u32), module);
            add("preprocess", i, module, input, std::slice::from_ref(&preprocessed));
        }
        for (i, input) in protocol.iter().enumerate() {
            let module = Protocol::new(i as u8, limits.flows, true);
            let module = Module::Protocol(Chain::new(engine::Stage::Flow, i as u32), module);
            add("protocol", i, module, input, &postprocess);
        }
        for (i, input) in postprocess.iter().enumerate() {
            let module = Postprocess::new(limits.flows, mapping.postprocess > 1);
            add("postprocess", i, Module::Postprocess(module), input, &dma);
        }
        for (i, input) in dma.iter().enumerate() {
            add("dma", i, Module::Dma(Dma::new(limits.flows)), input, std::slice::from_ref(&finished));
        }
        let groups = protocol.len();
        Threads {
            entry: VecDeque::new(),
            ticket: 0,
            in_flight: 0,
            preprocess,
            preprocessed,
            ingress: Reorder::new(),
            steered: (0..groups).map(|_| VecDeque::new()).collect(),
            protocol,
            postprocess,
            dma,
            finished,
            egress: (0..groups).map(|_| Reorder::new()).collect(),
            figures: stages.iter().map(|stage| (Arc::clone(&stage.count), Arc::clone(&stage.input))).collect(),
            stages,
        }
    }

    /// Nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.entry.is_empty() && self.in_flight == 0
    }

    /// Works are better left where they are.
    pub(crate) fn is_full(&self) -> bool {
        self.entry.len() + self.in_flight >= RING
    }

    /// Sends to all modules that are concerned; false where a ring has no room, and nothing was sent. To be called when
    /// idle only, so that no work overtakes or is overtaken.
    pub(crate) fn control(&mut self, control: &Control, group: usize) -> bool {
        debug_assert!(self.is_idle());
        let replicated = || self.preprocess.iter().chain(&self.postprocess).chain(&self.dma);
        let rings = || replicated().chain([&self.protocol[group]]);
        // With nothing on its way, the only other party at these rings is the one that empties them.
        if rings().any(|ring| ring.is_full()) {
            return false;
        }
        rings().all(|ring| ring.push(Message::Control(control.clone())).is_ok())
    }

    /// Sends all replicas which modules of operators run from now on; false where a ring has no room, and nobody was
    /// notified. To be called when idle only.
    pub(crate) fn change(&mut self, modules: &[LoadedModule]) -> bool {
        debug_assert!(self.is_idle());
        let rings = || self.preprocess.iter().chain(&self.protocol);
        if rings().any(|ring| ring.is_full()) {
            return false;
        }
        let modules: Arc<[LoadedModule]> = modules.into();
        rings().all(|ring| ring.push(Message::Control(Control::Modules(Arc::clone(&modules)))).is_ok())
    }

    /// Takes works in; they enter as there is room.
    pub(crate) fn admit(&mut self, batch: &mut Batch) {
        self.entry.extend(batch.drain());
    }

    /// Moves everything on that can move on; returns how much.
    pub(crate) fn pump(
        &mut self,
        now: Nanos,
        tracer: &Tracer,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        if tracer.is_active() && !self.is_idle() {
            self.occupancy(tracer);
        }
        self.leave(now, tracer, service, burst) + self.enter() + self.steer(now, service, burst)
    }

    /// What waits between the modules that are on this thread.
    #[cold]
    fn occupancy(&self, tracer: &Tracer) {
        let steered: usize = self.steered.iter().map(VecDeque::len).sum();
        let waiting = [
            (Point::SequencerWaiting, self.entry.len() + steered),
            (Point::SteerRing, self.preprocessed.len()),
            (Point::NetifRing, self.finished.len()),
        ];
        waiting.iter().for_each(|(point, works)| tracer.value(*point, NO_FLOW, *works as u64));
    }

    /// Each worker writes to tracepoints by itself.
    pub(crate) fn trace(&mut self, traces: &Traces) {
        self.stages.iter_mut().for_each(|stage| stage.tracer = traces.tracer(stage.count.name()));
    }

    fn enter(&mut self) -> usize {
        let mut entered = 0;
        while self.in_flight < RING {
            let Some(mut work) = self.entry.pop_front() else { break };
            work.ticket = self.ticket;
            let replica = (self.ticket % self.preprocess.len() as u64) as usize;
            if let Err(Message::Work(work)) = self.preprocess[replica].push(Message::Work(work)) {
                self.entry.push_front(work);
                break;
            }
            self.ticket += 1;
            self.in_flight += 1;
            entered += 1;
        }
        entered
    }

    /// From pre-processing, in order, to the flow groups' protocol modules; each batch ends with a flush.
    fn steer(&mut self, now: Nanos, service: &mut Service, burst: &mut Burst<'_, Stream>) -> usize {
        let mut moved = 0;
        while let Some(message) = self.preprocessed.pop() {
            if let Message::Work(work) = message {
                self.ingress.put(work.ticket, work);
                moved += 1;
            }
        }
        // One bit for each flow group: there are at most 16.
        let mut fresh = 0u32;
        while let Some(mut work) = self.ingress.take() {
            if let Job::Void = work.job {
                self.in_flight -= 1;
                capture::work(&mut work, now, burst);
                service.leave(&mut work, now, burst);
            } else {
                fresh |= 1 << work.group;
                self.steered[work.group as usize].push_back(work);
            }
        }
        for group in 0..self.steered.len() {
            if fresh >> group & 1 == 1 || service.flush_is_due(group, now) {
                service.flush_due[group] = Nanos::MAX;
                self.in_flight += 1;
                let flush = Work::new(u32::MAX, Job::Flush { due: Nanos::MAX });
                self.steered[group].push_back(Work { group: group as u8, ..flush });
            }
            self.feed(group);
        }
        moved
    }

    fn feed(&mut self, group: usize) {
        while let Some(work) = self.steered[group].pop_front() {
            if let Err(Message::Work(work)) = self.protocol[group].push(Message::Work(work)) {
                self.steered[group].push_front(work);
                break;
            }
        }
    }

    fn leave(&mut self, now: Nanos, tracer: &Tracer, service: &mut Service, burst: &mut Burst<'_, Stream>) -> usize {
        let mut left = 0;
        while let Some(message) = self.finished.pop() {
            if let Message::Work(work) = message {
                self.egress[work.group as usize].put(work.ticket, work);
            }
        }
        for egress in &mut self.egress {
            while let Some(mut work) = egress.take() {
                // What the protocol module made never entered.
                self.in_flight -= !matches!(work.job, Job::Ack | Job::Overdue) as usize;
                left += 1;
                tracer.value(Point::InFlight, work.flow, self.in_flight as u64);
                capture::work(&mut work, now, burst);
                service.leave(&mut work, now, burst);
            }
        }
        left
    }

    pub(crate) fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        std::mem::take(&mut self.stages).into_iter().map(|stage| Box::new(stage) as Box<dyn Worker>).collect()
    }

    /// Queues that a burst made long become short again: each may have had place for [`RING`] works.
    pub(crate) fn trim(&mut self) {
        self.entry.shrink_to_fit();
        self.steered.iter_mut().for_each(VecDeque::shrink_to_fit);
        self.ingress.shrink();
        self.egress.iter_mut().for_each(Reorder::shrink);
    }

    /// Something is on its way, or has arrived.
    pub(crate) fn has_work(&self) -> bool {
        !self.is_idle()
    }

    /// Figures of the workers' modules, and of what waits on this thread.
    pub(crate) fn list(&self, into: &mut Vec<(String, &'static str, u64)>) {
        for (count, ring) in &self.figures {
            count.list(into);
            into.push((count.name().into(), "waiting", ring.len() as u64));
        }
        let steered: usize = self.steered.iter().map(VecDeque::len).sum();
        into.push(("sequencer".into(), "waiting", (self.entry.len() + steered) as u64));
        into.push(("netif".into(), "waiting", self.finished.len() as u64));
    }
}

/// The engine's own modules, with the chains of operators' that run before them.
enum Module {
    Preprocess(Chain, Preprocess),
    Protocol(Chain, Protocol),
    Postprocess(Postprocess),
    Dma(Dma),
}

impl Module {
    fn control(&mut self, control: &Control, now: Nanos) {
        match (self, control) {
            (Module::Preprocess(chain, _) | Module::Protocol(chain, _), Control::Modules(list)) => chain.change(list),
            (Module::Preprocess(_, module), _) => module.control(control),
            (Module::Protocol(_, module), _) => module.control(control, now),
            (Module::Postprocess(module), _) => module.control(control),
            (Module::Dma(module), _) => module.control(control),
        }
    }

    /// Which one it is, at tracepoints.
    fn stage(&self) -> ModuleName {
        match self {
            Module::Preprocess(..) => ModuleName::Preprocess,
            Module::Protocol(..) => ModuleName::Protocol,
            Module::Postprocess(..) => ModuleName::Postprocess,
            Module::Dma(..) => ModuleName::Dma,
        }
    }
}

/// One module with its rings: a worker.
struct ModuleWorker {
    module: Module,
    input: Ring,
    outputs: Vec<Ring>,
    /// Results that did not fit.
    held: VecDeque<Work>,
    batch: Batch,
    pool: FramePool,
    count: Arc<Count>,
    tracer: Tracer,
}

impl ModuleWorker {
    fn new(module: Module, input: &Ring, outputs: &[Ring], pool: FramePool, count: Arc<Count>) -> ModuleWorker {
        let (input, outputs, held) = (Arc::clone(input), outputs.to_vec(), VecDeque::new());
        let batch = Batch::default();
        ModuleWorker { module, input, outputs, held, batch, pool, count, tracer: Tracer::off() }
    }

    /// Takes works up to a control message or the end of a batch.
    fn take(&mut self, now: Nanos) {
        while self.batch.len() < BATCH {
            match self.input.pop() {
                None => break,
                Some(Message::Work(work)) => {
                    let last = matches!(work.job, Job::Flush { .. });
                    self.batch.push(work);
                    if last {
                        break;
                    }
                }
                Some(Message::Control(control)) => {
                    self.process(now);
                    self.module.control(&control, now);
                }
            }
        }
    }

    fn process(&mut self, now: Nanos) {
        if self.batch.is_empty() {
            return;
        }
        let stage = self.module.stage();
        let start = self.count.begin(stage, &self.tracer);
        observed!(&self.tracer, observer => match &mut self.module {
            Module::Preprocess(chain, module) => {
                modules::ingress(chain, &mut self.batch, now, &mut self.pool);
                module.process(&mut self.batch, observer);
            }
            Module::Protocol(chain, module) => {
                modules::flow(chain, &mut self.batch, now, &mut self.pool);
                module.process(&mut self.batch, now, observer);
            }
            Module::Postprocess(module) => module.process(&mut self.batch, now, &mut self.pool),
            Module::Dma(module) => module.process(&mut self.batch, observer),
        });
        self.count.end(stage, self.batch.len(), start, &self.tracer);
        self.held.extend(self.batch.drain());
    }

    /// Passes results on; each output takes the works whose number falls to it.
    fn pass_on(&mut self) {
        while let Some(work) = self.held.pop_front() {
            let output = (work.ticket % self.outputs.len() as u64) as usize;
            if let Err(Message::Work(work)) = self.outputs[output].push(Message::Work(work)) {
                self.held.push_front(work);
                break;
            }
        }
    }
}

impl Worker for ModuleWorker {
    fn name(&self) -> String {
        self.count.name().into()
    }

    fn poll(&mut self, now: Nanos) -> usize {
        self.tracer.refresh();
        self.pass_on();
        if !self.held.is_empty() {
            return 0;
        }
        if !self.input.is_empty() {
            self.tracer.value(self.module.stage().ring(), NO_FLOW, self.input.len() as u64);
        }
        self.take(now);
        let done = self.batch.len();
        self.process(now);
        self.pass_on();
        done + self.held.len()
    }

    fn trim(&mut self) -> bool {
        self.held.shrink_to_fit();
        self.batch.shrink();
        self.pool.free_own()
    }
}
