//! ICMP for IPv6 (RFC 4443): echo, errors; and how neighbours find each other (RFC 4861).
use crate::checksum::Sum;
use crate::ip::Ends;
use crate::ipv6::{ICMP, address_at};
use crate::{Mac, Malformed, be16, be32, mld};
use std::net::Ipv6Addr;

/// Bytes of the header of echo messages and errors.
pub const HEADER_LEN: usize = 8;
/// Bytes of a message about a neighbour, with a hardware address.
pub const NEIGHBOUR_LEN: usize = 32;
/// Hops of messages between neighbours: one that was forwarded has fewer (RFC 4861 section 3.1).
pub const NEIGHBOUR_HOPS: u8 = 255;

/// Code of "destination unreachable" for a port that nobody listens on (RFC 4443 section 3.1).
pub const PORT_UNREACHABLE: u8 = 4;
/// Code of "parameter problem" for a protocol that is not there (RFC 4443 section 3.4).
pub const UNKNOWN_PROTOCOL: u8 = 1;

/// Options with a hardware address (RFC 4861 section 4.6.1).
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;

/// A message; the data of an echo or an error stays in place after [`HEADER_LEN`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Echo request with identifier and sequence number.
    EchoRequest(u16, u16),
    /// Echo reply with identifier and sequence number.
    EchoReply(u16, u16),
    /// Destination unreachable: the data is the packet that caused it, as far as there is room.
    Unreachable {
        /// Why: [`PORT_UNREACHABLE`], ...
        code: u8,
    },
    /// A packet was too long for the next link (RFC 8201); the data as above.
    TooBig {
        /// Most bytes of a packet there.
        mtu: u32,
    },
    /// A header field of a packet was not understood; the data as above.
    Problem {
        /// Why: [`UNKNOWN_PROTOCOL`], ...
        code: u8,
        /// Which byte of the packet.
        pointer: u32,
    },
    /// Asks for the station of an address (RFC 4861 section 4.3).
    Solicitation {
        /// The address.
        target: Ipv6Addr,
        /// Hardware address of the one that asks.
        sender: Option<Mac>,
    },
    /// Answers with the station of an address (RFC 4861 section 4.4).
    Advertisement {
        /// The address.
        target: Ipv6Addr,
        /// Its hardware address.
        mac: Option<Mac>,
        /// It answers a question.
        solicited: bool,
        /// It replaces a hardware address that was known before.
        replaces: bool,
    },
    /// Asks for the listeners of a group (RFC 3810 section 5.1).
    Query(mld::Query),
    /// A message of another type and code.
    Other(u8, u8),
}

impl Message {
    /// Reads a message of a packet between two addresses and checks its checksum.
    // Meets RFC 4861: 7.1.1-a, 7.1.2-a.
    pub fn parse(bytes: &[u8], ends: impl Into<Ends>) -> Result<Message, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        if sum(bytes, ends.into()).finish() != 0 {
            return Err(Malformed::Checksum);
        }
        Ok(match (bytes[0], bytes[1]) {
            (128, 0) => Message::EchoRequest(be16(bytes, 4), be16(bytes, 6)),
            (129, 0) => Message::EchoReply(be16(bytes, 4), be16(bytes, 6)),
            (1, code) => Message::Unreachable { code },
            (2, _) => Message::TooBig { mtu: be32(bytes, 4) },
            (4, code) => Message::Problem { code, pointer: be32(bytes, 4) },
            (135, 0) => {
                let (target, sender) = neighbour(bytes, SOURCE_ADDRESS)?;
                Message::Solicitation { target, sender }
            }
            (136, 0) => {
                let (target, mac) = neighbour(bytes, TARGET_ADDRESS)?;
                let (solicited, replaces) = (bytes[4] & 0x40 != 0, bytes[4] & 0x20 != 0);
                Message::Advertisement { target, mac, solicited, replaces }
            }
            (mld::QUERY, 0) => Message::Query(mld::Query::parse(bytes)?),
            (kind, code) => Message::Other(kind, code),
        })
    }

    /// Writes the message of a packet between two addresses, checksum included. Data of an echo or an error is in
    /// `bytes[HEADER_LEN..]` already; a message about a neighbour fills [`NEIGHBOUR_LEN`] bytes, eight fewer without a
    /// hardware address.
    pub fn emit(&self, ends: impl Into<Ends>, bytes: &mut [u8]) {
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let (kind, code, word) = match *self {
            Message::EchoRequest(id, seq) => (128, 0, pair(id, seq)),
            Message::EchoReply(id, seq) => (129, 0, pair(id, seq)),
            Message::Unreachable { code } => (1, code, 0),
            Message::TooBig { mtu } => (2, 0, mtu),
            Message::Problem { code, pointer } => (4, code, pointer),
            Message::Solicitation { target, sender } => {
                put_neighbour(bytes, target, SOURCE_ADDRESS, sender);
                (135, 0, 0)
            }
            Message::Advertisement { target, mac, solicited, replaces } => {
                put_neighbour(bytes, target, TARGET_ADDRESS, mac);
                (136, 0, u32::from(solicited) << 30 | u32::from(replaces) << 29)
            }
            // A host asks nobody.
            Message::Query(_) => (mld::QUERY, 0, 0),
            Message::Other(kind, code) => (kind, code, 0),
        };
        bytes[4..8].copy_from_slice(&word.to_be_bytes());
        emit_rest(kind, code, bytes, ends.into());
    }
}

