//! The context: an application's attachment to a host (thesis section 3.1.2).
//!
//! Its region begins with a [`Directory`] of typed areas, which both sides check once. Streams' part is in [`stream`].
//! The *data pair* joins the application and the engine, [`Bump`]s one way, [`Completion`]s the other. The *control
//! pair* joins the application and the control plane, [`Request`]s one way, [`Reply`]s the other. Data descriptors
//! carry absolute stream positions, so they may be merged, repeated or overtaken without harm. The queues of messages
//! are in [`queues`], in regions of their own.
//!
//! Everything that the daemon reads here is hostile: it is copied once and then checked.
#![forbid(unsafe_code)]

pub mod attach;
pub mod comm;
mod directory;
pub mod elf;
pub mod linkage;
mod poll_list;
mod program_queues;
pub mod queues;
pub mod stream;
pub mod volume;

pub use directory::{Area, AreaKind, Directory, MOST_AREAS};
pub use poll_list::{PollList, Polled};
pub use program_queues::{ProgramQueues, RETRY};
pub use stream::{
    AppEnd, ControlEnd, DirectWords, DrainingContexts, EngineEnd, LogEnd, LogRecord, LogShape, MOST_POSTS,
    PlacementTarget, Post, SendWords, Sent, Slot, Taken, TakenBack, begin_anew, daemon_ends,
};
pub use stream::{
    Bump, Completion, Congestion, EarlyData, FastOpenKeys, FlowInfo, OptionName, Reply, Request, SpliceEnd,
    Unaccelerated,
};
pub use stream::{
    Class, DIRECT_AT, Geometry, Growing, LEAST_BUFFER, LOG_SLOT, LongPaths, OFFERED_AT, READ_AT, READ_FOR_AT, SENT_AT,
    SLOT_STATE_BYTES, URGENT_AT, WANTED_AT,
};
pub use wire::{CompactTuple, Endpoint, FourTuple, IpAddress, Prefix};

/// Version of everything in this crate that both sides must agree on. Raise it with every change of layout or
/// of a descriptor.
pub const VERSION: u32 = 28;
