//! The writing end: one for each thread, or module replica on a thread of its own.
use crate::histogram::{Histogram, increase};
use crate::log::{Log, Record};
use crate::points::{Kind, Point};
use crate::set::{PointSet, WORDS};
use std::array::from_fn;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, OnceLock};

/// Where tracers have the time from, nanoseconds: they read no clock of their own.
pub type Ticks = fn() -> u64;

/// What stands for no flow.
pub const NO_FLOW: u32 = u32::MAX;

/// One work in so many is timed by [`Tracer::sample`].
const SAMPLE: u32 = 32;

/// What is on, for all tracers of a host.
#[derive(Default)]
pub(crate) struct Switches {
    /// Changes after each change of the rest.
    generation: AtomicU64,
    on: [AtomicU64; WORDS],
    streamed: [AtomicU64; WORDS],
    /// Bit `flow % 64` for each flow whose records are wanted.
    flows: AtomicU64,
}

impl Switches {
    /// What is on, of that what is streamed, and of which flows.
    pub(crate) fn set(&self, on: PointSet, streamed: PointSet, flows: u64) {
        for word in 0..WORDS {
            self.on[word].store(on.0[word], Relaxed);
            self.streamed[word].store(streamed.0[word], Relaxed);
        }
        self.flows.store(flows, Relaxed);
        self.generation.fetch_add(1, Release);
    }

    pub(crate) fn on(&self) -> PointSet {
        PointSet(from_fn(|word| self.on[word].load(Relaxed)))
    }
}

/// What a thread has counted. Made when something is first on.
pub(crate) struct Sheet {
    pub counts: [AtomicU64; Point::ALL.len()],
    /// For each point that is a histogram.
    pub histograms: Vec<Option<Box<Histogram>>>,
}

impl Sheet {
    pub(crate) fn new() -> Sheet {
        let histogram = |point: &Point| (point.kind() == Kind::Histogram).then(|| Box::new(Histogram::new()));
        Sheet { counts: from_fn(|_| AtomicU64::new(0)), histograms: Point::ALL.iter().map(histogram).collect() }
    }
}

/// A tracer's data, which others read. They also make it: the data-path allocates nothing.
pub(crate) struct Shared {
    pub name: String,
    pub number: u16,
    pub sheet: OnceLock<Sheet>,
    pub log: OnceLock<Log>,
}

/// The writing end. Points that are off cost one predicted branch each.
pub struct Tracer {
    on: PointSet,
    streamed: PointSet,
    flows: u64,
    generation: u64,
    /// Time of what happens now.
    time: Cell<u64>,
    samples: Cell<u32>,
    ticks: Ticks,
    shared: Arc<Shared>,
    switches: Arc<Switches>,
}

impl Tracer {
    pub(crate) fn new(shared: Arc<Shared>, switches: Arc<Switches>, ticks: Ticks) -> Tracer {
        let (on, streamed) = (PointSet::EMPTY, PointSet::EMPTY);
        let (time, samples) = (Cell::new(0), Cell::new(0));
        let mut tracer = Tracer { on, streamed, flows: 0, generation: 0, time, samples, ticks, shared, switches };
        tracer.reload();
        tracer
    }

    /// A tracer that nobody can turn on.
    pub fn off() -> Tracer {
        let shared = Shared { name: String::new(), number: 0, sheet: OnceLock::new(), log: OnceLock::new() };
        Tracer::new(Arc::new(shared), Arc::default(), || 0)
    }

    /// Learns what is on. To be called once a round.
    #[inline(always)]
    pub fn refresh(&mut self) {
        if self.switches.generation.load(Acquire) != self.generation {
            self.reload();
        }
        if !self.streamed.is_empty() {
            self.time.set((self.ticks)());
        }
    }

    #[cold]
    fn reload(&mut self) {
        // Read before the rest: a change meanwhile is noticed next time.
        self.generation = self.switches.generation.load(Acquire);
        self.on = self.switches.on();
        self.streamed = PointSet(from_fn(|word| self.switches.streamed[word].load(Relaxed)));
        self.flows = self.switches.flows.load(Relaxed);
    }

