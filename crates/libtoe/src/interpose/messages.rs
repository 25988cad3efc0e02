//! `recvmsg`, `sendmsg` and their plural forms.
use super::io::{buffers, connect_first, quick, receive, transmit};
use super::sockets::{ours, route};
use crate::calls::pieces::List;
use crate::calls::{data_fast_path, zero_copy_sends};
use crate::interfaces::netlink;
use crate::lock::Guard;
use crate::process::passing;
use crate::state::slab::Key;
use crate::system::errno::{self, Result, give};
use crate::system::{real, user_memory};
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, ssize_t, timespec};

/// The buffers of a message; too many are an error.
unsafe fn pieces<'a>(message: &msghdr) -> Result<&'a [iovec]> {
    // SAFETY: the caller's list.
    unsafe { buffers(message.msg_iov, message.msg_iovlen.min(1025) as c_int) }
}

/// The buffers of a message that has some and not too many.
#[inline(always)]
fn list_of(message: *const msghdr) -> Option<List> {
    let (list, count) = user_memory::list_of(message);
    List::new(list, count)
}

/// `recvmsg`. A stream has no sender's address and no control messages. Over a UNIX socket, sockets of ours may come.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    route!(
        fd,
        |lib, key| receive_message(lib, key, message, flags),
        netlink::receive_message(fd, message, flags).unwrap_or_else(|| passing::recvmsg(fd, message, flags))
    )
}

unsafe fn receive_message(lib: &mut Guard, key: Key, message: *mut msghdr, flags: c_int) -> Result<ssize_t> {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // SAFETY: the caller's message.
        return unsafe { zero_copy_sends::receive_notification(lib, key, message) }.map(|()| 0);
    }
    // SAFETY: the caller's message.
    unsafe {
        let into = pieces(&user_memory::read(message)?)?;
        let got = receive(lib, key, into, flags)?;
        user_memory::write(&raw mut (*message).msg_namelen, 0)?;
        user_memory::write(&raw mut (*message).msg_controllen, 0)?;
        user_memory::write(&raw mut (*message).msg_flags, if got > 0 { flags & libc::MSG_OOB } else { 0 })?;
        Ok(got)
    }
}

/// `sendmsg`. Control messages on a socket of ours are ignored. Over a UNIX socket, sockets of ours may go.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message.
    quick!(list_of(message).and_then(|pieces| data_fast_path::transmit(fd, pieces, flags)));
    // SAFETY: as this function.
    unsafe { any_sendmsg(fd, message, flags) }
}

#[inline(never)]
unsafe fn any_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if flags & libc::MSG_FASTOPEN != 0 {
        // SAFETY: the caller's message.
        if let Some(errno) = unsafe { connect_for(fd, message) } {
            return give(Err(errno));
        }
    }
    let plain = flags & !libc::MSG_FASTOPEN;
    route!(
        fd,
        |lib, key| send_message(lib, key, message, plain),
        netlink::sending_message(fd, message, || passing::sendmsg(fd, message, flags))
    )
}

/// Connects to a message's address; the error that ends the call, if there is one.
unsafe fn connect_for(fd: c_int, message: *const msghdr) -> Option<c_int> {
    // SAFETY: the caller's message. Where it cannot be read, sending fails.
    unsafe {
        let message = user_memory::read(message).ok()?;
        let address = message.msg_name.cast_const().cast();
        if message.msg_name.is_null() { None } else { connect_first(fd, address, message.msg_namelen) }
    }
}

unsafe fn send_message(lib: &mut Guard, key: Key, message: *const msghdr, flags: c_int) -> Result<ssize_t> {
    // SAFETY: the caller's message.
    unsafe { transmit(lib, key, pieces(&user_memory::read(message)?)?, flags) }
}

/// `recvmmsg`. The first message may be waited for, and the others with it unless `MSG_WAITFORONE` is set.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !matches!(ours(fd), Ok(Some(_))) {
        // SAFETY: passed on.
        return unsafe { passing::recvmmsg(fd, messages, count, flags, timeout) };
    }
    let mut flags = flags;
    // SAFETY: the caller's messages.
    each(messages, count, |message| unsafe {
        let got = recvmsg(fd, message, flags & !libc::MSG_WAITFORONE);
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
        got
    })
}

/// `sendmmsg`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's messages.
    if !matches!(ours(fd), Ok(Some(_))) && !unsafe { passing::passes(messages, count) } {
        // SAFETY: passed on.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    // SAFETY: the caller's messages.
    each(messages, count, |message| unsafe { sendmsg(fd, message, flags) })
}

/// Does one message after the other until one fails. An error is reported only where it was the first.
fn each(messages: *mut mmsghdr, count: c_uint, mut act: impl FnMut(*mut msghdr) -> ssize_t) -> c_int {
    let mut done = 0;
    for i in 0..count.min(1024) as usize {
        // SAFETY: the caller's array has `count` messages.
        let (message, len) = unsafe {
            let message = messages.wrapping_add(i);
            (message, act(&raw mut (*message).msg_hdr))
        };
        if len < 0 {
            let errno = errno::get();
            if done == 0 {
                errno::set(errno);
                return -1;
            }
            break;
        }
        // SAFETY: as above.
        if let Err(errno) = unsafe { user_memory::write(&raw mut (*message).msg_len, len as c_uint) } {
            if done == 0 {
                errno::set(errno);
                return -1;
            }
            break;
        }
        done += 1;
        if len == 0 {
            break;
        }
    }
    done
}
