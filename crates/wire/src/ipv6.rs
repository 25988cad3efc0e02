//! IPv6 headers (RFC 8200), with the extension headers between them and what they carry.
use crate::ipv4::Ecn;
use crate::{Malformed, be16, be32};
use std::net::Ipv6Addr;

/// Bytes of a header without extension headers: the only form that OpenTOE sends.
pub const HEADER_LEN: usize = 40;
/// Least bytes of a packet that each link carries (RFC 8200 section 5).
pub const LEAST_MTU: u16 = 1280;
/// Next header: ICMPv6 (RFC 4443).
pub const ICMP: u8 = 58;

/// Next header: an extension header for every hop (RFC 8200 section 4.3).
pub const HOP_BY_HOP: u8 = 0;

/// Numbers of other extension headers (RFC 8200 section 4.1).
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Nothing follows (RFC 8200 section 4.7).
const NOTHING: u8 = 59;
/// Most extension headers that are skipped: more than any sender has a use for (RFC 8504 section 5.3).
const MOST_EXTENSIONS: usize = 8;

/// An IPv6 header. Extension headers are skipped on parsing and never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// What follows the last extension header: [`ICMP`], [`crate::ipv4::TCP`], ...
    pub protocol: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// ECN bits.
    pub ecn: Ecn,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// More fragments follow, or this is not the first one. A fragment that is the whole packet is none (RFC 6946).
    pub is_fragment: bool,
    /// Bytes after the header and its extension headers.
    pub payload_len: u16,
}

impl Header {
    /// A header as hosts send it: 64 hops, not ECN-capable.
    #[inline]
    pub fn new(protocol: u8, src: Ipv6Addr, dst: Ipv6Addr, payload_len: u16) -> Header {
        let (hop_limit, ecn, dscp, is_fragment) = (64, Ecn::NotEct, 0, false);
        Header { src, dst, protocol, hop_limit, ecn, dscp, is_fragment, payload_len }
    }

    /// Reads and checks a header. Returns it with its length in bytes, extension headers included; the payload is the
    /// [`Header::payload_len`] bytes that follow (the rest is Ethernet padding).
    ///
    /// `have` is the number of bytes that the whole packet really has: `bytes` may hold only its first part, with all
    /// headers. An IPv4-mapped address is malformed: it means an IPv4 node to programs, and none is on an IPv6 network.
    #[inline]
    pub fn parse(bytes: &[u8], have: usize) -> Result<(Header, usize), Malformed> {
        let Some(fixed) = bytes.first_chunk::<HEADER_LEN>() else { return Err(Malformed::Truncated) };
        let whole = HEADER_LEN + be16(fixed, 4) as usize;
        if fixed[0] >> 4 != 6 {
            return Err(Malformed::Field);
        }
        if have < whole {
            return Err(Malformed::Truncated);
        }
        let (src, dst) = (address_at(fixed, 8), address_at(fixed, 24));
        if src.to_ipv4_mapped().or(dst.to_ipv4_mapped()).is_some() {
            return Err(Malformed::Field);
        }
        let class = (be16(fixed, 0) >> 4) as u8;
        let mut header = Header {
            src,
            dst,
            protocol: fixed[6],
            hop_limit: fixed[7],
            ecn: class.into(),
            dscp: class >> 2,
            is_fragment: false,
            payload_len: (whole - HEADER_LEN) as u16,
        };
        let mut len = HEADER_LEN;
        if is_extension(header.protocol) {
            len = header.skip_extensions(&bytes[..bytes.len().min(whole)])?;
            header.payload_len = (whole - len) as u16;
        }
        Ok((header, len))
    }

