//! Histograms with buckets that grow with the value, from 0 to 2^64 - 1, in 4 KiB. Each power of two is cut into eight,
//! so a value is known to within an eighth.
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bits of a value that are kept below its highest one.
const FINE: u32 = 3;
const PER_OCTAVE: usize = 1 << FINE;
const BUCKETS: usize = (64 - FINE as usize + 1) * PER_OCTAVE;

/// What one thread measured. Only that thread adds; others read meanwhile and may see a value counted that is not in
/// the sum yet.
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        let zero = || AtomicU64::new(0);
        Histogram { buckets: std::array::from_fn(|_| zero()), sum: zero(), max: zero() }
    }

    /// Adds a value so often.
    #[inline]
    pub(crate) fn add(&self, value: u64, times: u64) {
        increase(&self.buckets[bucket(value)], times);
        increase(&self.sum, value.wrapping_mul(times));
        if value > self.max.load(Relaxed) {
            self.max.store(value, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Distribution {
        Distribution {
            buckets: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
            max: self.max.load(Relaxed),
        }
    }
}

/// Adds to a counter that nobody else writes: no locked instruction.
#[inline]
pub(crate) fn increase(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(by), Relaxed);
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let fine = (value >> (exponent - FINE)) as usize & (PER_OCTAVE - 1);
    (exponent - FINE + 1) as usize * PER_OCTAVE + fine
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let (octave, fine) = (bucket / PER_OCTAVE - 1, bucket % PER_OCTAVE);
    let first = ((PER_OCTAVE + fine) as u128) << octave;
    (first + (1u128 << octave) - 1) as u64
}

/// Measured values at one moment, of one thread or of several.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distribution {
    buckets: Vec<u64>,
    /// All values added up, modulo 2^64.
    pub sum: u64,
    /// The largest value.
    pub max: u64,
}

impl Distribution {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another's values.
    pub fn merge(&mut self, other: &Distribution) {
        self.buckets.resize(BUCKETS, 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The value below or at which `share` (0 to 1) of all values are, at most an eighth too high; 0 without values.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                return upper(at).min(self.max);
            }
        }
        self.max
    }

    /// For each power of two from 1 up to the one that all values are below: it, and how many values are below it.
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let (total, mut below, mut list) = (self.count(), 0, Vec::new());
        for (at, count) in self.buckets.iter().enumerate() {
            below += count;
            let next = upper(at).saturating_add(1);
            if next.is_power_of_two() {
                list.push((next, below));
            }
            if below == total && next.is_power_of_two() {
                break;
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket(shift in 0u32..64, any in any::<u64>()) {
            let value = any >> shift;
            let at = bucket(value);
            prop_assert!(at < BUCKETS && value <= upper(at));
            prop_assert!(at == 0 || value > upper(at - 1));
            prop_assert!(upper(at) - value <= value / 8);
        }

        #[test]
        fn quantiles_are_right_to_an_eighth(mut values in prop::collection::vec(0u64..1_000_000, 1..200)) {
            let histogram = Histogram::new();
            values.iter().for_each(|value| histogram.add(*value, 1));
            let read = histogram.read();
            values.sort_unstable();
            prop_assert_eq!((read.count(), read.sum), (values.len() as u64, values.iter().sum()));
            for share in [0.0, 0.5, 0.9, 0.99, 1.0] {
                let exact = values[((values.len() as f64 * share).ceil() as usize).max(1) - 1];
                let got = read.quantile(share);
                prop_assert!(got >= exact && got <= exact + exact / 8, "{} {} {}", share, got, exact);
            }
            for (limit, below) in read.cumulative() {
                prop_assert_eq!(below, values.iter().filter(|value| **value < limit).count() as u64);
            }
            prop_assert_eq!(read.cumulative().last().unwrap().1, values.len() as u64);
        }
    }

    #[test]
    fn a_value_many_times_is_that_value_each_time() {
        let (once, each) = (Histogram::new(), Histogram::new());
        for (value, times) in [(3, 5), (1_000_000, 2), (0, 1)] {
            once.add(value, times);
            (0..times).for_each(|_| each.add(value, 1));
        }
        assert_eq!(once.read(), each.read());
    }

    #[test]
    fn nothing_measured() {
        let empty = Histogram::new().read();
        assert_eq!((empty.count(), empty.quantile(0.99), empty.max), (0, 0, 0));
        let mut both = Distribution::default();
        both.merge(&empty);
        assert_eq!(both.quantile(0.5), 0);
    }
}
