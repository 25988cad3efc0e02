//! Numbers of queue pairs: 24 bits, unique on a host.
//!
//! They come from a permutation that a secret chooses, applied to a counter. So an unknown peer that has some numbers
//! cannot compute others. A number comes back only after all others: a late packet finds no queue pair of somebody
//! else.
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use verbs::{QP_MASK, QpNumber};

/// Half the bits of a number.
const HALF: u32 = 12;
const HALF_MASK: u32 = (1 << HALF) - 1;
/// Rounds of the permutation; four are the least that cannot be distinguished from chance (Luby and Rackoff 1988).
const ROUNDS: u8 = 6;
/// Numbers 0 and 1 are the management queue pairs (IBTA 1.3, 3.5.10); the highest one means multicast.
const RESERVED: [QpNumber; 3] = [0, 1, QP_MASK];

/// Draws numbers.
pub(crate) struct Numbers {
    secret: [u8; 16],
    drawn: u32,
}

impl Numbers {
    pub(crate) fn new(secret: [u8; 16]) -> Numbers {
        Numbers { secret, drawn: 0 }
    }

    /// The next number that is not reserved and that is not in use by `taken`. There must be one: far fewer
    /// queue pairs than numbers.
    pub(crate) fn draw(&mut self, taken: impl Fn(QpNumber) -> bool) -> QpNumber {
        loop {
            self.drawn = (self.drawn + 1) & QP_MASK;
            let number = self.permute(self.drawn);
            if !RESERVED.contains(&number) && !taken(number) {
                return number;
            }
        }
    }

    /// A Feistel network on two halves.
    fn permute(&self, value: u32) -> u32 {
        let (mut left, mut right) = (value >> HALF, value & HALF_MASK);
        for round in 0..ROUNDS {
            let mut hasher = SipHasher13::new_with_key(&self.secret);
            hasher.write_u8(round);
            hasher.write_u32(right);
            (left, right) = (right, left ^ (hasher.finish() as u32 & HALF_MASK));
        }
        left << HALF | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_number_comes_back_only_after_all_others() {
        let mut numbers = Numbers::new([7; 16]);
        let drawn: HashSet<QpNumber> = (0..100_000).map(|_| numbers.draw(|_| false)).collect();
        assert_eq!(drawn.len(), 100_000);
        assert!(drawn.iter().all(|number| *number <= QP_MASK && !RESERVED.contains(number)));
    }

    #[test]
    fn numbers_show_no_step_and_depend_on_the_secret() {
        let (mut one, mut other) = (Numbers::new([1; 16]), Numbers::new([2; 16]));
        let drawn: Vec<QpNumber> = (0..100).map(|_| one.draw(|_| false)).collect();
        let steps: HashSet<u32> = drawn.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 95, "{} different steps", steps.len());
        assert!((0..100).filter(|_| drawn.contains(&other.draw(|_| false))).count() < 3);
    }

    #[test]
    fn what_is_in_use_is_left_out() {
        let (mut one, mut other) = (Numbers::new([3; 16]), Numbers::new([3; 16]));
        let first = one.draw(|_| false);
        assert_ne!(other.draw(|number| number == first), first);
    }
}
