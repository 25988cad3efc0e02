//! Linear search of table entries: keys with masks, prefixes or ranges.
use crate::ir::Match;

/// By priority, then as they came; the first match wins.
#[derive(Debug, Clone)]
pub(crate) struct Scan<T> {
    list: Vec<(u32, Vec<Match>, T)>,
}

impl<T> Scan<T> {
    pub(crate) fn new() -> Scan<T> {
        Scan { list: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn find(&self, values: &[u128]) -> Option<&T> {
        self.list.iter().find(|(_, keys, _)| matches(keys, values)).map(|(.., found)| found)
    }

    /// Behind those of the same priority.
    pub(crate) fn push(&mut self, priority: u32, keys: Vec<Match>, value: T) {
        let at = self.list.partition_point(|(p, ..)| *p <= priority);
        self.list.insert(at, (priority, keys, value));
    }

    /// Adds an entry, or changes that of the same keys; false where there are `most` already.
    pub(crate) fn add(&mut self, most: usize, priority: u32, keys: Vec<Match>, value: T) -> bool {
        if let Some(known) = self.list.iter_mut().find(|(p, k, _)| *p == priority && *k == keys) {
            known.2 = value;
            return true;
        }
        let room = self.len() < most;
        if room {
            self.push(priority, keys, value);
        }
        room
    }

    /// Removes an entry; true where one had these keys.
    pub(crate) fn remove(&mut self, keys: &[Match]) -> bool {
        let before = self.len();
        self.list.retain(|(_, k, _)| k != keys);
        self.len() < before
    }
}

/// All keys as an entry demands them.
fn matches(keys: &[Match], values: &[u128]) -> bool {
    keys.iter().zip(values).all(|(m, value)| one(m, *value))
}

/// One key.
pub(crate) fn one(m: &Match, key: u128) -> bool {
    match m {
        Match::Mask(value, mask) => key & mask == value & mask,
        Match::Range(low, high) => (low..=high).contains(&&key),
    }
}
