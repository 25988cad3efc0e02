//! Entries of tables.
use crate::ir::{ActionCall, Match, MatchKind, Table};
use crate::scan::Scan;
use std::collections::HashMap;

/// Entries of a table.
#[derive(Debug, Clone)]
pub(super) struct TableState {
    pub(super) exact: Option<HashMap<Vec<u128>, ActionCall>>,
    pub(super) scanned: Scan<ActionCall>,
    pub(super) default: ActionCall,
}

impl TableState {
    pub(super) fn new(table: &Table) -> TableState {
        let all_exact = table.keys.iter().all(|k| k.kind == MatchKind::Exact);
        let mut state =
            TableState { exact: all_exact.then(HashMap::new), scanned: Scan::new(), default: table.default.clone() };
        for entry in &table.entries {
            match &mut state.exact {
                Some(map) => {
                    map.entry(values(&entry.keys)).or_insert(entry.call.clone());
                }
                None => state.scanned.push(0, entry.keys.clone(), entry.call.clone()),
            }
        }
        state
    }

    /// The entry's action, or nothing on a miss.
    pub(super) fn find(&self, keys: &[u128]) -> Option<&ActionCall> {
        match &self.exact {
            Some(map) => map.get(keys),
            None => self.scanned.find(keys),
        }
    }

    pub(super) fn default(&self) -> &ActionCall {
        &self.default
    }

    pub(super) fn len(&self) -> usize {
        self.exact.as_ref().map_or(self.scanned.len(), HashMap::len)
    }
}

pub(super) fn values(keys: &[Match]) -> Vec<u128> {
    let value = |m: &Match| match m {
        Match::Mask(value, _) | Match::Range(value, _) => *value,
    };
    keys.iter().map(value).collect()
}
