//! Keys of regions: 32 bits, as verbs' `lkey` and `rkey`.
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io;

/// Names a region. Guessing it takes 2^31 attempts on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub u32);

/// Makes keys. The low bits are the number of a slot, which is chosen at random. The high bits depend on the slot, on
/// the count of its uses, and on a secret. A slot's key comes back only after all its other keys.
pub(crate) struct Keys {
    secret: [u8; 16],
    slot_bits: u32,
    drawn: u64,
}

/// Rounds of the permutation; four are the least that cannot be distinguished from chance (Luby and Rackoff 1988).
const ROUNDS: u64 = 6;

/// A secret of the system's random numbers.
pub(crate) fn secret() -> io::Result<[u8; 16]> {
    let mut secret = [0; 16];
    // SAFETY: the kernel fills a local array, whose length is passed.
    let got = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), secret.len(), 0) };
    if got != secret.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(secret)
}

impl Keys {
    /// For `1 << slot_bits` slots, at most 2^20, so that at least 12 bits are left for generations.
    pub(crate) fn new(slot_bits: u32, secret: [u8; 16]) -> Keys {
        Keys { secret, slot_bits: slot_bits.min(20), drawn: 0 }
    }

    /// The slot that a key names.
    #[inline]
    pub(crate) fn slot(key: Key, slot_bits: u32) -> usize {
        (key.0 & ((1 << slot_bits) - 1)) as usize
    }

    /// The key of a slot's generation, counted modulo the number of generations; `generation` moves on. Never 0, which
    /// programs take for "none".
    pub(crate) fn next(&self, slot: usize, generation: &mut u32) -> Key {
        loop {
            *generation = generation.wrapping_add(1);
            let high = self.permute(slot as u64, *generation);
            let key = high.checked_shl(self.slot_bits).unwrap_or(0) | slot as u32;
            if key != 0 {
                return Key(key);
            }
        }
    }

    /// A number below `bound` that nobody can foresee.
    pub(crate) fn draw(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        (self.hash(&[u64::MAX, self.drawn]) % bound.max(1) as u64) as usize
    }

    /// A permutation of the numbers of `32 - slot_bits` bits, another one for each slot: a Feistel network whose halves
    /// may differ by one bit.
    fn permute(&self, slot: u64, generation: u32) -> u32 {
        let width = 32 - self.slot_bits;
        let (mut left_bits, mut right_bits) = (width / 2, width - width / 2);
        let value = u64::from(generation) & ((1 << width) - 1);
        let (mut left, mut right) = (value >> right_bits, value & ((1 << right_bits) - 1));
        for round in 0..ROUNDS {
            let mixed = left ^ (self.hash(&[slot, round, right]) & ((1 << left_bits) - 1));
            (left, right) = (right, mixed);
            (left_bits, right_bits) = (right_bits, left_bits);
        }
        (left << right_bits | right) as u32
    }

    fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        words.iter().for_each(|word| hasher.write_u64(*word));
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_slot_has_every_key_once_before_one_comes_back() {
        for slot_bits in [17, 20] {
            let keys = Keys::new(slot_bits, [7; 16]);
            let generations = 1usize << (32 - slot_bits);
            let mut generation = 0;
            // Slot 0 leaves out key 0.
            for (slot, distinct) in [(5, generations), (0, generations - 1)] {
                let made: HashSet<u32> = (0..distinct).map(|_| keys.next(slot, &mut generation).0).collect();
                assert_eq!(made.len(), distinct);
                assert!(made.iter().all(|key| Keys::slot(Key(*key), slot_bits) == slot && *key != 0));
            }
        }
    }

    #[test]
    fn two_tables_have_other_keys() {
        let (one, other) = (Keys::new(10, secret().unwrap()), Keys::new(10, secret().unwrap()));
        let same = (0..200).filter(|slot| one.next(*slot, &mut 0) == other.next(*slot, &mut 0)).count();
        assert!(same < 5, "{same} of 200 keys were the same");
    }

    #[test]
    fn keys_of_one_slot_show_no_step() {
        let (keys, mut generation) = (Keys::new(8, [7; 16]), 0);
        let made: Vec<u32> = (0..100).map(|_| keys.next(3, &mut generation).0 >> 8).collect();
        let steps: HashSet<u32> = made.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 90, "{} different steps", steps.len());
    }
}
