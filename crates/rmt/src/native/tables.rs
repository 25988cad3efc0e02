//! Tables that the control plane fills, in memory: where generated code looks entries up. An entry's record is its
//! action's place in [`actions_of`], whether it is a hit, and the action's data, a word each (two above 64 bits).
use super::entry_layout::{Form, actions_of, hash, key_words, packed_words, packing, record_words};
use crate::ir::{ActionCall, Match, Program, Table, mask};
use crate::scan::Scan;

/// A table with exact keys of one word or two, as generated code looks entries up in it.
#[repr(C)]
pub(super) struct View {
    /// Numbers of entries plus one, by the key (direct) or by its hash; 0 is empty.
    pub slots: *const u32,
    /// Direct: how many slots. Otherwise their number less one, all ones in binary.
    pub limit: u64,
    /// Key and record of each entry.
    pub entries: *const u64,
    /// Words of an entry.
    pub width: u64,
    /// The record where there is no entry.
    pub default: *const u64,
}

impl View {
    /// Of a table with exact keys; of another one there is nothing to see.
    pub(super) fn of(memory: &Memory) -> View {
        let (slots, limit, entries, width) = match &memory.exact {
            Some(exact) => {
                let limit = exact.slots.len() - !exact.direct as usize;
                (exact.slots.as_ptr(), limit, exact.entries.as_ptr(), exact.key + exact.record)
            }
            None => (std::ptr::null(), 0, std::ptr::null(), 0),
        };
        View { slots, limit: limit as u64, entries, width: width as u64, default: memory.default.as_ptr() }
    }
}

/// Entries of one table.
#[derive(Debug)]
pub(super) struct Memory {
    /// Bits of each key.
    keys: Vec<u32>,
    /// Words of all keys, packed.
    words: usize,
    exact: Option<Exact>,
    scanned: Scan<Vec<u64>>,
    default: Vec<u64>,
}

impl Memory {
    pub(super) fn new(program: &Program, table: &Table) -> Memory {
        let keys: Vec<u32> = table.keys.iter().map(|k| k.expr.ty.width()).collect();
        let words = packed_words(&keys);
        let exact = match Form::of(table) {
            Form::Scanned => None,
            form => Some(Exact::new(words, record_words(program, table), form == Form::Direct)),
        };
        Memory { keys, words, exact, scanned: Scan::new(), default: record(program, table, &table.default, false) }
    }

    /// The record of the entry that matches, or that of the default.
    #[inline]
    pub(super) fn find(&self, keys: &[u64]) -> &[u64] {
        match &self.exact {
            Some(exact) => exact.find(keys).unwrap_or(&self.default),
            None => self.scan(keys).unwrap_or(&self.default),
        }
    }

    fn scan(&self, words: &[u64]) -> Option<&[u64]> {
        let value = |(width, (word, shift)): (&u32, (usize, u32))| {
            let high = if *width > 64 { words[word + 1] } else { 0 };
            (words[word] >> shift) as u128 & mask((*width).min(64)) | (high as u128) << 64
        };
        let values: Vec<u128> = self.keys.iter().zip(packing(&self.keys)).map(value).collect();
        self.scanned.find(&values).map(|record| &record[..])
    }

    /// Words of all keys together.
    #[inline]
    pub(super) fn key_words(&self) -> usize {
        self.words
    }

    pub(super) fn default(&self) -> &[u64] {
        &self.default
    }

    pub(super) fn set_default(&mut self, program: &Program, table: &Table, call: &ActionCall) {
        self.default = record(program, table, call, false);
    }

    /// Adds an entry, or changes that of the same keys; false where there is no room.
    pub(super) fn add(
        &mut self,
        program: &Program,
        table: &Table,
        keys: Vec<Match>,
        priority: u32,
        call: ActionCall,
    ) -> bool {
        let record = record(program, table, &call, true);
        let most = table.size as usize;
        let Some(exact) = &mut self.exact else { return self.scanned.add(most, priority, keys, record) };
        let words = words(&keys, &self.keys);
        let room = exact.len < most || exact.find(&words).is_some();
        if room {
            exact.insert(&words, &record);
        }
        room
    }

    /// Removes an entry; true where there was one.
    pub(super) fn remove(&mut self, keys: &[Match]) -> bool {
        match &mut self.exact {
            Some(exact) => exact.remove(&words(keys, &self.keys)),
            None => self.scanned.remove(keys),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.exact.as_ref().map_or(self.scanned.len(), |exact| exact.len)
    }
}

fn words(keys: &[Match], widths: &[u32]) -> Vec<u64> {
    let mut out = vec![0; packed_words(widths)];
    for ((key, (word, shift)), width) in keys.iter().zip(packing(widths)).zip(widths) {
        let (Match::Mask(value, _) | Match::Range(value, _)) = key;
        out[word] |= (*value as u64) << shift;
        if *width > 64 {
            out[word + 1] = (*value >> 64) as u64;
        }
    }
    out
}

fn record(program: &Program, table: &Table, call: &ActionCall, hit: bool) -> Vec<u64> {
    let place = actions_of(table).iter().position(|a| *a == call.action).unwrap_or(0);
    let mut out = vec![place as u64, hit as u64];
    for (value, (_, ty)) in call.args.iter().zip(&program.actions[call.action].params) {
        out.push(*value as u64);
        if key_words(ty.width()) == 2 {
            out.push((*value >> 64) as u64);
        }
    }
    out
}

/// Exact keys: a hash table with open addressing, entries side by side in memory. One small key is its own place.
#[derive(Debug)]
struct Exact {
    direct: bool,
    key: usize,
    record: usize,
    /// Number of an entry plus one; 0 is empty. A power of two.
    slots: Vec<u32>,
    entries: Vec<u64>,
    free: Vec<u32>,
    len: usize,
}

impl Exact {
    fn new(key: usize, record: usize, direct: bool) -> Exact {
        Exact { direct, key, record, slots: vec![0; 16], entries: Vec::new(), free: Vec::new(), len: 0 }
    }

