//! Lists of interfaces and addresses over netlink (rtnetlink(7)): Go, iproute2 and the C library itself ask so.
//!
//! A program that asks for a whole list gets one message of this library's first, with the host's interfaces, and then
//! the kernel's. Both belong to one answer of several parts, which only the kernel's last part ends.
use super::{Shape, Shown};
use crate::lock;
use crate::system::{real, user_memory};
use crate::table::{self, Entry};
use libc::{c_int, iovec, msghdr, nlmsghdr, sockaddr_nl, ssize_t};
use std::os::fd::RawFd;

const HEADER: usize = size_of::<nlmsghdr>();
/// rtnetlink(7): kinds of attributes of interfaces and of addresses.
const IFLA_OPERSTATE: u16 = 16;
const IFLA_TXQLEN: u16 = 13;
const IFLA_QDISC: u16 = 6;
/// `IF_OPER_UP` (RFC 2863).
const UP: u8 = 6;

/// A socket was made; one of netlink's for routes is remembered.
pub(crate) fn made(fd: RawFd, domain: c_int, protocol: c_int) -> RawFd {
    if domain == libc::AF_NETLINK && protocol == libc::NETLINK_ROUTE && fd >= 0 && crate::daemon::attach::is_enabled() {
        table::set(fd, Entry::Netlink);
    }
    fd
}

#[inline]
fn is_netlink(fd: RawFd) -> bool {
    matches!(table::get(fd), Entry::Netlink)
}

/// The socket is closed.
pub(crate) fn forget(fd: RawFd) {
    table::clear(fd);
    if let Ok(mut lib) = lock::lock() {
        lib.lists.forget(fd);
    }
}

/// Sends by `kernel` on a socket that is not ours; what is asked for in `from` is answered by this library as well.
///
/// # Safety
/// The buffers are valid.
#[inline]
pub(crate) unsafe fn sending(fd: RawFd, from: &[iovec], kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    let sent = kernel();
    if is_netlink(fd) && sent >= HEADER as ssize_t {
        // SAFETY: the kernel has read them.
        unsafe { note(fd, from) };
    }
    sent
}

/// The same for a message.
///
/// # Safety
/// The program's message.
#[inline]
pub(crate) unsafe fn sending_message(fd: RawFd, message: *const msghdr, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    let sent = kernel();
    // SAFETY: the kernel has read it.
    if let Some(message) = unsafe { message.as_ref() }.filter(|_| is_netlink(fd) && sent >= HEADER as ssize_t) {
        // SAFETY: as above: it has bytes, so it has buffers.
        unsafe { note(fd, std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen)) };
    }
    sent
}

/// Remembers the answer to a request.
unsafe fn note(fd: RawFd, from: &[iovec]) {
    let Some(first) = from.iter().find(|piece| piece.iov_len > 0).filter(|piece| piece.iov_len > HEADER) else {
        return;
    };
    // SAFETY: the caller's buffer has a header and one byte more.
    let (header, family) = unsafe {
        let header: nlmsghdr = first.iov_base.cast::<nlmsghdr>().read_unaligned();
        (header, first.iov_base.cast::<u8>().add(HEADER).read())
    };
    let is_list = header.nlmsg_flags & libc::NLM_F_DUMP as u16 == libc::NLM_F_DUMP as u16;
    let (links, addresses) = (header.nlmsg_type == libc::RTM_GETLINK, header.nlmsg_type == libc::RTM_GETADDR);
    if !is_list || !(links || addresses) || !is_of_routes(fd) {
        return;
    }
    let to = Asked { sequence: header.nlmsg_seq, port: port_of(fd), family: c_int::from(family) };
    let shown = super::all();
    let list: Vec<u8> = match links {
        true => shown.iter().flat_map(|shown| link(shown, &to)).collect(),
        false => shown.iter().flat_map(|shown| all_addresses(shown, &to)).collect(),
    };
    if let (Ok(mut lib), false) = (lock::lock(), list.is_empty()) {
        lib.lists.push(fd, list);
    }
}

