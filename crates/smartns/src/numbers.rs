//! Table from the numbers of queue pairs to their places. The control plane chooses the numbers, so nobody can make
//! them collide on purpose.
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use verbs::QpNumber;

/// Spreads a number by one multiplication (Knuth, volume 3, 6.4).
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// Places of queue pairs.
#[derive(Default)]
pub(crate) struct Numbers {
    places: HashMap<QpNumber, u32, BuildHasherDefault<Spread>>,
    /// The one of the last lookup: work requests of one queue pair follow each other.
    recent: Option<(QpNumber, u32)>,
}

impl Numbers {
    #[inline]
    pub(crate) fn get(&self, number: QpNumber) -> Option<u32> {
        match self.recent {
            Some((recent, slot)) if recent == number => Some(slot),
            _ => self.places.get(&number).copied(),
        }
    }

    /// The same, and the next lookup of this number is short.
    #[inline]
    pub(crate) fn find(&mut self, number: QpNumber) -> Option<u32> {
        let found = self.get(number);
        self.recent = found.map(|slot| (number, slot));
        found
    }

    pub(crate) fn insert(&mut self, number: QpNumber, slot: u32) {
        self.recent = None;
        self.places.insert(number, slot);
    }

    pub(crate) fn remove(&mut self, number: QpNumber) {
        self.recent = None;
        self.places.remove(&number);
    }
}