/// Writes type, code and checksum of a message whose other bytes are there.
pub(crate) fn emit_rest(kind: u8, code: u8, bytes: &mut [u8], ends: Ends) {
    bytes[0..4].copy_from_slice(&[kind, code, 0, 0]);
    let sum = sum(bytes, ends).finish();
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn sum(bytes: &[u8], Ends { src, dst }: Ends) -> Sum {
    let mut sum = Sum::pseudo_header(src, dst, ICMP, bytes.len() as u32);
    sum.add(bytes);
    sum
}

/// The address that a message is about, and the hardware address in its option of this kind (RFC 4861 section 4.6).
fn neighbour(bytes: &[u8], wanted: u8) -> Result<(Ipv6Addr, Option<Mac>), Malformed> {
    if bytes.len() < HEADER_LEN + 16 {
        return Err(Malformed::Truncated);
    }
    let target = address_at(bytes, HEADER_LEN);
    // A group has no station (RFC 4861 sections 7.1.1 and 7.1.2).
    if target.is_multicast() || target.to_ipv4_mapped().is_some() {
        return Err(Malformed::Field);
    }
    let (mut options, mut found) = (&bytes[HEADER_LEN + 16..], None);
    while let [kind, words, ..] = *options {
        let len = 8 * usize::from(words);
        if len == 0 {
            return Err(Malformed::Field);
        }
        let option = options.get(..len).ok_or(Malformed::Truncated)?;
        if kind == wanted && len == 8 {
            found = option[2..].first_chunk().map(|mac| Mac(*mac));
        }
        options = &options[len..];
    }
    if options.is_empty() { Ok((target, found)) } else { Err(Malformed::Truncated) }
}

fn put_neighbour(bytes: &mut [u8], target: Ipv6Addr, kind: u8, mac: Option<Mac>) {
    bytes[HEADER_LEN..HEADER_LEN + 16].copy_from_slice(&target.octets());
    if let (Some(mac), Some(option)) = (mac, bytes.get_mut(HEADER_LEN + 16..NEIGHBOUR_LEN)) {
        (option[0], option[1]) = (kind, 1);
        option[2..].copy_from_slice(&mac.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

    fn addresses() -> Ends {
        Ends { src: "fe80::1".parse().unwrap(), dst: "ff02::1:ff00:7".parse().unwrap() }
    }

    fn bytes_of(message: Message, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        message.emit(addresses(), &mut bytes);
        bytes
    }

    #[test]
    fn messages_come_back() {
        let (solicited, replaces) = (true, false);
        for (message, len) in [
            (Message::EchoRequest(1, 0xffff), 8),
            (Message::EchoReply(0xffff, 2), 19),
            (Message::Unreachable { code: PORT_UNREACHABLE }, 56),
            (Message::TooBig { mtu: 1400 }, 56),
            (Message::Problem { code: UNKNOWN_PROTOCOL, pointer: 40 }, 56),
            (Message::Solicitation { target: TARGET, sender: Some(MAC) }, 32),
            (Message::Solicitation { target: TARGET, sender: None }, 24),
            (Message::Advertisement { target: TARGET, mac: Some(MAC), solicited, replaces }, 32),
            (Message::Advertisement { target: TARGET, mac: None, solicited: replaces, replaces: solicited }, 24),
            (Message::Other(133, 0), 8),
        ] {
            let bytes = bytes_of(message, len);
            assert_eq!(Message::parse(&bytes, addresses()), Ok(message));
            let Ends { src, dst } = addresses();
            assert_eq!(Message::parse(&bytes, (dst, dst)), Err(Malformed::Checksum), "from elsewhere: {src}");
            assert!((0..bytes.len()).all(|len| Message::parse(&bytes[..len], addresses()).is_err()));
        }
    }

    // Checks RFC 4861: 7.1.1-a, 7.1.2-a.
    #[test]
    fn options_that_are_not_known_are_skipped() {
        let about = |options: &[u8]| {
            let mut bytes = bytes_of(Message::Solicitation { target: TARGET, sender: None }, 24);
            bytes.extend_from_slice(options);
            bytes[2..4].copy_from_slice(&[0, 0]);
            let sum = sum(&bytes, addresses()).finish();
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            Message::parse(&bytes, addresses())
        };
        let (nonce, own) = ([14, 1, 1, 2, 3, 4, 5, 6], [1, 1, 2, 0, 0, 0, 0, 7]);
        let expected = Ok(Message::Solicitation { target: TARGET, sender: Some(MAC) });
        assert_eq!(about(&[nonce, own].concat()), expected);
        assert_eq!(about(&[own, nonce].concat()), expected);
        // RFC 4861 section 4.6: a length of zero is never valid.
        assert_eq!(about(&[14, 0, 1, 2, 3, 4, 5, 6]), Err(Malformed::Field));
        assert_eq!(about(&[1, 2, 2, 0, 0, 0, 0, 7]), Err(Malformed::Truncated));
        assert_eq!(about(&[1]), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 8..80), kind in 133..138u8) {
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            let sum = sum(&bytes, addresses()).finish();
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            let _ = Message::parse(&bytes, addresses());
        }
    }
}
