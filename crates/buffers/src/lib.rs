//! Buffers of the program in memory that the data-path maps, and what the C library's functions for memory are with
//! them. A shared library that replaces those functions states which memory of its program is such a buffer.
//! `libibverbs.so.1` takes memory at the beginning of a page (docs/REGISTERED-MEMORY.md), `libtoe_heap.so` large memory
//! (docs/ZERONIC.md, "Direct receives").
mod aligned;
mod arena;
pub mod functions;
mod lock;
pub mod next;

pub use arena::{ArenaMapping, PAGE, allocate, begin, begin_in, holds, len_of, pin, release, unpin};
pub use lock::{Held, Lock};
