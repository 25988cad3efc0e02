//! The kernel's half of a socket that is bound: the kernel's own addresses, and its port space.
use crate::calls::{address, binding};
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::system::errno::{self, Result};
use crate::system::real;
use context::Endpoint;
use libc::{c_int, sa_family_t, sockaddr, socklen_t};

/// Binds the kernel's half of a socket that is not bound.
///
/// # Safety
/// The program's address.
pub(super) unsafe fn bind(
    lib: &mut Guard,
    key: Key,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> Result<()> {
    if !matches!(lib.need_socket(key)?.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    lib.own_kernel_socket(key)?;
    // SAFETY: the caller's address.
    errno::check(unsafe { real::bind(fd, address, len) }).map(drop)
}

/// Ports that the kernel may choose until there is one that the host has not in use.
const TRIES: usize = 64;

/// `bind` to the unspecified address, `local` on the host. The kernel's half has the connections to the kernel's own
/// addresses, and all of IPv6 where the host does not speak it. Where the program asks for no port, the kernel chooses
/// one, so that it is free on both stacks.
///
/// # Safety
/// The program's address.
pub(super) unsafe fn bind_any(
    lib: &mut Guard,
    key: Key,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
    local: Endpoint,
) -> Result<()> {
    let chosen = local.port == 0;
    let mut result = Err(libc::EADDRINUSE);
    for _ in 0..if chosen { TRIES } else { 1 } {
        // SAFETY: the caller's address.
        unsafe { bind(lib, key, fd, address, len)? };
        let port = if chosen { port(fd) } else { local.port };
        lib.need_socket(key)?.kernel_half = true;
        result = binding::bind_to(lib, key, Endpoint { port, ..local }, chosen);
        let Err(why) = result else { break };
        lib.release_kernel_half(key);
        if why != libc::EADDRINUSE {
            break;
        }
    }
    result
}

/// A socket that listens without having been bound gets a port that is free on both stacks (RFC 6056). One that keeps
/// an address of the host is not bound here.
pub(super) fn choose_port(lib: &mut Guard, key: Key, fd: c_int) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Fresh) || socket.outcome_pending || !socket.asked_ip().is_unspecified() {
        return Ok(());
    }
    let mut any = [0u8; size_of::<libc::sockaddr_in6>()];
    let (family, len) = match socket.is_v6 {
        true => (libc::AF_INET6, size_of::<libc::sockaddr_in6>()),
        false => (libc::AF_INET, size_of::<libc::sockaddr_in>()),
    };
    any[..size_of::<sa_family_t>()].copy_from_slice(&(family as sa_family_t).to_ne_bytes());
    let local = Endpoint { ip: lib.any_address(key), port: 0 };
    // SAFETY: a local buffer of the length given.
    unsafe { bind_any(lib, key, fd, any.as_ptr().cast(), len as socklen_t, local) }
}

/// The port that the kernel chose.
pub(super) fn port(fd: c_int) -> u16 {
    let mut space = [0u8; 28];
    let mut len = space.len() as socklen_t;
    // SAFETY: a local buffer of the length given.
    unsafe { real::getsockname(fd, space.as_mut_ptr().cast(), &mut len) };
    u16::from_be_bytes([space[2], space[3]])
}

/// Binds it to an address of IPv4; whether it is bound.
pub(super) fn bind_to(fd: c_int, local: Endpoint, is_v6: bool) -> bool {
    if is_v6 {
        return false;
    }
    let mut space = [0u8; 28];
    let mut len = space.len() as socklen_t;
    // SAFETY: a local buffer of the length given.
    unsafe {
        address::store(local, false, space.as_mut_ptr().cast(), &mut len).is_ok()
            && real::bind(fd, space.as_ptr().cast(), len) == 0
    }
}
