//! Registers of the program that an engine runs: the state that a pipeline keeps, for people who read it.
use serde::{Deserialize, Serialize};

/// What a register is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterShape {
    /// Its name in the program, with those of the controls around it.
    pub name: String,
    /// Entries.
    pub entries: u32,
    /// Names and bits of the words of an entry, one or two; the only word of a register has no name.
    pub words: Vec<(String, u32)>,
}

/// The registers of a running program. A register's number is its place in the list of shapes.
pub trait Registers {
    /// All of them.
    fn shapes(&self) -> Vec<RegisterShape>;
    /// The number of the register with this name: the whole one, or the only one that ends so after a dot.
    fn number(&self, name: &str) -> Option<usize>;
    /// The words of an entry; the second is 0 where there is one. Zeros beyond the end.
    fn read(&self, register: usize, index: u32) -> [u32; 2];
    /// Sets the words of an entry, each cut to its width; nothing beyond the end.
    fn write(&mut self, register: usize, index: u32, words: [u32; 2]);
}
