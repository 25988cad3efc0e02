//! Figures of each module, or each replica of it: works done, and times of samples.
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use trace::{NO_FLOW, Point, Tracer};

/// The module that processed a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleName {
    Preprocess,
    Protocol,
    Postprocess,
    Dma,
}

impl ModuleName {
    /// In the order in which works pass them.
    pub(crate) const ALL: [ModuleName; 4] =
        [ModuleName::Preprocess, ModuleName::Protocol, ModuleName::Postprocess, ModuleName::Dma];

    /// Batch size and time limit of the module.
    pub(crate) fn points(self) -> (Point, Point) {
        match self {
            ModuleName::Preprocess => (Point::PreprocessBatch, Point::PreprocessTime),
            ModuleName::Protocol => (Point::ProtocolBatch, Point::ProtocolTime),
            ModuleName::Postprocess => (Point::PostprocessBatch, Point::PostprocessTime),
            ModuleName::Dma => (Point::DmaBatch, Point::DmaTime),
        }
    }

    /// The ring from which it takes works, where it has a thread of its own.
    pub(crate) fn ring(self) -> Point {
        match self {
            ModuleName::Preprocess => Point::PreprocessRing,
            ModuleName::Protocol => Point::ProtocolRing,
            ModuleName::Postprocess => Point::PostprocessRing,
            ModuleName::Dma => Point::DmaRing,
        }
    }
}

/// Modules have processed so many works, and that is all.
#[inline]
pub(crate) fn took(modules: &[ModuleName], counts: &[Arc<Count>], works: usize, tracer: &Tracer) {
    counts.iter().for_each(|count| count.batch(works));
    if tracer.is_active() && works > 0 {
        modules.iter().for_each(|module| tracer.value(module.points().0, NO_FLOW, works as u64));
    }
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
    reported: AtomicU64,
}

/// One batch of so many is timed, the first one among them.
const TIMED: u64 = 64;
/// The same while a tracepoint is on.
const TRACED: u64 = 8;

impl Count {
    pub(crate) fn new(name: String) -> Arc<Count> {
        let zero = || AtomicU64::new(0);
        Arc::new(Count { name, works: zero(), batches: zero(), timed: zero(), time: zero(), reported: zero() })
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
    pub(crate) fn end(&self, module: ModuleName, works: usize, start: u64, tracer: &Tracer) {
        self.took(module, works, tracer);
        if start != 0 {
            let took = tracer.ticks().saturating_sub(start);
            self.timed.store(self.timed.load(Relaxed) + works as u64, Relaxed);
            self.time.store(self.time.load(Relaxed) + took, Relaxed);
            tracer.value(module.points().1, NO_FLOW, took);
        }
    }

    /// Time that all works took, nanoseconds, judged by those that were timed. It never goes back, as the mean may.
    fn busy(&self) -> u64 {
        let (works, timed, time) = (&self.works, &self.timed, &self.time);
        let [works, timed, time] = [works, timed, time].map(|figure| u128::from(figure.load(Relaxed)));
        let estimate = (time * works / timed.max(1)) as u64;
        self.reported.fetch_max(estimate, Relaxed).max(estimate)
    }

    pub(crate) fn list(&self, into: &mut Vec<(String, &'static str, u64)>) {
        into.push((self.name.clone(), "works", self.works.load(Relaxed)));
        into.push((self.name.clone(), "batches", self.batches.load(Relaxed)));
        if self.timed.load(Relaxed) > 0 {
            into.push((self.name.clone(), "busy_ns", self.busy()));
        }
    }
}
