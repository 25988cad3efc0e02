//! Longest prefix match: one hash table, whose keys are prefixes cut to their length, asked for each length that any
//! entry has, the longest first. Rule sets have few lengths, so this beats walking a trie bit by bit.
use super::Update;
use super::hash::{Error, Hash};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// A 4-byte length in bits, and 32 bytes of data at most.
const MOST_KEY: usize = 36;
const LENGTHS: usize = 32 * 8 + 1;

pub(crate) struct Lpm {
    pub hash: Hash,
    /// Entries of each length. Counted up before an entry is there and down after it is gone.
    lengths: Box<[AtomicU32]>,
    /// No entry is longer.
    longest: AtomicU32,
}

/// A key cut to a length: the rest of its bits are zero.
fn cut(key: &[u8], bits: u32) -> [u8; MOST_KEY] {
    let mut prefix = [0; MOST_KEY];
    let whole = 4 + bits as usize / 8;
    prefix[..4].copy_from_slice(&bits.to_ne_bytes());
    prefix[4..whole].copy_from_slice(&key[4..whole]);
    if bits % 8 != 0 {
        prefix[whole] = key[whole] & !(0xff >> (bits % 8));
    }
    prefix
}

impl Lpm {
    pub(crate) fn new(hash: Hash) -> Lpm {
        Lpm { hash, lengths: (0..LENGTHS).map(|_| AtomicU32::new(0)).collect(), longest: AtomicU32::new(0) }
    }

    /// The length that a key names, which its data must be long enough for.
    fn bits(key: &[u8]) -> Option<u32> {
        let bits = u32::from_ne_bytes(*key.first_chunk()?);
        (bits as usize <= (key.len() - 4) * 8).then_some(bits)
    }

    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let bits = Lpm::bits(key)?.min(self.longest.load(Acquire));
        (0..=bits).rev().filter(|bits| self.lengths[*bits as usize].load(Acquire) > 0).find_map(|bits| {
            let prefix = cut(key, bits);
            self.hash.find(&prefix[..key.len()])
        })
    }

    pub(crate) fn update(&self, key: &[u8], how: Update, put: impl Fn(u32, bool)) -> Result<(), Error> {
        let bits = Lpm::bits(key).ok_or(Error::Invalid)?;
        let prefix = &cut(key, bits)[..key.len()];
        self.lengths[bits as usize].fetch_add(1, AcqRel);
        self.longest.fetch_max(bits, AcqRel);
        let done = self.hash.update(prefix, how, false, put);
        // What was there before is counted already, and what could not be added must not be.
        if done != Ok(true) {
            self.lengths[bits as usize].fetch_sub(1, AcqRel);
        }
        done.map(|_| ())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Error> {
        let bits = Lpm::bits(key).ok_or(Error::Invalid)?;
        self.hash.delete(&cut(key, bits)[..key.len()])?;
        self.lengths[bits as usize].fetch_sub(1, AcqRel);
        Ok(())
    }
}
