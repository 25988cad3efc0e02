//! UDP ports of the host's address, as datagram sockets above verbs use them (rsockets, docs/RDMA.md). Requests are
//! part of [`crate::control`]. A port's pipe has one byte for each datagram that waits, and the library asks for the
//! datagram itself ([`Request::Receive`]).
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// Bytes of a datagram at most, either way: those of Linux' rsockets are as long.
pub const MOST_BYTES: usize = 2048;

/// Library to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Binds a port of the host's address. The address may be unspecified; port 0 asks for any free one.
    /// [`Answer::Bound`], with the read end of the port's pipe.
    Bind(SocketAddrV4),
    /// Ends a port. What was not taken is dropped.
    Release(u16),
    /// Sends a datagram. [`crate::control::Answer::Done`]; it waits shortly where the next hop is not known.
    Send {
        /// The port that it is sent from.
        port: u16,
        /// Where to.
        to: SocketAddrV4,
        /// Its bytes.
        payload: Vec<u8>,
    },
    /// The next datagram of a port. [`Answer::Datagram`].
    Receive(u16),
}

/// Daemon to library: of what has no answer among those of [`crate::control`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The host's address and the port.
    Bound(SocketAddrV4),
    /// The next datagram, where there is one.
    Datagram(Option<Datagram>),
}

/// A datagram that came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagram {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// The next hop to its sender was known when it came: an address handle is made without waiting.
    pub reached: bool,
}
