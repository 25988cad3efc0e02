//! The kernel's half of a socket that is bound: the kernel's own addresses, and its port space.
use crate::calls::address;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::system::errno::{self, Result};
use crate::system::real;
use context::Endpoint;
use libc::{c_int, sockaddr, socklen_t};

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
