//! Addresses of both families of IP, with what identifies a host within its zone (RFC 4007).
use crate::Mac;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// An IPv4 address, or an IPv6 address with the zone that a link-local one needs (RFC 4007 section 6).
///
/// Each address has one form, so that equal values are the same address. An IPv4-mapped IPv6 address (RFC 4291 section
/// 2.5.5.2) is the IPv4 address, and addresses of global scope have no zone. `std::net::IpAddr` has neither property.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IpAddress {
    /// In network byte order; of an IPv4 address, its IPv4-mapped form.
    octets: [u8; 16],
    zone: u32,
}

impl IpAddress {
    /// An IPv4 address.
    #[inline]
    pub const fn v4(address: Ipv4Addr) -> IpAddress {
        IpAddress { octets: address.to_ipv6_mapped().octets(), zone: 0 }
    }

    /// An IPv6 address. The zone is that of link-local addresses (an interface's index); for all others it is ignored.
    #[inline]
    pub const fn v6(address: Ipv6Addr, zone: u32) -> IpAddress {
        let octets = address.octets();
        IpAddress { octets, zone: if has_zone(&octets) { zone } else { 0 } }
    }

    /// An address as 128 bits, as [`IpAddress::to_bits`] gives them. Any bits are an address.
    #[inline]
    pub const fn from_bits(bits: u128, zone: u32) -> IpAddress {
        IpAddress::v6(Ipv6Addr::from_bits(bits), zone)
    }

    /// The address as 128 bits: an IPv4 address in its IPv4-mapped form.
    #[inline]
    pub const fn to_bits(self) -> u128 {
        u128::from_be_bytes(self.octets)
    }

    /// The address without its zone.
    #[inline]
    pub const fn ip(self) -> IpAddr {
        let address = Ipv6Addr::from_bits(self.to_bits());
        match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(address),
        }
    }

    /// The IPv4 address; `None` for an IPv6 address.
    #[inline]
    pub const fn as_v4(self) -> Option<Ipv4Addr> {
        if self.is_v4() { Some(Ipv4Addr::from_bits(self.to_bits() as u32)) } else { None }
    }

    /// Whether it is an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.to_bits() >> 32 == MAPPED
    }

    /// The zone of a link-local IPv6 address; 0 for none.
    #[inline]
    pub const fn zone(self) -> u32 {
        self.zone
    }

    /// The unspecified address of the same family.
    #[inline]
    pub const fn any(self) -> IpAddress {
        if self.is_v4() { IpAddress::v4(Ipv4Addr::UNSPECIFIED) } else { IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0) }
    }

    /// Whether it is the unspecified address of its family.
    #[inline]
    pub const fn is_unspecified(self) -> bool {
        let bits = self.to_bits();
        bits == 0 || bits == MAPPED << 32
    }

    /// Whether it names a group.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.octets[0] == 0xff || self.to_bits() >> 28 == MAPPED << 4 | 0xe
    }

    /// Whether it is IPv4's limited broadcast address. IPv6 has none.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_bits() == MAPPED << 32 | 0xffff_ffff
    }

    /// Whether it stays within a host (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3).
    #[inline]
    pub const fn is_loopback(self) -> bool {
        let bits = self.to_bits();
        bits == 1 || bits >> 24 == MAPPED << 8 | 127
    }

    /// The link-local IPv6 address that a hardware address gives (RFC 4291 section 2.5.6 and appendix A).
    pub fn link_local(mac: Mac, zone: u32) -> IpAddress {
        let [a, b, c, d, e, f] = mac.0;
        let half = |high, low| u16::from_be_bytes([high, low]);
        let address = Ipv6Addr::new(0xfe80, 0, 0, 0, half(a ^ 2, b), half(c, 0xff), half(0xfe, d), half(e, f));
        IpAddress::v6(address, zone)
    }

    /// Whether it is an IPv6 address that means something on one link only, not a group's.
    #[inline]
    pub const fn is_link_local(self) -> bool {
        self.to_bits() >> 118 == 0xfe80 >> 6
    }

    /// The group of all stations that may have an IPv6 address: a solicitation for it goes to them (RFC 4291 section
    /// 2.7.1).
    pub fn solicited_node(self) -> IpAddress {
        let last = self.to_bits() & 0xff_ffff;
        IpAddress::from_bits((0xff02_u128 << 112) | (1 << 32) | (0xff << 24) | last, self.zone)
    }

    /// The hardware address of a group: of IPv4 its last 23 bits (RFC 1112 section 6.4), of IPv6 its last 32 (RFC 2464
    /// section 7).
    pub const fn group_station(self) -> Mac {
        let [a, b, c, d] = (self.to_bits() as u32).to_be_bytes();
        if self.is_v4() { Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]) } else { Mac([0x33, 0x33, a, b, c, d]) }
    }

    /// The same address in a zone, where its scope has zones.
    #[inline]
    pub const fn in_zone(self, zone: u32) -> IpAddress {
        IpAddress { octets: self.octets, zone: if has_zone(&self.octets) { zone } else { 0 } }
    }

    /// Bits of an address of this family.
    #[inline]
    pub const fn width(self) -> u8 {
        if self.is_v4() { 32 } else { 128 }
    }
}

