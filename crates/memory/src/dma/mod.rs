//! DMA queues: how the data-path reaches memory that it cannot map, as an accelerator's (docs/REGISTERED-MEMORY.md,
//! "Device memory").
//!
//! A queue is a sealed region of the data-path's: orders, completions, and staging, from which and to which a server
//! copies. The server is whoever has the memory: the program itself, or a process of its choice. Neither side trusts
//! the other: the data-path takes no completion of what it did not order, and gives up a server that is silent.
mod queue;
mod server;
mod staging;

pub use queue::{DmaQueue, DmaServerEnds, Transfer};
pub use server::{DmaCopy, DmaServer};

use shm::{CACHE_LINE, PAGE, pipe_bytes};

/// First word of a queue's region: a name and a version, as bytes.
const MAGIC: u64 = u64::from_le_bytes(*b"ToeDMA 1");
/// The doorbell word of the server.
const SERVER_BELL: usize = 4 * CACHE_LINE;
/// The doorbell word of the data-path.
const QUEUE_BELL: usize = 5 * CACHE_LINE;
/// Words of an order: its number, the direction, the device's address, bytes, their place in the staging area.
const ORDER_WORDS: usize = 8;
/// Words of a completion: the order's number, and a Linux error number.
const COMPLETION_WORDS: usize = 2;
/// Orders under way at most; a power of two.
const ENTRIES: u32 = 256;
/// Bytes of the staging area: those of all orders under way; a power of two.
const STAGING: usize = 16 << 20;

const ORDERS_AT: usize = PAGE;
const COMPLETIONS_AT: usize = (ORDERS_AT + pipe_bytes::<ORDER_WORDS>(ENTRIES)).next_multiple_of(PAGE);
const STAGING_AT: usize = (COMPLETIONS_AT + pipe_bytes::<COMPLETION_WORDS>(ENTRIES)).next_multiple_of(PAGE);
const REGION: usize = STAGING_AT + STAGING;

/// Which way an order copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    IntoDevice = 1,
    OutOfDevice = 2,
}
