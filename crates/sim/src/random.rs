//! Randomness and payload, the same on every machine: a seed must replay anywhere.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A generator of its own for each seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed.wrapping_add(GOLDEN)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Uniform in `0..=most`.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        ((u128::from(self.bits()) * (u128::from(most) + 1)) >> 64) as u64
    }

    /// Uniform in `least..=most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.up_to(most.saturating_sub(least))
    }

    /// Between the two, small values as likely as large ones (uniform in the logarithm).
    pub(crate) fn spread(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
        let value = (low + (high - low) * self.unit()).exp() as u64;
        value.clamp(least, most)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.up_to(n - 1) == 0
    }

    /// True with a probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// One of the values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.up_to(values.len() as u64 - 1) as usize]
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The byte stream that one side of a connection sends: each byte follows from its position, so that any part of it
/// can be made and checked without the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stream(pub u64);

impl Stream {
    /// Fills `into` with the bytes from `position` on.
    pub(crate) fn fill(self, position: u64, into: &mut [u8]) {
        let mut at = 0;
        while at < into.len() {
            let skip = ((position + at as u64) % 8) as usize;
            let word = self.word((position + at as u64) / 8).to_le_bytes();
            let n = (8 - skip).min(into.len() - at);
            into[at..at + n].copy_from_slice(&word[skip..skip + n]);
            at += n;
        }
    }

    /// Index of the first of `bytes` that is not what stands in the stream from `position` on.
    pub(crate) fn first_difference(self, position: u64, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let skip = ((position + at as u64) % 8) as usize;
            let word = self.word((position + at as u64) / 8).to_le_bytes();
            let n = (8 - skip).min(bytes.len() - at);
            if bytes[at..at + n] != word[skip..skip + n] {
                return (at..at + n).find(|i| bytes[*i] != word[skip + i - at]);
            }
            at += n;
        }
        None
    }

    fn word(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(GOLDEN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_stream_is_the_same_as_in_the_whole() {
        let stream = Stream(7);
        let mut whole = [0; 100];
        stream.fill(0, &mut whole);
        for from in 0..100 {
            let mut part = vec![0; 100 - from];
            stream.fill(from as u64, &mut part);
            assert_eq!(part, whole[from..]);
            assert_eq!(stream.first_difference(from as u64, &part), None);
        }
        whole[41] ^= 1;
        assert_eq!(stream.first_difference(0, &whole), Some(41));
        assert_eq!(stream.first_difference(30, &whole[30..]), Some(11));
    }

    #[test]
    fn ranges_hold() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!((10..=10_000).contains(&random.spread(10, 10_000)));
        }
    }
}