/// Who asked, and for what.
struct Asked {
    sequence: u32,
    port: u32,
    family: c_int,
}

/// The number may be another socket's by now, where it was closed without the library's knowledge.
fn is_of_routes(fd: RawFd) -> bool {
    let option = |name| {
        let (mut value, mut len): (c_int, u32) = (-1, size_of::<c_int>() as u32);
        // SAFETY: a local with its length.
        unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &mut len) };
        value
    };
    option(libc::SO_DOMAIN) == libc::AF_NETLINK && option(libc::SO_PROTOCOL) == libc::NETLINK_ROUTE
}

/// The socket's own netlink address.
fn port_of(fd: RawFd) -> u32 {
    // SAFETY: zeros are a valid address; a local with its length.
    unsafe {
        let mut own: sockaddr_nl = std::mem::zeroed();
        let mut len = size_of::<sockaddr_nl>() as u32;
        real::getsockname(fd, (&raw mut own).cast(), &mut len);
        own.nl_pid
    }
}

/// One part of an answer.
fn message(kind: u16, to: &Asked, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut all = vec![0; HEADER];
    all.extend(fixed);
    for (kind, value) in attributes {
        let len = 4 + value.len();
        all.extend((len as u16).to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(*value);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    let len = all.len() as u32;
    all[..4].copy_from_slice(&len.to_ne_bytes());
    all[4..6].copy_from_slice(&kind.to_ne_bytes());
    all[6..8].copy_from_slice(&(libc::NLM_F_MULTI as u16).to_ne_bytes());
    all[8..12].copy_from_slice(&to.sequence.to_ne_bytes());
    all[12..16].copy_from_slice(&to.port.to_ne_bytes());
    all
}

/// `RTM_NEWLINK`.
fn link(shown: &Shown, to: &Asked) -> Vec<u8> {
    // Other families' requests for interfaces get all of them; a bridge's ports are another list.
    if to.family == libc::AF_BRIDGE {
        return Vec::new();
    }
    // struct ifinfomsg: family, a gap, type, index, flags, mask of changes.
    let mut fixed = vec![libc::AF_UNSPEC as u8, 0];
    fixed.extend(libc::ARPHRD_ETHER.to_ne_bytes());
    fixed.extend(shown.index.to_ne_bytes());
    fixed.extend(super::FLAGS.to_ne_bytes());
    fixed.extend([0; 4]);
    let name = [shown.short_name(), &[0]].concat();
    let attributes: [(u16, &[u8]); 7] = [
        (libc::IFLA_IFNAME, &name),
        (IFLA_TXQLEN, &1000u32.to_ne_bytes()),
        (IFLA_OPERSTATE, &[UP]),
        (libc::IFLA_MTU, &u32::from(shown.port.mtu).to_ne_bytes()),
        (IFLA_QDISC, b"noqueue\0"),
        (libc::IFLA_ADDRESS, &shown.port.mac),
        (libc::IFLA_BROADCAST, &[0xff; 6]),
    ];
    message(libc::RTM_NEWLINK, to, &fixed, &attributes)
}

/// `RTM_NEWADDR`, for each of its addresses.
fn all_addresses(shown: &Shown, to: &Asked) -> Vec<u8> {
    shown.networks().flat_map(|network| address(shown, &network, to)).collect()
}

fn address(shown: &Shown, network: &Shape, to: &Asked) -> Vec<u8> {
    let Shape { address: own, prefix_len, broadcast, .. } = *network;
    let family = if own.is_v4() { libc::AF_INET } else { libc::AF_INET6 };
    if ![libc::AF_UNSPEC, family].contains(&to.family) {
        return Vec::new();
    }
    // struct ifaddrmsg: family, length, flags, scope (everywhere), index.
    let permanent = libc::IFA_F_PERMANENT;
    let mut fixed = vec![family as u8, prefix_len, permanent as u8, 0];
    fixed.extend(shown.index.to_ne_bytes());
    let bytes = |ip: context::IpAddress| match ip.as_v4() {
        Some(v4) => v4.octets().to_vec(),
        None => ip.to_bits().to_be_bytes().to_vec(),
    };
    let (own, broadcast, label) =
        (bytes(own), broadcast.map(bytes).unwrap_or_default(), [shown.short_name(), &[0]].concat());
    let flags = permanent.to_ne_bytes();
    let all: [(u16, &[u8]); 5] = [
        (libc::IFA_ADDRESS, &own),
        (libc::IFA_FLAGS, &flags),
        (libc::IFA_LOCAL, &own),
        (libc::IFA_BROADCAST, &broadcast),
        (libc::IFA_LABEL, &label),
    ];
    // Local and broadcast addresses and labels are IPv4's.
    let attributes = if family == libc::AF_INET { &all[..] } else { &all[..2] };
    message(libc::RTM_NEWADDR, to, &fixed, attributes)
}

/// What a program receives from this library on a socket that is not ours, with the message's flags; `None` where it
/// receives from the kernel.
///
/// # Safety
/// The buffers are valid.
#[inline]
pub(crate) unsafe fn receive(fd: RawFd, into: &[iovec], flags: c_int) -> Option<(ssize_t, c_int)> {
    // SAFETY: the caller's buffers.
    if is_netlink(fd) { unsafe { take(fd, into, flags) } } else { None }
}

unsafe fn take(fd: RawFd, into: &[iovec], flags: c_int) -> Option<(ssize_t, c_int)> {
    let mut lib = lock::lock().ok()?;
    let list = lib.lists.first(fd)?;
    let mut done = 0;
    for piece in into {
        let len = piece.iov_len.min(list.len() - done);
        // SAFETY: the program's buffer, for as many bytes at least.
        if unsafe { user_memory::write_bytes(piece.iov_base.cast(), &list[done..done + len]) }.is_err() {
            return Some((crate::system::errno::give(Err(libc::EFAULT)), 0));
        }
        done += len;
    }
    let all = list.len();
    let cut = if done < all { libc::MSG_TRUNC } else { 0 };
    let reported = if flags & libc::MSG_TRUNC != 0 { all } else { done };
    if flags & libc::MSG_PEEK == 0 {
        lib.lists.take(fd);
    }
    Some((reported as ssize_t, cut))
}

/// `recvmsg` on a socket that is not ours.
///
/// # Safety
/// The program's message.
pub(crate) unsafe fn receive_message(fd: RawFd, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    if !is_netlink(fd) {
        return None;
    }
    // SAFETY: the program's message.
    unsafe {
        // Where an address is bad, the kernel reports it.
        let given = user_memory::read(message).ok().filter(|_| user_memory::can_write(message, size_of::<msghdr>()))?;
        let into: &[iovec] = match given.msg_iovlen {
            0 => &[],
            count if count > 1024 || !user_memory::can_read(given.msg_iov, count * size_of::<iovec>()) => return None,
            count => std::slice::from_raw_parts(given.msg_iov, count),
        };
        let (got, cut) = take(fd, into, flags)?;
        let message = &mut *message;
        message.msg_flags = cut;
        message.msg_controllen = 0;
        from_kernel(message.msg_name.cast(), &raw mut message.msg_namelen);
        Some(got)
    }
}

/// The sender's address: the kernel's, which is 0.
///
/// # Safety
/// What the program gave.
pub(crate) unsafe fn from_kernel(place: *mut u8, len: *mut u32) {
    // SAFETY: zeros are a valid address.
    let mut kernel: sockaddr_nl = unsafe { std::mem::zeroed() };
    kernel.nl_family = libc::AF_NETLINK as u16;
    let all = size_of::<sockaddr_nl>();
    if place.is_null() {
        return;
    }
    // SAFETY: the program's place, as far as it reaches; the address is plain bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts((&raw const kernel).cast::<u8>(), all);
        if let Ok(room) = user_memory::read(len) {
            // What has arrived stays so.
            let _ = user_memory::write_bytes(place, &bytes[..all.min(room as usize)]);
            let _ = user_memory::write(len, all as u32);
        }
    }
}
