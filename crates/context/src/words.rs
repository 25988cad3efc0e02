//! What requests and replies are made of: eight words, and how slots and addresses lie in them.
use crate::Slot;
use std::net::Ipv4Addr;

/// An address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// IPv4 address; unspecified for any.
    pub ip: Ipv4Addr,
    /// Port; 0 for one of the host's choice.
    pub port: u16,
}

/// A descriptor of the control pair.
pub(crate) type Words = [u64; 8];

pub(crate) fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}
pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
pub(crate) fn put_slot(slot: Slot) -> u64 {
    pair(slot.index, slot.generation as u32)
}
pub(crate) fn get_slot(word: u64) -> Slot {
    Slot { index: low(word), generation: high(word) as u16 }
}
pub(crate) fn put_endpoint(endpoint: Endpoint) -> u64 {
    pair(u32::from(endpoint.ip), endpoint.port as u32)
}
pub(crate) fn get_endpoint(word: u64) -> Endpoint {
    Endpoint { ip: Ipv4Addr::from(low(word)), port: high(word) as u16 }
}
