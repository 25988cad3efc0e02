//! Counters of a host: sums over all its connections, open and closed, which never go back. A connection that ends
//! leaves its counters here, so that a rate over them is right.
use engine::Nanos;
use engine::stream::FlowFigures;
use serde::{Deserialize, Serialize};

const MICROSECOND: Nanos = 1000;
const MILLISECOND: Nanos = 1_000_000;

/// A counter of connections.
type Sum = (&'static str, fn(&FlowFigures) -> u64);

/// Counters of connections that are added up.
const SUMS: [Sum; 12] = [
    ("acked_bytes", |figures| figures.acked_bytes),
    ("tx_bytes", |figures| figures.tx_bytes),
    ("tx_segments", |figures| figures.tx_segments),
    ("rx_bytes", |figures| figures.rx_bytes),
    ("rx_segments", |figures| figures.rx_segments),
    ("retransmitted_segments", |figures| figures.retransmitted_segments.into()),
    ("fast_retransmits", |figures| figures.fast_retransmits.into()),
    ("dsack_dups", |figures| figures.dsack_dups.into()),
    ("duplicate_acks", |figures| figures.duplicate_acks.into()),
    ("out_of_order", |figures| figures.out_of_order.into()),
    ("ecn_bytes", |figures| figures.ecn_bytes),
    ("drops", |figures| figures.drops.into()),
];

/// Sums over a host's connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections that this host's programs opened: the handshake was done.
    pub opened: u64,
    /// Connections that came to its listeners: the handshake was done.
    pub accepted: u64,
    /// SYNs that got no connection: no listener is there, or a backlog or a table is full.
    pub refused: u64,
    /// Connections that its programs wanted to open, and that failed.
    pub failed: u64,
    /// Connections that were open and are over.
    pub closed: u64,
    /// Probes of the end of what was sent (RFC 8985 section 7), each of which is a segment sent again. They also count
    /// where nothing was lost, and the peer or the machine was slow.
    pub tail_probes: u64,
    /// In the order of [`SUMS`].
    sums: Vec<u64>,
    /// Round-trip times: that of the handshake, and one at each poll of a connection that measured some since the last.
    pub round_trips: Times,
    /// How long connections were open that are over; those that a splice joined are not among them.
    pub durations: Times,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            opened: 0,
            accepted: 0,
            refused: 0,
            failed: 0,
            closed: 0,
            tail_probes: 0,
            sums: vec![0; SUMS.len()],
            round_trips: Times::new(MICROSECOND, 1, 26),
            durations: Times::new(MILLISECOND, 2, 16),
        }
    }
}

impl Counters {
    /// Counters of connections, and their names.
    pub fn sums(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_connections = SUMS.iter().zip(&self.sums).map(|((name, _), sum)| (*name, *sum));
        of_connections.chain([("tail_probes", self.tail_probes)])
    }

    /// Adds what a connection counted.
    pub(crate) fn add(&mut self, figures: &FlowFigures) {
        for ((_, of), sum) in SUMS.iter().zip(&mut self.sums) {
            *sum += of(figures);
        }
    }

    /// Connections end while those that are open are added up part by part, and may be missed by both. No sum is less
    /// than it was before.
    pub fn at_least(&mut self, before: &Counters) {
        self.sums.iter_mut().zip(&before.sums).for_each(|(now, before)| *now = (*now).max(*before));
    }
}

/// Histogram of times, in classes that grow by the same factor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The first class ends here.
    first: Nanos,
    /// Each class ends at the one before, shifted by this.
    shift: u32,
    /// How many are in each class; those in none are only counted.
    classes: Vec<u64>,
    /// How many there are.
    pub count: u64,
    /// All added up, nanoseconds.
    pub sum: u64,
}

impl Times {
    fn new(first: Nanos, shift: u32, classes: usize) -> Times {
        Times { first, shift, classes: vec![0; classes], count: 0, sum: 0 }
    }

    pub(crate) fn record(&mut self, time: Nanos) {
        let units = time.div_ceil(self.first).max(1);
        let class = (Nanos::BITS - (units - 1).leading_zeros()).div_ceil(self.shift);
        if let Some(class) = self.classes.get_mut(class as usize) {
            *class += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// The end of each class in nanoseconds, and how many are at most as long.
    pub fn cumulative(&self) -> Vec<(Nanos, u64)> {
        let mut below = 0;
        let end = |at: usize| self.first << (self.shift * at as u32);
        let class = |(at, count): (usize, &u64)| {
            below += count;
            (end(at), below)
        };
        self.classes.iter().enumerate().map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_first_class_that_holds_them() {
        let mut times = Times::new(1000, 1, 4);
        for time in [0, 1, 1000, 1001, 2000, 2001, 4000, 8000, 8001, Nanos::MAX] {
            times.record(time);
        }
        assert_eq!(times.cumulative(), [(1000, 3), (2000, 5), (4000, 7), (8000, 8)]);
        assert_eq!((times.count, times.sum), (10, Nanos::MAX));
        let mut wide = Times::new(1, 2, 3);
        [1, 2, 4, 5, 16, 17].into_iter().for_each(|time| wide.record(time));
        assert_eq!(wide.cumulative(), [(1, 1), (4, 3), (16, 5)]);
    }

    #[test]
    fn sums_have_the_counters_of_all_connections_and_never_go_back() {
        let mut counters = Counters::default();
        let figures = FlowFigures { rx_bytes: 5, retransmitted_segments: 2, ..FlowFigures::default() };
        counters.add(&figures);
        counters.add(&figures);
        let sum = |counters: &Counters, name| counters.sums().find(|(found, _)| *found == name).unwrap().1;
        assert_eq!((sum(&counters, "rx_bytes"), sum(&counters, "retransmitted_segments")), (10, 4));
        let mut later = Counters::default();
        later.at_least(&counters);
        assert_eq!(sum(&later, "rx_bytes"), 10);
    }
}
