//! Layout of table entries in memory, for the tables and for generated code.
use crate::ir::{MatchKind, Program, Table};

/// Of a record in memory: words before the action's data.
pub(super) const RECORD_DATA: usize = 2;

/// Lookup form of a table's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One small key is its own place.
    Direct,
    /// By a hash of exact keys.
    Hashed,
    /// One after the other.
    Scanned,
}

impl Form {
    pub(super) fn of(table: &Table) -> Form {
        let exact = !table.keys.is_empty() && table.keys.iter().all(|k| k.kind == MatchKind::Exact);
        match &table.keys[..] {
            _ if !exact || !table.entries.is_empty() => Form::Scanned,
            [key] if key.expr.ty.width() <= 16 => Form::Direct,
            _ => Form::Hashed,
        }
    }
}

/// Words of a record at most.
pub(super) fn record_words(program: &Program, table: &Table) -> usize {
    let data = |action: &usize| program.actions[*action].params.iter().map(|p| key_words(p.1.width())).sum();
    RECORD_DATA + actions_of(table).iter().map(data).max().unwrap_or(0)
}

/// The actions that may run: those of the table, and its default. Records name an action by its place here.
pub(super) fn actions_of(table: &Table) -> Vec<usize> {
    let mut list = table.actions.clone();
    if !list.contains(&table.default.action) {
        list.push(table.default.action);
    }
    list
}

/// Words of a piece of an action's data in memory.
pub(super) fn key_words(width: u32) -> usize {
    if width > 64 { 2 } else { 1 }
}

/// Where each key lies in an entry's packed keys: word, and bits to the left in it. Keys share words where they fit;
/// one of more than 64 bits has two of its own, the low one first.
pub(super) fn packing(widths: &[u32]) -> Vec<(usize, u32)> {
    let (mut word, mut used) = (0, 0);
    let mut place = |width: &u32| {
        if used > 0 && used + width > 64 {
            (word, used) = (word + 1, 0);
        }
        let at = (word, used);
        (word, used) = if *width > 64 { (word + 2, 0) } else { (word, used + width) };
        at
    };
    widths.iter().map(&mut place).collect()
}

/// Words of all keys.
pub(super) fn packed_words(widths: &[u32]) -> usize {
    let last = packing(widths).last().map(|(word, _)| *word);
    last.map_or(0, |word| word + key_words(*widths.last().unwrap_or(&0)))
}

/// Seed and multiplier of a hash.
pub(super) const HASH_SEED: u64 = 0x243f_6a88_85a3_08d3;
pub(super) const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where an entry's place is sought first. Generated code has it, too.
#[inline(always)]
pub(super) fn hash(words: &[u64]) -> usize {
    let mixed = words.iter().fold(HASH_SEED, |h, w| {
        let wide = (h ^ w) as u128 * HASH_FACTOR as u128;
        (wide >> 64) as u64 ^ wide as u64
    });
    mixed as usize
}
