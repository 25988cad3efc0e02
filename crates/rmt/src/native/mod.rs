//! Programs compiled to native code when they are loaded. A [`Native`] is what [`crate::interp::Machine`] is, with the
//! same control API, outputs and registers, in batches and without an allocation for each packet. The interpreter is
//! the reference: `tests/native` compares them packet by packet.
//!
//! A packet is given as its first bytes, which the parser reads, and its whole length. What lies behind those bytes
//! (payload by reference) is never touched. What comes out are the bytes in front, and how much of the packet they
//! replace.
mod code;
mod context;
mod deparse;
mod entry_layout;
mod facts;
mod function;
mod joined;
mod live;
mod matching;
mod packet;
mod pass;
mod path_joins;
mod statements;
mod tables;
mod values;
mod ways;

pub use crate::control::{ControlError, EntryKey};
pub use function::Refusal;
pub use pass::{Batch, Input, Mirrored, Output, Through};

use crate::control::{self, Addition};
use crate::interp::Session;
use crate::ir::{Deparse, Gress, Program};
use crate::meter::{Meters, Rates};
use code::Code;
use context::Context;
use std::sync::Arc;
use tables::{Memory, View};

/// A compiled program with its state.
pub struct Native {
    program: Arc<Program>,
    /// Shared with others of the same program, as is the program.
    code: Arc<Code>,
    registers: Vec<Vec<u8>>,
    counters: Vec<Vec<u64>>,
    meters: Vec<Meters>,
    tables: Vec<Memory>,
    sessions: Vec<Option<Session>>,
    now_ns: u64,
    /// Most bytes of headers that each half may emit.
    head_bytes: [usize; 2],
    /// For generated code: what a pass gets and gives, and the addresses of all the above, as long as they are
    /// `settled`.
    context: Box<Context>,
    addresses: [Vec<u64>; 3],
    views: Vec<View>,
    settled: bool,
}

impl Native {
    /// Compiles. Registers are at their initial values, tables hold their constant entries.
    ///
    /// # Errors
    /// A construct that the interpreter runs and the code generator does not support: digests, resubmission, arithmetic
    /// above 64 bits that no stateful ALU has.
    pub fn new(program: Program) -> Result<Native, Refusal> {
        let code = Arc::new(Code::make(&program)?);
        Ok(Native::with(code, Arc::new(program)))
    }

    /// Another one of the same program, as it was at the start: nothing is compiled.
    pub fn fresh(&self) -> Native {
        Native::with(Arc::clone(&self.code), Arc::clone(&self.program))
    }

    fn with(code: Arc<Code>, program: Arc<Program>) -> Native {
        let registers = program.registers.iter().map(initial).collect();
        let tables: Vec<Memory> = program.tables.iter().map(|t| Memory::new(&program, t)).collect();
        let counters: Vec<Vec<u64>> = program.counters.iter().map(|c| vec![0; c.size as usize]).collect();
        let meters = program.meters.iter().map(|m| Meters::new(m.size, m.bytes)).collect();
        let head_bytes = [Gress::Ingress, Gress::Egress].map(|g| emitted(&program, &program.half(g).deparser));
        Native {
            code,
            registers,
            counters,
            meters,
            tables,
            sessions: vec![None; 256],
            now_ns: 0,
            head_bytes,
            context: Context::new(0x9e37_79b9_7f4a_7c15),
            addresses: Default::default(),
            views: Vec::new(),
            settled: false,
            program,
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The time that packets see, nanoseconds.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.context.now = now_ns;
    }

    /// Sets the destination of a session's copies.
    pub fn set_session(&mut self, id: u8, session: Session) {
        self.sessions[id as usize] = Some(session);
    }

    // ---- the control plane's view: as the interpreter's ----

    /// As [`crate::interp::Machine::table_add`].
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
        let Addition { table: index, keys, priority, call } =
            control::addition(&self.program, table, keys, priority, action, args)?;
        let info = &self.program.tables[index];
        self.settled = false;
        let added = self.tables[index].add(&self.program, info, keys, priority, call);
        if added { Ok(()) } else { Err(ControlError::Full(table.into())) }
    }

