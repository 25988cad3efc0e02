//! Output of connection management: datagrams to send.
use std::net::Ipv4Addr;
use wire::Mac;
use wire::roce::cm::Mad;

/// A datagram to a peer's general services interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The peer.
    pub to: Ipv4Addr,
    /// The next hop, where a datagram of the peer showed it; otherwise it is resolved.
    pub next_hop: Option<Mac>,
    /// What to send.
    pub mad: Mad,
}

/// Datagrams to send, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// All of them.
    pub letters: Vec<Letter>,
}

/// Sender of a datagram: where the answer goes.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: Mac,
}
