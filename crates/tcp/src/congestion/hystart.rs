//! HyStart++ (RFC 9406): the first slow start ends when round trips become longer. Without it, it ends when buffers are
//! full and half of a window is lost.
use super::policy::Sample;
use crate::Nanos;

/// Bounds of what counts as longer, microseconds, and its part of a round trip (section 4.3).
const LEAST: u32 = 4000;
const MOST: u32 = 16_000;
const DIVISOR: u32 = 8;
/// In conservative slow start a window grows by this part of what is acknowledged (`CSS_GROWTH_DIVISOR`).
pub(super) const GROWTH_DIVISOR: u32 = 4;
/// Rounds of that before slow start is over.
const ROUNDS: u8 = 5;

/// A phase of slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The window grows by what is acknowledged.
    SlowStart,
    /// By a part of that.
    Conservative,
    /// Congestion avoidance follows.
    Over,
}

/// Round-trip state of a slow start, in few bytes, since each connection has it.
///
/// A round is as long as a round trip. It has one sample or a few, since the data-path times one segment at a time.
/// Section 4.2 asks for eight, so that noise does not count. Here noise costs a round or two of slower growth, until a
/// shorter round trip comes.
#[derive(Debug, Clone, Default)]
pub(super) struct HyStart {
    /// When this round ends; 0 before the first.
    ends: Nanos,
    /// The least round trip of the last round and of this one, microseconds; 0 where there is none.
    last: u32,
    current: u32,
    /// The round trip with which conservative slow start began, microseconds; 0 outside it.
    baseline: u32,
    /// Rounds of that.
    rounds: u8,
}

impl HyStart {
    /// The phase that follows from the last round trips.
    // Meets RFC 9406: 4.2-a, 4.2-b, 4.2-c, 4.2-d.
    pub(super) fn phase(&mut self, sample: &Sample) -> Phase {
        if let Some(rtt) = sample.rtt {
            let rtt = u32::try_from(rtt / 1000).unwrap_or(u32::MAX).max(1);
            self.current = if self.current == 0 { rtt } else { self.current.min(rtt) };
            self.compare();
        }
        let round = sample.srtt.unwrap_or(0).max(1);
        if self.ends == 0 {
            self.ends = sample.now + round;
        } else if sample.now >= self.ends {
            self.ends = sample.now + round;
            self.last = if self.current == 0 { self.last } else { self.current };
            self.current = 0;
            self.rounds += u8::from(self.baseline > 0);
        }
        match self.baseline {
            0 => Phase::SlowStart,
            _ if self.rounds < ROUNDS => Phase::Conservative,
            _ => Phase::Over,
        }
    }

    fn compare(&mut self) {
        if self.baseline == 0 {
            let longer = self.last.saturating_add((self.last / DIVISOR).clamp(LEAST, MOST));
            if self.last > 0 && self.current >= longer {
                (self.baseline, self.rounds) = (self.current, 0);
            }
        } else if self.current < self.baseline {
            self.baseline = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Nanos = 1_000_000;

    /// The phases after rounds of 50 ms with these round trips.
    fn phases(rtts: &[Nanos]) -> Vec<Phase> {
        let mut hystart = HyStart::default();
        let round = |(at, rtt): (usize, &Nanos)| {
            let now = 100 * MS * at as Nanos;
            hystart.phase(&Sample { now, rtt: Some(rtt * MS), srtt: Some(50 * MS), ..Sample::default() })
        };
        rtts.iter().enumerate().map(round).collect()
    }

    // Checks RFC 9406: 4.2-a, 4.2-b, 4.2-d.
    #[test]
    fn longer_round_trips_slow_growth_for_five_rounds() {
        let slower = [50, 50, 53, 56, 63, 70, 77, 84, 91, 98];
        let (all, part, over) = (Phase::SlowStart, Phase::Conservative, Phase::Over);
        assert_eq!(phases(&slower), [all, all, all, all, part, part, part, part, over, over]);
    }

    // Checks RFC 9406: 4.2-c.
    #[test]
    fn one_long_round_trip_is_forgotten_with_a_shorter_one() {
        let (all, part) = (Phase::SlowStart, Phase::Conservative);
        assert_eq!(phases(&[50, 50, 70, 51, 50, 52]), [all, all, part, all, all, all]);
    }

    #[test]
    fn microseconds_do_not_count() {
        let mut hystart = HyStart::default();
        for at in 0..100 {
            let sample = Sample { now: at * 100_000, rtt: Some(20_000 * (1 + at)), ..Sample::default() };
            assert_eq!(hystart.phase(&sample), Phase::SlowStart, "{at}");
        }
    }
}