    /// Goes through the extension headers of a packet (RFC 8200 section 4); returns where what they precede begins.
    #[cold]
    // Meets RFC 8200: 4-a, 4.2-a, 4.4-a, 4.5-a.
    fn skip_extensions(&mut self, packet: &[u8]) -> Result<usize, Malformed> {
        let mut at = HEADER_LEN;
        for count in 0..=MOST_EXTENSIONS {
            let kind = self.protocol;
            if !is_extension(kind) {
                return Ok(at);
            }
            // Only the first may be for every hop (RFC 8200 section 4.1).
            if count == MOST_EXTENSIONS || kind == NOTHING || (kind == HOP_BY_HOP && count > 0) {
                return Err(Malformed::Field);
            }
            let start = packet.get(at..at + 8).ok_or(Malformed::Truncated)?;
            let len = if kind == FRAGMENT { 8 } else { 8 + 8 * usize::from(start[1]) };
            let extension = packet.get(at..at + len).ok_or(Malformed::Truncated)?;
            match kind {
                FRAGMENT if be16(extension, 2) & 0xfff9 != 0 => {
                    self.is_fragment = true;
                    (self.protocol, at) = (extension[0], at + len);
                    // What follows is a part of something: no header.
                    return Ok(at);
                }
                // Nobody is to be visited after this node (RFC 8200 section 4.4; RFC 5095).
                ROUTING if extension[3] != 0 => return Err(Malformed::Field),
                HOP_BY_HOP | DESTINATION => options_may_be_skipped(&extension[2..])?,
                _ => {}
            }
            (self.protocol, at) = (extension[0], at + len);
        }
        Err(Malformed::Field)
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) {
        let class = self.dscp << 2 | self.ecn as u8;
        bytes[0..4].copy_from_slice(&(6 << 28 | u32::from(class) << 20).to_be_bytes());
        bytes[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        (bytes[6], bytes[7]) = (self.protocol, self.hop_limit);
        bytes[8..24].copy_from_slice(&self.src.octets());
        bytes[24..40].copy_from_slice(&self.dst.octets());
    }
}

fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | NOTHING)
}

/// Options that this host does not have are skipped, unless their number asks for the packet to be dropped (RFC 8200
/// section 4.2).
fn options_may_be_skipped(mut options: &[u8]) -> Result<(), Malformed> {
    while let Some((&kind, remaining)) = options.split_first() {
        // One byte of padding has no length.
        if kind == 0 {
            options = remaining;
            continue;
        }
        let len = usize::from(*remaining.first().ok_or(Malformed::Truncated)?);
        options = remaining.get(1 + len..).ok_or(Malformed::Truncated)?;
        if kind >> 6 != 0 {
            return Err(Malformed::Field);
        }
    }
    Ok(())
}

/// The address at `at`; the caller has checked the length.
#[inline]
pub(crate) fn address_at(bytes: &[u8], at: usize) -> Ipv6Addr {
    Ipv6Addr::from_bits((0..4).fold(0, |bits, word| bits << 32 | u128::from(be32(bytes, at + 4 * word))))
}

/// Marks a packet as having met congestion (RFC 3168 section 5): ECT becomes CE. Returns whether it is marked now; a
/// sender that is not ECN-capable, or bytes that are no header, stay as they are.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    if packet.len() < HEADER_LEN || packet[0] >> 4 != 6 || Ecn::from(packet[1] >> 4) == Ecn::NotEct {
        return false;
    }
    packet[1] |= (Ecn::Ce as u8) << 4;
    true
}

