//! Observers of the modules at their tracepoints (FlexTOE section 5.1). A module reports what happens where it happens,
//! and is compiled for each kind of observer: [`Off`], [`Counts`], and a tracer whose records somebody watches.
use std::array::from_fn;
use std::cell::Cell;
use trace::{Point, Tracer};

/// Receiver of the modules' reports at their tracepoints.
pub(crate) trait Observer: Copy {
    /// Something happened.
    fn event(self, point: Point, flow: u32, values: [u64; 2]);
    /// Something was measured.
    fn value(self, point: Point, flow: u32, value: u64);
    /// The time, once in so many calls; otherwise 0.
    fn sample(self) -> u64;
    /// The time that has passed since a sample that was not 0.
    fn since(self, point: Point, flow: u32, start: u64);
}

/// No tracepoint is on: reports are no code.
#[derive(Clone, Copy)]
pub(crate) struct Off;

impl Observer for Off {
    #[inline(always)]
    fn event(self, _: Point, _: u32, _: [u64; 2]) {}
    #[inline(always)]
    fn value(self, _: Point, _: u32, _: u64) {}
    #[inline(always)]
    fn sample(self) -> u64 {
        0
    }
    #[inline(always)]
    fn since(self, _: Point, _: u32, _: u64) {}
}

/// Records are streamed.
impl Observer for &Tracer {
    #[inline(always)]
    fn event(self, point: Point, flow: u32, values: [u64; 2]) {
        Tracer::event(self, point, flow, values);
    }
    #[inline(always)]
    fn value(self, point: Point, flow: u32, value: u64) {
        Tracer::value(self, point, flow, value);
    }
    #[inline(always)]
    fn sample(self) -> u64 {
        Tracer::sample(self)
    }
    #[inline(always)]
    fn since(self, point: Point, flow: u32, start: u64) {
        Tracer::since(self, point, flow, start);
    }
}

/// The events that modules report, as far as they are counted here.
const FIRST: usize = Point::PreprocessDropped as usize;
const EVENTS: usize = Point::WindowSet as usize + 1 - FIRST;
const _: () = assert!(EVENTS <= u64::BITS as usize);

/// The events that nearly every batch has: they are not noted among those that happened.
const COMMON: [Point; 6] =
    [Point::Identified, Point::InOrder, Point::Acked, Point::WindowChanged, Point::Sent, Point::Bump];

/// Tracepoints are only counted: what a batch adds to them.
pub(crate) struct Counts<'a> {
    tracer: &'a Tracer,
    /// The uncommon events that happened, one bit each; and how often each event did.
    happened: Cell<u64>,
    times: [Cell<u32>; EVENTS],
    rtt: Runs,
    placed: Runs,
    attached: Runs,
}

impl<'a> Counts<'a> {
    #[inline]
    pub(crate) fn new(tracer: &'a Tracer) -> Counts<'a> {
        let [rtt, placed, attached] = from_fn(|_| Runs::default());
        Counts { tracer, happened: Cell::new(0), times: from_fn(|_| Cell::new(0)), rtt, placed, attached }
    }

    /// Adds all to the tracepoints: once a batch.
    #[inline(never)]
    pub(crate) fn end(&self) {
        let add = |at: usize| self.tracer.add(Point::ALL[FIRST + at], self.times[at].get().into());
        COMMON.iter().for_each(|point| add(*point as usize - FIRST));
        let mut left = self.happened.get();
        while left != 0 {
            add(left.trailing_zeros() as usize);
            left &= left - 1;
        }
        self.rtt.end(Point::Rtt, self.tracer);
        self.placed.end(Point::DmaPlaced, self.tracer);
        self.attached.end(Point::DmaAttached, self.tracer);
    }
}

impl Observer for &Counts<'_> {
    #[inline(always)]
    fn event(self, point: Point, flow: u32, values: [u64; 2]) {
        let at = (point as usize).wrapping_sub(FIRST);
        if at >= EVENTS {
            return self.tracer.event(point, flow, values);
        }
        if !COMMON.contains(&point) {
            self.happened.set(self.happened.get() | 1 << at);
        }
        self.times[at].set(self.times[at].get() + 1);
    }
    #[inline(always)]
    fn value(self, point: Point, flow: u32, value: u64) {
        match point {
            Point::Rtt => self.rtt.add(point, value, self.tracer),
            Point::DmaPlaced => self.placed.add(point, value, self.tracer),
            Point::DmaAttached => self.attached.add(point, value, self.tracer),
            _ => self.tracer.value(point, flow, value),
        }
    }
    #[inline(always)]
    fn sample(self) -> u64 {
        self.tracer.sample()
    }
    #[inline(always)]
    fn since(self, point: Point, flow: u32, start: u64) {
        self.tracer.since(point, flow, start);
    }
}

/// A value that was measured several times in a row: counted at once.
#[derive(Default)]
struct Runs {
    value: Cell<u64>,
    times: Cell<u64>,
}

impl Runs {
    #[inline(always)]
    fn add(&self, point: Point, value: u64, tracer: &Tracer) {
        if value == self.value.get() {
            self.times.set(self.times.get() + 1);
        } else {
            self.end(point, tracer);
            self.value.set(value);
            self.times.set(1);
        }
    }

    /// Counts the last ones.
    fn end(&self, point: Point, tracer: &Tracer) {
        tracer.add_values(point, self.value.get(), self.times.get());
    }
}

/// Evaluates an expression with the observer that a tracer asks for.
macro_rules! observed {
    ($tracer:expr, $observer:ident => $body:expr) => {{
        let tracer: &trace::Tracer = $tracer;
        if !tracer.is_active() {
            let $observer = $crate::observer::Off;
            $body
        } else if tracer.is_streaming() {
            let $observer = tracer;
            $body
        } else {
            let counts = $crate::observer::Counts::new(tracer);
            let $observer = &counts;
            let result = $body;
            counts.end();
            result
        }
    }};
}
pub(crate) use observed;

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts are found by the numbers of the points.
    #[test]
    fn points_are_numbered_as_they_are_listed() {
        assert!(Point::ALL.iter().enumerate().all(|(at, point)| *point as usize == at));
    }
}