/// The first 96 bits of an IPv4-mapped address (RFC 4291 section 2.5.5.2).
const MAPPED: u128 = 0xffff;

/// Whether it is an address of link-local scope, a station's or a group's (RFC 4291 sections 2.5.6 and 2.7).
#[inline]
const fn has_zone(octets: &[u8; 16]) -> bool {
    match octets[0] {
        0xfe => octets[1] & 0xc0 == 0x80,
        0xff => octets[1] & 0x0f == 0x02,
        _ => false,
    }
}

impl From<Ipv4Addr> for IpAddress {
    #[inline]
    fn from(address: Ipv4Addr) -> IpAddress {
        IpAddress::v4(address)
    }
}

impl From<IpAddr> for IpAddress {
    fn from(address: IpAddr) -> IpAddress {
        match address {
            IpAddr::V4(address) => IpAddress::v4(address),
            IpAddr::V6(address) => IpAddress::v6(address, 0),
        }
    }
}

impl PartialEq<Ipv4Addr> for IpAddress {
    fn eq(&self, other: &Ipv4Addr) -> bool {
        *self == IpAddress::v4(*other)
    }
}

impl Hash for IpAddress {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.as_v4() {
            Some(address) => state.write_u32(address.to_bits()),
            None => (self.to_bits(), self.zone).hash(state),
        }
    }
}

impl fmt::Display for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.zone {
            0 => self.ip().fmt(f),
            zone => f.pad(&format!("{}%{zone}", self.ip())),
        }
    }
}

impl fmt::Debug for IpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As RFC 4007 section 11 writes it, with a number for the zone: `fe80::1%3`.
impl FromStr for IpAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<IpAddress, AddrParseError> {
        let Some((address, zone)) = text.split_once('%') else { return Ok(text.parse::<IpAddr>()?.into()) };
        match zone.parse() {
            Ok(zone) => Ok(IpAddress::v6(address.parse()?, zone)),
            // What the standard library calls a wrong address: a zone that is no number.
            Err(_) => text.parse::<IpAddr>().map(IpAddress::from),
        }
    }
}

impl Serialize for IpAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IpAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<IpAddress, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("\"{text}\" is not an IP address")))
    }
}

/// An address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address; unspecified for any.
    pub ip: IpAddress,
    /// Port; 0 for one of the host's choice.
    pub port: u16,
}

impl Endpoint {
    /// An address and port.
    pub const fn new(ip: IpAddress, port: u16) -> Endpoint {
        Endpoint { ip, port }
    }

    /// An IPv4 address and port.
    pub const fn v4(ip: Ipv4Addr, port: u16) -> Endpoint {
        Endpoint { ip: IpAddress::v4(ip), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl From<SocketAddrV4> for Endpoint {
    fn from(address: SocketAddrV4) -> Endpoint {
        Endpoint::v4(*address.ip(), address.port())
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        match address {
            SocketAddr::V4(address) => address.into(),
            SocketAddr::V6(address) => Endpoint::new(IpAddress::v6(*address.ip(), address.scope_id()), address.port()),
        }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> SocketAddr {
        match endpoint.ip.ip() {
            IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, endpoint.port)),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, endpoint.port, 0, endpoint.ip.zone())),
        }
    }
}

