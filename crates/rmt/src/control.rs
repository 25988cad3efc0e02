//! Objects of the control API: tables, actions, registers. Shared by everything that runs a program.
use crate::ir::{ActionCall, Match, MatchKind, Program, Table, mask};
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

/// An entry's match on one key.
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

/// An entry that fits its table.
pub(crate) struct Addition {
    pub table: usize,
    pub keys: Vec<Match>,
    pub priority: u32,
    pub call: ActionCall,
}

/// The index of the only thing that has this name, whole or after a dot.
pub(crate) fn by_name<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Result<usize, ControlError> {
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

/// The table of this name.
pub(crate) fn table_index(program: &Program, name: &str) -> Result<usize, ControlError> {
    by_name(name, program.tables.iter().map(|t| t.name.as_str()))
}

/// An entry to add. Of prefixes, the longest wins: it counts as the higher priority.
pub(crate) fn addition(
    program: &Program,
    table: &str,
    keys: &[EntryKey],
    priority: u32,
    action: &str,
    args: &[u128],
) -> Result<Addition, ControlError> {
    let index = table_index(program, table)?;
    let info = &program.tables[index];
    if !info.entries.is_empty() || info.keys.is_empty() {
        return Err(ControlError::NotAllowed(format!("the entries of `{table}` are constant")));
    }
    let call = call(program, info, action, args)?;
    if info.default_only.contains(&call.action) {
        return Err(ControlError::NotAllowed(format!("`{action}` is only for the default of `{table}`")));
    }
    let (keys, prefix) = entry_keys(info, keys)?;
    Ok(Addition { table: index, keys, priority: priority.saturating_add(128 - prefix), call })
}

/// An entry to remove: its table and keys.
pub(crate) fn removal(program: &Program, table: &str, keys: &[EntryKey]) -> Result<(usize, Vec<Match>), ControlError> {
    let index = table_index(program, table)?;
    let info = &program.tables[index];
    if !info.entries.is_empty() {
        return Err(ControlError::NotAllowed(format!("the entries of `{table}` are constant")));
    }
    Ok((index, entry_keys(info, keys)?.0))
}

/// A new default: its table and action.
pub(crate) fn new_default(
    program: &Program,
    table: &str,
    action: &str,
    args: &[u128],
) -> Result<(usize, ActionCall), ControlError> {
    let index = table_index(program, table)?;
    let info = &program.tables[index];
    if info.const_default {
        return Err(ControlError::NotAllowed(format!("the default of `{table}` is constant")));
    }
    Ok((index, call(program, info, action, args)?))
}

/// The register of this name, which has an entry of this index.
pub(crate) fn register_index(program: &Program, name: &str, index: u32) -> Result<usize, ControlError> {
    let register = by_name(name, program.registers.iter().map(|r| r.name.as_str()))?;
    if index >= program.registers[register].size {
        return Err(ControlError::Index(index));
    }
    Ok(register)
}

/// Words that fit the register's entries.
pub(crate) fn check_words(program: &Program, register: usize, words: &[u128]) -> Result<(), ControlError> {
    let info = &program.registers[register];
    if info.words.len() != words.len() || !info.words.iter().zip(words).all(|(ty, w)| *w <= mask(ty.width())) {
        return Err(ControlError::Mismatch(format!("an entry of `{}` has {} words", info.name, info.words.len())));
    }
    Ok(())
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
