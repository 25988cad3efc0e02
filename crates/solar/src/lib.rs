//! Solar: a transport for block storage in which one packet is one block (Miao et al., "From Luna to Solar", SIGCOMM
//! 2022, section 4; docs/SOLAR.md).
//!
//! Each packet is complete: it names its operation and its place in a volume, and carries a block with its CRC-32C. So
//! packets need no order, take several paths at once, and are acknowledged, and sent again, one by one.
//!
//! Sans-I/O: packets, time and randomness are passed in; packets and results come out.
//! - [`Client`] turns requests into operations on blocks, and places what is read into the caller's memory.
//! - [`Server`] passes each operation to its [`Storage`] once, also where packets come twice.
//! - [`transport`] has both as transports of a host.
#![forbid(unsafe_code)]

mod acks;
mod client;
mod config;
mod operations;
mod packet;
mod path;
mod sender;
mod server;
mod storage;
pub mod transport;

pub use client::{Client, ClientCounts, Memory};
pub use config::{ClientConfig, PathConfig, ServerConfig};
pub use operations::{Completion, Direction, Request};
pub use packet::{Access, BLOCK_LEN, HEADER_LEN, Header, Kind, MOST_NAME, PORT, Status};
pub use path::PathReport;
pub use sender::SenderCounts;
pub use server::{Server, ServerCounts};
pub use storage::{Block, BlockBytes, Job, Outcome, Payload, Storage, Volume};
