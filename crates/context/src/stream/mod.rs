//! Streams (TCP) in a context: slots with their rings and buffers, the data pair and the control pair, a log.
mod data;
mod direct;
mod draining;
mod ends;
mod heap_words;
mod layout;
mod log;
mod names;
mod reply;
mod request;
mod sends;
mod tables;
mod words;

pub use data::{Bump, Completion};
pub use direct::{DirectWords, PlacementTarget, Post, TakenBack};
pub use draining::DrainingContexts;
pub use ends::{AppEnd, ControlEnd, EngineEnd, begin_anew, daemon_ends};
pub use layout::{
    Class, DIRECT_AT, Geometry, Growing, LEAST_BUFFER, LongPaths, OFFERED_AT, READ_AT, READ_FOR_AT, SENT_AT,
    SLOT_STATE_BYTES, URGENT_AT, WANTED_AT,
};
pub use log::{LOG_SLOT, LogEnd, LogRecord, LogShape};
pub use names::{Congestion, EarlyData, FastOpenKeys, OptionName, Unaccelerated};
pub use reply::{FlowInfo, Reply};
pub use request::{Request, SpliceEnd};
pub use sends::{MOST_POSTS, SendWords, Sent, Taken};

/// A connection as one context names it: an index into its slots, and how often that slot was used before. So a late
/// descriptor of an earlier connection is recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Slot {
    /// Index, below [`Geometry::slots`].
    pub index: u32,
    /// Uses of the slot so far, modulo 2^16.
    pub generation: u16,
}

/// Index and uses, as `5.2`: traces are full of them.
impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl Slot {
    /// Stands for this use of the slot, in its state; never 0.
    pub fn mark(self) -> u32 {
        u32::from(self.generation) + 1
    }
}