    /// Something is on.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        !self.on.is_empty()
    }

    /// A reader of records is attached. Without one, a count once a batch is enough:
    /// [`Tracer::add`], [`Tracer::add_values`].
    #[inline(always)]
    pub fn is_streaming(&self) -> bool {
        !self.streamed.is_empty()
    }

    /// This point is on.
    #[inline(always)]
    pub fn is_on(&self, point: Point) -> bool {
        self.on.has(point)
    }

    /// One of these points is on.
    #[inline(always)]
    pub fn is_any_on(&self, points: PointSet) -> bool {
        self.on.meets(points)
    }

    /// The time, nanoseconds.
    #[inline]
    pub fn ticks(&self) -> u64 {
        (self.ticks)()
    }

    /// Something happened.
    #[inline(always)]
    pub fn event(&self, point: Point, flow: u32, values: [u64; 2]) {
        if self.is_on(point) {
            self.note(point, flow, values);
        }
    }

    /// Something was measured.
    #[inline(always)]
    pub fn value(&self, point: Point, flow: u32, value: u64) {
        if self.is_on(point) {
            self.measure(point, flow, value);
        }
    }

    /// Something happened so often: counted, and not streamed.
    #[inline]
    pub fn add(&self, point: Point, times: u64) {
        if times > 0 && self.is_on(point) {
            if let Some(sheet) = self.shared.sheet.get() {
                increase(&sheet.counts[point as usize], times);
            }
        }
    }

    /// Something was measured so often, with this value each time: counted, and not streamed.
    #[inline]
    pub fn add_values(&self, point: Point, value: u64, times: u64) {
        if times > 0 && self.is_on(point) {
            if let Some(Some(histogram)) = self.shared.sheet.get().map(|sheet| &sheet.histograms[point as usize]) {
                histogram.add(value, times);
            }
        }
    }

    /// The time, where this point is on: for [`Tracer::since`]. 0 where it is not.
    #[inline(always)]
    pub fn start(&self, point: Point) -> u64 {
        if self.is_on(point) { self.now() } else { 0 }
    }

    /// The time that has passed since a [`Tracer::start`] that was not 0.
    #[inline(always)]
    pub fn since(&self, point: Point, flow: u32, start: u64) {
        if start != 0 {
            self.value(point, flow, self.now().saturating_sub(start));
        }
    }

    /// The time, once in so many calls; otherwise 0. For what is too short and too frequent to be timed each time.
    #[inline]
    pub fn sample(&self) -> u64 {
        if self.is_due() { self.now() } else { 0 }
    }

    /// Once in so many calls.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        let number = self.samples.get().wrapping_add(1);
        self.samples.set(number);
        number % SAMPLE == 0
    }

    /// Reads the clock; what happens from now on has this time. Never 0.
    pub fn now(&self) -> u64 {
        let time = self.ticks().max(1);
        self.time.set(time);
        time
    }

    #[cold]
    #[inline(never)]
    fn note(&self, point: Point, flow: u32, values: [u64; 2]) {
        if let Some(sheet) = self.shared.sheet.get() {
            increase(&sheet.counts[point as usize], 1);
        }
        self.stream(point, flow, values);
    }

    #[cold]
    #[inline(never)]
    fn measure(&self, point: Point, flow: u32, value: u64) {
        if let Some(Some(histogram)) = self.shared.sheet.get().map(|sheet| &sheet.histograms[point as usize]) {
            histogram.add(value, 1);
        }
        self.stream(point, flow, [value, 0]);
    }

    #[inline]
    fn stream(&self, point: Point, flow: u32, values: [u64; 2]) {
        let wanted = self.flows >> (flow % 64) & 1 == 1;
        if !wanted || !self.streamed.has(point) {
            return;
        }
        if let Some(log) = self.shared.log.get() {
            log.push(Record { time: self.time.get(), point, thread: self.shared.number, flow, values });
        }
    }
}