    /// Removes the entries of these keys; whether there was one.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<bool, ControlError> {
        let (index, keys) = control::removal(&self.program, table, keys)?;
        self.settled = false;
        Ok(self.tables[index].remove(&keys))
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        let (index, call) = control::new_default(&self.program, table, action, args)?;
        self.settled = false;
        self.tables[index].set_default(&self.program, &self.program.tables[index], &call);
        Ok(())
    }

    /// Entries now.
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn table_len(&self, table: &str) -> Result<usize, ControlError> {
        let index = control::table_index(&self.program, table)?;
        // Constant entries are in the code.
        Ok(self.tables[index].len() + self.program.tables[index].entries.len())
    }

    /// A register by name, for [`Native::read`] and [`Native::write`].
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn register(&self, name: &str) -> Result<usize, ControlError> {
        control::by_name(name, self.program.registers.iter().map(|r| r.name.as_str()))
    }

    /// All registers, in the order of their numbers.
    pub fn registers(&self) -> &[crate::ir::Register] {
        &self.program.registers
    }

    /// The words of a register's entry; the second is 0 where there is one. Zeros beyond the end.
    pub fn read(&self, register: usize, index: u32) -> [u32; 2] {
        let info = &self.program.registers[register];
        if index >= info.size {
            return [0, 0];
        }
        let size = word_bytes(info.words[0].width());
        let from = index as usize * info.words.len() * size;
        let entry = self.registers[register].get(from..from + info.words.len() * size).unwrap_or(&[]);
        if let Some(word) = entry.first_chunk().filter(|_| size == 4) {
            let second = entry.get(4..).and_then(|rest| rest.first_chunk());
            return [u32::from_le_bytes(*word), second.map_or(0, |word| u32::from_le_bytes(*word))];
        }
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |v, b| v << 8 | u32::from(*b));
        let (first, second) = entry.split_at_checked(size).unwrap_or((entry, &[]));
        [word(first), word(second)]
    }

    /// The first word of a register's entry, as [`Native::read`] has it.
    #[inline]
    pub fn word(&self, register: usize, index: u32) -> u32 {
        let info = &self.program.registers[register];
        if index >= info.size || !(25..=32).contains(&info.words[0].width()) {
            return self.read(register, index)[0];
        }
        let from = index as usize * info.words.len() * 4;
        let word = self.registers[register].get(from..from + 4).and_then(|word| word.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Sets the words of a register's entry, each cut to its width; nothing beyond the end.
    pub fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        let info = &self.program.registers[register];
        if index >= info.size {
            return;
        }
        for (at, (ty, value)) in info.words.iter().zip(words).enumerate() {
            let size = word_bytes(ty.width());
            let from = (index as usize * info.words.len() + at) * size;
            if let Some(place) = self.registers[register].get_mut(from..from + size) {
                let value = value & crate::ir::mask(ty.width()) as u32;
                place.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
    }

    /// As [`crate::interp::Machine::meter_set`].
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn meter_set(&mut self, name: &str, index: u32, rates: Option<Rates>) -> Result<(), ControlError> {
        let meter = control::by_name(name, self.program.meters.iter().map(|m| m.name.as_str()))?;
        self.settled = false;
        let set = self.meters[meter].set(index, rates, self.now_ns);
        if set { Ok(()) } else { Err(ControlError::Index(index)) }
    }

    /// A counter's value: packets.
    ///
    /// # Errors
    /// A name that the program does not have, or an index beyond the end.
    pub fn counter_read(&self, name: &str, index: u32) -> Result<u64, ControlError> {
        let counter = control::by_name(name, self.program.counters.iter().map(|c| c.name.as_str()))?;
        self.counters[counter].get(index as usize).copied().ok_or(ControlError::Index(index))
    }
}

/// Bytes of a register word in memory.
fn word_bytes(width: u32) -> usize {
    (width.div_ceil(8) as usize).next_power_of_two()
}

fn initial(register: &crate::ir::Register) -> Vec<u8> {
    let words = register.words.iter().zip(&register.initial);
    let entry: Vec<u8> = words.flat_map(|(ty, value)| value.to_le_bytes()[..word_bytes(ty.width())].to_vec()).collect();
    // One more, where writes beyond the end go.
    entry.repeat(register.size as usize + 1)
}

/// Bytes of headers that a deparser may emit at most.
fn emitted(program: &Program, list: &[Deparse]) -> usize {
    let bytes = |item: &Deparse| match item {
        Deparse::Emit(h) => program.headers[*h].bits.div_ceil(8) as usize,
        Deparse::If(_, yes, no) => emitted(program, yes) + emitted(program, no),
        _ => 0,
    };
    list.iter().map(bytes).sum()
}
