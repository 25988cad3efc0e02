//! HyStart++ (RFC 9406): the first slow start ends when round trips become longer. Without it, it ends when buffers are
//! full and half of a window is lost.
use super::policy::Sample;
use crate::Nanos;

/// Bounds of what counts as longer, microseconds, and its part of a round trip (section 4.3).
const LEAST: u32 = 4000;
const MOST: u32 = 16_000;
const DIVISOR: u32 = 8;
/// In conservative slow start a window grows by this part.
const GROWTH_DIVISOR: u64 = 4;
/// Rounds of that before slow start is over.
const ROUNDS: u8 = 5;

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
    /// The part of what was acknowledged by which the window grows; `None` where slow start is over.
    // Meets RFC 9406: 4.2-a, 4.2-b, 4.2-c, 4.2-d.
    pub(super) fn growth(&mut self, sample: &Sample) -> Option<u64> {
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
            0 => Some(sample.acked),
            _ if self.rounds < ROUNDS => Some(sample.acked / GROWTH_DIVISOR),
            _ => None,
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

    /// Rounds of 50 ms with these round trips; what of 8,000 bytes each the window grows by.
    fn grown(rtts: &[Nanos]) -> Vec<Option<u64>> {
        let mut hystart = HyStart::default();
        let round = |(at, rtt): (usize, &Nanos)| {
            let now = 100 * MS * at as Nanos;
            hystart.growth(&Sample { now, acked: 8000, rtt: Some(rtt * MS), srtt: Some(50 * MS), ..Sample::default() })
        };
        rtts.iter().enumerate().map(round).collect()
    }

    // Checks RFC 9406: 4.2-a, 4.2-b, 4.2-d.
    #[test]
    fn longer_round_trips_slow_growth_for_five_rounds() {
        let slower = [50, 50, 53, 56, 63, 70, 77, 84, 91, 98];
        let (all, part) = (Some(8000), Some(2000));
        assert_eq!(grown(&slower), [all, all, all, all, part, part, part, part, None, None]);
    }

    // Checks RFC 9406: 4.2-c.
    #[test]
    fn one_long_round_trip_is_forgotten_with_a_shorter_one() {
        let (all, part) = (Some(8000), Some(2000));
        assert_eq!(grown(&[50, 50, 70, 51, 50, 52]), [all, all, part, all, all, all]);
    }

    #[test]
    fn microseconds_do_not_count() {
        let mut hystart = HyStart::default();
        for at in 0..100 {
            let sample = Sample { now: at * 100_000, acked: 8000, rtt: Some(20_000 * (1 + at)), ..Sample::default() };
            assert_eq!(hystart.growth(&sample), Some(8000), "{at}");
        }
    }
}
