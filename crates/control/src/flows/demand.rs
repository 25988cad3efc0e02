//! Intervals of polls: how often each flow is polled, so that the polls of all together are bounded.
use crate::flow_timers::{FlowTimers, POLLS_IN_SLOW_START};
use crate::timers::MILLISECOND;
use engine::{FlowId, Nanos, stream};

/// All polls together come at most so often, on average: a poll takes a fraction of this. Where the round trips of all
/// flows ask for more, each flow is polled less often, in proportion.
const LEAST_SPACING: Nanos = 2_000;
/// The same of flows whose round trips ask for no poll: calm ones and slow ones.
const SELDOM_SPACING: Nanos = 20_000;
/// Longest time between two polls of such a flow that is timed.
const LONGEST_INTERVAL: Nanos = 250 * MILLISECOND;

/// Of the polls that may come ([`LEAST_SPACING`]), what all timed flows ask for together. 1 is [`PollDemand::ALL`].
#[derive(Debug, Default)]
pub(super) struct PollDemand {
    /// By the numbers of flows.
    flows: Vec<Asked>,
    /// Sum of the flows' shares.
    sum: u64,
    /// Flows that are timed.
    timed: u32,
    /// Of these, slow ones ([`FlowTimers::is_slow`]).
    slow: u32,
}

/// What a flow asks for.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    share: u16,
    slow: bool,
}

impl PollDemand {
    const ALL: u64 = 1 << 20;

    /// Flows that are timed.
    pub(super) fn timed(&self) -> u32 {
        self.timed
    }

    /// One more is timed.
    pub(super) fn join(&mut self) {
        self.timed += 1;
    }

    /// A flow is no longer timed.
    pub(super) fn leave(&mut self, id: FlowId) {
        self.timed -= 1;
        self.ask(id, Asked::default());
    }

    /// A flow asks for something else than before.
    fn ask(&mut self, id: FlowId, asked: Asked) {
        let at = id.0 as usize;
        if self.flows.len() <= at {
            self.flows.resize(at + 1, Asked::default());
        }
        let before = std::mem::replace(&mut self.flows[at], asked);
        self.sum = self.sum + u64::from(asked.share) - u64::from(before.share);
        self.slow = self.slow + u32::from(asked.slow) - u32::from(before.slow);
    }

    /// A flow is polled this often.
    fn share(&mut self, id: FlowId, slow: bool, interval: Nanos) {
        let share = (LEAST_SPACING * Self::ALL / interval.max(1)).min(u16::MAX.into()) as u16;
        self.ask(id, Asked { share, slow });
    }

    /// The least time until a flow is polled again; `least` is the shortest time for any. It takes the flow's share.
    ///
    /// Slow flows have one interval. With one of its own each, fast ones would gain more often. Where a quarter of all
    /// flows is slow, the path is crowded, and the others have that interval, too.
    pub(super) fn interval(&mut self, id: FlowId, flow: &Polled<'_>, least: Nanos) -> Nanos {
        let slow = flow.timers.is_slow(flow.mss);
        let others = self.slow - u32::from(self.flows.get(id.0 as usize).is_some_and(|asked| asked.slow));
        let crowded = 4 * (others + u32::from(slow)) >= self.timed.max(1);
        if slow || crowded || flow.timers.is_calm(flow.figures) {
            let seldom = Nanos::from(self.timed) * SELDOM_SPACING;
            let interval = least.max(seldom.min(LONGEST_INTERVAL));
            self.share(id, slow, interval);
            return interval;
        }
        let round = flow.timers.rtt.srtt().unwrap_or(least).max(least);
        self.share(id, slow, round);
        if self.sum * POLLS_IN_SLOW_START <= Self::ALL {
            // There is room for polls within round trips.
            return least;
        }
        round.max(round * self.sum / Self::ALL)
    }
}

/// A flow that is to be polled again.
pub(super) struct Polled<'a> {
    pub timers: &'a FlowTimers,
    pub figures: &'a stream::FlowFigures,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcp::congestion::{self, Decision};
    use tcp::{RtoBounds, RttEstimator};
    use wire::Seq;

    const LEAST: Nanos = 100_000;

    /// Flows of a demand, each limited by its window of 10,000 bytes or not.
    struct Path {
        demand: PollDemand,
        flows: Vec<(FlowTimers, stream::FlowFigures)>,
    }

    impl Path {
        fn new() -> Path {
            Path { demand: PollDemand::default(), flows: Vec::new() }
        }

        /// More flows with this round trip and so many bytes outstanding; the number of the first.
        fn add(&mut self, count: u32, round: Nanos, outstanding: u32) -> usize {
            let first = self.flows.len();
            for _ in 0..count {
                let mut rtt = RttEstimator::new(RtoBounds::new(10 * MILLISECOND, 60_000 * MILLISECOND));
                rtt.sample(round);
                let policy = congestion::DCTCP.start(1000, 0);
                let timers = FlowTimers::new(0, policy, rtt, Decision { cwnd: 10_000, rate: 0 }, Seq(0));
                self.flows.push((timers, stream::FlowFigures { outstanding, ..stream::FlowFigures::default() }));
                self.demand.join();
            }
            for at in first..self.flows.len() {
                self.interval(at);
            }
            first
        }

        fn interval(&mut self, at: usize) -> Nanos {
            let (timers, figures) = &self.flows[at];
            self.demand.interval(FlowId(at as u32), &Polled { timers, figures, mss: 1000 }, LEAST)
        }
    }

    #[test]
    fn ten_thousand_flows_are_polled_in_twenty_milliseconds() {
        for (round, expected) in [(80, 80), (20, 20), (5, 20), (1, 20)] {
            let mut path = Path::new();
            path.add(10_000, round * MILLISECOND, 10_000);
            let (interval, wanted) = (path.interval(0), expected * MILLISECOND);
            assert!(interval.abs_diff(wanted) < wanted / 50, "{round} ms: {interval} ns");
        }
    }

    #[test]
    fn long_round_trips_do_not_slow_down_short_ones() {
        let mut path = Path::new();
        path.add(10_000, 100 * MILLISECOND, 10_000);
        let short = path.add(10, MILLISECOND, 10_000);
        assert_eq!(path.interval(short), MILLISECOND);
    }

    #[test]
    fn slow_flows_have_one_interval_and_others_on_their_path_too() {
        let mut path = Path::new();
        path.add(100, MILLISECOND, 10_000);
        for at in 0..100 {
            path.flows[at].0.enforced.rate = if at % 2 == 0 { 100_000 } else { 300_000 };
            path.interval(at);
        }
        assert_eq!([0, 1].map(|at| path.interval(at)), [2 * MILLISECOND; 2]);
        let other = path.add(301, 10 * MILLISECOND, 10_000);
        assert_eq!(path.interval(other), 10 * MILLISECOND, "few flows are slow");
        path.demand.leave(FlowId(other as u32 + 300));
        assert_eq!(path.interval(other), 8 * MILLISECOND, "a quarter of them is");
        (0..other as u32 + 300).for_each(|at| path.demand.leave(FlowId(at)));
        assert_eq!((path.demand.sum, path.demand.timed, path.demand.slow), (0, 0, 0));
    }

    #[test]
    fn calm_flows_are_polled_seldom_and_ask_for_little() {
        let mut path = Path::new();
        path.add(2_000, MILLISECOND, 100);
        assert_eq!(path.interval(0), 40 * MILLISECOND);
        let limited = path.add(1, MILLISECOND, 10_000);
        assert_eq!(path.interval(limited), LEAST, "there is room for polls within its round trip");
    }
}
