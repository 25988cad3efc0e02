//! ICMP errors of both versions of IP: the packet that did not arrive, and the reason.
use wire::{IpAddress, icmpv4, icmpv6, ipv4, ipv6};

/// An error message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// Why.
    pub cause: Cause,
    /// Which packet.
    pub quote: Quote,
}

/// Why a packet did not come to where it was to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There is no way to its network.
    NoNetwork,
    /// There is no way to its host.
    NoHost,
    /// Nobody there takes its protocol or port.
    Refused,
    /// It is longer than this, which is what the next link carries; 0 where the router does not give it.
    TooBig(u16),
    /// Anything else.
    Other,
}

impl Cause {
    /// That of an ICMP message (RFC 1122 section 3.2.2.1, RFC 1191).
    pub(crate) fn of_v4(code: u8, mtu: u16) -> Cause {
        match code {
            0 | 6 | 9 | 11 => Cause::NoNetwork,
            1 | 7 | 10 | 12 | 13 => Cause::NoHost,
            2 | 3 => Cause::Refused,
            icmpv4::FRAGMENTATION_NEEDED => Cause::TooBig(mtu),
            _ => Cause::Other,
        }
    }

    /// That of an ICMPv6 message, where it is an error that is handled (RFC 4443 section 3, RFC 8201).
    pub(crate) fn of_v6(message: &icmpv6::Message) -> Option<Cause> {
        use icmpv6::{Message, PORT_UNREACHABLE, UNKNOWN_PROTOCOL};
        Some(match *message {
            Message::Unreachable { code: 0 } => Cause::NoNetwork,
            Message::Unreachable { code: PORT_UNREACHABLE } => Cause::Refused,
            Message::Unreachable { code: 1..=6 } => Cause::NoHost,
            Message::Problem { code: UNKNOWN_PROTOCOL, .. } => Cause::Refused,
            Message::TooBig { mtu } => Cause::TooBig(mtu.clamp(1, u16::MAX.into()) as u16),
            Message::Unreachable { .. } | Message::Problem { .. } => Cause::Other,
            _ => return None,
        })
    }
}

/// The packet that an error message quotes, sent from this host's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// IP protocol number.
    pub protocol: u8,
    /// Where it came from.
    pub src: IpAddress,
    /// Where it was to go.
    pub dst: IpAddress,
    /// Bytes of the packet.
    pub len: u16,
    /// The first bytes of what it carried (RFC 792): ports, and for TCP the sequence number.
    pub first: [u8; 8],
}

impl Quote {
    /// Reads a quoted packet: an IPv4 header and the first 8 bytes of what follows. Routers change the quoted header
    /// (TTL, checksum), so only its shape is checked.
    pub(crate) fn parse_v4(data: &[u8]) -> Option<Quote> {
        let header_len = (*data.first()? & 0x0f) as usize * 4;
        if data[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN {
            return None;
        }
        let first = data.get(header_len..header_len + 8)?.try_into().ok()?;
        let address = |at: usize| IpAddress::v4([data[at], data[at + 1], data[at + 2], data[at + 3]].into());
        let len = u16::from_be_bytes([data[2], data[3]]);
        Some(Quote { protocol: data[9], src: address(12), dst: address(16), len, first })
    }

    /// The same of an IPv6 packet. This host sends no extension headers.
    pub(crate) fn parse_v6(data: &[u8], zone: u32) -> Option<Quote> {
        let (header, at) = ipv6::Header::parse(data, usize::MAX).ok()?;
        let first = data.get(at..at + 8)?.try_into().ok()?;
        let (src, dst) = (IpAddress::v6(header.src, zone), IpAddress::v6(header.dst, zone));
        let len = (at as u16).saturating_add(header.payload_len);
        Some(Quote { protocol: header.protocol, src, dst, len, first })
    }
}
