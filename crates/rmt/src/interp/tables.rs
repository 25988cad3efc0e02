//! What the control plane sees: tables, registers and counters by name.
use super::Machine;
use crate::ir::{ActionCall, Entry, Match, MatchKind, Program, Table, mask};
use std::collections::HashMap;
use std::fmt;

/// Why the control plane was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlError {
    /// Nothing has this name, or more than one thing.
    Unknown(String),
    /// The table holds as many entries as it has room for.
    Full(String),
    /// Entries, default or kind of key can't be changed so.
    NotAllowed(String),
    /// Keys, arguments or words do not fit what the program declares.
    Mismatch(String),
    /// Beyond the end.
    Index(u32),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Unknown(name) => write!(f, "the program has no single `{name}`"),
            ControlError::Full(name) => write!(f, "the table `{name}` is full"),
            ControlError::NotAllowed(what) => write!(f, "{what}"),
            ControlError::Mismatch(what) => write!(f, "{what}"),
            ControlError::Index(index) => write!(f, "there is no entry {index}"),
        }
    }
}

impl std::error::Error for ControlError {}

/// What an entry wants of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKey {
    /// This value.
    Exact(u128),
    /// `key & mask == value`.
    Ternary(u128, u128),
    /// The first bits of a value.
    Prefix(u128, u32),
    /// Both ends included.
    Range(u128, u128),
}

/// Entries of a table.
#[derive(Debug, Clone)]
pub(super) struct TableState {
    exact: Option<HashMap<Vec<u128>, ActionCall>>,
    /// By priority, then as they came; the first match wins.
    scanned: Vec<(u32, Entry)>,
    default: ActionCall,
}

impl TableState {
    pub fn new(table: &Table) -> TableState {
        let all_exact = table.keys.iter().all(|k| k.kind == MatchKind::Exact);
        let mut state =
            TableState { exact: all_exact.then(HashMap::new), scanned: Vec::new(), default: table.default.clone() };
        for entry in &table.entries {
            match &mut state.exact {
                Some(map) => {
                    map.entry(values(&entry.keys)).or_insert(entry.call.clone());
                }
                None => state.scanned.push((0, entry.clone())),
            }
        }
        state
    }

    /// The entry's action, or nothing on a miss.
    pub fn find(&self, keys: &[u128]) -> Option<&ActionCall> {
        match &self.exact {
            Some(map) => map.get(keys),
            None => self.scanned.iter().find(|(_, e)| matches(e, keys)).map(|(_, e)| &e.call),
        }
    }

    pub fn default(&self) -> &ActionCall {
        &self.default
    }

    fn len(&self) -> usize {
        self.exact.as_ref().map_or(self.scanned.len(), HashMap::len)
    }
}

fn values(keys: &[Match]) -> Vec<u128> {
    let value = |m: &Match| match m {
        Match::Mask(value, _) | Match::Range(value, _) => *value,
    };
    keys.iter().map(value).collect()
}

/// All keys as the entry wants them.
pub(super) fn matches(entry: &Entry, keys: &[u128]) -> bool {
    entry.keys.iter().zip(keys).all(|(m, key)| one(m, *key))
}

/// One key.
pub(super) fn one(m: &Match, key: u128) -> bool {
    match m {
        Match::Mask(value, mask) => key & mask == value & mask,
        Match::Range(low, high) => (low..=high).contains(&&key),
    }
}

/// The index of the only thing that has this name, whole or after a dot.
fn by_name<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Result<usize, ControlError> {
    let mut found = Vec::new();
    for (i, full) in names.enumerate() {
        if full == name {
            return Ok(i);
        }
        if full.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')) {
            found.push(i);
        }
    }
    match found[..] {
        [i] => Ok(i),
        _ => Err(ControlError::Unknown(name.into())),
    }
}

/// An action of a table by name, with arguments that fit.
fn call(program: &Program, table: &Table, action: &str, args: &[u128]) -> Result<ActionCall, ControlError> {
    let names = table.actions.iter().map(|a| program.actions[*a].name.as_str());
    let index = table.actions[by_name(action, names)?];
    let params = &program.actions[index].params;
    let fits = |(a, p): (&u128, &(String, crate::ir::Ty))| *a <= mask(p.1.width());
    if params.len() != args.len() || !args.iter().zip(params).all(fits) {
        let wanted: Vec<String> = params.iter().map(|p| format!("{} of {} bits", p.0, p.1.width())).collect();
        return Err(ControlError::Mismatch(format!("`{action}` takes ({})", wanted.join(", "))));
    }
    Ok(ActionCall { action: index, args: args.to_vec() })
}

impl Machine {
    fn table_index(&self, name: &str) -> Result<usize, ControlError> {
        by_name(name, self.program.tables.iter().map(|t| t.name.as_str()))
    }

