//! What identifies a connection.
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What identifies a connection, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FourTuple {
    /// This host's address.
    pub local_ip: Ipv4Addr,
    /// The peer's address.
    pub remote_ip: Ipv4Addr,
    /// This host's port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}
