//! The context: an application's attachment to a host (thesis section 3.1.2).
//!
//! One sealed region holds two queue pairs and the payload buffers. The *data pair* joins the application and
//! the engine: [`Bump`]s one way, [`Notice`]s the other. The *control pair* joins the application and the
//! control plane: [`Request`]s one way, [`Reply`]s the other. Data descriptors carry absolute stream positions,
//! so they may be merged, repeated or overtaken without harm.
//!
//! Everything that the daemon reads here is hostile: it is copied once and then checked.
#![forbid(unsafe_code)]

pub mod attach;
mod data;
mod ends;
mod layout;
mod leavers;
mod log;
mod names;
mod reply;
mod request;
mod tables;
mod turns;
mod words;

pub use data::{Bump, Notice};
pub use ends::{AppEnd, ControlEnd, EngineEnd, daemon_ends};
pub use layout::{Geometry, LEAST_BUFFER, READ_AT, READ_FOR_AT, SLOT_STATE_BYTES};
pub use leavers::Leavers;
pub use log::{LOG_SLOT, LogEnd, LogRecord, LogShape};
pub use names::{Congestion, OptionName, Unaccelerated};
pub use reply::{FlowInfo, Reply};
pub use request::{Request, SpliceEnd};
pub use turns::{Look, Turns};
pub use wire::{CompactTuple, Endpoint, FourTuple, IpAddress, Prefix};

/// Version of everything in this crate that both sides must agree on. Raise it with every change of layout or
/// of a descriptor.
pub const VERSION: u32 = 10;

/// A connection as one context names it: an index into its slots, and how often that slot was used before, so
/// that a late descriptor of an earlier connection is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Slot {
    /// Index, below [`Geometry::slots`].
    pub index: u32,
    /// Uses of the slot so far, modulo 2^16.
    pub generation: u16,
}

impl Slot {
    /// Stands for this use of the slot, in its state; never 0.
    pub fn mark(self) -> u32 {
        u32::from(self.generation) + 1
    }
}
