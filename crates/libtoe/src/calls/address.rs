//! Socket addresses as C programs pass them.
use crate::system::errno::Result;
use crate::system::user_memory;
use context::{Endpoint, IpAddress};
use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An address that a program passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// An address of IP. IPv6 that maps an IPv4 address is that address.
    Ip(Endpoint),
    /// The unspecified IPv6 address, with a port: both families.
    V6Any(u16),
    /// `AF_UNSPEC`: a connect to it dissolves the association.
    Unspecified,
    /// Anything else: the kernel's business.
    Other,
}

/// Reads an address.
///
/// # Safety
/// `address` is what the program passed.
pub(crate) unsafe fn parse(address: *const sockaddr, len: socklen_t) -> Result<Address> {
    if address.is_null() {
        return Err(libc::EFAULT);
    }
    if !(size_of::<sa_family_t>()..=size_of::<sockaddr_storage>()).contains(&(len as usize)) {
        return Err(libc::EINVAL);
    }
    let mut bytes = [0; size_of::<sockaddr_storage>()];
    user_memory::read_bytes(address.cast(), &mut bytes[..len as usize])?;
    let address: *const sockaddr = bytes.as_ptr().cast();
    // SAFETY: each read is within the bytes and needs no alignment.
    unsafe {
        match address.cast::<sa_family_t>().read_unaligned() as i32 {
            libc::AF_UNSPEC => Ok(Address::Unspecified),
            libc::AF_INET if (len as usize) < size_of::<sockaddr_in>() => Err(libc::EINVAL),
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(Address::Ip(Endpoint::v4(ip, u16::from_be(v4.sin_port))))
            }
            // The scope id at the end may be missing (RFC 2133).
            libc::AF_INET6 if len < 24 => Err(libc::EINVAL),
            libc::AF_INET6 => {
                let port = u16::from_be(address.cast::<u8>().add(2).cast::<u16>().read_unaligned());
                let ip = Ipv6Addr::from(address.cast::<u8>().add(8).cast::<[u8; 16]>().read_unaligned());
                // An interface's index, in the byte order of this machine (RFC 3493 section 3.3).
                let scope = |at: *const sockaddr| at.cast::<u8>().add(24).cast::<u32>().read_unaligned();
                let zone = if (len as usize) < size_of::<sockaddr_in6>() { 0 } else { scope(address) };
                match ip.is_unspecified() {
                    true => Ok(Address::V6Any(port)),
                    false => Ok(Address::Ip(Endpoint::new(IpAddress::v6(ip, zone), port))),
                }
            }
            _ => Ok(Address::Other),
        }
    }
}

/// Writes an address as the program asks for it: cut off where its buffer is too short, with the true length. An IPv6
/// address that is wanted as IPv4 is the unspecified one. Nothing where `address` is null.
///
/// # Safety
/// `address` and `len` are what the program passed.
pub(crate) unsafe fn store(endpoint: Endpoint, as_v6: bool, address: *mut sockaddr, len: *mut socklen_t) -> Result<()> {
    if address.is_null() {
        return Ok(());
    }
    let mut bytes = [0u8; size_of::<sockaddr_in6>()];
    let family = if as_v6 { libc::AF_INET6 } else { libc::AF_INET } as sa_family_t;
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&endpoint.port.to_be_bytes());
    let size = if as_v6 {
        bytes[8..24].copy_from_slice(&endpoint.ip.to_bits().to_be_bytes());
        bytes[24..28].copy_from_slice(&endpoint.ip.zone().to_ne_bytes());
        size_of::<sockaddr_in6>()
    } else {
        bytes[4..8].copy_from_slice(&endpoint.ip.as_v4().unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        size_of::<sockaddr_in>()
    };
    // SAFETY: at most `*len` bytes are written, for which the program gave the place.
    unsafe {
        let room = user_memory::read(len)?;
        if room as i32 <= -1 {
            return Err(libc::EINVAL);
        }
        user_memory::write_bytes(address.cast(), &bytes[..size.min(room as usize)])?;
        user_memory::write(len, size as socklen_t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back() {
        let v4 = Endpoint::v4(Ipv4Addr::new(10, 1, 2, 3), 8080);
        let v6 = Endpoint::new("fe80::1%7".parse().expect("an address"), 443);
        for (there, as_v6) in [(v4, false), (v4, true), (v6, true)] {
            let mut space = [0u8; 28];
            let mut len = 28;
            // SAFETY: the buffer has the length given.
            let back = unsafe {
                store(there, as_v6, space.as_mut_ptr().cast(), &mut len).unwrap();
                parse(space.as_ptr().cast(), len)
            };
            assert_eq!(back, Ok(Address::Ip(there)));
        }
    }

    #[test]
    fn short_and_strange_addresses_are_refused() {
        let space = [libc::AF_INET as u8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        // SAFETY: no length goes beyond the buffer.
        unsafe {
            assert_eq!(parse(std::ptr::null(), 16), Err(libc::EFAULT));
            assert_eq!(parse(space.as_ptr().cast(), 1), Err(libc::EINVAL));
            assert_eq!(parse(space.as_ptr().cast(), 15), Err(libc::EINVAL));
            assert!(matches!(parse(space.as_ptr().cast(), 16), Ok(Address::Ip(_))));
        }
    }
}
