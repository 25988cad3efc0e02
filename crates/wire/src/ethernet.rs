//! Ethernet II frames.
use crate::{Malformed, be16};
use std::fmt;

/// Bytes of an Ethernet header without a VLAN tag.
pub const HEADER_LEN: usize = 14;

/// Bytes of one VLAN tag.
pub const TAG_LEN: usize = 4;
/// Most VLAN tags that are skipped.
const TAGS: usize = 2;

/// Where a frame's payload starts, behind up to two VLAN tags (IEEE 802.1Q), and what it is.
#[inline]
pub fn payload(frame: &[u8]) -> Option<(usize, EtherType)> {
    let mut at = HEADER_LEN;
    for _ in 0..=TAGS {
        let found = be16(frame.get(at - 2..at)?, 0);
        match found {
            0x8100 | 0x88a8 => at += TAG_LEN,
            _ => return Some((at, found.into())),
        }
    }
    None
}

/// Where a frame's payload starts, where it is of this kind.
#[inline]
pub fn payload_at(frame: &[u8], kind: EtherType) -> Option<usize> {
    payload(frame).filter(|(_, found)| *found == kind).map(|(at, _)| at)
}

/// A 48-bit hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// Broadcast or multicast: not the address of one station.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an Ethernet frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EtherType {
    /// IPv4 (0x0800).
    Ipv4,
    /// ARP (0x0806).
    Arp,
    /// IPv6 (0x86dd).
    Ipv6,
    /// Anything else.
    Other(u16),
}

impl From<u16> for EtherType {
    #[inline]
    fn from(value: u16) -> EtherType {
        match value {
            0x0800 => EtherType::Ipv4,
            0x0806 => EtherType::Arp,
            0x86dd => EtherType::Ipv6,
            other => EtherType::Other(other),
        }
    }
}
impl From<EtherType> for u16 {
    fn from(value: EtherType) -> u16 {
        match value {
            EtherType::Ipv4 => 0x0800,
            EtherType::Arp => 0x0806,
            EtherType::Ipv6 => 0x86dd,
            EtherType::Other(other) => other,
        }
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Destination station.
    pub dst: Mac,
    /// Source station.
    pub src: Mac,
    /// What follows.
    pub ethertype: EtherType,
}

impl Header {
    /// Reads the header; the payload starts at [`HEADER_LEN`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Header, Malformed> {
        if frame.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let mac = |at: usize| Mac(frame[at..at + 6].try_into().expect("six bytes"));
        Ok(Header { dst: mac(0), src: mac(6), ethertype: be16(frame, 12).into() })
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes.
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) {
        frame[0..6].copy_from_slice(&self.dst.0);
        frame[6..12].copy_from_slice(&self.src.0);
        frame[12..14].copy_from_slice(&u16::from(self.ethertype).to_be_bytes());
    }
}
