//! GIDs of a host: what RoCEv2 names an end by (IBTA Annex A17.4.4).
use verbs::Gid;
use wire::{IpAddress, Mac};

/// Index of the link-local GID.
pub(crate) const LINK_LOCAL: u8 = 0;

/// The GIDs of a host by index: 0 is the link-local address of its hardware address, 1 its own address.
pub(crate) fn table(mac: Mac, address: IpAddress) -> Vec<Gid> {
    vec![of_address(IpAddress::link_local(mac, 0)), of_address(address)]
}

/// The GID of an address; of an IPv4 address its mapped form.
// Meets IBTA: A17.4.4-a.
pub(crate) fn of_address(address: IpAddress) -> Gid {
    Gid(address.to_bits().to_be_bytes())
}

/// The address that a GID is.
pub(crate) fn address_of(gid: Gid) -> IpAddress {
    IpAddress::from_bits(u128::from_be_bytes(gid.0), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    // Checks IBTA: A17.4.4-a.
    #[test]
    fn the_table_is_what_programs_expect() {
        let address = IpAddress::v4(Ipv4Addr::new(10, 0, 0, 7));
        let gids = table(Mac([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]), address);
        assert_eq!(Ipv6Addr::from(gids[0].0), "fe80::11:22ff:fe33:4455".parse::<Ipv6Addr>().unwrap());
        assert_eq!(Ipv6Addr::from(gids[1].0), "::ffff:10.0.0.7".parse::<Ipv6Addr>().unwrap());
        assert_eq!(address_of(gids[1]), address);
        assert!(!address_of(gids[0]).is_v4());
    }
}
