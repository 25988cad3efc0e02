//! `MSG_ZEROCOPY` (docs/ZERONIC.md, "Sends by reference"): which calls send by reference, and the error queue that
//! their notifications are read from.
use crate::lock::Guard;
use crate::state::references::Notification;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::state::stream::Stream;
use crate::state::{Lib, Link, events, readiness};
use crate::system::errno::Result;
use crate::system::user_memory;
use libc::{c_int, iovec, msghdr, sock_extended_err, sockaddr_in, sockaddr_in6};

/// The code of a notification whose bytes were copied (linux/errqueue.h).
const COPIED: u8 = 1;
/// The origin of notifications of `MSG_ZEROCOPY` (linux/errqueue.h).
const ORIGIN: u8 = 5;

/// A call with `MSG_ZEROCOPY`. Without `SO_ZEROCOPY` the flag means nothing, as on Linux.
pub(super) fn transmit(
    lib: &mut Guard,
    key: Key,
    flags: c_int,
    send: impl FnOnce(&mut Guard, c_int) -> Result<usize>,
) -> Result<usize> {
    let socket = lib.need_socket(key)?;
    if !socket.options.zero_copy {
        return send(lib, flags & !libc::MSG_ZEROCOPY);
    }
    let before = match &mut socket.kind {
        Kind::Stream(stream) => stream.begin_referring_call()?,
        // Its first bytes go with the SYN, copied, or it cannot send.
        _ => u64::MAX,
    };
    let sent = send(lib, flags)?;
    let Lib { sockets, sets, .. } = &mut **lib;
    let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { return Ok(sent) };
    if let (Kind::Stream(stream), true) = (&mut socket.kind, sent > 0) {
        if stream.end_referring_call(before) {
            readiness::notify(socket, sets, events::ERR);
        }
    }
    Ok(sent)
}

/// [`Stream::copy_in`], by reference where that can be.
///
/// # Safety
/// The buffers are valid.
pub(super) unsafe fn put(link: &Link, stream: &mut Stream, from: &[iovec], done: usize) -> Result<usize> {
    let is_own = matches!(link, Link::Attached(context) if context.home.context() == stream.home.context());
    // SAFETY: the caller's promise.
    unsafe { stream.refer(from, done, is_own) }
}

/// The oldest notification of a socket's error queue. `EAGAIN` where there is none: reading it never waits.
pub(super) fn take_notification(lib: &mut Guard, key: Key) -> Result<Notification> {
    lib.drain();
    let socket = lib.need_socket(key)?;
    let is_over = socket.broken;
    let Kind::Stream(stream) = &mut socket.kind else { return Err(libc::EAGAIN) };
    stream.take_notification(is_over).ok_or(libc::EAGAIN)
}

/// What `recvmsg` gives of a notification: the error, and nobody's address (ip(7), `IP_RECVERR`).
#[repr(C)]
struct Control<A> {
    header: libc::cmsghdr,
    error: sock_extended_err,
    offender: A,
}

/// `recvmsg` with `MSG_ERRQUEUE`: there are no bytes, but a control message.
///
/// # Safety
/// The program gave the message.
pub(crate) unsafe fn receive_notification(lib: &mut Guard, key: Key, message: *mut msghdr) -> Result<()> {
    let notification = take_notification(lib, key)?;
    let is_v6 = lib.need_socket(key)?.is_v6;
    // SAFETY: the caller's promise. All zeros are an address of no family.
    unsafe {
        match is_v6 {
            true => give::<sockaddr_in6>(message, notification, std::mem::zeroed()),
            false => give::<sockaddr_in>(message, notification, std::mem::zeroed()),
        }
    }
}

/// An address that follows an error in a control message.
trait Offender {
    /// What the message is called.
    const LEVEL: c_int;
    const NAME: c_int;
}

impl Offender for sockaddr_in {
    const LEVEL: c_int = libc::SOL_IP;
    const NAME: c_int = libc::IP_RECVERR;
}

impl Offender for sockaddr_in6 {
    const LEVEL: c_int = libc::SOL_IPV6;
    const NAME: c_int = libc::IPV6_RECVERR;
}

/// Writes a notification as a control message. What finds no room is cut off, and `MSG_CTRUNC` is set.
///
/// # Safety
/// The program gave the message.
unsafe fn give<A: Offender>(message: *mut msghdr, notification: Notification, offender: A) -> Result<()> {
    let mut control = Control {
        header: libc::cmsghdr { cmsg_len: 0, cmsg_level: A::LEVEL, cmsg_type: A::NAME },
        error: sock_extended_err {
            ee_errno: 0,
            ee_origin: ORIGIN,
            ee_type: 0,
            ee_code: if notification.is_copied { COPIED } else { 0 },
            ee_pad: 0,
            ee_info: notification.first,
            ee_data: notification.last,
        },
        offender,
    };
    // SAFETY: the caller's promise; bytes of a structure without holes but at its end.
    unsafe {
        let msghdr { msg_control, msg_controllen, .. } = user_memory::read(message)?;
        let room = if msg_control.is_null() { 0 } else { msg_controllen };
        let fits = room >= size_of::<libc::cmsghdr>();
        let len = if fits { room.min(size_of::<Control<A>>()) } else { 0 };
        control.header.cmsg_len = len;
        let bytes = std::slice::from_raw_parts((&raw const control).cast::<u8>(), len);
        user_memory::write_bytes(msg_control.cast(), bytes)?;
        let truncated = if len < size_of::<Control<A>>() { libc::MSG_CTRUNC } else { 0 };
        user_memory::write(&raw mut (*message).msg_namelen, 0)?;
        user_memory::write(&raw mut (*message).msg_controllen, len)?;
        user_memory::write(&raw mut (*message).msg_flags, libc::MSG_ERRQUEUE | truncated)
    }
}