    /// Adds an entry, or replaces that of the same keys. Of ternary entries that match, the one with the least
    /// `priority` wins; of prefixes, the longest.
    ///
    /// # Errors
    /// A name, keys or arguments that the program does not have; a full table; constant entries.
    pub fn table_add(
        &mut self,
        table: &str,
        keys: &[EntryKey],
        priority: u32,
        action: &str,
        args: &[u128],
    ) -> Result<(), ControlError> {
        let index = self.table_index(table)?;
        let info = &self.program.tables[index];
        if !info.entries.is_empty() || info.keys.is_empty() {
            return Err(ControlError::NotAllowed(format!("the entries of `{table}` are constant")));
        }
        let call = call(&self.program, info, action, args)?;
        if info.default_only.contains(&call.action) {
            return Err(ControlError::NotAllowed(format!("`{action}` is only for the default of `{table}`")));
        }
        let (keys, prefix) = entry_keys(info, keys)?;
        let state = &mut self.tables[index];
        let full = state.len() >= info.size as usize;
        if let Some(map) = &mut state.exact {
            let keys = values(&keys);
            if full && !map.contains_key(&keys) {
                return Err(ControlError::Full(table.into()));
            }
            map.insert(keys, call);
            return Ok(());
        }
        let priority = priority.saturating_add(128 - prefix);
        if let Some(known) = state.scanned.iter_mut().find(|(p, e)| *p == priority && e.keys == keys) {
            known.1.call = call;
            return Ok(());
        }
        if full {
            return Err(ControlError::Full(table.into()));
        }
        let at = state.scanned.partition_point(|(p, _)| *p <= priority);
        state.scanned.insert(at, (priority, Entry { keys, call }));
        Ok(())
    }

    /// Removes the entries of these keys; whether there was one.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<bool, ControlError> {
        let index = self.table_index(table)?;
        let info = &self.program.tables[index];
        if !info.entries.is_empty() {
            return Err(ControlError::NotAllowed(format!("the entries of `{table}` are constant")));
        }
        let (keys, _) = entry_keys(info, keys)?;
        let state = &mut self.tables[index];
        let before = state.len();
        match &mut state.exact {
            Some(map) => drop(map.remove(&values(&keys))),
            None => state.scanned.retain(|(_, e)| e.keys != keys),
        }
        Ok(state.len() < before)
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        let index = self.table_index(table)?;
        let info = &self.program.tables[index];
        if info.const_default {
            return Err(ControlError::NotAllowed(format!("the default of `{table}` is constant")));
        }
        self.tables[index].default = call(&self.program, info, action, args)?;
        Ok(())
    }

    /// Entries now.
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn table_len(&self, table: &str) -> Result<usize, ControlError> {
        Ok(self.tables[self.table_index(table)?].len())
    }

    /// The words of a register's entry.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn register_read(&self, name: &str, index: u32) -> Result<&[u128], ControlError> {
        let (register, range) = self.register_entry(name, index)?;
        Ok(&self.registers[register][range])
    }

    /// Sets the words of a register's entry.
    ///
    /// # Errors
    /// A name that the program does not have, an index beyond the end, other words than the entry has.
    pub fn register_write(&mut self, name: &str, index: u32, words: &[u128]) -> Result<(), ControlError> {
        let (register, range) = self.register_entry(name, index)?;
        let types = &self.program.registers[register].words;
        if types.len() != words.len() || !types.iter().zip(words).all(|(ty, w)| *w <= mask(ty.width())) {
            return Err(ControlError::Mismatch(format!("an entry of `{name}` has {} words", types.len())));
        }
        self.registers[register][range].copy_from_slice(words);
        Ok(())
    }

    fn register_entry(&self, name: &str, index: u32) -> Result<(usize, std::ops::Range<usize>), ControlError> {
        let register = by_name(name, self.program.registers.iter().map(|r| r.name.as_str()))?;
        let info = &self.program.registers[register];
        if index >= info.size {
            return Err(ControlError::Index(index));
        }
        let words = info.words.len();
        Ok((register, index as usize * words..(index as usize + 1) * words))
    }

    /// A counter's value: packets.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn counter_read(&self, name: &str, index: u32) -> Result<u64, ControlError> {
        let counter = by_name(name, self.program.counters.iter().map(|c| c.name.as_str()))?;
        self.counters[counter].get(index as usize).copied().ok_or(ControlError::Index(index))
    }
}

/// Keys as matches, and the length of the longest-prefix key.
fn entry_keys(table: &Table, keys: &[EntryKey]) -> Result<(Vec<Match>, u32), ControlError> {
    let mismatch = |what: String| ControlError::Mismatch(format!("`{}`: {what}", table.name));
    if keys.len() != table.keys.len() {
        return Err(mismatch(format!("{} keys are expected, not {}", table.keys.len(), keys.len())));
    }
    let mut out = Vec::new();
    let mut prefix = 0;
    for (key, info) in keys.iter().zip(&table.keys) {
        let width = info.expr.ty.width();
        let full = mask(width);
        let m = match (*key, info.kind) {
            (EntryKey::Exact(v), _) if v <= full => Match::Mask(v, full),
            (EntryKey::Ternary(v, m), MatchKind::Ternary) if v <= full && m <= full => Match::Mask(v & m, m),
            (EntryKey::Prefix(v, n), MatchKind::Lpm) if v <= full && n <= width => {
                prefix = n;
                let m = full & !mask(width - n);
                Match::Mask(v & m, m)
            }
            (EntryKey::Range(a, b), MatchKind::Range) if b <= full => Match::Range(a, b),
            _ => return Err(mismatch(format!("this is not a value for the key `{}`", info.name))),
        };
        if matches!((key, info.kind), (EntryKey::Exact(_), MatchKind::Lpm)) {
            prefix = width;
        }
        out.push(m);
    }
    Ok((out, prefix))
}
