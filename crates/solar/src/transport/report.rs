//! Reports of Solar's transports ([`host::Transport::report`]).
use super::queue::View;
use crate::packet::Access;
use crate::{ClientCounts, PathReport, ServerCounts};
use std::net::Ipv4Addr;

/// Of a [`VolumeClient`](super::VolumeClient).
#[derive(Debug, Clone)]
pub struct ClientReport {
    /// The UDP port of the first path.
    pub first_port: u16,
    /// What is known of it.
    pub view: View,
    /// Its paths, each with a port of its own.
    pub paths: Vec<PathReport>,
    /// Requests that have not ended.
    pub outstanding: usize,
    /// Requests that have.
    pub requests: RequestCounts,
    /// Of its packets.
    pub counts: ClientCounts,
}

/// Requests that have ended, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Reads that succeeded.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// Of a [`VolumeServer`](super::VolumeServer).
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// Sessions that have not ended.
    pub sessions: Vec<SessionReport>,
    /// Of its packets.
    pub counts: ServerCounts,
}

/// A client's session at a server.
#[derive(Debug, Clone)]
pub struct SessionReport {
    /// The client's address and first port.
    pub client: (Ipv4Addr, u16),
    /// The storage's number of the volume.
    pub volume: u32,
    /// What the client may do.
    pub access: Access,
    /// The server's paths to the client.
    pub paths: Vec<PathReport>,
    /// Answers that were sent again.
    pub again: u64,
}
