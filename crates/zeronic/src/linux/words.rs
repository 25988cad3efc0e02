//! Messages between the transport and the helper in its namespace.
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Namespace and addresses of the kernel's TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxConfig {
    /// The device's name.
    pub device: String,
    /// The host's address, and the prefix length of its network.
    pub address: (Ipv4Addr, u8),
    /// Next hop for everything outside that network.
    pub gateway: Option<Ipv4Addr>,
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// The kernel's congestion control.
    pub congestion: String,
    /// This stack's part of an address that another stack has, too.
    pub shared: Option<Share>,
}

/// The kernel's part of a shared address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The hardware address of both.
    pub mac: [u8; 6],
    /// Ports that connections begin at: the first and the last.
    pub ports: (u16, u16),
}

/// Sockets that are ready for connections to come: as many as a program may ask for in one round.
pub(super) const SPARE: usize = 64;

/// Requests of the transport.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asked {
    /// The first message, and the only one that is answered by [`Answer::Ready`].
    Begin(LinuxConfig),
    /// Connect the spare socket with this port; another one takes its place.
    Connect(u16, SocketAddrV4),
    /// A socket that listens on this port.
    Listen(u16),
}

/// The helper's answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The device is there, with the kernel side's hardware address. Its descriptor comes along.
    Ready([u8; 6]),
    /// The UDP socket that asks for next hops comes along, with its port.
    Hops(u16),
    /// A socket with this port, which comes along.
    Spare(u16),
    /// The socket that listens on this port comes along.
    Listening(u16),
    /// The connection from this port cannot be: why.
    Unreachable(u16, String),
    /// Nothing listens on this port: why.
    NotListening(u16, String),
    /// Nothing can be: why.
    Failed(String),
}
