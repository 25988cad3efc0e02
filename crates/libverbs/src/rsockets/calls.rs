//! Sockets: made, bound, connected, accepted, ended.
use super::options;
use super::socket::{Inner, PATIENCE, Phase, Socket};
use super::table;
use crate::cm::{plain, rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_set_option, read_address};
use crate::errno::{self, Result};
use libc::{c_int, c_void, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::net::{Ipv4Addr, SocketAddrV4};

/// 0 or what a call gives; -1 with `errno` set.
pub(super) fn value(done: Result<usize>) -> isize {
    done.map_or_else(
        |number| {
            errno::set(number);
            -1
        },
        |value| value as isize,
    )
}

/// The result of a call of connection management.
fn done(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(errno::get()) }
}

/// Streams of both families, whose addresses are IPv4's.
#[unsafe(no_mangle)]
extern "C" fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let opened = match (family, kind & !flags, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            Socket::open(options::initial(family, flags & libc::SOCK_NONBLOCK != 0))
        }
        (libc::AF_INET | libc::AF_INET6, _, _) => Err(libc::EPROTONOSUPPORT),
        _ => Err(libc::EAFNOSUPPORT),
    };
    value(opened.map(|socket| table::add(socket) as usize)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rbind(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let inner = socket.lock();
        if inner.phase != Phase::Fresh {
            return Err(libc::EINVAL);
        }
        reuse(&inner)?;
        // SAFETY: the identifier is the socket's; the program passes an address.
        done(unsafe { rdma_bind_addr(inner.id, address.cast_mut()) })
    }))
}

/// Says that the address may be shared, where the program has said so.
fn reuse(inner: &Inner) -> Result<()> {
    let mut wanted = inner.options.reuse;
    let (level, name, len) = (0, 1, size_of::<c_int>());
    // SAFETY: the identifier is the socket's; a value of this size.
    done(unsafe { rdma_set_option(inner.id, level, name, (&raw mut wanted).cast::<c_void>(), len) })
}

#[unsafe(no_mangle)]
extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let mut inner = socket.lock();
        if !matches!(inner.phase, Phase::Fresh | Phase::Listening) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the identifier is the socket's.
        done(unsafe { rdma_listen(inner.id, backlog) })?;
        inner.phase = Phase::Listening;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn raccept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let accepted = table::find(fd).and_then(|listener| {
        let nonblocking = listener.lock().options.nonblocking;
        let socket = listener.accept(!nonblocking)?;
        // The new socket waits, as with the kernel's `accept`.
        socket.lock().options.nonblocking = false;
        let peer = socket.lock().address(Side::Peer)?;
        // SAFETY: the program passes a place for an address, or null.
        unsafe { peer.write(address, len) };
        Ok(table::add(socket) as usize)
    });
    value(accepted) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rconnect(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let wait = {
            let mut inner = socket.lock();
            match inner.phase {
                Phase::Fresh => {
                    // SAFETY: the program passes an address.
                    unsafe { read_address(address)? };
                    inner.phase = Phase::Connecting;
                    // SAFETY: the identifier is the socket's; the address was read just now.
                    let asked =
                        unsafe { rdma_resolve_addr(inner.id, std::ptr::null_mut(), address.cast_mut(), PATIENCE) };
                    done(asked).inspect_err(|number| inner.end(*number))?;
                }
                Phase::Connecting => return Err(libc::EALREADY),
                Phase::Connected | Phase::Accepted => return Err(libc::EISCONN),
                Phase::Listening | Phase::Dead => return Err(libc::EINVAL),
            }
            !inner.options.nonblocking
        };
        let connected = socket.until(wait, |inner| match inner.phase {
            Phase::Connecting => None,
            Phase::Connected => Some(Ok(())),
            _ => Some(Err(std::mem::take(&mut inner.error))),
        });
        connected.map_err(|number| if number == libc::EAGAIN { libc::EINPROGRESS } else { number })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| socket.shut(how)))
}

#[unsafe(no_mangle)]
extern "C" fn rclose(fd: c_int) -> c_int {
    errno::minus_one(table::remove(fd).map(|socket| socket.close()))
}

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

impl Inner {
    /// The address of a side; ENOTCONN where the peer has none.
    pub(super) fn address(&self, side: Side) -> Result<Named> {
        if self.id.is_null() {
            return Err(libc::ENOTCONN);
        }
        // SAFETY: the socket's identifier, whose addresses have the size of all families.
        let found = unsafe {
            let addresses = &raw const (*self.id).route.addr;
            match side {
                Side::Own => read_address((&raw const (*addresses).src).cast()),
                Side::Peer => read_address((&raw const (*addresses).dst).cast()),
            }
        };
        let address = match (side, found) {
            (_, Ok(address)) => address,
            (Side::Own, Err(_)) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            (Side::Peer, Err(_)) => return Err(libc::ENOTCONN),
        };
        Ok(Named { family: self.options.family, address })
    }
}

impl Named {
    /// Writes as much as the program has room for, and how long the address is.
    ///
    /// # Safety
    /// Both are null, or the place has as many bytes as the length says.
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
        // SAFETY: as the caller says; the source has `size` bytes.
        unsafe {
            from.copy_to_nonoverlapping(into.cast(), size.min(*len as usize));
            *len = size as socklen_t;
        }
    }
}

/// # Safety
/// As [`Named::write`].
unsafe fn name(fd: c_int, side: Side, into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let named = socket.lock().address(side)?;
        // SAFETY: as the caller says.
        unsafe { named.write(into, len) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetpeername(fd: c_int, into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program passes a place of so many bytes.
    unsafe { name(fd, Side::Peer, into, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockname(fd: c_int, into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as above.
    unsafe { name(fd, Side::Own, into, len) }
}
