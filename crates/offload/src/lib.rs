//! SmartNS' programmable offload engine (section 3.5, table 2): functions that run beside a host's transport, in a
//! process of their own, and reach the memory of programs that let them (docs/OFFLOAD.md).
//!
//! From the outside in: `command` (the program), `client` (asking an engine), `host` (programs with DMA regions, and
//! `liboffload.so` for those in C). `supervisor`: the process that stays. `worker`, `connections`, `runner`: the one
//! that runs functions. Behind these `call`, `link`, `dma`, `library`, `device`; `status` and `watchdog`, by which the
//! supervisor finds out what a worker died of.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod call;
pub mod client;
pub mod command;
mod connections;
mod device;
#[allow(unsafe_code)]
mod dma;
pub mod host;
#[allow(unsafe_code)]
mod host_calls;
#[allow(unsafe_code)]
mod library;
mod limits;
mod link;
pub mod protocol;
mod runner;
mod status;
mod supervisor;
mod wake;
mod watchdog;
mod worker;

pub use limits::{MOST_LIBRARY, MOST_THREADS, Settings};
