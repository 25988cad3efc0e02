//! The control plane of a generated half: which operations of the control bus a change of a table takes. Each operation
//! is one clock, and between any two of them packets see the table as it was or as it is.
use super::map::{Map, MappedKind};
use super::tables::{Layout, Part, Shape, packed_args};
use crate::control::{self, Addition, ControlError, EntryKey};
use crate::ir::{ActionCall, Match, MatchKind, Program, mask};
use std::collections::HashMap;

/// One operation of the control bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Write, or read.
    pub write: bool,
    /// Which table, register or counter: [`Map::targets`].
    pub target: u8,
    /// Which entry.
    pub index: u32,
    /// Written data, hexadecimal.
    pub data: String,
}

/// The index that means a table's default.
const DEFAULT: u32 = u32::MAX;
/// Places that the search for a free one checks.
const SEARCH: usize = 4000;

/// Bits, the lowest first.
#[derive(Default, Clone)]
struct Bits(Vec<bool>);

impl Bits {
    fn push(&mut self, part: Part) {
        (0..part.width).for_each(|i| self.0.push(part.value >> i & 1 == 1));
    }

    fn hex(&self) -> String {
        let digit = |c: &[bool]| c.iter().enumerate().map(|(i, b)| u32::from(*b) << i).sum::<u32>();
        let text: String = self.0.chunks(4).rev().map(|c| char::from_digit(digit(c), 16).unwrap_or('0')).collect();
        if text.is_empty() { "0".into() } else { text }
    }

    /// As `rtl_crc.sv`.
    fn crc(&self, polynomial: u32) -> u32 {
        let step = |value: u32, bit: &bool| value >> 1 ^ if (value & 1 == 1) != *bit { polynomial } else { 0 };
        self.0.iter().fold(u32::MAX, step)
    }
}

/// An entry as the program's control plane sees it.
#[derive(Clone)]
struct Known {
    priority: u32,
    keys: Vec<Match>,
    call: ActionCall,
}

/// A place in a hashed table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TableSlot {
    way: u32,
    slot: u32,
}

impl TableSlot {
    /// On the control bus.
    fn index(self) -> u32 {
        self.way << 24 | self.slot
    }
}

/// Entries of a table and where they are.
enum State {
    None,
    /// In the order in which they win.
    Compared {
        list: Vec<Known>,
        most: usize,
        exact: bool,
    },
    /// By their way and slot.
    Hashed {
        places: HashMap<TableSlot, Known>,
        by_key: HashMap<Vec<u128>, TableSlot>,
        most: usize,
    },
}

/// The control plane's half of a design.
pub struct Control {
    program: Program,
    map: Map,
    states: Vec<State>,
}

impl Control {
    /// All tables are empty but for their constant entries.
    pub fn new(program: Program, map: Map) -> Control {
        let state = |kind: &MappedKind| {
            let MappedKind::Table { table, layout } = kind else { return State::None };
            let info = &program.tables[*table];
            let most = info.size as usize;
            match layout.shape {
                Shape::Constant => State::None,
                Shape::Compared { .. } => {
                    let exact = info.keys.iter().all(|k| k.kind == MatchKind::Exact);
                    State::Compared { list: Vec::new(), most, exact }
                }
                Shape::Hashed { .. } => State::Hashed { places: HashMap::new(), by_key: HashMap::new(), most },
            }
        };
        let states = map.targets.iter().map(|t| state(&t.kind)).collect();
        Control { program, map, states }
    }

    /// As `table_add` of the interpreter's machine. Nothing is to be done for a table of the other half.
    ///
    /// # Errors
    /// As there; also, full is a table of which no rearrangement makes room for the key.
    pub fn table_add(
        &mut self,
        table: &str,
        keys: &[EntryKey],
        priority: u32,
        action: &str,
        args: &[u128],
    ) -> Result<Vec<Operation>, ControlError> {
        let Addition { table: index, keys, priority, call } =
            control::addition(&self.program, table, keys, priority, action, args)?;
        let Some(target) = self.target_of(index) else { return Ok(Vec::new()) };
        let new = Known { priority, keys, call };
        let full = || ControlError::Full(table.into());
        match &mut self.states[target] {
            State::None => Ok(Vec::new()),
            State::Compared { list, most, exact } => {
                let same = |k: &Known| k.keys == new.keys && (*exact || k.priority == new.priority);
                if let Some(at) = list.iter().position(same) {
                    list[at].call = new.call;
                    return Ok(vec![self.slot(target, at)]);
                }
                if list.len() >= *most {
                    return Err(full());
                }
                let at = list.partition_point(|k| k.priority <= new.priority);
                list.insert(at, new);
                let last = list.len();
                Ok((at..last).rev().map(|i| self.slot(target, i)).collect())
            }
            State::Hashed { by_key, most, .. } => {
                let room = by_key.len() < *most || by_key.contains_key(&values(&new.keys));
                if !room {
                    return Err(full());
                }
                self.insert(target, new).ok_or_else(full)
            }
        }
    }

