//! How a half's work is spread over clocks.

/// Work in a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Few clocks: a simulation's time goes by their number.
    Merged,
    /// More clocks, each with less to do: for an FPGA's clock rate. Checksums take clocks of their own, and so do a
    /// stage's actions behind its decisions and behind its stateful ALUs. A register's entry is in flip-flops before
    /// its ALU gets it.
    Split,
}

impl Timing {
    /// Clocks from a register's index to its stateful ALU.
    pub(super) fn register_clocks(self) -> usize {
        match self {
            Timing::Merged => 1,
            Timing::Split => 2,
        }
    }
}
