//! IPv4 headers (RFC 791; ECN bits RFC 3168).
use crate::checksum::Sum;
use crate::{Malformed, be16, ip_at};
use std::net::Ipv4Addr;

/// Bytes of a header without options: the only form that OpenTOE sends.
pub const HEADER_LEN: usize = 20;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;

/// The two ECN bits of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// Not capable.
    #[default]
    NotEct = 0,
    /// Capable, codepoint 1.
    Ect1 = 1,
    /// Capable, codepoint 0: what a TCP sender sets.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl From<u8> for Ecn {
    fn from(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
}

/// An IPv4 header. Options are skipped on parsing and never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// What follows: [`ICMP`], [`TCP`], ...
    pub protocol: u8,
    /// Hops left.
    pub ttl: u8,
    /// ECN bits.
    pub ecn: Ecn,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// Identification.
    pub id: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// More fragments follow, or this is not the first one.
    pub is_fragment: bool,
    /// Bytes after the header. Zero in a super-segment of more than 65,515 bytes is not supported.
    pub payload_len: u16,
}

impl Header {
    /// Reads and checks a header, its checksum included. Returns it with the header's length in bytes; the
    /// payload is the [`Header::payload_len`] bytes that follow (the rest is Ethernet padding).
    ///
    /// `have` is the number of bytes that the whole packet really has: `bytes` may hold only its first part
    /// (headers of a frame whose payload is elsewhere).
    pub fn parse(bytes: &[u8], have: usize) -> Result<(Header, usize), Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let header_len = (bytes[0] & 0x0f) as usize * 4;
        let total_len = be16(bytes, 2) as usize;
        if bytes[0] >> 4 != 4 || header_len < HEADER_LEN || total_len < header_len {
            return Err(Malformed::Field);
        }
        if bytes.len() < header_len || have < total_len {
            return Err(Malformed::Truncated);
        }
        let mut sum = Sum::new();
        sum.add(&bytes[..header_len]);
        if sum.finish() != 0 {
            return Err(Malformed::Checksum);
        }
        let fragment = be16(bytes, 6);
        let header = Header {
            src: ip_at(bytes, 12),
            dst: ip_at(bytes, 16),
            protocol: bytes[9],
            ttl: bytes[8],
            ecn: bytes[1].into(),
            dscp: bytes[1] >> 2,
            id: be16(bytes, 4),
            dont_fragment: fragment & 0x4000 != 0,
            is_fragment: fragment & 0x3fff != 0,
            payload_len: (total_len - header_len) as u16,
        };
        Ok((header, header_len))
    }

    /// Writes the header with its checksum into the first [`HEADER_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        let total_len = HEADER_LEN as u16 + self.payload_len;
        bytes[0] = 0x45;
        bytes[1] = self.dscp << 2 | self.ecn as u8;
        bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        let flags: u16 = if self.dont_fragment { 0x4000 } else { 0 };
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol;
        bytes[10..12].copy_from_slice(&[0, 0]);
        bytes[12..16].copy_from_slice(&self.src.octets());
        bytes[16..20].copy_from_slice(&self.dst.octets());
        let mut sum = Sum::new();
        sum.add(&bytes[..HEADER_LEN]);
        bytes[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    }
}
