//! Addresses as programs get them.
use crate::cm::plain;
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::net::SocketAddrV4;

/// Whose address.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Own,
    Peer,
}

/// An address, in the form of the socket's family.
pub(super) struct Named {
    family: c_int,
    address: SocketAddrV4,
}

impl Named {
    /// An address for a socket of this family.
    pub(super) fn new(family: c_int, address: SocketAddrV4) -> Named {
        Named { family, address }
    }

    /// Writes as much as the program has room for, and how long the address is.
    ///
    /// # Safety
    /// Both are null, or the place has as many bytes as the length has.
    pub(super) unsafe fn write(&self, into: *mut sockaddr, len: *mut socklen_t) {
        if into.is_null() || len.is_null() {
            return;
        }
        let four = plain(self.address);
        // SAFETY: zeros are a valid value.
        let mut six: sockaddr_in6 = unsafe { std::mem::zeroed() };
        six.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        six.sin6_port = self.address.port().to_be();
        if !self.address.ip().is_unspecified() {
            six.sin6_addr.s6_addr = self.address.ip().to_ipv6_mapped().octets();
        }
        let (from, size) = match self.family {
            libc::AF_INET6 => ((&raw const six).cast::<u8>(), size_of::<sockaddr_in6>()),
            _ => ((&raw const four).cast::<u8>(), size_of::<sockaddr_in>()),
        };
        // SAFETY: as the caller guarantees; the source has `size` bytes.
        unsafe {
            from.copy_to_nonoverlapping(into.cast(), size.min(*len as usize));
            *len = size as socklen_t;
        }
    }
}
