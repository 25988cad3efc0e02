//! Register map of a generated half: sizes of its ports, and what the control bus reaches.
use super::tables::{Layout, Shape};
use crate::ir::Gress;

/// A half's ports and control bus.
#[derive(Debug, Clone)]
pub struct Map {
    /// Which half.
    pub gress: Gress,
    /// Bytes at the front of a packet that the parser sees.
    pub in_bytes: u32,
    /// Bytes of headers that may leave.
    pub out_bytes: u32,
    /// Bits that each mirror puts in front of a copy.
    pub mirrors: Vec<u32>,
    /// Bits of a control operation's data.
    pub control_bits: u32,
    /// Clocks from a packet's headers to what leaves.
    pub latency: u32,
    /// By their numbers on the control bus.
    pub targets: Vec<Mapped>,
}

/// Target of a number on the control bus.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// As in the program.
    pub name: String,
    /// Its kind.
    pub kind: MappedKind,
}

/// Kinds of targets.
#[derive(Debug, Clone)]
pub enum MappedKind {
    /// Entries are written; index 0xffffffff is the default.
    Table {
        /// Index into the program's tables.
        table: usize,
        /// The bits of its entries.
        layout: Layout,
    },
    /// Entries are read and written.
    Register {
        /// Index into the program's registers.
        register: usize,
        /// Entries.
        size: u32,
        /// Widths of the words, the lowest first.
        words: Vec<u32>,
    },
    /// Entries are read and written: packets.
    Counter {
        /// Index into the program's counters.
        counter: usize,
        /// Entries.
        size: u32,
    },
}

impl Map {
    /// The map as JSON.
    pub fn json(&self) -> String {
        let list = |items: Vec<String>| items.join(",\n    ");
        let targets = self.targets.iter().enumerate().map(|(i, t)| target(i, t)).collect();
        let mirrors: Vec<String> = self.mirrors.iter().map(u32::to_string).collect();
        format!(
            "{{\n  \"half\": \"{}\",\n  \"in_bytes\": {},\n  \"out_bytes\": {},\n  \"mirror_bits\": [{}],\n  \
             \"control_data_bits\": {},\n  \"latency_clocks\": {},\n  \"targets\": [\n    {}\n  ]\n}}\n",
            self.gress.name(),
            self.in_bytes,
            self.out_bytes,
            mirrors.join(", "),
            self.control_bits,
            self.latency,
            list(targets)
        )
    }
}

fn target(number: usize, target: &Mapped) -> String {
    let start = format!("{{\"target\": {number}, \"name\": \"{}\"", target.name);
    let numbers = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match &target.kind {
        MappedKind::Table { layout, .. } => {
            let shape = match layout.shape {
                Shape::Constant => "\"shape\": \"constant\"".to_string(),
                Shape::Compared { entries } => format!("\"shape\": \"compared\", \"entries\": {entries}"),
                Shape::Hashed { ways, address } => {
                    format!("\"shape\": \"hashed\", \"ways\": {ways}, \"address_bits\": {address}")
                }
            };
            format!(
                "{start}, \"kind\": \"table\", {shape}, \"key_bits\": [{}], \"action_bits\": {}, \"args_bits\": {}}}",
                numbers(&layout.keys),
                layout.action_bits,
                layout.args_bits
            )
        }
        MappedKind::Register { size, words, .. } => {
            format!("{start}, \"kind\": \"register\", \"entries\": {size}, \"word_bits\": [{}]}}", numbers(words))
        }
        MappedKind::Counter { size, .. } => format!("{start}, \"kind\": \"counter\", \"entries\": {size}}}"),
    }
}
