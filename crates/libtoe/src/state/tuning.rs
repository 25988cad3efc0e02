//! Receive buffer autotuning: how much a connection offers its peer (docs/MEMORY.md).
//!
//! It begins with what the usual buffer holds, and grows with what the program reads in a round trip, as in Linux
//! (`tcp_rcv_space_adjust`, "dynamic right-sizing"). A window holds what is under way in one.
use std::time::{Duration, Instant};

/// With a shorter round trip, the usual buffer of a quarter of a MiB carries 4 Gbit/s. A larger one would only leave
/// the caches of the processors.
const LONG_ROUND: Duration = Duration::from_micros(500);

/// A longer round trip counts by this part, a shorter one at once. A sender that is not held up by the window takes
/// longer to send on.
const SLOWER: u32 = 8;

/// Since the last report to the engine of what was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    /// Bytes that the peer is offered. The engine was asked for them, and may have refused.
    pub window: u32,
    /// When that report left.
    since: Instant,
    /// Up to here the peer may have sent before it got word of that. What lies behind came a round trip later at least.
    pub edge: u32,
    /// Up to here the program had read then.
    read: u32,
    /// A round trip, as far as that shows.
    pub round: Option<Duration>,
}

impl Tuning {
    /// Stream position `reported` is read, with `window` bytes on offer behind `before`.
    pub(crate) fn begin(before: u32, reported: u32, window: u32, round: Option<Duration>, now: Instant) -> Tuning {
        Tuning { window, since: now, edge: before.wrapping_add(window), read: reported, round }
    }

    /// Twice what the program reads in a round trip, where that is known: more than the edge was received, and
    /// `reported` is read. RFC 7323 has no clock in a receiver; so a round trip is how long a window takes, at most.
    pub(crate) fn need(&mut self, reported: u32, now: Instant) -> Option<u32> {
        let took = now.saturating_duration_since(self.since).max(Duration::from_nanos(1));
        let round = match self.round {
            Some(round) if took > round => round + (took - round) / SLOWER,
            _ => took,
        };
        self.round = Some(round);
        if round < LONG_ROUND {
            return None;
        }
        let read = u128::from(reported.wrapping_sub(self.read));
        u32::try_from(2 * read * round.as_nanos() / took.as_nanos()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = 256 << 10;

    /// What follows from windows that took so many microseconds each, with all of each read.
    fn needs(times: &[u64]) -> Vec<Option<u32>> {
        let (mut now, mut read) = (Instant::now(), u32::MAX - 5000);
        let mut tuning = Tuning::begin(read, read, WINDOW, None, now);
        let step = |took: &u64| {
            now += Duration::from_micros(*took);
            read = read.wrapping_add(WINDOW);
            let need = tuning.need(read, now);
            tuning = Tuning::begin(read, read, WINDOW, tuning.round, now);
            need
        };
        times.iter().map(step).collect()
    }

    #[test]
    fn what_a_round_trip_brings_is_doubled() {
        assert_eq!(needs(&[50_000]), [Some(2 * WINDOW)]);
        assert_eq!(needs(&[499]), [None], "near");
        // A pause of the program or of its peer shows nothing of the path.
        assert_eq!(needs(&[20_000, 80_000]), [Some(2 * WINDOW), Some(2 * WINDOW * 275 / 800)]);
        assert_eq!(needs(&[100, 1000]), [None; 2]);
        // A path that has become longer does.
        let longer = needs(&[&[5_000][..], &[50_000; 40]].concat());
        assert!(longer[1] < Some(WINDOW / 2) && longer[40] > Some(WINDOW + WINDOW / 2), "{longer:?}");
    }
}