    fn key_of(&self, entry: u32) -> &[u64] {
        let at = entry as usize * (self.key + self.record);
        &self.entries[at..at + self.key]
    }

    /// The slot that holds this key, or the empty one where it would be.
    #[inline]
    fn slot(&self, key: &[u64]) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash(key) & mask;
        while self.slots[at] != 0 && !same(self.key_of(self.slots[at] - 1), key) {
            at = (at + 1) & mask;
        }
        at
    }

    #[inline]
    fn find(&self, key: &[u64]) -> Option<&[u64]> {
        match (self.direct, key) {
            (true, _) => self.entry(*self.slots.get(key[0] as usize)?),
            (false, [a]) => self.probe(&[*a]),
            (false, [a, b]) => self.probe(&[*a, *b]),
            _ => self.entry(self.slots[self.slot(key)]),
        }
    }

    /// The record of a key of so many words: the words stay in registers.
    #[inline]
    fn probe<const N: usize>(&self, key: &[u64; N]) -> Option<&[u64]> {
        let mask = self.slots.len() - 1;
        let width = N + self.record;
        let mut at = hash(key) & mask;
        loop {
            let from = self.slots.get(at & mask)?.checked_sub(1)? as usize * width;
            let entry = self.entries.get(from..from + width)?;
            if entry.first_chunk() == Some(key) {
                return Some(&entry[N..]);
            }
            at += 1;
        }
    }

    #[inline]
    fn entry(&self, slot: u32) -> Option<&[u64]> {
        let number = slot.checked_sub(1)? as usize;
        let at = number * (self.key + self.record) + self.key;
        self.entries.get(at..at + self.record)
    }

    fn insert(&mut self, key: &[u64], record: &[u64]) {
        if self.direct && key[0] as usize >= self.slots.len() {
            self.slots.resize((key[0] as usize + 1).next_power_of_two(), 0);
        }
        let slot = if self.direct { key[0] as usize } else { self.slot(key) };
        let number = match self.slots[slot] {
            0 => {
                let width = self.key + self.record;
                let number = self.free.pop().unwrap_or((self.entries.len() / width) as u32);
                if number as usize * width == self.entries.len() {
                    self.entries.resize(self.entries.len() + width, 0);
                }
                self.slots[slot] = number + 1;
                self.len += 1;
                number
            }
            known => known - 1,
        };
        let at = number as usize * (self.key + self.record);
        self.entries[at..at + self.key].copy_from_slice(key);
        self.entries[at + self.key..at + self.key + self.record].fill(0);
        self.entries[at + self.key..at + self.key + record.len()].copy_from_slice(record);
        // Generated code probes one slot, and calls a function where that is not the one.
        if !self.direct && self.len * 4 > self.slots.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; old.len() * 2];
        for number in old.into_iter().filter(|n| *n != 0) {
            let slot = self.slot(self.key_of(number - 1));
            self.slots[slot] = number;
        }
    }

    /// What follows a removed entry moves up, so that no search ends too early.
    fn remove(&mut self, key: &[u64]) -> bool {
        if self.direct {
            let Some(number) = self.slots.get_mut(key[0] as usize).filter(|n| **n > 0) else { return false };
            self.free.push(*number - 1);
            *number = 0;
            self.len -= 1;
            return true;
        }
        let mut hole = self.slot(key);
        let Some(number) = self.slots[hole].checked_sub(1) else { return false };
        self.free.push(number);
        self.len -= 1;
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            if self.slots[at] == 0 {
                break;
            }
            let home = hash(self.key_of(self.slots[at] - 1)) & mask;
            // Its home lies cyclically outside (hole, at]: it may move into the hole.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
        }
        self.slots[hole] = 0;
        true
    }
}

/// Keys are a few words: a loop is quicker than a call.
#[inline]
fn same(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Against the standard library's map, over few keys, so that they meet often.
        #[test]
        fn exact_tables_are_maps(steps in proptest::collection::vec((0u64..40, any::<Option<u64>>()), 0..300)) {
            let mut exact = Exact::new(2, 1, false);
            let mut direct = Exact::new(1, 1, true);
            let mut map = HashMap::new();
            for (key, value) in steps {
                let words = [key, key / 3];
                match value {
                    Some(value) => direct.insert(&[key], &[value]),
                    None => prop_assert_eq!(direct.remove(&[key]), map.contains_key(&words)),
                }
                match value {
                    Some(value) => {
                        exact.insert(&words, &[value]);
                        map.insert(words, value);
                    }
                    None => prop_assert_eq!(exact.remove(&words), map.remove(&words).is_some()),
                }
                prop_assert_eq!(exact.len, map.len());
                for key in 0..40 {
                    let words = [key, key / 3];
                    prop_assert_eq!(exact.find(&words), map.get(&words).map(std::slice::from_ref));
                    prop_assert_eq!(direct.find(&[key]), map.get(&words).map(std::slice::from_ref));
                }
            }
        }
    }
}
