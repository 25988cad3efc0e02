//! The runner's memory: addresses, bytes and vectors, copied in and out.
use crate::sockets::Errno;
use libc::{
    EFAULT, EINVAL, c_int, c_void, cmsghdr, iovec, msghdr, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, socklen_t,
    ssize_t,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{Endpoint, IpAddress};

/// # Safety
/// `address` is null or points to `len` bytes.
pub(crate) unsafe fn address(address: *const sockaddr, len: socklen_t) -> Result<Endpoint, Errno> {
    if address.is_null() {
        return Err(EFAULT);
    }
    let len = len as usize;
    if len < size_of::<sa_family_t>() {
        return Err(EINVAL);
    }
    // SAFETY: it is long enough for a family.
    match c_int::from(unsafe { address.cast::<sa_family_t>().read_unaligned() }) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: it has the length of a `sockaddr_in`; any bytes are one.
            let address = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Ok(Endpoint::v4(ip, u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: it has the length of a `sockaddr_in6`; any bytes are one.
            let address = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = IpAddress::v6(Ipv6Addr::from(address.sin6_addr.s6_addr), address.sin6_scope_id);
            Ok(Endpoint::new(ip, u16::from_be(address.sin6_port)))
        }
        libc::AF_INET | libc::AF_INET6 => Err(EINVAL),
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// Where a call sends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To the socket's peer: no address was given, or none that matters.
    Peer,
    /// `AF_UNSPEC`.
    Unspecified,
    /// To this address.
    To(Endpoint),
}

/// # Safety
/// As for [`address`].
pub(crate) unsafe fn destination(to: *const sockaddr, len: socklen_t) -> Destination {
    let has_family = !to.is_null() && len as usize >= size_of::<sa_family_t>();
    // SAFETY: it is long enough for a family.
    if has_family && c_int::from(unsafe { to.cast::<sa_family_t>().read_unaligned() }) == libc::AF_UNSPEC {
        return Destination::Unspecified;
    }
    // SAFETY: the caller guarantees it.
    unsafe { address(to, len) }.map_or(Destination::Peer, Destination::To)
}

/// Sockets of IPv6 have peers of IPv4 as mapped addresses.
///
/// # Safety
/// Both are null, or `to` has room for the number of bytes at `len`.
pub(crate) unsafe fn give_address(peer: Endpoint, is_v6: bool, to: *mut sockaddr, len: *mut socklen_t) {
    if to.is_null() || len.is_null() {
        return;
    }
    match peer.ip.ip() {
        IpAddr::V4(ip) if !is_v6 => {
            let address = sockaddr_in {
                sin_family: libc::AF_INET as sa_family_t,
                sin_port: peer.port.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the caller's room.
            unsafe { give(&address, to, len) }
        }
        ip => {
            let ip = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let address = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as sa_family_t,
                sin6_port: peer.port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: peer.ip.zone(),
            };
            // SAFETY: the caller's room.
            unsafe { give(&address, to, len) }
        }
    }
}

/// # Safety
/// `to` has room for the number of bytes at `len`.
unsafe fn give<T>(address: &T, to: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: not more bytes are written than the caller has room for.
    unsafe {
        let part = size_of::<T>().min(*len as usize);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(address).cast::<u8>(), to.cast::<u8>(), part);
        *len = size_of::<T>() as socklen_t;
    }
}

/// # Safety
/// `from` points to `len` bytes, or is null and `len` 0.
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize) -> &'a [u8] {
    if from.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(from.cast(), len) }
}

/// Bytes to send: `EFAULT` where there are none at the address.
///
/// # Safety
/// `from` points to `len` bytes, or is null.
pub(crate) unsafe fn readable<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    // SAFETY: the caller guarantees it.
    if from.is_null() && len > 0 { Err(EFAULT) } else { Ok(unsafe { bytes(from, len) }) }
}

/// Each part is somewhere: `EFAULT` otherwise.
pub(crate) fn check(parts: &[iovec]) -> Result<(), Errno> {
    let nowhere = parts.iter().any(|part| part.iov_base.is_null() && part.iov_len > 0);
    if nowhere { Err(EFAULT) } else { Ok(()) }
}

/// The parts of a message.
///
/// # Safety
/// `parts` points to `count` parts.
pub(crate) unsafe fn parts<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if parts.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

/// # Safety
/// Each part points to as many bytes as it states, or is null.
pub(crate) unsafe fn gather(parts: &[iovec]) -> Result<Vec<u8>, Errno> {
    check(parts)?;
    // SAFETY: the caller guarantees it.
    Ok(parts.iter().flat_map(|part| unsafe { bytes(part.iov_base, part.iov_len) }).copied().collect())
}

/// # Safety
/// Each part has room for as many bytes as it states.
pub(crate) unsafe fn scatter(parts: &[iovec], received: &[u8]) {
    let mut left = received;
    for part in parts {
        let (now, later) = left.split_at(left.len().min(part.iov_len));
        // SAFETY: not more than the part has room for.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len()) };
        left = later;
    }
}

/// The value of a socket option, cut to the room that there is.
///
/// # Safety
/// One of both is null, or `to` has room for the number of bytes at `len`.
pub(crate) unsafe fn give_value(value: &[u8], to: *mut c_void, len: *mut socklen_t) -> Result<(), Errno> {
    if to.is_null() || len.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: not more bytes are written than the caller has room for.
    unsafe {
        let part = value.len().min(*len as usize);
        std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast(), part);
        *len = part as socklen_t;
    }
    Ok(())
}

/// An ancillary message: level, type and data.
pub(crate) struct Control {
    pub level: c_int,
    pub kind: c_int,
    pub data: Vec<u8>,
}

/// Gives the message's ancillary data this one message, or none; `MSG_CTRUNC` where there is no room.
///
/// # Safety
/// `msg_control` is null or has room for `msg_controllen` bytes.
pub(crate) unsafe fn give_control(control: Option<Control>, message: &mut msghdr) {
    let room = std::mem::take(&mut message.msg_controllen);
    let Some(Control { level, kind, data }) = control else { return };
    // SAFETY: these only calculate.
    let (len, space) = unsafe { (libc::CMSG_LEN(data.len() as u32), libc::CMSG_SPACE(data.len() as u32)) };
    if message.msg_control.is_null() || room < len as usize {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    let header = cmsghdr { cmsg_len: len as usize, cmsg_level: level, cmsg_type: kind };
    let to = message.msg_control.cast::<cmsghdr>();
    // SAFETY: the header and the data have room, as was just compared.
    unsafe {
        to.write_unaligned(header);
        std::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(to), data.len());
    }
    message.msg_controllen = room.min(space as usize);
}

/// The result as C has it.
pub(crate) fn answer<T: TryInto<ssize_t>>(result: Result<T, Errno>) -> ssize_t {
    let value = result.and_then(|value| value.try_into().map_err(|_| EINVAL));
    value.unwrap_or_else(|error| {
        // SAFETY: the address of this thread's errno is always valid.
        unsafe { *libc::__errno_location() = error };
        -1
    })
}

pub(crate) fn answer_int(result: Result<c_int, Errno>) -> c_int {
    answer(result.map(|value| value as ssize_t)) as c_int
}

pub(crate) fn done(result: Result<(), Errno>) -> c_int {
    answer_int(result.map(|()| 0))
}
