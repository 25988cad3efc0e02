//! ICMP (RFC 792, RFC 1122 section 3.2.2): echo is answered here; an error message goes to the transport whose packet
//! it quotes, which decides whether to believe it (RFC 5927 section 4.1).
use std::net::Ipv4Addr;
use wire::ipv4;

/// "Destination unreachable": the only errors that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Why.
    pub code: u8,
    /// For [`wire::icmpv4::FRAGMENTATION_NEEDED`], most bytes of a packet on the next link; 0 where the router does
    /// not say.
    pub mtu: u16,
    /// Which packet.
    pub quote: Quote,
}

/// The packet that an error message quotes, sent from this host's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// IP protocol number.
    pub protocol: u8,
    /// Where it came from.
    pub src: Ipv4Addr,
    /// Where it was to go.
    pub dst: Ipv4Addr,
    /// Bytes of the packet.
    pub len: u16,
    /// The first bytes of what it carried (RFC 792): ports, and for TCP the sequence number.
    pub first: [u8; 8],
}

impl Quote {
    /// Reads a quoted packet: an IP header and the first 8 bytes of what follows. Routers change the quoted header
    /// (TTL, checksum), so only its shape is checked.
    pub(crate) fn parse(data: &[u8]) -> Option<Quote> {
        let header_len = (*data.first()? & 0x0f) as usize * 4;
        if data[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN {
            return None;
        }
        let first = data.get(header_len..header_len + 8)?.try_into().ok()?;
        let word = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let len = u16::from_be_bytes([data[2], data[3]]);
        Some(Quote { protocol: data[9], src: word(12).into(), dst: word(16).into(), len, first })
    }
}
