//! Numbers that are free, of which the lowest is taken first: a bit for each, and a bit for each word that has any.

/// A set of small numbers.
#[derive(Default)]
pub(crate) struct FreeNumbers {
    words: Vec<u64>,
    /// Words that are not 0.
    filled: Vec<u64>,
    count: usize,
}

impl FreeNumbers {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The lowest one.
    pub(crate) fn first(&self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let group = self.filled.iter().position(|word| *word != 0)?;
        let at = group * 64 + self.filled[group].trailing_zeros() as usize;
        Some((at * 64) as u32 + self.words.get(at)?.trailing_zeros())
    }

    /// Adds a number that is not there.
    pub(crate) fn insert(&mut self, number: u32) {
        let at = number as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
            self.filled.resize(at / 64 + 1, 0);
        }
        self.words[at] |= 1 << (number % 64);
        self.filled[at / 64] |= 1 << (at % 64);
        self.count += 1;
    }

    /// Takes a number out; false where it is not there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let (at, bit) = (number as usize / 64, 1 << (number % 64));
        let Some(word) = self.words.get_mut(at).filter(|word| **word & bit != 0) else { return false };
        *word &= !bit;
        if *word == 0 {
            self.filled[at / 64] &= !(1 << (at % 64));
        }
        self.count -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_tree() {
        let (mut numbers, mut tree, mut random) = (FreeNumbers::default(), BTreeSet::new(), 1u32);
        for _ in 0..100_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (random >> 8) % [8, 200, 10_000][random as usize % 3];
            if random >> 31 == 0 {
                assert_eq!(numbers.remove(number), tree.remove(&number));
            } else if tree.insert(number) {
                numbers.insert(number);
            }
            assert_eq!((numbers.first(), numbers.len()), (tree.first().copied(), tree.len()));
        }
    }
}
