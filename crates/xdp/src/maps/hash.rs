//! The hash table: chains of slots, walked without a lock.
use super::{Epochs, Setting, Update, Words};
use crate::object::{MapDefinition, MapKind};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Why an entry could not be changed. The numbers are those that the kernel's helpers return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// ENOENT.
    Missing = 2,
    /// E2BIG: no room for another entry.
    Full = 7,
    /// ENOMEM: runs in progress hold all entries that could be used again.
    Busy = 12,
    /// EEXIST.
    Exists = 17,
    /// EINVAL.
    Invalid = 22,
}

const NONE: u32 = u32::MAX;

pub(crate) struct Hash {
    key_bytes: usize,
    key_words: usize,
    most: u32,
    evicts: bool,
    seed: u64,
    heads: Box<[AtomicU32]>,
    next: Box<[AtomicU32]>,
    hashes: Box<[AtomicU32]>,
    keys: Words,
    /// Used since the hand last came by; only in LRU maps.
    used: Box<[AtomicU8]>,
    epochs: Arc<Epochs>,
    writer: Mutex<Writer>,
}

/// What adding and removing entries needs.
struct Writer {
    free: Vec<u32>,
    /// Removed entries, with the epoch until which a run may hold them; oldest first.
    removed: VecDeque<(u32, u64)>,
    linked: Vec<bool>,
    count: u32,
    /// Where eviction goes on (the hand of the clock algorithm).
    hand: u32,
}

fn numbers(count: usize, value: u32) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(value)).collect()
}

/// Mixes by wide multiplication, with a secret seed: fast, and nobody outside can choose keys that collide.
fn mix(seed: u64, key: &[u8]) -> u32 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut state = seed ^ key.len() as u64;
    for chunk in key.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        state = fold(state ^ u64::from_le_bytes(bytes), seed | 1).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    let mixed = fold(state, 0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)) as u32
}

impl Hash {
    pub(crate) fn new(key_bytes: usize, slots: u32, definition: &MapDefinition, setting: &Setting<'_>) -> Hash {
        let key_words = key_bytes.div_ceil(8);
        let count = slots as usize;
        let evicts = matches!(definition.kind, MapKind::LruHash | MapKind::LruPerCpuHash);
        let writer = Writer {
            free: (0..slots).rev().collect(),
            removed: VecDeque::new(),
            linked: vec![false; count],
            count: 0,
            hand: 0,
        };
        Hash {
            key_bytes,
            key_words,
            most: definition.max_entries,
            evicts,
            seed: setting.seed,
            heads: numbers(count.next_power_of_two(), NONE),
            next: numbers(count, NONE),
            hashes: numbers(count, 0),
            keys: Words::new(count * key_words),
            used: (0..if evicts { count } else { 0 }).map(|_| AtomicU8::new(0)).collect(),
            epochs: setting.epochs.clone(),
            writer: Mutex::new(writer),
        }
    }

    fn head(&self, hash: u32) -> &AtomicU32 {
        &self.heads[hash as usize & (self.heads.len() - 1)]
    }

