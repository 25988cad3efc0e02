//! Layout of tables: which memory each becomes, and the bits of its entries.
use super::expr::refuse;
use super::text::bits_for;
use crate::diag::Res;
use crate::ir::{ActionCall, MatchKind, Program, Table};

/// Entries of an exact-match table that are compared at once; with more of them, memories are read by hashes.
const COMPARED: u32 = 64;
/// Entries that a table with masks may have: each is registers and a comparison.
const TERNARY: u32 = 512;
/// Bits of an address of a memory at most.
const ADDRESS: u32 = 20;

/// Hardware form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Its entries are constants, or it has none.
    Constant,
    /// Registers, all compared at once.
    Compared {
        /// How many.
        entries: u32,
    },
    /// Memories that are read at hashes of the key.
    Hashed {
        /// How many.
        ways: u32,
        /// Bits of their addresses.
        address: u32,
    },
}

/// The bits of a table's key, and of an entry's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Its hardware form.
    pub shape: Shape,
    /// Widths of the keys; the first has the highest bits.
    pub keys: Vec<u32>,
    /// Actions by their numbers in the hardware, as indices into the program's.
    pub actions: Vec<usize>,
    /// Bits of an action's number: the lowest of an entry's data.
    pub action_bits: u32,
    /// Bits of the longest action data, above the number.
    pub args_bits: u32,
}

impl Layout {
    pub(super) fn new(program: &Program, table: &Table) -> Res<Layout> {
        let mut actions: Vec<usize> = Vec::new();
        for action in table.actions.iter().chain([&table.default.action]) {
            if !actions.contains(action) {
                actions.push(*action);
            }
        }
        let args = |a: &usize| program.actions[*a].params.iter().map(|p| p.1.width()).sum::<u32>();
        Ok(Layout {
            shape: shape(table)?,
            keys: table.keys.iter().map(|k| k.expr.ty.width()).collect(),
            action_bits: if actions.len() > 1 { bits_for(actions.len()) } else { 0 },
            args_bits: actions.iter().map(args).max().unwrap_or(0),
            actions,
        })
    }

    /// Of the whole key.
    pub fn key_bits(&self) -> u32 {
        self.keys.iter().sum()
    }

    /// Of an entry's content.
    pub fn data_bits(&self) -> u32 {
        (self.action_bits + self.args_bits).max(1)
    }

    /// Of a whole entry, as it is written.
    pub fn entry_bits(&self) -> u32 {
        match self.shape {
            Shape::Constant => self.data_bits(),
            Shape::Compared { .. } => 1 + 2 * self.key_bits() + self.data_bits(),
            Shape::Hashed { .. } => 1 + self.key_bits() + self.data_bits(),
        }
    }

    /// The number of an action in the hardware.
    pub fn number(&self, action: usize) -> usize {
        self.actions.iter().position(|a| *a == action).unwrap_or(0)
    }

    /// Offset of an action's parameter in the action data.
    pub(super) fn arg_at(&self, program: &Program, action: usize, number: usize) -> u32 {
        program.actions[action].params[..number].iter().map(|p| p.1.width()).sum()
    }
}

/// Action data as it stands in an entry: the first parameter lowest.
pub(super) fn packed_args(program: &Program, call: &ActionCall) -> Vec<Part> {
    let params = &program.actions[call.action].params;
    params.iter().zip(&call.args).map(|(p, value)| Part { value: *value, width: p.1.width() }).collect()
}

/// A value and its bits.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub value: u128,
    pub width: u32,
}

fn shape(table: &Table) -> Res<Shape> {
    if !table.entries.is_empty() || table.keys.is_empty() {
        return Ok(Shape::Constant);
    }
    let size = table.size.max(1);
    let exact = table.keys.iter().all(|k| k.kind == MatchKind::Exact);
    if exact && size > COMPARED {
        // A quarter more places than entries: five ways hold that with cuckoo hashing.
        let address = (size / 4).ilog2();
        let ways = (size + size / 4).div_ceil(1 << address);
        if address > ADDRESS {
            return refuse(table.pos, format!("`{}` with {size} entries", table.name));
        }
        return Ok(Shape::Hashed { ways, address });
    }
    if size > TERNARY {
        let what = format!("`{}` with {size} entries that have masks, more than {TERNARY},", table.name);
        return refuse(table.pos, what);
    }
    let ranges = table.keys.iter().filter(|k| k.kind == MatchKind::Range).count();
    if ranges > 1 || table.keys.iter().any(|k| k.kind == MatchKind::Range && k.expr.ty.width() > 64) {
        return refuse(table.pos, format!("`{}` with two ranges or one above 64 bits", table.name));
    }
    Ok(Shape::Compared { entries: size })
}
