//! Tracing of a host or a data-path thread: the points of each reader, and all tracers.
use crate::histogram::Distribution;
use crate::log::Log;
use crate::points::{Kind, Point};
use crate::set::PointSet;
use crate::tracer::{Shared, Sheet, Switches, Ticks, Tracer};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Tracing of one host.
pub struct Traces {
    ticks: Ticks,
    switches: Arc<Switches>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tracers: Vec<Arc<Shared>>,
    /// Counted until switched off.
    enabled: PointSet,
    /// Points of attached readers, by number.
    wishes: Vec<(u64, Wish)>,
    next: u64,
}

/// What somebody asked for.
#[derive(Clone, Copy)]
struct Wish {
    points: PointSet,
    /// Records too, and not only counts.
    streamed: bool,
    flow: Option<u32>,
}

/// What a point counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Which.
    pub point: Point,
    /// It is on now.
    pub on: bool,
    /// How often, as long as it was on.
    pub count: u64,
    /// Of a histogram, what was measured.
    pub distribution: Option<Distribution>,
}

impl Traces {
    /// Nothing is on.
    pub fn new(ticks: Ticks) -> Arc<Traces> {
        Arc::new(Traces { ticks, switches: Arc::default(), state: Mutex::default() })
    }

    /// One more tracer; `name` is its thread's or module's, for people.
    pub fn tracer(&self, name: &str) -> Tracer {
        let mut state = self.lock();
        let number = state.tracers.len() as u16;
        let shared = Shared { name: name.into(), number, sheet: OnceLock::new(), log: OnceLock::new() };
        let shared = Arc::new(shared);
        state.tracers.push(Arc::clone(&shared));
        self.switch(&state);
        Tracer::new(shared, Arc::clone(&self.switches), self.ticks)
    }

    /// Counts these points until they are disabled.
    pub fn enable(&self, points: PointSet) {
        let mut state = self.lock();
        state.enabled = state.enabled.with(points);
        self.switch(&state);
    }

    /// Counts these points no longer, except for attached readers.
    pub fn disable(&self, points: PointSet) {
        let mut state = self.lock();
        state.enabled = state.enabled.without(points);
        self.switch(&state);
    }

    /// Counts these points until what is returned is dropped.
    pub fn hold(self: &Arc<Traces>, points: PointSet) -> Held {
        self.hold_request(Wish { points, streamed: false, flow: None })
    }

    /// The same, and its records are written, of one flow or of all.
    pub(crate) fn hold_stream(self: &Arc<Traces>, points: PointSet, flow: Option<u32>) -> Held {
        self.hold_request(Wish { points, streamed: true, flow })
    }

    fn hold_request(self: &Arc<Traces>, wish: Wish) -> Held {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.wishes.push((number, wish));
        self.switch(&state);
        Held { traces: Arc::clone(self), number }
    }

    /// Counts of all points that are on or ever were, in the order of their declaration.
    pub fn figures(&self) -> Vec<Figure> {
        let (state, on) = (self.lock(), self.switches.on());
        let sheets: Vec<&Sheet> = state.tracers.iter().filter_map(|tracer| tracer.sheet.get()).collect();
        let figures = Point::ALL.iter().map(|point| figure(*point, on.has(*point), &sheets));
        figures.filter(|figure| figure.on || figure.count > 0).collect()
    }

    /// The name of a tracer, by its number in [`crate::Record::thread`].
    pub fn thread(&self, number: u16) -> String {
        self.lock().tracers.get(number as usize).map(|tracer| tracer.name.clone()).unwrap_or_default()
    }

    /// The logs of all tracers that have one, with the tracers' numbers.
    pub(crate) fn each_log(&self, mut visit: impl FnMut(usize, &Log)) {
        let tracers = self.lock().tracers.clone();
        for (number, tracer) in tracers.iter().enumerate() {
            if let Some(log) = tracer.log.get() {
                visit(number, log);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns on what somebody requested, and nothing else. Memory to write into is there before.
    fn switch(&self, state: &State) {
        let union = |streamed: bool| {
            let wishes = state.wishes.iter().filter(|(_, wish)| wish.streamed || !streamed);
            wishes.fold(PointSet::EMPTY, |set, (_, wish)| set.with(wish.points))
        };
        let (on, streamed) = (union(false).with(state.enabled), union(true));
        let flow_bits = |flow: Option<u32>| flow.map_or(u64::MAX, |flow| 1 << (flow % 64));
        let wishes = state.wishes.iter().filter(|(_, wish)| wish.streamed);
        let flows = wishes.fold(0, |bits, (_, wish)| bits | flow_bits(wish.flow));
        for tracer in &state.tracers {
            if !on.is_empty() {
                tracer.sheet.get_or_init(Sheet::new);
            }
            if !streamed.is_empty() {
                tracer.log.get_or_init(Log::new);
            }
        }
        self.switches.set(on, streamed, flows);
    }
}

fn figure(point: Point, on: bool, sheets: &[&Sheet]) -> Figure {
    if point.kind() == Kind::Event {
        let count = sheets.iter().map(|sheet| sheet.counts[point as usize].load(Relaxed)).sum();
        return Figure { point, on, count, distribution: None };
    }
    let mut distribution = Distribution::default();
    for histogram in sheets.iter().filter_map(|sheet| sheet.histograms[point as usize].as_ref()) {
        distribution.merge(&histogram.read());
    }
    Figure { point, on, count: distribution.count(), distribution: Some(distribution) }
}

/// Keeps points on until it is dropped.
pub struct Held {
    pub(crate) traces: Arc<Traces>,
    number: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.traces.lock();
        state.wishes.retain(|(number, _)| *number != self.number);
        self.traces.switch(&state);
    }
}
