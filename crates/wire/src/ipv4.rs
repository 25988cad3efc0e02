//! IPv4 headers (RFC 791; ECN bits RFC 3168).
use crate::checksum::{Sum, update};
use crate::{Malformed, be16, ip_at};
use std::net::Ipv4Addr;

/// Bytes of a header without options: the only form that OpenTOE sends.
pub const HEADER_LEN: usize = 20;
/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

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
    /// A header as hosts send it: 64 hops, not ECN-capable, and never to be fragmented, so that the identification
    /// means nothing (RFC 6864 section 4.1). What differs is given: `Header { ecn, ..Header::new(TCP, (src, dst), len)
    /// }`.
    #[inline]
    pub fn new(protocol: u8, (src, dst): (Ipv4Addr, Ipv4Addr), payload_len: u16) -> Header {
        Header {
            src,
            dst,
            protocol,
            ttl: 64,
            ecn: Ecn::NotEct,
            dscp: 0,
            id: 0,
            dont_fragment: true,
            is_fragment: false,
            payload_len,
        }
    }

    /// Reads and checks a header, its checksum included. Returns it with the header's length in bytes; the
    /// payload is the [`Header::payload_len`] bytes that follow (the rest is Ethernet padding).
    ///
    /// `have` is the number of bytes that the whole packet really has: `bytes` may hold only its first part
    /// (headers of a frame whose payload is elsewhere).
    // Meets RFC 9293: MUST-50.
    #[inline]
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
        if !is_sound(bytes, header_len) {
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

/// The header's checksum is right.
#[inline]
fn is_sound(bytes: &[u8], header_len: usize) -> bool {
    let mut sum = Sum::new();
    // Nearly all headers have no options: for those the length is known when this is compiled.
    match bytes.first_chunk::<HEADER_LEN>() {
        Some(plain) if header_len == HEADER_LEN => sum.add(plain),
        _ => sum.add(&bytes[..header_len]),
    }
    sum.finish() == 0
}

/// Marks a packet as having met congestion (RFC 3168 section 5): ECT becomes CE, and the header checksum follows (RFC
/// 1624). A wrong one stays wrong, so no receiver takes a damaged header for a sound one. Returns whether it is marked
/// now; a sender that is not ECN-capable, or bytes that are no header, stay as they are.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    if packet.len() < HEADER_LEN || packet[0] >> 4 != 4 || Ecn::from(packet[1]) == Ecn::NotEct {
        return false;
    }
    let old = be16(packet, 0);
    packet[1] |= Ecn::Ce as u8;
    let checksum = update(be16(packet, 10), old, be16(packet, 0));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// As [`set_len_and_id`], with the identification that the header has and so many more.
pub fn continue_id(packet: &mut [u8], total_len: u16, more: u16) {
    let id = be16(packet, 4).wrapping_add(more);
    set_len_and_id(packet, total_len, id);
}

/// Gives a header (whose first bytes are valid, as [`Header::parse`] checks) another total length and
/// identification, options kept: for cutting a super-segment.
pub fn set_len_and_id(packet: &mut [u8], total_len: u16, id: u16) {
    packet[2..4].copy_from_slice(&total_len.to_be_bytes());
    packet[4..6].copy_from_slice(&id.to_be_bytes());
    rewrite_checksum(packet);
}

fn rewrite_checksum(packet: &mut [u8]) {
    let header_len = ((packet[0] & 0x0f) as usize * 4).clamp(HEADER_LEN, packet.len());
    packet[10..12].copy_from_slice(&[0, 0]);
    let mut sum = Sum::new();
    sum.add(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(ecn: Ecn) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let header = Header {
            src,
            dst,
            protocol: TCP,
            ttl: 64,
            ecn,
            dscp: 5,
            id: 7,
            dont_fragment: true,
            is_fragment: false,
            payload_len: 0,
        };
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn only_capable_packets_are_marked_and_the_checksum_follows() {
        for (before, marked, after) in
            [(Ecn::NotEct, false, Ecn::NotEct), (Ecn::Ect0, true, Ecn::Ce), (Ecn::Ect1, true, Ecn::Ce)]
        {
            let mut bytes = packet(before);
            assert_eq!(mark_ce(&mut bytes), marked);
            let (header, _) = Header::parse(&bytes, HEADER_LEN).unwrap();
            assert_eq!((header.ecn, header.dscp), (after, 5));
        }
        assert!(!mark_ce(&mut [0x45; 10]));
    }

    #[test]
    fn a_damaged_header_stays_damaged_when_it_is_marked() {
        for bit in (0..HEADER_LEN * 8).filter(|bit| *bit / 8 != 1) {
            let mut bytes = packet(Ecn::Ect0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            mark_ce(&mut bytes);
            assert!(Header::parse(&bytes, HEADER_LEN).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_new_length_and_identification_parse() {
        let mut bytes = packet(Ecn::Ect0);
        set_len_and_id(&mut bytes, 120, 99);
        let (header, _) = Header::parse(&bytes, 120).unwrap();
        assert_eq!((header.payload_len, header.id), (100, 99));
    }

    // Checks RFC 9293: MUST-50.
    #[test]
    fn options_are_skipped() {
        let mut bytes = packet(Ecn::NotEct).to_vec();
        let plain = Header::parse(&bytes, bytes.len()).unwrap().0;
        // Record route, which is not read here, and the end of the list.
        bytes.splice(HEADER_LEN..HEADER_LEN, [7, 3, 4, 0]);
        bytes[0] = 0x46;
        let total_len = bytes.len() as u16;
        set_len_and_id(&mut bytes, total_len, plain.id);
        let (header, len) = Header::parse(&bytes, bytes.len()).unwrap();
        assert_eq!((header, len), (plain, HEADER_LEN + 4));
    }
}
