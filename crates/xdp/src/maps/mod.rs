//! Maps: what a module shares with its replicas, with other modules' replicas of the same object, and with people.
//!
//! Values lie in place at addresses that stay, because a program holds pointers to them. Lookups take no lock; what
//! adds and removes entries does (the kernel's maps are the same in this). All memory is made of atomic words, so that
//! a value can be read and written from all sides at any time. A reader may find half of a change, as in the kernel.
//! Programs to which this matters use atomic operations.
mod epochs;
mod hash;
mod lpm;
mod ring;

use crate::object::{MapDefinition, MapKind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use epochs::Epochs;
pub(crate) use epochs::Pin;
pub(crate) use hash::{Error, Hash};
pub(crate) use lpm::Lpm;
pub use ring::Ring;

/// Memory of a map.
pub(crate) struct Words(Box<[AtomicU64]>);

impl Words {
    pub(crate) fn new(words: usize) -> Words {
        Words((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    /// Copies bytes out, from a word on.
    pub(crate) fn read(&self, word: usize, into: &mut [u8]) {
        for (chunk, word) in into.chunks_mut(8).zip(&self.0[word..]) {
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..chunk.len()]);
        }
    }

    /// Copies bytes in, from a word on; the rest of the last word becomes zero.
    pub(crate) fn write(&self, word: usize, from: &[u8]) {
        for (chunk, word) in from.chunks(8).zip(&self.0[word..]) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
    }

    pub(crate) fn same(&self, word: usize, bytes: &[u8]) -> bool {
        bytes.chunks(8).zip(&self.0[word..]).all(|(chunk, word)| {
            let mut other = [0; 8];
            other[..chunk.len()].copy_from_slice(chunk);
            word.load(Relaxed) == u64::from_le_bytes(other)
        })
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.0[at]
    }
}

/// What an update may do to an entry (linux/bpf.h: BPF_ANY, BPF_NOEXIST, BPF_EXIST).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Add or replace.
    Any,
    /// Add only.
    Add,
    /// Replace only.
    Replace,
}

pub(crate) enum Table {
    Array,
    Hash(Hash),
    Lpm(Lpm),
    Ring(Ring),
}

/// A map of a loaded program.
pub struct Map {
    /// Its definition in the object.
    pub definition: MapDefinition,
    /// Replicas that have values of their own, in per-CPU maps; otherwise 1.
    pub(crate) copies: u32,
    /// Bytes from one value to the next.
    pub(crate) stride: u32,
    /// Entries with memory: somewhat more than the definition's where removed ones wait.
    pub(crate) slots: u32,
    pub(crate) values: Words,
    pub(crate) table: Table,
}

/// What all maps of a program are made with.
pub(crate) struct Setting<'a> {
    /// Replicas that per-CPU maps are for.
    pub replicas: u32,
    /// For hash functions, so that nobody outside can choose keys that collide.
    pub seed: u64,
    pub epochs: &'a std::sync::Arc<Epochs>,
}

/// Bytes of a key: BPF's stack, where keys are made.
const MOST_KEY: u32 = 512;

fn check(map: &MapDefinition) -> Result<(), String> {
    let name = &map.name;
    let refuse = |why: &str| Err(format!("the map \"{name}\" ({}) {why}", map.kind.name()));
    if map.max_entries == 0 {
        return refuse("does not have a number of entries (max_entries)");
    }
    if map.kind == MapKind::RingBuffer {
        let good = map.max_entries.is_power_of_two() && map.max_entries >= 4096;
        return if good { Ok(()) } else { refuse("needs a size that is a power of two of at least 4096 bytes") };
    }
    if map.value_size == 0 || map.key_size == 0 || map.key_size > MOST_KEY {
        return refuse("needs values, and keys of 1 to 512 bytes");
    }
    if map.kind.is_array() && map.key_size != 4 {
        return refuse("needs keys of 4 bytes");
    }
    if map.kind == MapKind::LpmTrie && !(5..=4 + 32).contains(&map.key_size) {
        return refuse("needs keys of a 4-byte prefix length and 1 to 32 bytes of data");
    }
    Ok(())
}

/// Bytes of memory that a map would take; an upper estimate.
pub(crate) fn cost(map: &MapDefinition, replicas: u32) -> u64 {
    let copies = if map.kind.per_cpu() { u64::from(replicas) } else { 1 };
    let entries = u64::from(map.max_entries);
    match map.kind {
        MapKind::RingBuffer => entries,
        kind if kind.is_array() => entries * u64::from(map.value_size).next_multiple_of(8) * copies,
        _ => {
            let entry = u64::from(map.key_size).next_multiple_of(8) + 24;
            u64::from(slots(map)) * (entry + u64::from(map.value_size).next_multiple_of(8) * copies)
        }
    }
}

