//! Attach protocol of the verbs library: one message each way over the daemon's attach socket, as JSON. Control
//! requests follow on the same socket ([`crate::control`]). It stays open as long as the process lives; at its end, the
//! daemon removes what the process had.
//!
//! With [`Answer::Welcome`] come these descriptors, in order:
//!
//! 1. the context's region, which has the daemon's doorbell (docs/RDMA.md) and the first send pipe (`context::queues`)
//! 2. the eventfd of that doorbell
//! 3. the read end of the pipe of asynchronous events ([`crate::AsyncMessage`])
//! 4. a region with one send pipe for each further shard
use crate::{Gid, Mtu};
use serde::{Deserialize, Serialize};
use wire::Mac;

/// Library to daemon. Its first field distinguishes it from what other libraries send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`] of the library.
    pub verbs: u32,
    /// Host to attach to; `None` for the daemon's first.
    pub host: Option<String>,
    /// Which of its devices; `None` for the first.
    pub device: Option<String>,
    /// Command line of the process, for people.
    pub command: String,
}

/// Daemon to library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Attached.
    Welcome(Welcome),
    /// Not attached; a sentence with the reason and what to do.
    Refused(String),
}

/// What an attached library needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Name of the host.
    pub host: String,
    /// The device.
    pub device: Device,
    /// The host's other devices that the program may use.
    pub others: Vec<Device>,
    /// Send pipes: one for each shard of the context.
    pub pipes: u32,
}

/// What a device offers (`struct ibv_device_attr`), and its port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `ibv_get_device_name`: `toe0`, or `zeronic0`.
    pub name: String,
    /// Hardware address of its port.
    pub mac: Mac,
    /// Its GIDs, by index.
    pub gids: Vec<Gid>,
    /// Largest packet that the port carries now.
    pub mtu: Mtu,
    /// Gigabits a second, for people and programs that ask.
    pub speed: u32,
    /// It has atomics.
    pub atomics: bool,
    /// It has extended reliable connections.
    pub xrc: bool,
    /// Limits.
    pub limits: Limits,
}

/// Limits of a device, each for one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Work requests of a queue.
    pub work_requests: u32,
    /// Scatter-gather entries of a work request.
    pub pieces: u32,
    /// Bytes of inline data of a work request.
    pub inline: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Memory regions.
    pub regions: u32,
    /// Bytes of a memory region.
    pub region_bytes: u64,
    /// Protection domains.
    pub domains: u32,
    /// Reads and atomics outstanding at a queue pair, either way.
    pub reads: u8,
    /// Shared receive queues.
    pub srqs: u32,
    /// Address handles.
    pub handles: u32,
    /// Memory windows.
    pub windows: u32,
    /// Memberships of queue pairs in multicast groups.
    pub memberships: u32,
    /// Bytes of a message.
    pub message_bytes: u32,
}
