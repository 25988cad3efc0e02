//! A shared log that goes from one engine to another (docs/SHARED-LOG.md, docs/TAKEOVER.md).
use crate::FlowId;
use context::LogShape;
use serde::{Deserialize, Serialize};

/// A log that an engine gave up. The records themselves lie in the application's region, and do not move. Records are
/// counted from the log's beginning: `given_back` <= `readable` <= `placed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogState {
    /// Its size.
    pub shape: LogShape,
    /// Records that the application has given back.
    pub given_back: u64,
    /// Records that can be read, or could.
    pub readable: u64,
    /// Records that have a place: the log's tail.
    pub placed: u64,
    /// Whose the records from `given_back` to `placed` are, in order: a place in `members`, or a connection that has
    /// left; and how many of them follow each other.
    pub owners: Vec<(Option<u32>, u32)>,
    /// The connections whose records go to it.
    pub members: Vec<LogMember>,
}

/// A connection whose records go to a log. Offsets are bytes of its stream since its first record, modulo 2^32.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogMember {
    /// Its flow.
    pub flow: FlowId,
    /// What its records bear, for the application.
    pub mark: u64,
    /// Stream position of its first record.
    pub start: u32,
    /// Up to here, its stream has places in the log.
    pub reserved: u32,
    /// Up to here, its records are complete.
    pub done: u32,
    /// How many those are.
    pub records: u64,
    /// How many of them the application has given back.
    pub given_back: u64,
    /// Where what is not complete lies, in order: from an offset on, in this record of the log and those behind it.
    /// What the engine had received of it out of order comes again, to the same places.
    pub stretches: Vec<(u32, u64)>,
}
