//! Memory windows: where a link has them, a program's targets grant peers nothing by themselves. Each queue pair binds
//! a window to them for its peer, which invalidates it now and then, or the program does so itself; then it is bound
//! again, by another key.
use ::verbs::{Number, SendOpcode};

/// What a window grants: to write, to read, atomics (bits of `enum ibv_access_flags`).
pub(crate) const GRANTS: u8 = 0b1110;

/// How far a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    No,
    /// A binding is posted.
    Soon,
    Yes,
    /// Somebody has posted what invalidates it.
    Going,
}

/// The window of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) number: Number,
    /// The part of its key that the program chooses: another one for each binding.
    pub(crate) chosen: u8,
    pub(crate) bound: Bound,
}

impl Window {
    pub(crate) fn new(number: Number) -> Window {
        Window { number, chosen: 0, bound: Bound::No }
    }

    pub(crate) fn key(&self) -> u32 {
        self.number << 8 | u32::from(self.chosen)
    }
}

/// A work request that names the peer's memory.
pub(crate) fn is_remote(opcode: SendOpcode) -> bool {
    use SendOpcode::*;
    matches!(opcode, Write | WriteImmediate | Read | CompareSwap | FetchAdd | SendInvalidate)
}

/// Every second queue pair's peer names the first byte of its window by address 0.
pub(crate) fn is_zero_based(qp: usize) -> bool {
    qp % 2 == 1
}