/// Entries with memory. A removed entry is not used again as long as a run may hold it, and replacing one takes a new
/// one first. So there are a few more entries than the definition names.
fn slots(map: &MapDefinition) -> u32 {
    match map.kind {
        MapKind::RingBuffer => 0,
        kind if kind.is_array() => map.max_entries,
        _ => map.max_entries.saturating_add(map.max_entries / 16).saturating_add(64),
    }
}

impl Map {
    pub(crate) fn new(definition: MapDefinition, setting: &Setting<'_>) -> Result<Map, String> {
        check(&definition)?;
        let copies = if definition.kind.per_cpu() { setting.replicas } else { 1 };
        let stride = definition.value_size.next_multiple_of(8);
        let slots = slots(&definition);
        let values = Words::new(slots as usize * copies as usize * stride as usize / 8);
        let key_size = definition.key_size as usize;
        let hash = || Hash::new(key_size, slots, &definition, setting);
        let table = match definition.kind {
            MapKind::RingBuffer => Table::Ring(Ring::new(definition.max_entries)),
            MapKind::LpmTrie => Table::Lpm(Lpm::new(hash())),
            kind if kind.is_array() => Table::Array,
            _ => Table::Hash(hash()),
        };
        if !definition.initial.is_empty() {
            values.write(0, &definition.initial);
        }
        Ok(Map { definition, copies, stride, slots, values, table })
    }

    /// Where a replica's value of a slot starts: a word of `values`.
    pub(crate) fn word(&self, slot: u32, replica: u32) -> usize {
        let copy = if self.copies > 1 { replica % self.copies } else { 0 };
        (copy as usize * self.slots as usize + slot as usize) * (self.stride as usize / 8)
    }

    /// The slot of a key. Takes no lock: for use while the epoch is pinned, or under the writers' lock.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        match &self.table {
            Table::Array => {
                let index = u32::from_ne_bytes(*key.first_chunk()?);
                (index < self.definition.max_entries).then_some(index)
            }
            Table::Hash(hash) => hash.find(key),
            Table::Lpm(lpm) => lpm.find(key),
            Table::Ring(_) => None,
        }
    }

    /// Adds or replaces an entry. `replica`: whose value, in a per-CPU map; the others' start as zero.
    pub(crate) fn update(&self, key: &[u8], value: &[u8], how: Update, replica: u32) -> Result<(), Error> {
        let put = |slot: u32, fresh: bool| {
            if fresh && self.copies > 1 {
                let zero = vec![0; value.len()];
                (0..self.copies).for_each(|copy| self.values.write(self.word(slot, copy), &zero));
            }
            self.values.write(self.word(slot, replica), value);
        };
        match &self.table {
            Table::Array => {
                if how == Update::Add {
                    return Err(Error::Exists);
                }
                put(self.find(key).ok_or(Error::Full)?, false);
                Ok(())
            }
            Table::Hash(hash) => hash.update(key, how, self.copies > 1, put).map(|_| ()),
            Table::Lpm(lpm) => lpm.update(key, how, put),
            Table::Ring(_) => Err(Error::Invalid),
        }
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Error> {
        match &self.table {
            Table::Hash(hash) => hash.delete(key),
            Table::Lpm(lpm) => lpm.delete(key),
            Table::Array | Table::Ring(_) => Err(Error::Invalid),
        }
    }

    /// Calls `visit` with each key and its slot, while nothing is added or removed.
    pub(crate) fn each(&self, mut visit: impl FnMut(&[u8], u32)) {
        match &self.table {
            Table::Array => (0..self.definition.max_entries).for_each(|index| visit(&index.to_ne_bytes(), index)),
            Table::Hash(hash) => hash.each(visit),
            Table::Lpm(lpm) => lpm.hash.each(visit),
            Table::Ring(_) => {}
        }
    }

    /// Runs `visit` with the slot of a key, while nothing is added or removed.
    pub(crate) fn with<T>(&self, key: &[u8], visit: impl FnOnce(Option<u32>) -> T) -> T {
        let _held = match &self.table {
            Table::Hash(hash) => Some(hash.hold()),
            Table::Lpm(lpm) => Some(lpm.hash.hold()),
            Table::Array | Table::Ring(_) => None,
        };
        visit(self.find(key))
    }

    /// Entries that it has now.
    pub(crate) fn entries(&self) -> u32 {
        match &self.table {
            Table::Array => self.definition.max_entries,
            Table::Hash(hash) => hash.entries(),
            Table::Lpm(lpm) => lpm.hash.entries(),
            Table::Ring(_) => 0,
        }
    }

    /// The ring of a ring buffer.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        match &self.table {
            Table::Ring(ring) => Some(ring),
            _ => None,
        }
    }
}
