//! A program with its state, which the steps of a pass share.
use super::entries::TableState;
use crate::ir::Program;
use crate::meter::Meters;
use std::collections::BTreeMap;

/// Destination of a mirror session's copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Port, unless the program sets `mirror_egress_port`.
    pub port: u16,
    /// Bytes of the packet itself that are copied at most.
    pub truncate: usize,
}

/// A program with its state.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) program: Program,
    pub(super) registers: Vec<Vec<u128>>,
    pub(super) tables: Vec<TableState>,
    pub(super) counters: Vec<Vec<u64>>,
    pub(super) meters: Vec<Meters>,
    /// Bytes of the packet that is on its way through.
    pub(super) length: usize,
    pub(super) sessions: BTreeMap<u8, Session>,
    pub(super) random: u64,
    pub(super) now_ns: u64,
}
