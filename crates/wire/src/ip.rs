//! Header fields that both versions of IP have.
use crate::ipv4::{self, Ecn};
use crate::{EtherType, IpAddress, Malformed, ethernet, ipv6};

/// Where a packet comes from and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Source address.
    pub src: IpAddress,
    /// Destination address.
    pub dst: IpAddress,
}

impl Ends {
    /// Those of the answer.
    pub fn turned(self) -> Ends {
        Ends { src: self.dst, dst: self.src }
    }
}

impl From<(IpAddress, IpAddress)> for Ends {
    fn from((src, dst): (IpAddress, IpAddress)) -> Ends {
        Ends { src, dst }
    }
}

/// An IP header of either version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address; without a zone.
    pub src: IpAddress,
    /// Destination address; without a zone.
    pub dst: IpAddress,
    /// What follows the header and its options or extension headers: an IP protocol number.
    pub protocol: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// ECN bits.
    pub ecn: Ecn,
    /// It carries a part of a packet.
    pub is_fragment: bool,
    /// Bytes after the header.
    pub payload_len: u16,
}

impl From<ipv4::Header> for Header {
    fn from(header: ipv4::Header) -> Header {
        let ipv4::Header { src, dst, protocol, ttl: hop_limit, ecn, is_fragment, payload_len, .. } = header;
        Header { src: src.into(), dst: dst.into(), protocol, hop_limit, ecn, is_fragment, payload_len }
    }
}

impl From<ipv6::Header> for Header {
    fn from(header: ipv6::Header) -> Header {
        let ipv6::Header { src, dst, protocol, hop_limit, ecn, is_fragment, payload_len, .. } = header;
        let (src, dst) = (IpAddress::v6(src, 0), IpAddress::v6(dst, 0));
        Header { src, dst, protocol, hop_limit, ecn, is_fragment, payload_len }
    }
}

impl Header {
    /// Reads the packet of a frame of this type, as [`ipv4::Header::parse`] and [`ipv6::Header::parse`] do.
    pub fn parse(ethertype: EtherType, bytes: &[u8], have: usize) -> Result<(Header, usize), Malformed> {
        match ethertype {
            EtherType::Ipv4 => ipv4::Header::parse(bytes, have).map(|(header, len)| (header.into(), len)),
            EtherType::Ipv6 => ipv6::Header::parse(bytes, have).map(|(header, len)| (header.into(), len)),
            _ => Err(Malformed::Field),
        }
    }
}

/// Where a frame's IP packet begins, behind VLAN tags, and of which type it is.
#[inline]
pub fn packet_at(frame: &[u8]) -> Option<(usize, EtherType)> {
    ethernet::payload(frame).filter(|(_, ethertype)| matches!(ethertype, EtherType::Ipv4 | EtherType::Ipv6))
}

/// Bytes of a header as OpenTOE sends it to an address.
pub fn header_len(to: IpAddress) -> usize {
    if to.is_v4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

/// Writes the header of a packet between two addresses of one family into the first bytes of `packet`, which is as long
/// as it is to be. Returns the header's bytes; `None` where the addresses are not of one family.
pub fn emit(protocol: u8, ends: impl Into<Ends>, hop_limit: u8, packet: &mut [u8]) -> Option<usize> {
    use std::net::IpAddr::{V4, V6};
    let Ends { src, dst } = ends.into();
    let len = header_len(dst);
    let payload_len = (packet.len() - len) as u16;
    match (src.ip(), dst.ip()) {
        (V4(src), V4(dst)) => {
            let header = ipv4::Header { ttl: hop_limit, ..ipv4::Header::new(protocol, (src, dst), payload_len) };
            header.emit(packet);
        }
        (V6(src), V6(dst)) => {
            ipv6::Header { hop_limit, ..ipv6::Header::new(protocol, src, dst, payload_len) }.emit(packet);
        }
        _ => return None,
    }
    Some(len)
}

/// Gives a packet (whose first bytes are a valid header, as [`Header::parse`] checks) another length, options and
/// extension headers kept; of IPv4, with an identification that is so many more.
#[inline]
pub fn set_len(packet: &mut [u8], len: usize, more: u16) {
    match packet[0] >> 4 {
        6 => ipv6::set_len(packet, len),
        _ => ipv4::continue_id(packet, len as u16, more),
    }
}

/// Marks a packet as having met congestion, as [`ipv4::mark_ce`] and [`ipv6::mark_ce`] do.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::mark_ce(packet),
        Some(6) => ipv6::mark_ce(packet),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (src, dst, ethertype) in
            [("10.0.0.1", "10.0.0.2", EtherType::Ipv4), ("2001:db8::1", "fe80::1", EtherType::Ipv6)]
        {
            let (src, dst): (IpAddress, IpAddress) = (src.parse().unwrap(), dst.parse().unwrap());
            let mut packet = vec![7; header_len(dst) + 5];
            let len = emit(ipv4::TCP, (src, dst), 9, &mut packet).unwrap();
            let (protocol, hop_limit, ecn, is_fragment) = (ipv4::TCP, 9, Ecn::NotEct, false);
            let header = Header { src, dst, protocol, hop_limit, ecn, is_fragment, payload_len: 5 };
            assert_eq!(Header::parse(ethertype, &packet, packet.len()), Ok((header, len)));
            assert!(!mark_ce(&mut packet));
            let others = [EtherType::Ipv4, EtherType::Ipv6, EtherType::Arp].into_iter().filter(|it| *it != ethertype);
            others.for_each(|other| assert!(Header::parse(other, &packet, packet.len()).is_err()));
            set_len(&mut packet, len + 2, 7);
            assert_eq!(Header::parse(ethertype, &packet, len + 2), Ok((Header { payload_len: 2, ..header }, len)));
            assert_eq!(emit(ipv4::TCP, (src, dst.any()), 9, &mut packet), Some(len));
        }
        let mixed = Ends { src: "::1".parse().unwrap(), dst: "10.0.0.1".parse().unwrap() };
        assert_eq!(emit(ipv4::TCP, mixed, 1, &mut [0; 60]), None);
    }

    #[test]
    fn tags_are_skipped() {
        let frame = |kinds: &[u16]| {
            let tags: Vec<u8> = kinds.iter().flat_map(|kind| [kind.to_be_bytes(), [0, 1]].concat()).collect();
            [&[2; 12][..], &tags].concat()
        };
        assert_eq!(packet_at(&frame(&[0x86dd])), Some((14, EtherType::Ipv6)));
        assert_eq!(packet_at(&frame(&[0x8100, 0x88a8, 0x0800])), Some((22, EtherType::Ipv4)));
        assert_eq!(packet_at(&frame(&[0x8100, 0x8100, 0x8100, 0x0800])), None);
        assert_eq!((packet_at(&frame(&[0x0806])), packet_at(&[0; 13])), (None, None));
    }
}
