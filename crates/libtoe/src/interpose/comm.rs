//! `toe_comm_*` of include/toe.h. As the zero-copy functions, they are the library's own.
use super::handles::{Handle, close, events, register, text, with};
use crate::calls::comm::{Comm, CommEvent};
use crate::system::errno::{give, set};
use context::comm::{Carries, Order, Piece};
use libc::{c_char, c_int, c_void, size_t, sockaddr_in};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::IntoRawFd;
use std::sync::Mutex;

/// `toe_comm_open`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_open(host: *const c_char) -> *mut Handle<Comm> {
    // SAFETY: null, or a string of the caller's.
    match Comm::open(unsafe { text(host) }) {
        Ok(comm) => Box::into_raw(Box::new(Mutex::new(comm))),
        Err(errno) => {
            set(errno);
            std::ptr::null_mut()
        }
    }
}

/// `toe_comm_close`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_close(comm: *mut Handle<Comm>) {
    // SAFETY: from toe_comm_open, and not used any more, as its description asks.
    unsafe { close(comm) }
}

/// `toe_comm_fd`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_fd(comm: *mut Handle<Comm>) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(comm, |comm| Ok(comm.fd())) })
}

/// `toe_comm_register`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_register(
    comm: *mut Handle<Comm>,
    at: *mut c_void,
    len: size_t,
    key: *mut u32,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { register(comm, at, key, |comm, address| comm.register(address, len as u64)) }
}

/// `toe_comm_device`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_device(comm: *mut Handle<Comm>, device: *mut u32, queue: *mut c_int) -> c_int {
    if device.is_null() || queue.is_null() {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller's.
    give(unsafe { with(comm, Comm::device) }.map(|(number, socket)| {
        // SAFETY: not null, and the caller's.
        unsafe {
            device.write(number);
            queue.write(socket.into_raw_fd());
        }
        0
    }))
}

/// `toe_comm_register_device`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_register_device(
    comm: *mut Handle<Comm>,
    device: u32,
    address: u64,
    len: size_t,
    key: *mut u32,
) -> c_int {
    if key.is_null() {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller's.
    let registered = unsafe { with(comm, |comm| comm.register_device(device, address, len as u64)) };
    give(registered.map(|registered| {
        // SAFETY: not null, and the caller's.
        unsafe { key.write(registered) };
        0
    }))
}

/// `toe_comm_deregister`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_deregister(comm: *mut Handle<Comm>, key: u32) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(comm, |comm| comm.deregister(key)) }.map(|()| 0))
}

/// `toe_comm_connect`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_connect(comm: *mut Handle<Comm>, to: *const sockaddr_in, id: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { connect(comm, to, Carries::Stream, id) }
}

/// `toe_comm_connect_messages`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_connect_messages(
    comm: *mut Handle<Comm>,
    to: *const sockaddr_in,
    id: u64,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { connect(comm, to, Carries::Messages, id) }
}

/// `toe_comm_connect_datagrams`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_connect_datagrams(
    comm: *mut Handle<Comm>,
    port: u16,
    to: *const sockaddr_in,
    id: u64,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { open(comm, to, id, |to| Order::Datagrams(port, to)) }
}

/// # Safety
/// As [`open`].
unsafe fn connect(comm: *mut Handle<Comm>, to: *const sockaddr_in, carries: Carries, id: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { open(comm, to, id, |to| Order::Connect(to, carries)) }
}

/// # Safety
/// `to` is null or an address; `comm` as in [`with`].
unsafe fn open(
    comm: *mut Handle<Comm>,
    to: *const sockaddr_in,
    id: u64,
    order: impl FnOnce(SocketAddrV4) -> Order,
) -> c_int {
    if to.is_null() {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller's address.
    let to = unsafe { to.read_unaligned() };
    if c_int::from(to.sin_family) != libc::AF_INET {
        return give(Err(libc::EAFNOSUPPORT));
    }
    let address = Ipv4Addr::from(to.sin_addr.s_addr.to_ne_bytes());
    let order = order(SocketAddrV4::new(address, u16::from_be(to.sin_port)));
    // SAFETY: the caller's.
    unsafe { post(comm, id, 0, order) }
}

/// `toe_comm_listen`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_listen(comm: *mut Handle<Comm>, port: u16, id: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(comm, id, 0, Order::Listen(port, Carries::Stream)) }
}

/// `toe_comm_listen_messages`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_listen_messages(comm: *mut Handle<Comm>, port: u16, id: u64) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(comm, id, 0, Order::Listen(port, Carries::Messages)) }
}

/// `toe_comm_send`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_send(
    comm: *mut Handle<Comm>,
    connection: u32,
    key: u32,
    offset: u64,
    len: size_t,
    id: u64,
) -> c_int {
    let piece = Piece { key, offset, len: len as u64 };
    // SAFETY: the caller's.
    unsafe { post(comm, id, connection, Order::Send(piece)) }
}

/// `toe_comm_recv`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_recv(
    comm: *mut Handle<Comm>,
    connection: u32,
    key: u32,
    offset: u64,
    len: size_t,
    id: u64,
) -> c_int {
    let piece = Piece { key, offset, len: len as u64 };
    // SAFETY: the caller's.
    unsafe { post(comm, id, connection, Order::Receive(piece)) }
}

/// `toe_comm_end`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_end(comm: *mut Handle<Comm>, connection: u32) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(comm, 0, connection, Order::End) }
}

/// `toe_comm_drop`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_drop(comm: *mut Handle<Comm>, connection: u32) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(comm, 0, connection, Order::Close) }
}

/// `toe_comm_poll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_poll(comm: *mut Handle<Comm>, list: *mut CommEvent, most: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { events(comm, list, most, |comm, list| Ok(comm.take(list))) }
}

/// `toe_comm_wait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_comm_wait(
    comm: *mut Handle<Comm>,
    list: *mut CommEvent,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { events(comm, list, most, |comm, list| comm.wait(list, timeout)) }
}

/// # Safety
/// As [`with`].
unsafe fn post(comm: *mut Handle<Comm>, id: u64, connection: u32, order: Order) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(comm, |comm| comm.post(id, connection, order)) }.map(|()| 0))
}
