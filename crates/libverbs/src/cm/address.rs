//! Socket addresses: from the program's structures, and into them.
use crate::errno::Result;
use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The IPv4 address of a program's structure. IPv6's "any" counts as IPv4's, and mapped addresses as what they map.
/// EAFNOSUPPORT for others.
///
/// # Safety
/// The pointer is that of an address of its family's length.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddrV4> {
    if address.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees; addresses of programs need not be aligned.
    match c_family(unsafe { (&raw const (*address).sa_family).read_unaligned() }) {
        libc::AF_INET => {
            // SAFETY: as the caller guarantees.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as the caller guarantees.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let ip = if ip.is_unspecified() { Some(Ipv4Addr::UNSPECIFIED) } else { ip.to_ipv4_mapped() };
            Ok(SocketAddrV4::new(ip.ok_or(libc::EAFNOSUPPORT)?, u16::from_be(address.sin6_port)))
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

fn c_family(family: libc::sa_family_t) -> libc::c_int {
    family.into()
}

/// Writes an IPv4 address.
pub(crate) fn write(into: &mut sockaddr_storage, address: SocketAddrV4) {
    let plain = plain(address);
    // SAFETY: the structure for all families has room for that of each.
    unsafe { (&raw mut *into).cast::<sockaddr_in>().write(plain) };
}

/// An address as C has it.
pub(crate) fn plain(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

/// An address that is none.
pub(crate) fn none() -> sockaddr_storage {
    // SAFETY: zeros are a valid value of it.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_others_are_refused() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 7), 7174);
        let mut storage = none();
        // SAFETY: a local structure.
        assert_eq!(unsafe { read((&raw const storage).cast()) }, Err(libc::EAFNOSUPPORT));
        write(&mut storage, address);
        // SAFETY: as above.
        assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        // SAFETY: zeros are a valid value.
        let mut six: sockaddr_in6 = unsafe { std::mem::zeroed() };
        six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        six.sin6_port = 5u16.to_be();
        // SAFETY: as above.
        let any = unsafe { read((&raw const six).cast()) };
        assert_eq!(any, Ok(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5)));
        six.sin6_addr.s6_addr = address.ip().to_ipv6_mapped().octets();
        // SAFETY: as above.
        assert_eq!(unsafe { read((&raw const six).cast()) }.map(|found| *found.ip()), Ok(*address.ip()));
        six.sin6_addr.s6_addr = [0xfe; 16];
        // SAFETY: as above.
        assert_eq!(unsafe { read((&raw const six).cast()) }, Err(libc::EAFNOSUPPORT));
    }
}
