//! Registered memory: memory of an unmodified program that the data-path, another process, reads and writes in place,
//! within registered bounds and access rights (docs/REGISTERED-MEMORY.md).
//!
//! The program's side is a [`Registrar`]: it finds out how a range can be reached and makes a [`Description`] of it,
//! with descriptors to send along. The data-path's side is a [`MemoryTable`]: it checks everything, gives out keys, and
//! opens regions for accesses ([`Lease`]). How a region is reached does not show in an access; only [`Lease::may_wait`]
//! decides whether it goes through the kernel. Memory of a device alone is reached by copies that somebody else makes
//! ([`DmaQueue`]), which are started, and end later ([`Transfer`]).
//!
//! This crate holds unsafe code (it maps files and copies bytes that another process changes) so that engines need not.

mod description;
mod devices;
mod dma;
mod fault;
mod key;
mod mapping;
mod maps;
mod region;
mod registrar;
mod rights;
mod space;
mod table;

pub use description::{AccessPath, Description, Extent, MAX_EXTENTS, MAX_FILES};
pub use devices::Devices;
pub use dma::{DmaCopy, DmaQueue, DmaServer, DmaServerEnds, Transfer};
pub use fault::{Fault, Refusal};
pub use key::Key;
pub use registrar::{Prepared, Registrar};
pub use rights::{Access, Rights};
pub use space::AddressSpace;
pub use table::{Domain, Lease, Limits, MemoryTable, ReadPiece, WritePiece};
