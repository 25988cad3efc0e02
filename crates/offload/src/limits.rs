//! Limits of an offload engine and its functions.
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Requests that a client may have outstanding on a connection (`OFFLOAD_OUTSTANDING`).
pub(crate) const SLOTS: usize = 32;
/// Bytes of a request at most (`OFFLOAD_REQUEST_BYTES`).
pub(crate) const REQUEST_BYTES: usize = 8192;
/// Bytes of a response at most (`OFFLOAD_RESPONSE_BYTES`).
pub(crate) const RESPONSE_BYTES: usize = 64 << 10;
/// DMA operations that a call may have outstanding.
pub(crate) const OUTSTANDING_DMA: usize = 64;
/// Bytes of a coroutine's stack. A page without access lies below it.
pub(crate) const STACK_BYTES: usize = 64 << 10;
/// Calls of a thread at once; further requests wait.
pub(crate) const CALLS: usize = 256;
/// Connections of a thread.
pub(crate) const CONNECTIONS: usize = 128;
/// Waits for DMA after which a call lets others run, also where nothing is to be waited for.
pub(crate) const WAITS_A_QUANTUM: u32 = 64;
/// Threads at most.
pub const MOST_THREADS: usize = 64;
/// Bytes of a library of functions at most.
pub const MOST_LIBRARY: u64 = 64 << 20;
/// Libraries at once.
pub(crate) const LIBRARIES: usize = 256;
/// Programs with DMA regions at once.
pub(crate) const HOSTS: usize = 64;

/// What the operator chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The daemon's attach socket.
    pub daemon: std::path::PathBuf,
    /// The host whose RDMA device is used; the daemon's first where none is named.
    pub host: Option<String>,
    /// Threads that run functions.
    pub threads: usize,
    /// A call that is not over after this is ended at its next wait.
    pub call: Duration,
    /// Where a function does not wait for so long, its process is ended.
    pub quantum: Duration,
    /// Bytes of memory of its own that the process of the functions may have.
    pub memory: u64,
}
