//! A port of a host, as its network layer sees it.
use port::Capabilities;
use wire::{IpAddress, Mac};

/// A port of the host, as the network layer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its hardware address. Each port of a host has another one.
    pub mac: Mac,
    /// The host's address there. Ports may share one.
    pub address: IpAddress,
    /// Bits of the network part: who has an address in this network is on the link.
    pub prefix_len: u8,
    /// What the port offers, and most bytes of an IP packet there.
    pub caps: Capabilities,
}
