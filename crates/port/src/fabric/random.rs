//! A small generator of random numbers that is the same everywhere: a seed must replay on any machine.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 64 bits of state, statistically sound, not secret.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with the given probability. Draws nothing where that is 0, so that an impairment that is off does not
    /// change the others' decisions.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        probability > 0.0 && ((self.next() >> 11) as f64 * UNIT) < probability
    }

    /// Uniform from 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        // Multiply and shift: the bias is below 2^-32 for what is asked for here.
        ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
    }
}
