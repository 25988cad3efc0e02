//! Sockets: made, bound, connected, accepted, ended.
use super::datagrams::Datagrams;
use super::named::Side;
use super::settings;
use super::socket::{Inner, Phase, Socket, TIMEOUT};
use super::table::{self, Rsocket};
use crate::cm::{rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_set_option, read_address};
use crate::errno::{self, Result};
use libc::{c_int, c_void, sockaddr, socklen_t};
use std::net::SocketAddrV4;

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

/// Streams and datagrams of both families, whose addresses are IPv4's.
#[unsafe(no_mangle)]
extern "C" fn rsocket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let mut options = settings::initial(family, kind & !flags);
    options.nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let opened = match (family, options.kind, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            Socket::open(options).map(Rsocket::Stream)
        }
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            Datagrams::open(options).map(Rsocket::Datagrams)
        }
        (libc::AF_INET | libc::AF_INET6, _, _) => Err(libc::EPROTONOSUPPORT),
        _ => Err(libc::EAFNOSUPPORT),
    };
    value(opened.map(|socket| table::add(socket) as usize)) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rbind(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let socket = match socket {
            Rsocket::Stream(socket) => socket,
            // SAFETY: the program passes an address.
            Rsocket::Datagrams(socket) => return socket.bind(unsafe { read_address(address)? }),
        };
        let inner = socket.lock();
        if inner.phase != Phase::Fresh {
            return Err(libc::EINVAL);
        }
        reuse(&inner)?;
        // SAFETY: the identifier is the socket's; the program passes an address.
        done(unsafe { rdma_bind_addr(inner.id, address.cast_mut()) })
    }))
}

/// Sets that the address may be shared, where the program has set it.
fn reuse(inner: &Inner) -> Result<()> {
    let mut wanted = inner.options.reuse;
    let (level, name, len) = (0, 1, size_of::<c_int>());
    // SAFETY: the identifier is the socket's; a value of this size.
    done(unsafe { rdma_set_option(inner.id, level, name, (&raw mut wanted).cast::<c_void>(), len) })
}

#[unsafe(no_mangle)]
extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    errno::minus_one(table::find_stream(fd).and_then(|socket| {
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
    let accepted = table::find_stream(fd).and_then(|listener| {
        let nonblocking = listener.lock().options.nonblocking;
        let socket = listener.accept(!nonblocking)?;
        // The new socket waits, as with the kernel's `accept`.
        socket.lock().options.nonblocking = false;
        let socket = Rsocket::Stream(socket);
        let peer = socket.with(|state| state.address(Side::Peer))?;
        // SAFETY: the program passes a place for an address, or null.
        unsafe { peer.write(address, len) };
        Ok(table::add(socket) as usize)
    });
    value(accepted) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rconnect(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    // SAFETY: the program passes an address.
    errno::minus_one(table::find(fd).and_then(|socket| unsafe {
        match socket {
            Rsocket::Stream(socket) => connect(&socket, address),
            Rsocket::Datagrams(socket) => socket.connect(peer(address)?),
        }
    }))
}

/// The address that datagrams go to by themselves; none of the family "unspecified".
///
/// # Safety
/// The pointer is that of an address, or null.
unsafe fn peer(address: *const sockaddr) -> Result<Option<SocketAddrV4>> {
    // SAFETY: as the caller guarantees; addresses of programs need not be aligned.
    unsafe {
        if !address.is_null() && (&raw const (*address).sa_family).read_unaligned() == libc::AF_UNSPEC as u16 {
            return Ok(None);
        }
        read_address(address).map(Some)
    }
}

/// # Safety
/// The pointer is that of an address, or null.
unsafe fn connect(socket: &Socket, address: *const sockaddr) -> Result<()> {
    let wait = {
        let mut inner = socket.lock();
        match inner.phase {
            Phase::Fresh => {
                // SAFETY: as the caller guarantees.
                unsafe { read_address(address)? };
                inner.phase = Phase::Connecting;
                // SAFETY: the identifier is the socket's; the address was read just now.
                let asked = unsafe { rdma_resolve_addr(inner.id, std::ptr::null_mut(), address.cast_mut(), TIMEOUT) };
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
}

#[unsafe(no_mangle)]
extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| match socket {
        Rsocket::Stream(socket) => socket.shut(how),
        Rsocket::Datagrams(socket) => socket.shut(how),
    }))
}

#[unsafe(no_mangle)]
extern "C" fn rclose(fd: c_int) -> c_int {
    errno::minus_one(table::remove(fd).map(|socket| match socket {
        Rsocket::Stream(socket) => socket.close(),
        Rsocket::Datagrams(socket) => socket.close(),
    }))
}

/// # Safety
/// As [`Named::write`].
unsafe fn name(fd: c_int, side: Side, into: *mut sockaddr, len: *mut socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let named = socket.with(|state| state.address(side))?;
        // SAFETY: as the caller guarantees.
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