    /// As `table_remove` of the interpreter's machine.
    ///
    /// # Errors
    /// As there.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<Vec<Operation>, ControlError> {
        let (index, keys) = control::removal(&self.program, table, keys)?;
        let Some(target) = self.target_of(index) else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        match &mut self.states[target] {
            State::None => {}
            State::Hashed { places, by_key, .. } => {
                if let Some(place) = by_key.remove(&values(&keys)) {
                    places.remove(&place);
                    out.push(self.write(target, place.index(), "0".into()));
                }
            }
            State::Compared { .. } => {
                while let Some(at) = self.list(target).iter().position(|k| k.keys == keys) {
                    if let State::Compared { list, .. } = &mut self.states[target] {
                        list.remove(at);
                    }
                    let len = self.list(target).len();
                    out.extend((at..len).map(|i| self.slot(target, i)));
                    out.push(self.write(target, len as u32, "0".into()));
                }
            }
        }
        Ok(out)
    }

    /// As `table_set_default` of the interpreter's machine.
    ///
    /// # Errors
    /// As there.
    pub fn table_set_default(&self, table: &str, action: &str, args: &[u128]) -> Result<Vec<Operation>, ControlError> {
        let (index, call) = control::new_default(&self.program, table, action, args)?;
        let Some(target) = self.target_of(index) else { return Ok(Vec::new()) };
        let mut bits = Bits::default();
        self.data(&mut bits, target, &call);
        Ok(vec![self.write(target, DEFAULT, bits.hex())])
    }

    /// Sets the words of a register's entry; none for a register of the other half.
    ///
    /// # Errors
    /// As `register_write` of the interpreter's machine.
    pub fn register_write(&self, name: &str, index: u32, words: &[u128]) -> Result<Option<Operation>, ControlError> {
        let register = control::register_index(&self.program, name, index)?;
        control::check_words(&self.program, register, words)?;
        let mut bits = Bits::default();
        let types = &self.program.registers[register].words;
        types.iter().zip(words).for_each(|(ty, w)| bits.push(Part { value: *w, width: ty.width() }));
        Ok(self.register_target(register).map(|target| self.write(target.into(), index, bits.hex())))
    }

    /// The number of a register on the control bus; none for a register of the other half.
    pub fn register_target(&self, register: usize) -> Option<u8> {
        let is = |kind: &MappedKind| matches!(kind, MappedKind::Register { register: r, .. } if *r == register);
        self.find(is).map(|target| target as u8)
    }

    /// Asks for an entry of a register or a counter, by its target.
    pub fn read(&self, target: u8, index: u32) -> Operation {
        Operation { write: false, target, index, data: "0".into() }
    }

    /// The words in what a read of a target gave, hexadecimal.
    pub fn words(&self, target: u8, hex: &str) -> Vec<u128> {
        let bit = |at: u32| {
            let digit = hex.len().checked_sub(1 + at as usize / 4).and_then(|i| hex.as_bytes().get(i));
            u128::from(digit.and_then(|d| (*d as char).to_digit(16)).unwrap_or(0) >> (at % 4) & 1)
        };
        let widths = match self.map.targets.get(usize::from(target)).map(|t| &t.kind) {
            Some(MappedKind::Register { words, .. }) => words.clone(),
            Some(MappedKind::Counter { .. }) => vec![64],
            _ => Vec::new(),
        };
        let mut at = 0;
        let mut word = |width: u32| {
            at += width;
            (0..width).rev().fold(0, |value, i| value << 1 | bit(at - width + i))
        };
        widths.into_iter().map(&mut word).collect()
    }

    fn find(&self, is: impl Fn(&MappedKind) -> bool) -> Option<usize> {
        self.map.targets.iter().position(|t| is(&t.kind))
    }

    fn target_of(&self, index: usize) -> Option<usize> {
        self.find(|kind| matches!(kind, MappedKind::Table { table, .. } if *table == index))
    }

    fn layout(&self, target: usize) -> &Layout {
        match &self.map.targets[target].kind {
            MappedKind::Table { layout, .. } => layout,
            _ => unreachable!("only tables have entries"),
        }
    }

    fn write(&self, target: usize, index: u32, data: String) -> Operation {
        Operation { write: true, target: target as u8, index, data }
    }

    fn list(&self, target: usize) -> &[Known] {
        match &self.states[target] {
            State::Compared { list, .. } => list,
            _ => &[],
        }
    }

    /// An action with its data: the number lowest.
    fn data(&self, bits: &mut Bits, target: usize, call: &ActionCall) {
        let layout = self.layout(target);
        bits.push(Part { value: layout.number(call.action) as u128, width: layout.action_bits });
        packed_args(&self.program, call).into_iter().for_each(|p| bits.push(p));
    }

    /// The entry of a table with comparisons that stands at this place.
    fn slot(&self, target: usize, at: usize) -> Operation {
        let known = &self.list(target)[at];
        let layout = self.layout(target);
        let mut bits = Bits(vec![true]);
        for second in [false, true] {
            for (m, width) in known.keys.iter().zip(&layout.keys).rev() {
                let (first, last) = match m {
                    Match::Mask(value, mask) => (value, mask),
                    Match::Range(low, high) => (low, high),
                };
                bits.push(Part { value: if second { *last } else { *first }, width: *width });
            }
        }
        self.data(&mut bits, target, &known.call);
        self.write(target, at as u32, bits.hex())
    }

    /// The places where a key may stand: one in each way.
    fn places(&self, target: usize, keys: &[Match]) -> Vec<TableSlot> {
        let layout = self.layout(target);
        let Shape::Hashed { ways, address } = layout.shape else { return Vec::new() };
        let key = key_bits(layout, keys);
        let mix = u128::from(key.crc(0x82f6_3b78)) << 32 | u128::from(key.crc(0xedb8_8320));
        let twice = mix << 64 | mix;
        let slot = |way: u32| (twice >> (way * address % 64) & mask(address)) as u32;
        (0..ways).map(|way| TableSlot { way, slot: slot(way) }).collect()
    }

    /// Cuckoo hashing: the shortest chain of moves that ends at a free place, the last move first.
    fn insert(&mut self, target: usize, new: Known) -> Option<Vec<Operation>> {
        let State::Hashed { places, by_key, .. } = &self.states[target] else { return None };
        if let Some(place) = by_key.get(&values(&new.keys)) {
            let place = *place;
            return Some(vec![self.put(target, place, new)]);
        }
        let start = self.places(target, &new.keys);
        let mut seen: Vec<(TableSlot, Option<usize>)> = start.into_iter().map(|p| (p, None)).collect();
        let mut at = 0;
        let free = loop {
            let (place, _) = *seen.get(at)?;
            let Some(known) = places.get(&place) else { break at };
            if seen.len() < SEARCH {
                for next in self.places(target, &known.keys) {
                    if seen.iter().all(|(p, _)| *p != next) {
                        seen.push((next, Some(at)));
                    }
                }
            }
            at += 1;
        };
        let mut out = Vec::new();
        let mut hole = free;
        while let Some(from) = seen[hole].1 {
            let State::Hashed { places, .. } = &mut self.states[target] else { return None };
            let moved = places.remove(&seen[from].0)?;
            out.push(self.put(target, seen[hole].0, moved));
            hole = from;
        }
        out.push(self.put(target, seen[hole].0, new));
        Some(out)
    }

    /// Writes an entry to a place of a hashed table.
    fn put(&mut self, target: usize, place: TableSlot, known: Known) -> Operation {
        let mut bits = Bits(vec![true]);
        bits.0.extend(key_bits(self.layout(target), &known.keys).0);
        self.data(&mut bits, target, &known.call);
        if let State::Hashed { places, by_key, .. } = &mut self.states[target] {
            by_key.insert(values(&known.keys), place);
            places.insert(place, known);
        }
        self.write(target, place.index(), bits.hex())
    }
}

/// The whole key, the last one lowest.
fn key_bits(layout: &Layout, keys: &[Match]) -> Bits {
    let mut bits = Bits::default();
    for (value, width) in values(keys).into_iter().zip(&layout.keys).rev() {
        bits.push(Part { value, width: *width });
    }
    bits
}

fn values(keys: &[Match]) -> Vec<u128> {
    let value = |m: &Match| match m {
        Match::Mask(value, _) | Match::Range(value, _) => *value,
    };
    keys.iter().map(value).collect()
}