/// The addresses that begin with the same bits. As text: `10.0.0.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    network: IpAddress,
    /// The bits that count, all of the family's among them.
    mask: u128,
    bits: u8,
}

impl Prefix {
    /// The first `bits` bits of an address, as many as the family has at most; the others are ignored.
    pub fn new(address: IpAddress, bits: u8) -> Prefix {
        let bits = bits.min(address.width());
        let mask = u128::MAX.checked_shl(u32::from(address.width() - bits)).unwrap_or(0);
        Prefix { network: IpAddress::from_bits(address.to_bits() & mask, address.zone()), mask, bits }
    }

    /// The address whose other bits are 0.
    pub fn network(&self) -> IpAddress {
        self.network
    }

    /// Bits that the addresses have in common.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address begins with these bits. An address of the other family does not.
    #[inline]
    pub fn contains(&self, address: IpAddress) -> bool {
        // An IPv4 address has the first bits of all that are mapped: in IPv6's prefixes of few bits it does not count.
        let family = address.is_v4() == self.network.is_v4();
        let zone = !has_zone(&self.network.octets) || self.network.zone == address.zone;
        family && zone && (address.to_bits() ^ self.network.to_bits()) & self.mask == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.network, self.bits))
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        let wrong = || format!("\"{text}\" is not a network, such as 10.0.0.0/24");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let (address, len) = (address.parse::<IpAddress>().map_err(|_| wrong())?, len.parse().map_err(|_| wrong())?);
        if len > address.width() { Err(wrong()) } else { Ok(Prefix::new(address, len)) }
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddress {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_one_form() {
        let v4 = address("10.1.2.3");
        assert_eq!(v4, IpAddress::v6(Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped(), 7));
        assert_eq!((v4.as_v4(), v4.zone(), v4.is_v4()), (Some(Ipv4Addr::new(10, 1, 2, 3)), 0, true));
        assert_eq!(address("::ffff:10.1.2.3"), v4);
        assert_eq!(address("2001:db8::1%4"), address("2001:db8::1"), "a global address has no zone");
        assert_ne!(address("fe80::1%4"), address("fe80::1%5"));
        assert_ne!(address("ff02::1%4"), address("ff02::1%5"));
        assert_eq!(address("ff0e::1%4"), address("ff0e::1"));
        assert_ne!(address("::"), address("0.0.0.0"));
        for text in ["10.0.0.1", "::", "fe80::1%3", "2001:db8::1", "255.255.255.255"] {
            assert_eq!(address(text).to_string(), text);
            let json = serde_json::to_string(&address(text)).expect("text");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<IpAddress>(&json).expect("an address"), address(text));
        }
        for wrong in ["", "10.0.0", "10.0.0.1%1", "fe80::1%", "fe80::1%eth0", "fe80::1%1%2"] {
            assert!(wrong.parse::<IpAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn hardware_addresses_and_groups() {
        let mac = Mac([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
        let own = IpAddress::link_local(mac, 3);
        assert_eq!(own, address("fe80::11:22ff:fe33:4455%3"));
        assert_eq!(own.solicited_node(), address("ff02::1:ff33:4455%3"));
        assert_eq!(address("2001:db8::89:abcd").solicited_node(), address("ff02::1:ff89:abcd"));
        assert_eq!(own.solicited_node().group_station(), Mac([0x33, 0x33, 0xff, 0x33, 0x44, 0x55]));
        assert_eq!(address("239.129.2.3").group_station(), Mac([0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]));
        assert!(own.is_link_local() && !own.solicited_node().is_link_local() && !address("10.0.0.1").is_link_local());
        assert_eq!((own.in_zone(4).zone(), address("::1").in_zone(4).zone()), (4, 0));
    }

    #[test]
    fn any_is_of_the_same_family() {
        for (text, any, width) in [("10.0.0.1", "0.0.0.0", 32), ("fe80::1%3", "::", 128)] {
            assert_eq!((address(text).any(), address(text).width()), (address(any), width));
            assert!(address(any).is_unspecified() && !address(text).is_unspecified());
        }
    }

    #[test]
    fn endpoints_are_socket_addresses() {
        for text in ["10.0.0.1:80", "[2001:db8::1]:443", "[fe80::1%9]:22"] {
            let socket: SocketAddr = text.parse().expect("a socket address");
            assert_eq!(SocketAddr::from(Endpoint::from(socket)), socket);
            assert_eq!(Endpoint::from(socket).to_string(), text);
        }
    }

    #[test]
    fn prefixes_contain_addresses_of_their_family() {
        let prefix = |text: &str| text.parse::<Prefix>().expect("a network");
        assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert!(prefix("10.0.0.0/8").contains(address("10.255.0.1")));
        assert!(!prefix("10.0.0.0/8").contains(address("11.0.0.1")));
        assert!(prefix("0.0.0.0/0").contains(address("1.2.3.4")) && !prefix("0.0.0.0/0").contains(address("::1")));
        assert!(prefix("::/0").contains(address("2001:db8::1")) && !prefix("::/0").contains(address("1.2.3.4")));
        assert!(prefix("fe80::%2/64").contains(address("fe80::9%2")));
        assert!(!prefix("fe80::%2/64").contains(address("fe80::9%3")), "another link");
        for wrong in ["10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/"] {
            assert!(wrong.parse::<Prefix>().unwrap_err().contains("not a network"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bits_are_an_address_that_comes_back(bits: u128, zone: u32) {
            let one = IpAddress::from_bits(bits, zone);
            prop_assert_eq!(IpAddress::from_bits(one.to_bits(), one.zone()), one);
            prop_assert_eq!(one.to_string().parse::<IpAddress>(), Ok(one));
            prop_assert_eq!(one.is_v4(), bits >> 32 == 0xffff);
        }

        #[test]
        fn an_address_is_what_the_standard_library_calls_it(
            bits: u128,
            high in prop::sample::select(vec![0, 1, 0x7f, 0xe0, 0xef, 0xff, 0xfe80, 0xfebf, 0xfec0, 0xff02, 0xff05]),
            shift in prop::sample::select(vec![112, 120, 24, 0]),
            mapped: bool,
        ) {
            let low = if mapped { 0xffff << 32 | bits as u32 as u128 & 0xff_ffff } else { bits >> 16 };
            for bits in [bits, low | high << shift, high << shift, 0xffff << 32, 0xffff_ffff_ffff] {
                let one = IpAddress::from_bits(bits, 7);
                let (ip, v6) = (one.ip(), Ipv6Addr::from_bits(bits));
                prop_assert_eq!(one.as_v4(), v6.to_ipv4_mapped());
                prop_assert_eq!((one.is_unspecified(), one.is_loopback()), (ip.is_unspecified(), ip.is_loopback()));
                prop_assert_eq!((one.is_multicast(), one.is_broadcast()), (ip.is_multicast(), ip == Ipv4Addr::BROADCAST));
                prop_assert_eq!(one.is_link_local(), v6.is_unicast_link_local());
                let local = one.is_link_local() || v6.segments()[0] & 0xff0f == 0xff02;
                prop_assert_eq!((one.zone(), one.in_zone(9).zone()), if local { (7, 9) } else { (0, 0) });
            }
        }

        #[test]
        fn a_prefix_contains_what_begins_alike(
            bits: u128,
            len in 0u8..=128,
            flip in 0u32..129,
            mapped: bool,
            zone in 0u32..2,
        ) {
            let bits = if mapped { 0xffff << 32 | bits & 0xffff_ffff } else { bits };
            let network = IpAddress::from_bits(bits, 1);
            let other = IpAddress::from_bits(bits ^ 1u128.checked_shl(flip).unwrap_or(0), zone);
            let prefix = Prefix::new(network, len);
            let alike = other.is_v4() == network.is_v4() && Prefix::new(other, prefix.bits()) == prefix;
            prop_assert_eq!(prefix.contains(other), alike);
        }
    }
}
