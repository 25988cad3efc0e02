//! C entry points of reading and writing: `read`, `recv`, `write`, `send` and their variants.
use super::sockets::{decide_connect, ours, route};
use crate::calls::pieces::{self, List};
use crate::calls::{address, data, data_fast_path};
use crate::daemon::share;
use crate::interfaces::netlink;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::system::errno::{self, Result, give};
use crate::system::{real, user_memory};
use libc::{c_int, c_void, iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};

fn one(buffer: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast_mut(), iov_len: len }]
}

/// A program's list of buffers.
pub(super) unsafe fn buffers<'a>(iov: *const iovec, count: c_int) -> Result<&'a [iovec]> {
    if !(0..=1024).contains(&count) {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if !user_memory::can_read(iov, count as usize * size_of::<iovec>()) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's list.
    Ok(unsafe { std::slice::from_raw_parts(iov, count as usize) })
}

/// `readv` and `writev`: no bytes at all are moved whatever the state, as in the kernel.
unsafe fn several(
    iov: *const iovec,
    count: c_int,
    mut move_bytes: impl FnMut(&[iovec]) -> Result<ssize_t>,
) -> Result<ssize_t> {
    // SAFETY: the caller's list.
    let list = unsafe { buffers(iov, count)? };
    if data::total(list) == 0 { Ok(0) } else { move_bytes(list) }
}

/// Receives on a descriptor that is not ours.
unsafe fn taken(fd: c_int, into: &[iovec], flags: c_int, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
    // SAFETY: the caller's buffers.
    unsafe { netlink::receive(fd, into, flags) }.map_or_else(kernel, |(got, _)| got)
}

/// Receives on a socket of ours.
pub(super) unsafe fn receive(lib: &mut Guard, key: Key, into: &[iovec], flags: c_int) -> Result<ssize_t> {
    // SAFETY: the caller's buffers.
    unsafe { data::receive(lib, key, into, flags) }.map(|len| len as ssize_t)
}

/// Sends on a socket of ours. `SIGPIPE` follows outside of the lock.
pub(super) unsafe fn transmit(lib: &mut Guard, key: Key, from: &[iovec], flags: c_int) -> Result<ssize_t> {
    // SAFETY: the caller's buffers.
    let sent = unsafe { data::transmit(lib, key, from, flags) }.map(|len| len as ssize_t);
    if sent == Err(libc::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: raises a signal in this thread, as the kernel would.
        lib.unlocked(|| unsafe { libc::raise(libc::SIGPIPE) });
    }
    sent
}

/// Returns what the common case gives, where it is one.
macro_rules! quick {
    ($fast:expr) => {
        // SAFETY: the caller's buffers.
        if let Some(done) = unsafe { $fast } {
            return done;
        }
    };
}
pub(super) use quick;

/// `read`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    quick!(data_fast_path::receive(fd, pieces::one(buffer, count), 0));
    // SAFETY: as this function.
    unsafe { any_read(fd, buffer, count) }
}

#[inline(never)]
unsafe fn any_read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    route!(
        fd,
        // A read of nothing gives nothing, whatever the state.
        |lib, key| if count == 0 { Ok(0) } else { receive(lib, key, &one(buffer, count), 0) },
        taken(fd, &one(buffer, count), 0, || real::read(fd, buffer, count))
    )
}

/// `write`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    quick!(data_fast_path::transmit(fd, pieces::one(buffer, count), 0));
    // SAFETY: as this function.
    unsafe { any_write(fd, buffer, count) }
}

#[inline(never)]
unsafe fn any_write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    route!(
        fd,
        |lib, key| transmit(lib, key, &one(buffer, count), 0),
        netlink::sending(fd, &one(buffer, count), || real::write(fd, buffer, count))
    )
}

/// `readv`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    quick!(buffers(iov, count).ok().and_then(|into| data_fast_path::receive(fd, into.iter().copied(), 0)));
    // SAFETY: as this function.
    unsafe { any_readv(fd, iov, count) }
}

#[inline(never)]
unsafe fn any_readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    route!(fd, |lib, key| several(iov, count, |list| receive(lib, key, list, 0)), real::readv(fd, iov, count))
}

/// `writev`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    quick!(List::new(iov, count as usize).and_then(|from| data_fast_path::transmit(fd, from, 0)));
    // SAFETY: as this function.
    unsafe { any_writev(fd, iov, count) }
}

#[inline(never)]
unsafe fn any_writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    route!(fd, |lib, key| several(iov, count, |list| transmit(lib, key, list, 0)), real::writev(fd, iov, count))
}

/// `recv`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    quick!(data_fast_path::receive(fd, pieces::one(buffer, len), flags));
    // SAFETY: as this function.
    unsafe { any_recv(fd, buffer, len, flags) }
}

#[inline(never)]
unsafe fn any_recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    route!(
        fd,
        |lib, key| receive(lib, key, &one(buffer, len), flags),
        taken(fd, &one(buffer, len), flags, || real::recv(fd, buffer, len, flags))
    )
}

