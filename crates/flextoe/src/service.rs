//! Service around the pipeline, on the engine's own thread (the service island of thesis section 4.4.1). It has context
//! queue, flow scheduler, the way out, and the modules' figures.
use crate::context_queue::ContextQueue;
use crate::message::{Aside, Events, Job, Work};
use crate::scheduler::Scheduler;
use crate::traced::{self, ModuleName};
use engine::stream::{self, Stream};
use engine::{Burst, Event, FlowId, Limits, Nanos};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use trace::{NO_FLOW, Tracer};

pub(crate) struct Service {
    pub contexts: ContextQueue,
    pub scheduler: Scheduler,
    /// For each flow group, when the next delayed acknowledgement is due; `Nanos::MAX` for none.
    pub flush_due: Vec<Nanos>,
    /// Descriptors taken, and turns given.
    pub counts: [Arc<Count>; 2],
    /// The tracepoints of this thread.
    pub tracer: Tracer,
}

impl Service {
    /// With `threads`, modules are on threads of their own, so that works are on their way for a while.
    pub(crate) fn new(limits: &Limits, groups: u8, threads: bool) -> Service {
        Service {
            contexts: ContextQueue::new(limits.flows, limits.contexts),
            scheduler: Scheduler::new(limits.flows, threads),
            flush_due: vec![Nanos::MAX; groups as usize],
            counts: ["context_queue", "scheduler"].map(|name| Count::new(name.into())),
            tracer: Tracer::off(),
        }
    }

