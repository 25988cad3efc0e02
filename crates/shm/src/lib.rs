//! Shared memory between processes that do not trust each other: sealed regions, descriptor rings,
//! doorbells, and byte rings. It moves bytes and words and does not know what they mean.
//!
//! This crate holds unsafe code so that others need not: every public operation is bounds-checked, and
//! shared bytes are only ever copied in or out, never borrowed as slices, because the other side may
//! change them at any moment.

mod doorbell;
pub mod handover;
mod membarrier;
mod mirror;
mod region;
mod ring;

pub use doorbell::Doorbell;
pub use mirror::{Mirror, Span};
pub use region::Region;
pub use ring::{Consumer, Corrupt, Full, Producer, ring_bytes};

/// Bytes of a page: the granularity of mappings.
pub const PAGE: usize = 4096;
/// Bytes of a cache line: what two writers must not share.
pub const CACHE_LINE: usize = 64;
