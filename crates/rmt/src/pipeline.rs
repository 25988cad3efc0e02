//! Pipelines that run a program for an engine: native code, or the simulation of its RTL. Both have the same control
//! API, and make the same of each packet.
use crate::control::{ControlError, EntryKey};
use crate::cosim::Model;
use crate::interp::Session;
use crate::ir::{Gress, Program, Register};
use crate::native::{Input, Native, Output, Through};

/// A program that runs. An enumeration, not a trait object: the way through native code is inlined where a packet is
/// handled.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one, and is reached for each packet")]
pub enum Pipeline {
    /// Native code.
    Native(Native),
    /// RTL, simulated.
    Model(Box<Model>),
}

/// Dispatches a call to the variant.
macro_rules! either {
    ($this:expr, $it:ident => $call:expr) => {
        match $this {
            Pipeline::Native($it) => $call,
            Pipeline::Model($it) => $call,
        }
    };
}

impl Pipeline {
    /// The program.
    pub fn program(&self) -> &Program {
        either!(self, it => it.program())
    }

    /// Why it runs no more: a simulation may end.
    pub fn failure(&self) -> Option<String> {
        match self {
            Pipeline::Native(_) => None,
            Pipeline::Model(model) => model.failure(),
        }
    }

    /// The time that packets see, nanoseconds.
    #[inline]
    pub fn set_time(&mut self, now_ns: u64) {
        either!(self, it => it.set_time(now_ns));
    }

    /// Sets the destination of a session's copies.
    pub fn set_session(&mut self, id: u8, session: Session) {
        either!(self, it => it.set_session(id, session));
    }

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
        either!(self, it => it.table_add(table, keys, priority, action, args))
    }

    /// Removes the entries of these keys.
    ///
    /// # Errors
    /// A name or keys that the program does not have; constant entries.
    pub fn table_remove(&mut self, table: &str, keys: &[EntryKey]) -> Result<(), ControlError> {
        match self {
            Pipeline::Native(native) => native.table_remove(table, keys).map(drop),
            Pipeline::Model(model) => model.table_remove(table, keys),
        }
    }

    /// Sets what happens on a miss.
    ///
    /// # Errors
    /// A name or arguments that the program does not have; a constant default.
    pub fn table_set_default(&mut self, table: &str, action: &str, args: &[u128]) -> Result<(), ControlError> {
        either!(self, it => it.table_set_default(table, action, args))
    }

    /// A register by name, for [`Pipeline::read`] and [`Pipeline::write`].
    ///
    /// # Errors
    /// A name that the program does not have.
    pub fn register(&self, name: &str) -> Result<usize, ControlError> {
        either!(self, it => it.register(name))
    }

    /// All registers, in the order of their numbers.
    pub fn registers(&self) -> &[Register] {
        either!(self, it => it.registers())
    }

    /// The words of a register's entry; the second is 0 where there is one. Zeros beyond the end.
    #[inline]
    pub fn read(&self, register: usize, index: u32) -> [u32; 2] {
        either!(self, it => it.read(register, index))
    }

    /// The first word of a register's entry.
    #[inline]
    pub fn word(&self, register: usize, index: u32) -> u32 {
        match self {
            Pipeline::Native(native) => native.word(register, index),
            Pipeline::Model(model) => model.read(register, index)[0],
        }
    }

    /// Sets the words of a register's entry, each cut to its width; nothing beyond the end.
    #[inline]
    pub fn write(&mut self, register: usize, index: u32, words: [u32; 2]) {
        either!(self, it => it.write(register, index, words));
    }

    /// Most bytes of headers that a half emits.
    #[inline]
    pub fn room(&self) -> usize {
        either!(self, it => it.room())
    }

    /// One packet through a half: [`Native::one`].
    ///
    /// # Panics
    /// If `head` is shorter than [`Pipeline::room`].
    #[inline(always)]
    pub fn one(&mut self, gress: Gress, packet: Input<'_>, head: &mut [u8]) -> Output {
        either!(self, it => it.one(gress, packet, head))
    }

    /// One packet through both halves, where it crosses at once: [`Native::through`].
    ///
    /// # Panics
    /// If `head` is shorter than [`Pipeline::room`].
    #[inline(always)]
    pub fn through(&mut self, packet: Input<'_>, head: &mut [u8]) -> Through {
        either!(self, it => it.through(packet, head))
    }
}
