//! Packet formats and checksums: the only crate that contains a byte offset. It keeps no state.
//!
//! Each format has a plain value type with `parse` (from bytes, refusing what is malformed) and `emit`
//! (into bytes). Parsing never panics, whatever the bytes.
#![forbid(unsafe_code)]

mod address;
pub mod arp;
pub mod checksum;
pub mod describe;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod local_port;
pub mod mld;
pub mod predicted;
pub mod rewrite;
pub mod roce;
pub mod router;
pub mod seq;
pub mod tcp;
pub mod template;
pub mod translate;
mod tuple;
pub mod udp;

pub use address::{Endpoint, IpAddress, Prefix};
pub use ethernet::{EtherType, Mac};
pub use local_port::{begins_connection, local_tcp_port};
pub use seq::Seq;
pub use std::net::Ipv4Addr;
pub use translate::Translation;
pub use tuple::{CompactTuple, FourTuple, Ipv4Tuple, Ipv6Tuple};

/// Nanoseconds since a start that is the daemon's or the simulation's choice. Time is always passed in.
pub type Nanos = u64;

/// Why bytes are not a packet of the format asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Fewer bytes than the header states or needs.
    Truncated,
    /// A field has a value that the format forbids.
    Field,
    /// The checksum does not match.
    Checksum,
}

/// The big-endian 16-bit word at `at`; the caller has checked the length.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit word at `at`; the caller has checked the length.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The IPv4 address at `at`; the caller has checked the length.
#[inline]
pub(crate) fn ip_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::from(be32(bytes, at))
}
