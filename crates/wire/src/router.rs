//! Routers that make themselves known (RFC 4861 sections 4.1 and 4.2).
use crate::icmpv6::{Message, emit_rest};
use crate::ip::Ends;
use crate::ipv6::address_at;
use crate::{Mac, Malformed, be16, be32};
use std::net::Ipv6Addr;

/// The group of all routers of a link (RFC 4291 section 2.7.1).
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Bytes of a solicitation with the hardware address of its sender.
pub const SOLICITATION_LEN: usize = 16;

/// Type of a router's advertisement; its code is 0.
const KIND: u8 = 134;
/// A router's advertisement, as ICMPv6 has it.
pub const ADVERTISEMENT: Message = Message::Other(KIND, 0);
/// Bytes before the options.
const HEADER_LEN: usize = 16;
/// Options (RFC 4861 sections 4.6.1, 4.6.2 and 4.6.4), and their bytes.
const SOURCE_ADDRESS: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const PREFIX_LEN: usize = 32;
const MTU_LEN: usize = 8;
const SOURCE_LEN: usize = 8;
/// Prefixes of one message that are read.
const MOST_PREFIXES: usize = 16;

/// A router's advertisement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterAdvertisement {
    /// For so many seconds it forwards packets of hosts that have no better route; 0: it does not.
    pub lifetime_s: u16,
    /// The router's hardware address, where it has that option.
    pub source: Option<Mac>,
    /// Most bytes of a packet on the link, where it has that option.
    pub mtu: Option<u32>,
    /// Prefixes of addresses.
    pub prefixes: Vec<PrefixInformation>,
}

/// A prefix (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixInformation {
    /// The prefix; what is behind its bits means nothing.
    pub prefix: Ipv6Addr,
    /// Its bits.
    pub len: u8,
    /// Addresses with it are those of neighbours.
    pub on_link: bool,
    /// Hosts make addresses of it (RFC 4862).
    pub autonomous: bool,
    /// For so many seconds such an address may be used.
    pub valid_s: u32,
    /// For so many seconds it may be used for new connections.
    pub preferred_s: u32,
}

impl RouterAdvertisement {
    /// Reads an ICMPv6 message of a packet between two addresses; `None` where it is another one than a router's.
    /// Options that are not known are skipped, those of RFC 8106 among them.
    // Meets RFC 4861: 6.1.2-a.
    pub fn parse(bytes: &[u8], ends: impl Into<Ends>) -> Result<Option<RouterAdvertisement>, Malformed> {
        if Message::parse(bytes, ends)? != ADVERTISEMENT {
            return Ok(None);
        }
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let mut advertisement =
            RouterAdvertisement { lifetime_s: be16(bytes, 6), source: None, mtu: None, prefixes: Vec::new() };
        let mut options = &bytes[HEADER_LEN..];
        while let [kind, words, ..] = *options {
            let len = 8 * usize::from(words);
            if len == 0 {
                return Err(Malformed::Field);
            }
            let option = options.get(..len).ok_or(Malformed::Truncated)?;
            match (kind, len) {
                (SOURCE_ADDRESS, SOURCE_LEN) => advertisement.source = option[2..].try_into().ok().map(Mac),
                (MTU, MTU_LEN) => advertisement.mtu = Some(be32(option, 4)),
                (PREFIX, PREFIX_LEN) if advertisement.prefixes.len() < MOST_PREFIXES => {
                    advertisement.prefixes.push(prefix(option))
                }
                _ => {}
            }
            options = &options[len..];
        }
        if options.is_empty() { Ok(Some(advertisement)) } else { Err(Malformed::Truncated) }
    }

    /// The ICMPv6 message of a packet between two addresses.
    pub fn to_bytes(&self, ends: impl Into<Ends>) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(Mac(octets)) = self.source {
            options.extend([SOURCE_ADDRESS, 1]);
            options.extend(octets);
        }
        if let Some(mtu) = self.mtu {
            options.extend([MTU, 1, 0, 0]);
            options.extend(mtu.to_be_bytes());
        }
        self.prefixes.iter().for_each(|prefix| put_prefix(prefix, &mut options));
        message(self.lifetime_s, &options, ends.into())
    }
}

fn message(lifetime_s: u16, options: &[u8], ends: Ends) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes[6..8].copy_from_slice(&lifetime_s.to_be_bytes());
    bytes.extend_from_slice(options);
    emit_rest(KIND, 0, &mut bytes, ends);
    bytes
}

