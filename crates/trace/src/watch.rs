//! Watch: a stream of records for one reader.
use crate::log::Record;
use crate::set::PointSet;
use crate::traces::{Held, Traces};
use std::sync::Arc;

/// Records of the points and the flow that were asked for, from all tracers of a host. Dropping it turns off what
/// nobody else requested.
pub struct Watch {
    held: Held,
    points: PointSet,
    flow: Option<u32>,
    /// For each tracer, how far its log has been read.
    cursors: Vec<u64>,
    missed: u64,
}

impl Traces {
    /// Streams records of these points, of one flow or of all, from now on and until the watch is dropped.
    pub fn watch(self: &Arc<Traces>, points: PointSet, flow: Option<u32>) -> Watch {
        let held = self.hold_stream(points, flow);
        let mut cursors = Vec::new();
        held.traces.each_log(|number, log| {
            cursors.resize(number, 0);
            cursors.push(log.end());
        });
        Watch { held, points, flow, cursors, missed: 0 }
    }
}

impl Watch {
    /// Appends what is new, in the order of time, at most `most` of each thread. To be called often: a thread keeps
    /// its latest 32768 records.
    pub fn read(&mut self, most: usize, into: &mut Vec<Record>) {
        let before = into.len();
        let Watch { held, cursors, missed, .. } = self;
        held.traces.each_log(|number, log| {
            // A tracer that came later is read from its beginning.
            cursors.resize(cursors.len().max(number + 1), 0);
            *missed += log.read(&mut cursors[number], most, into);
        });
        let mut new = into.split_off(before);
        let wanted =
            |record: &Record| self.points.has(record.point) && self.flow.is_none_or(|flow| record.flow == flow);
        new.retain(wanted);
        new.sort_by_key(|record| record.time);
        into.append(&mut new);
    }

    /// Records that were overwritten before they were read, whether or not this watch wanted them.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use crate::{NO_FLOW, Point, PointSet, Record, Traces};

    fn read(watch: &mut super::Watch) -> Vec<Record> {
        let mut records = Vec::new();
        watch.read(usize::MAX, &mut records);
        records
    }

    #[test]
    fn only_what_a_reader_selected_is_written() {
        let traces = Traces::new(|| 7);
        let mut tracer = traces.tracer("a");
        let mut other = traces.tracer("b");
        let emit = |tracer: &mut crate::Tracer, flow| {
            tracer.refresh();
            tracer.event(Point::Sent, flow, [flow as u64, 2]);
            tracer.value(Point::Rtt, flow, 1000);
        };
        emit(&mut tracer, 1);
        assert!(traces.figures().is_empty() && !tracer.is_active());

        let mut all = traces.watch(PointSet::all(), None);
        let mut one = traces.watch([Point::Sent].into_iter().collect(), Some(3));
        for flow in [1, 3, NO_FLOW] {
            emit(&mut tracer, flow);
            emit(&mut other, flow);
        }
        assert_eq!(read(&mut all).len(), 12);
        let seen = read(&mut one);
        assert_eq!(seen.iter().map(|record| (record.thread, record.flow)).collect::<Vec<_>>(), [(0, 3), (1, 3)]);
        assert_eq!((seen[0].time, seen[0].values), (7, [3, 2]));
        assert!(read(&mut all).is_empty() && all.missed() == 0);

        drop(all);
        emit(&mut tracer, 3);
        assert_eq!(read(&mut one).len(), 1);
        let figures = traces.figures();
        let of = |point: Point| figures.iter().find(|figure| figure.point == point).unwrap();
        assert_eq!((of(Point::Sent).count, of(Point::Sent).on), (7, true));
        assert_eq!((of(Point::Rtt).count, of(Point::Rtt).on), (6, false), "off again when the watch went");
        assert_eq!(of(Point::Rtt).distribution.as_ref().unwrap().max, 1000);
        drop(one);
        emit(&mut tracer, 3);
        assert!(!tracer.is_active());
        assert_eq!(traces.figures().iter().map(|figure| figure.count).sum::<u64>(), 13);

        let held = traces.hold([Point::Sent, Point::Rtt].into_iter().collect());
        tracer.refresh();
        assert!(tracer.is_active() && !tracer.is_streaming());
        tracer.add(Point::Sent, 5);
        tracer.add(Point::Acked, 5);
        tracer.add_values(Point::Rtt, 70, 2);
        tracer.add_values(Point::DmaPlaced, 70, 2);
        drop(held);
        tracer.refresh();
        tracer.add(Point::Sent, 1);
        assert_eq!(traces.figures().iter().map(|figure| figure.count).sum::<u64>(), 20, "what is on, and no more");
    }

    #[test]
    fn points_are_enabled_until_disabled() {
        let traces = Traces::new(|| 7);
        let mut tracer = traces.tracer("a");
        let (sent, rtt): (PointSet, PointSet) =
            ([Point::Sent].into_iter().collect(), [Point::Rtt].into_iter().collect());
        traces.enable(sent.with(rtt));
        traces.disable(rtt);
        let held = traces.hold(rtt);
        tracer.refresh();
        assert!(tracer.is_on(Point::Sent) && tracer.is_on(Point::Rtt));
        drop(held);
        tracer.refresh();
        assert!(tracer.is_on(Point::Sent) && !tracer.is_on(Point::Rtt));
        let late = traces.tracer("b");
        assert!(late.is_on(Point::Sent), "a tracer that comes later has it at once");
    }

    #[test]
    fn a_slow_reader_gets_the_count_of_what_it_missed() {
        let traces = Traces::new(|| 7);
        let mut tracer = traces.tracer("a");
        let mut watch = traces.watch(PointSet::all(), None);
        tracer.refresh();
        (0..100_000).for_each(|number| tracer.event(Point::Sent, 0, [number, 0]));
        let seen = read(&mut watch).len() as u64;
        assert!(seen > 0 && seen + watch.missed() == 100_000);
    }
}