/// Gives a packet (whose first bytes are a valid header, as [`Header::parse`] checks) another length, extension headers
/// kept: for cutting a super-segment.
pub fn set_len(packet: &mut [u8], whole: usize) {
    packet[4..6].copy_from_slice(&((whole - HEADER_LEN) as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::{TCP, UDP};
    use proptest::prelude::*;

    fn header() -> Header {
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "fe80::2".parse().unwrap());
        Header { ecn: Ecn::Ect0, dscp: 46, hop_limit: 7, ..Header::new(TCP, src, dst, 0) }
    }

    /// A packet with these extension headers and what follows them.
    fn packet(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        Header { protocol: first, payload_len: payload.len() as u16, ..header() }.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        Header::parse(bytes, bytes.len())
    }

    #[test]
    fn a_header_comes_back() {
        let bytes = packet(TCP, &[1, 2, 3]);
        assert_eq!(parse(&bytes), Ok((Header { payload_len: 3, ..header() }, HEADER_LEN)));
        assert_eq!(
            Header::parse(&bytes[..HEADER_LEN], 43).map(|found| found.0.payload_len),
            Ok(3),
            "payload elsewhere"
        );
        assert_eq!(Header::parse(&bytes, 42), Err(Malformed::Truncated));
        assert!((0..HEADER_LEN).all(|len| parse(&bytes[..len]) == Err(Malformed::Truncated)));
        let mut wrong = bytes;
        wrong[0] = 0x40;
        assert_eq!(parse(&wrong), Err(Malformed::Field));
    }

    #[test]
    fn mapped_addresses_are_on_no_network() {
        for at in [8, 24] {
            let mut bytes = packet(TCP, &[]);
            bytes[at..at + 16].copy_from_slice(&"::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
            assert_eq!(parse(&bytes), Err(Malformed::Field));
        }
    }

    // Checks RFC 8200: 4-a, 4.4-a, 4.5-a.
    #[test]
    fn extension_headers_are_skipped() {
        let hops = [DESTINATION, 0, 1, 4, 0, 0, 0, 0];
        let destination = [ROUTING, 1, 0x1e, 2, 9, 9, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let routing = [FRAGMENT, 0, 0, 0, 0, 0, 0, 0];
        // The whole packet in one fragment.
        let fragment = [TCP, 0, 0, 0, 1, 2, 3, 4];
        let all = [&hops[..], &destination, &routing, &fragment, b"body"].concat();
        let bytes = packet(HOP_BY_HOP, &all);
        assert_eq!(parse(&bytes), Ok((Header { payload_len: 4, ..header() }, bytes.len() - 4)));
        // Not all headers are there, or the packet ends within them by its length.
        for len in HEADER_LEN..bytes.len() - 4 {
            assert_eq!(Header::parse(&bytes[..len], bytes.len()), Err(Malformed::Truncated));
            assert_eq!(parse(&packet(HOP_BY_HOP, &all[..len - HEADER_LEN])), Err(Malformed::Truncated));
        }
    }

    // Checks RFC 8200: 4-a, 4.2-a, 4.4-a.
    #[test]
    fn what_may_not_be_skipped_is_malformed() {
        let refused =
            |first, payload: &[u8]| assert_eq!(parse(&packet(first, payload)), Err(Malformed::Field), "{payload:?}");
        refused(NOTHING, &[0; 8]);
        refused(DESTINATION, &[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0]);
        refused(ROUTING, &[TCP, 0, 0, 1, 0, 0, 0, 0]);
        for kind in [0x40, 0x80, 0xc0] {
            refused(DESTINATION, &[TCP, 0, kind, 4, 0, 0, 0, 0]);
        }
        let chain = |count| [[DESTINATION, 0, 1, 4, 0, 0, 0, 0]].repeat(count).concat();
        let last = [TCP, 0, 1, 4, 0, 0, 0, 0];
        assert!(parse(&packet(DESTINATION, &[&chain(MOST_EXTENSIONS - 1)[..], &last].concat())).is_ok());
        refused(DESTINATION, &[&chain(MOST_EXTENSIONS)[..], &last].concat());
        assert_eq!(parse(&packet(DESTINATION, &[TCP, 0, 1, 5, 0, 0, 0, 0])), Err(Malformed::Truncated));
    }

    // Checks RFC 8200: 4.5-a.
    #[test]
    fn parts_of_packets_are_fragments() {
        for (place, is_fragment) in [([0, 0], false), ([0, 1], true), ([0, 8], true), ([0xff, 0xf8], true)] {
            // The two bits in between are reserved.
            let bytes = packet(FRAGMENT, &[UDP, 0, place[0], place[1] | 6, 0, 0, 0, 7, 1, 2]);
            let (found, len) = parse(&bytes).unwrap();
            assert_eq!((found.is_fragment, found.protocol, found.payload_len, len), (is_fragment, UDP, 2, 48));
        }
    }

    #[test]
    fn only_capable_packets_are_marked() {
        for (before, marked, after) in
            [(Ecn::NotEct, false, Ecn::NotEct), (Ecn::Ect0, true, Ecn::Ce), (Ecn::Ect1, true, Ecn::Ce)]
        {
            let mut bytes = vec![0; HEADER_LEN];
            Header { ecn: before, ..header() }.emit(&mut bytes);
            assert_eq!(mark_ce(&mut bytes), marked);
            assert_eq!(parse(&bytes), Ok((Header { ecn: after, ..header() }, HEADER_LEN)));
        }
        assert!(!mark_ce(&mut [0x60; 39]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 40..120), next in 0..64u8) {
            (bytes[0], bytes[6]) = (0x60, next);
            let len = bytes.len() - HEADER_LEN;
            bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
            if let Ok((header, at)) = parse(&bytes) {
                prop_assert_eq!(at + usize::from(header.payload_len), bytes.len());
            }
        }
    }
}