fn put_prefix(prefix: &PrefixInformation, into: &mut Vec<u8>) {
    let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
    into.extend([PREFIX, (PREFIX_LEN / 8) as u8, prefix.len, flags]);
    into.extend([prefix.valid_s.to_be_bytes(), prefix.preferred_s.to_be_bytes(), [0; 4]].concat());
    into.extend(prefix.prefix.octets());
}

fn prefix(option: &[u8]) -> PrefixInformation {
    PrefixInformation {
        len: option[2],
        on_link: option[3] & 0x80 != 0,
        autonomous: option[3] & 0x40 != 0,
        valid_s: be32(option, 4),
        preferred_s: be32(option, 8),
        prefix: address_at(option, 16),
    }
}

/// The question for routers, of a packet between two addresses (RFC 4861 section 4.1).
pub fn solicitation(ends: impl Into<Ends>, sender: Mac) -> [u8; SOLICITATION_LEN] {
    let mut bytes = [0; SOLICITATION_LEN];
    (bytes[8], bytes[9]) = (SOURCE_ADDRESS, 1);
    bytes[10..].copy_from_slice(&sender.0);
    Message::Other(133, 0).emit(ends, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends() -> Ends {
        Ends { src: "fe80::1".parse().unwrap(), dst: "ff02::1".parse().unwrap() }
    }

    /// The message with these options.
    fn message(options: &[u8]) -> Vec<u8> {
        super::message(1800, options, ends())
    }

    fn prefix_option(bits: u8, flags: u8) -> Vec<u8> {
        let mut option = vec![3, 4, bits, flags, 0, 0, 0x0e, 0x10, 0, 0, 0x07, 0x08, 0, 0, 0, 0];
        option.extend_from_slice(&"2001:db8:7::".parse::<Ipv6Addr>().unwrap().octets());
        option
    }

    // Checks RFC 4861: 6.1.2-a.
    #[test]
    fn an_advertisement_is_read_and_other_options_are_skipped() {
        // The servers of names (RFC 8106), the router's hardware address, MTU, a prefix.
        let options = [
            &[25, 3, 0, 0, 0, 0, 1, 0][..],
            &[0; 16],
            &[1, 1, 2, 0, 0, 0, 0, 9],
            &[5, 1, 0, 0, 0, 0, 5, 0xdc],
            &prefix_option(64, 0xc0),
        ]
        .concat();
        let bytes = message(&options);
        let advertisement = RouterAdvertisement::parse(&bytes, ends()).unwrap().expect("a router's");
        let (valid_s, preferred_s) = (3600, 1800);
        let prefix = "2001:db8:7::".parse().unwrap();
        let expected = PrefixInformation { prefix, len: 64, on_link: true, autonomous: true, valid_s, preferred_s };
        assert_eq!(
            advertisement,
            RouterAdvertisement {
                lifetime_s: 1800,
                source: Some(Mac([2, 0, 0, 0, 0, 9])),
                mtu: Some(1500),
                prefixes: vec![expected]
            }
        );
        // Cut off, with an option of no length, with another checksum.
        assert!((0..bytes.len()).all(|len| RouterAdvertisement::parse(&bytes[..len], ends()).is_err()));
        let empty = RouterAdvertisement::parse(&message(&[5, 0, 0, 0, 0, 0, 5, 0xdc]), ends());
        assert_eq!(empty, Err(Malformed::Field));
        let read = |bytes: &[u8]| RouterAdvertisement::parse(bytes, ends()).unwrap().expect("a router's");
        assert_eq!(read(&advertisement.to_bytes(ends())), advertisement, "written and read");
        let Ends { dst, .. } = ends();
        assert_eq!(RouterAdvertisement::parse(&bytes, (dst, dst)), Err(Malformed::Checksum));
    }

    #[test]
    fn a_solicitation_has_the_hardware_address_of_its_sender() {
        let ends = Ends { src: "fe80::7".parse().unwrap(), dst: "ff02::2".parse().unwrap() };
        let bytes = solicitation(ends, Mac([2, 0, 0, 0, 0, 7]));
        assert_eq!(Message::parse(&bytes, ends), Ok(Message::Other(133, 0)));
        assert_eq!(bytes[8..], [1, 1, 2, 0, 0, 0, 0, 7]);
        assert_eq!(RouterAdvertisement::parse(&bytes, ends), Ok(None), "no router's");
    }

    proptest! {
        #[test]
        fn any_options_are_read_without_panic(options in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = RouterAdvertisement::parse(&message(&options), ends());
        }
    }
}
