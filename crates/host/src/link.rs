//! A port of a host, as its network layer sees it.
use port::Capabilities;
use wire::{IpAddress, Mac};

/// A port of the host, as the network layer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its hardware address. Each port of a host has another one.
    pub mac: Mac,
    /// The host's IPv4 address there. Ports may share one.
    pub address: IpAddress,
    /// Bits of the network part: a station with an address in this network is on the link.
    pub prefix_len: u8,
    /// Its IPv6 address there, where it has one.
    pub v6: Option<AddressV6>,
    /// What the port offers, and most bytes of an IP packet there.
    pub caps: Capabilities,
}

/// An IPv6 address of a host on a port. Beside it, it has the link-local one that its hardware address gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressV6 {
    /// The address, of global scope.
    pub address: IpAddress,
    /// Bits of the network part.
    pub prefix_len: u8,
}

impl Link {
    /// The host's addresses there with the bits of their network parts, but for the link-local one.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddress, u8)> + use<> {
        let v6 = self.v6.map(|v6| (v6.address, v6.prefix_len));
        [(self.address, self.prefix_len)].into_iter().chain(v6)
    }

    /// All of them, for this zone.
    pub(crate) fn all_addresses(&self, zone: u32) -> impl Iterator<Item = IpAddress> + use<> {
        let link_local = self.v6.map(|_| IpAddress::link_local(self.mac, zone));
        self.addresses().map(|(address, _)| address).chain(link_local)
    }

    /// The source address for a destination there: of the same family, and of the same scope where possible (RFC 6724
    /// section 5, rule 2). `None` where it has none of that family.
    pub fn source(&self, dst: IpAddress) -> Option<IpAddress> {
        match dst.is_v4() {
            true => Some(self.address),
            false if dst.zone() > 0 => self.v6.map(|_| IpAddress::link_local(self.mac, dst.zone())),
            false => self.v6.map(|v6| v6.address),
        }
    }

    /// The address is one of the host's there. Its link-local address is in this zone.
    pub(crate) fn has(&self, ip: IpAddress, zone: u32) -> bool {
        self.all_addresses(zone).any(|own| own == ip)
    }
}