/// `send`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    quick!(data_fast_path::transmit(fd, pieces::one(buffer, len), flags));
    // SAFETY: as this function.
    unsafe { any_send(fd, buffer, len, flags) }
}

#[inline(never)]
unsafe fn any_send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    route!(
        fd,
        |lib, key| transmit(lib, key, &one(buffer, len), flags),
        netlink::sending(fd, &one(buffer, len), || real::send(fd, buffer, len, flags))
    )
}

/// `recvfrom`. A stream names no sender.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    route!(
        fd,
        |lib, key| {
            let got = receive(lib, key, &one(buffer, len), flags)?;
            if !address.is_null() {
                user_memory::write(address_len, 0)?;
            }
            Ok(got)
        },
        match netlink::receive(fd, &one(buffer, len), flags) {
            Some((got, _)) => {
                netlink::from_kernel(address.cast(), address_len);
                got
            }
            None => real::recvfrom(fd, buffer, len, flags, address, address_len),
        }
    )
}

/// `sendto`. The address matters only with `MSG_FASTOPEN`, which connects first.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 && !address.is_null() {
        // SAFETY: the caller's pointers.
        if let Some(errno) = unsafe { connect_first(fd, address, address_len) } {
            return give(Err(errno));
        }
    }
    let plain = flags & !libc::MSG_FASTOPEN;
    route!(
        fd,
        |lib, key| transmit(lib, key, &one(buffer, len), plain),
        netlink::sending(fd, &one(buffer, len), || real::sendto(fd, buffer, len, flags, address, address_len))
    )
}

/// Connects a socket of ours; the error that ends the call, if there is one.
pub(super) unsafe fn connect_first(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let (mut lib, key) = ours(fd).ok()??;
    // SAFETY: the caller's pointers.
    let to = unsafe { address::parse(address, len) };
    if to == Ok(address::Address::Unspecified) {
        return Some(libc::EOPNOTSUPP);
    }
    // What follows is a write: with TCP_FASTOPEN_CONNECT, the same would come of it.
    let before = lib.socket(key).map(|socket| std::mem::replace(&mut socket.options.fast_open.connect, true));
    let connected = to.and_then(|to| decide_connect(&mut lib, key, to));
    if let (Some(before), Some(socket)) = (before, lib.socket(key)) {
        socket.options.fast_open.connect = before;
    }
    connected.err().filter(|errno| *errno != libc::EISCONN)
}

/// `sendfile`: from a file directly into the connection's buffer.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    if matches!(ours(input), Ok(Some(_))) {
        errno::set(libc::EINVAL);
        return -1;
    }
    route!(
        out,
        |lib, key| if is_seekable(input) { send_file(lib, key, input, offset, count) } else { Err(libc::EINVAL) },
        real::sendfile(out, input, offset, count)
    )
}

/// As Linux demands it of what is sent, or bytes of a pipe could get lost: programs copy then.
fn is_seekable(file: c_int) -> bool {
    // SAFETY: a plain call. A descriptor that is none gives EBADF where it is read.
    unsafe { libc::lseek(file, 0, libc::SEEK_CUR) >= 0 || errno::get() != libc::ESPIPE }
}

/// `sendfile64`: the same on 64-bit machines.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's pointers, passed on.
    unsafe { sendfile(out, input, offset, count) }
}

pub(super) unsafe fn send_file(
    lib: &mut Guard,
    key: Key,
    input: c_int,
    offset: *mut off_t,
    count: size_t,
) -> Result<ssize_t> {
    share::claim(lib, key)?;
    // SAFETY: the caller's pointer.
    let start = unsafe { user_memory::read_any(offset)? };
    let sent = data::transmit_file(lib, key, input, start, count.min(data::MOST));
    share::confirm(lib, key);
    if sent == Err(libc::EPIPE) {
        // SAFETY: raises a signal in this thread, as the kernel would.
        lib.unlocked(|| unsafe { libc::raise(libc::SIGPIPE) });
    }
    let sent = sent?;
    if let Some(start) = start {
        // SAFETY: as above.
        unsafe { user_memory::write(offset, start + sent as off_t)? };
    }
    Ok(sent as ssize_t)
}

unsafe extern "C" {
    /// What the C library's checked entry points do when a buffer is too small for what was asked.
    fn __chk_fail() -> !;
}

/// `read`, compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t {
    // SAFETY: as `read`.
    unsafe { if count > room { __chk_fail() } else { read(fd, buffer, count) } }
}

/// `recv`, compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as `recv`.
    unsafe { if len > room { __chk_fail() } else { recv(fd, buffer, len, flags) } }
}

/// `recvfrom`, compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as `recvfrom`.
    unsafe { if len > room { __chk_fail() } else { recvfrom(fd, buffer, len, flags, address, address_len) } }
}