    /// Figures of context queue and flow scheduler.
    pub(crate) fn list(&self, into: &mut Vec<(String, &'static str, u64)>) {
        self.counts.iter().for_each(|count| count.list(into));
        for (count, waiting) in self.counts.iter().zip([self.contexts.waiting(), self.scheduler.waiting()]) {
            into.push((count.name().into(), "waiting", waiting as u64));
        }
    }

    pub(crate) fn flush_is_due(&self, group: usize, now: Nanos) -> bool {
        self.flush_due[group] <= now
    }

    /// A work leaves the pipeline: its frames go to the port, the rest to those whom it concerns. Payload is in its
    /// place by now, so that neither application nor peer gets completion of bytes that are not there (thesis section
    /// 4.3.1.3).
    #[inline(always)]
    pub(crate) fn leave(&mut self, work: &mut Work, now: Nanos, burst: &mut Burst<'_, Stream>) {
        if let Some(frame) = work.frame.take() {
            match work.exception {
                Some(exception) => burst.exceptions.push((exception, frame)),
                None => burst.pool.put(frame),
            }
        }
        if let Some(frame) = work.out.take() {
            burst.tx.push(frame);
        }
        match work.report {
            Some(report) => self.scheduler.report(work.flow, report, work.is_turn(), now),
            None if work.is_turn() => self.scheduler.turn_over(work.flow, work.sent(), now),
            None => {}
        }
        if let Some(positions) = work.completion {
            self.contexts.notify(work.flow, positions);
        }
        if !work.drops.is_empty() || !work.events.is_empty() || work.aside.is_some() {
            self.tell(work, burst);
        }
        if let Job::Flush { due } = work.job {
            self.flush_due[work.group as usize] = due;
        }
    }
}

impl Service {
    /// The rare results of works, of which the application gets some.
    #[cold]
    #[inline(never)]
    fn tell(&mut self, work: &mut Work, burst: &mut Burst<'_, Stream>) {
        if let Some(Aside::Sent(position)) = work.aside.as_deref() {
            self.contexts.report_sent(work.flow, *position);
        }
        tell(work, burst);
    }
}

/// The others: drops, and events for the control plane.
fn tell(work: &mut Work, burst: &mut Burst<'_, Stream>) {
    for reason in work.drops.iter() {
        burst.drops.count(reason);
    }
    let flow = FlowId(work.flow);
    let too = work.events.has(Events::ENDED_BEFORE);
    let each = [
        (Events::ACTIVE, Event::Transport(stream::Event::Active(flow))),
        (Events::LOCAL_FIN, Event::Transport(stream::Event::LocalFin(flow))),
        // Before FIN_ACKED, after which a closed connection leaves the engine without a reset (RFC 9293 section 3.6.1).
        (Events::ORPHAN_DATA, Event::Transport(stream::Event::OrphanData(flow))),
        (Events::FIN_ACKED, Event::Transport(stream::Event::FinAcked(flow))),
        (
            Events::PEER_FIN,
            if too {
                Event::Transport(stream::Event::PeerFinToo(flow))
            } else {
                Event::Transport(stream::Event::PeerFin(flow))
            },
        ),
        (Events::RESET, Event::Transport(stream::Event::Reset(flow))),
    ];
    burst.events.extend(each.into_iter().filter(|(bit, _)| work.events.has(*bit)).map(|(_, event)| event));
    burst.events.extend(work.aside.take().and_then(|aside| match *aside {
        Aside::End(end) => Some(Event::Removed(flow, end)),
        Aside::Frozen(Some(end)) => Some(Event::Transport(stream::Event::Frozen(flow, end))),
        Aside::Frozen(None) => Some(Event::Transport(stream::Event::Busy(flow))),
        Aside::Move(_) | Aside::Resume(_) | Aside::Grow(_) | Aside::Sent(_) => None,
    }));
}

/// Counts of one module, or of one replica.
pub(crate) struct Count {
    name: String,
    works: AtomicU64,
    batches: AtomicU64,
    /// Works whose batches were timed, and how long those took, nanoseconds.
    timed: AtomicU64,
    time: AtomicU64,
    /// The largest value reported of it.
    told: AtomicU64,
}

/// One batch of so many is timed, the first one among them.
const TIMED: u64 = 64;
/// The same while a tracepoint is on.
const TRACED: u64 = 8;

impl Count {
    pub(crate) fn new(name: String) -> Arc<Count> {
        let zero = || AtomicU64::new(0);
        Arc::new(Count { name, works: zero(), batches: zero(), timed: zero(), time: zero(), told: zero() })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Counts a batch. The module itself is the only writer.
    pub(crate) fn batch(&self, works: usize) {
        if works == 0 {
            return;
        }
        self.works.store(self.works.load(Relaxed) + works as u64, Relaxed);
        self.batches.store(self.batches.load(Relaxed) + 1, Relaxed);
    }

    /// The next batch is one that is timed.
    #[inline]
    pub(crate) fn is_due(&self, module: ModuleName, tracer: &Tracer) -> bool {
        let batches = self.batches.load(Relaxed);
        batches % TIMED == 0 || (batches % TRACED == 0 && tracer.is_on(module.points().1))
    }

    /// A module is about to process a batch: the time, where it is to be taken; otherwise 0.
    #[inline]
    pub(crate) fn begin(&self, module: ModuleName, tracer: &Tracer) -> u64 {
        if self.is_due(module, tracer) { tracer.ticks().max(1) } else { 0 }
    }

    /// The module has processed so many works, and that is all.
    #[inline]
    pub(crate) fn took(&self, module: ModuleName, works: usize, tracer: &Tracer) {
        self.batch(works);
        if works > 0 {
            tracer.value(module.points().0, NO_FLOW, works as u64);
        }
    }

    /// The module has processed it.
    #[inline]
    pub(crate) fn end(&self, module: ModuleName, works: &[Work], start: u64, tracer: &Tracer) {
        self.took(module, works.len(), tracer);
        if start != 0 {
            let took = tracer.ticks().saturating_sub(start);
            self.timed.store(self.timed.load(Relaxed) + works.len() as u64, Relaxed);
            self.time.store(self.time.load(Relaxed) + took, Relaxed);
            tracer.value(module.points().1, NO_FLOW, took);
        }
        traced::batch(module, works, tracer);
    }

    /// Time that all works took, nanoseconds, judged by those that were timed. It never goes back, as the mean may.
    fn busy(&self) -> u64 {
        let (works, timed, time) = (&self.works, &self.timed, &self.time);
        let [works, timed, time] = [works, timed, time].map(|figure| u128::from(figure.load(Relaxed)));
        let estimate = (time * works / timed.max(1)) as u64;
        self.told.fetch_max(estimate, Relaxed).max(estimate)
    }

    pub(crate) fn list(&self, into: &mut Vec<(String, &'static str, u64)>) {
        into.push((self.name.clone(), "works", self.works.load(Relaxed)));
        into.push((self.name.clone(), "batches", self.batches.load(Relaxed)));
        if self.timed.load(Relaxed) > 0 {
            into.push((self.name.clone(), "busy_ns", self.busy()));
        }
    }
}
