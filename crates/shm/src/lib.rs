//! Shared memory between processes that do not trust each other: sealed regions, descriptor rings,
//! doorbells, and byte rings. It moves bytes and words without their meaning.
//!
//! This crate holds unsafe code so that others need not. Every public operation is bounds-checked. Shared bytes are
//! copied in or out, and never borrowed as slices, because the other side may change them at any moment.

// Under the model checker (`make model`), only what passes data between threads is there.
#[cfg_attr(loom, allow(dead_code))]
mod announce;
#[cfg(not(loom))]
mod byte_ring;
#[cfg(not(loom))]
mod contention;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
pub mod handover;
#[cfg(not(loom))]
mod membarrier;
#[cfg(all(test, loom))]
mod model;
#[cfg(not(loom))]
mod pooled;
#[cfg(not(loom))]
mod prefetch;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
pub mod reserve;
#[cfg_attr(loom, allow(dead_code))]
mod ring;
mod rings;
#[cfg(not(loom))]
pub mod system_call;

#[cfg(not(loom))]
pub use byte_ring::{ByteRing, Span};
#[cfg(not(loom))]
pub use contention::Contention;
#[cfg(not(loom))]
pub use copy::copy;
#[cfg(not(loom))]
pub use doorbell::{Doorbell, SETTLE};
#[cfg(not(loom))]
pub use pooled::{Pool, Pooled};
#[cfg(not(loom))]
pub use prefetch::{
    prefer_huge_pages, prefetch, prefetch_first, prefetch_line, prefetch_to_write, prefetch_two_to_write,
};
#[cfg(not(loom))]
pub use region::Region;
pub use ring::{Consumer, Corrupt, Full, Mark, PipeConsumer, PipeProducer, Producer, VALID};
#[cfg(not(loom))]
pub use ring::{News, empty_ring, pipe_bytes, ring_bytes};
pub use rings::{Level, Rings, ease};

/// Bytes of a page: the granularity of mappings.
pub const PAGE: usize = 4096;
/// Bytes of a cache line: what two writers must not share.
pub const CACHE_LINE: usize = 64;