    /// The slot of a key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let key = key.get(..self.key_bytes)?;
        let slot = self.find_hashed(key, mix(self.seed, key))?;
        if let Some(used) = self.used.get(slot as usize) {
            if used.load(Relaxed) == 0 {
                used.store(1, Relaxed);
            }
        }
        Some(slot)
    }

    fn find_hashed(&self, key: &[u8], hash: u32) -> Option<u32> {
        let mut slot = self.head(hash).load(Acquire);
        while slot != NONE {
            let at = slot as usize;
            if self.hashes[at].load(Relaxed) == hash && self.keys.same(at * self.key_words, key) {
                return Some(slot);
            }
            slot = self.next[at].load(Acquire);
        }
        None
    }

    /// Keeps writers out.
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.writer()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic while it was held would have been in our own code; what it guards is whole at each step.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn entries(&self) -> u32 {
        self.writer().count
    }

    /// Adds or replaces an entry. Replacing puts a new entry before the old one and then removes that. So a lookup
    /// finds one of them, whole. With `in_place`, only the value is written. `put` writes the value: slot, new entry.
    /// True: the key is new.
    pub(crate) fn update(
        &self,
        key: &[u8],
        how: Update,
        in_place: bool,
        put: impl Fn(u32, bool),
    ) -> Result<bool, Error> {
        let key = key.get(..self.key_bytes).ok_or(Error::Invalid)?;
        let hash = mix(self.seed, key);
        let mut writer = self.writer();
        let old = self.find_hashed(key, hash);
        match (old, how) {
            (Some(_), Update::Add) => return Err(Error::Exists),
            (None, Update::Replace) => return Err(Error::Missing),
            (Some(slot), _) if in_place => {
                put(slot, false);
                return Ok(false);
            }
            (None, _) if writer.count >= self.most => {
                if !self.evicts {
                    return Err(Error::Full);
                }
                self.evict(&mut writer);
            }
            _ => {}
        }
        let slot = self.take(&mut writer).ok_or(Error::Busy)?;
        let at = slot as usize;
        self.keys.write(at * self.key_words, key);
        self.hashes[at].store(hash, Relaxed);
        put(slot, true);
        self.next[at].store(self.head(hash).load(Relaxed), Relaxed);
        self.head(hash).store(slot, Release);
        writer.linked[at] = true;
        writer.count += 1;
        // A new entry counts as used when it is found again: a flood of keys that come once pushes out itself.
        if let Some(used) = self.used.get(at) {
            used.store(u8::from(old.is_some()), Relaxed);
        }
        if let Some(old) = old {
            self.remove(&mut writer, old);
        }
        Ok(old.is_none())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Error> {
        let key = key.get(..self.key_bytes).ok_or(Error::Invalid)?;
        let mut writer = self.writer();
        let slot = self.find_hashed(key, mix(self.seed, key)).ok_or(Error::Missing)?;
        self.remove(&mut writer, slot);
        Ok(())
    }

    /// Unlinks a slot. Whoever stands on it still finds the rest of the chain behind it, since its `next` stays.
    fn remove(&self, writer: &mut Writer, slot: u32) {
        let head = self.head(self.hashes[slot as usize].load(Relaxed));
        let next = self.next[slot as usize].load(Relaxed);
        let mut at = head.load(Relaxed);
        if at == slot {
            head.store(next, Release);
        } else {
            while self.next[at as usize].load(Relaxed) != slot {
                at = self.next[at as usize].load(Relaxed);
            }
            self.next[at as usize].store(next, Release);
        }
        writer.linked[slot as usize] = false;
        writer.count -= 1;
        writer.removed.push_back((slot, self.epochs.retire()));
    }

    /// A slot that nobody uses or holds.
    fn take(&self, writer: &mut Writer) -> Option<u32> {
        if writer.free.is_empty() {
            let oldest = self.epochs.oldest();
            while let Some((slot, until)) = writer.removed.front() {
                if *until >= oldest {
                    break;
                }
                writer.free.push(*slot);
                writer.removed.pop_front();
            }
        }
        writer.free.pop()
    }

    /// Removes an entry that was not used since the hand last passed it. Two rounds at most: the first clears.
    fn evict(&self, writer: &mut Writer) {
        for _ in 0..2 * writer.linked.len() {
            let slot = writer.hand;
            writer.hand = (slot + 1) % writer.linked.len() as u32;
            if writer.linked[slot as usize] && self.used[slot as usize].swap(0, Relaxed) == 0 {
                return self.remove(writer, slot);
            }
        }
        // Every entry was used again while the hand went round: the one under the hand goes.
        if let Some(slot) = writer.linked.iter().position(|linked| *linked) {
            self.remove(writer, slot as u32);
        }
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8], u32)) {
        let writer = self.writer();
        let mut key = vec![0; self.key_bytes];
        for (slot, _) in writer.linked.iter().enumerate().filter(|(_, linked)| **linked) {
            self.keys.read(slot * self.key_words, &mut key);
            visit(&key, slot as u32);
        }
    }
}
