//! Payload copies of `recv` and `send`, between the program's buffers and the connection's; no system call while busy.
use crate::calls::{direct, early, urgent, waiting, zero_copy_sends};
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::slot_state::{RX_FIN, SHUT_READ, SHUT_WRITE, SPLICED, URGENT};
use crate::state::socket::{Kind, Socket};
use crate::state::{Lib, Link};
use crate::system::errno::{self, Result};
use crate::system::{real, waking};
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use libc::{c_int, iovec};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Most bytes in one call, as in Linux.
pub(crate) const MOST: usize = 0x7fff_f000;

/// Buffers that lie in the kernel's half of the address space are refused before anything else, as on Linux
/// (`access_ok`). What else is bad is refused where bytes are moved.
pub(crate) fn check_buffers(buffers: &[iovec]) -> Result<()> {
    let is_kernels = |buffer: &iovec| (buffer.iov_base as isize) < 0;
    if buffers.iter().any(is_kernels) { Err(libc::EFAULT) } else { Ok(()) }
}

/// Total length of a program's buffers.
pub(crate) fn total(buffers: &[iovec]) -> usize {
    buffers.iter().fold(0usize, |sum, buffer| sum.saturating_add(buffer.iov_len)).min(MOST)
}

/// `recv` in all its forms. Returns the bytes read; 0 at the end of the stream.
///
/// # Safety
/// The buffers are valid.
pub(crate) unsafe fn receive(lib: &mut Guard, key: Key, into: &[iovec], flags: c_int) -> Result<usize> {
    if flags & libc::MSG_OOB != 0 {
        check_buffers(into)?;
        // SAFETY: as this function.
        return unsafe { urgent::receive(lib, key, into, flags) };
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return zero_copy_sends::take_notification(lib, key).map(|_| 0);
    }
    check_buffers(into)?;
    share::claim(lib, key)?;
    let wanted = Wanted::new(lib.need_socket(key)?, total(into), flags);
    direct::take_back(lib, key);
    // SAFETY: the caller vouches for the buffers.
    let got = unsafe {
        match take_enough(lib, key, into, wanted, 0) {
            Some(Ok(done)) if done > 0 && done < wanted.least && !wanted.peeks() && !urgent::is_at_mark(lib, key) => {
                receive_rest(lib, key, into, wanted, done)
            }
            Some(result) => result,
            None => receive_rest(lib, key, into, wanted, 0),
        }
    };
    share::confirm(lib, key);
    got
}

/// What a call is to receive.
#[derive(Clone, Copy)]
struct Wanted {
    bytes: usize,
    /// So many at least, where it may wait: `MSG_WAITALL`, `SO_RCVLOWAT`.
    least: usize,
    flags: c_int,
}

impl Wanted {
    fn new(socket: &Socket, bytes: usize, flags: c_int) -> Wanted {
        let all = flags & libc::MSG_WAITALL != 0;
        let least = if all { bytes } else { bytes.min(socket.options.low_mark as usize) };
        Wanted { bytes, least, flags }
    }

    fn peeks(self) -> bool {
        self.flags & libc::MSG_PEEK != 0
    }
}

/// Waits for as many bytes as are wanted at least.
///
/// # Safety
/// The buffers are valid.
unsafe fn receive_rest(lib: &mut Guard, key: Key, into: &[iovec], wanted: Wanted, done: usize) -> Result<usize> {
    let socket = lib.need_socket(key)?;
    let timeout = socket.options.receive_timeout;
    if socket.nonblocking || wanted.flags & libc::MSG_DONTWAIT != 0 {
        lib.drain();
        // SAFETY: the caller vouches for the buffers.
        let got = unsafe { take_now(lib, key, into, wanted, done) };
        return match got.unwrap_or(Err(libc::EAGAIN)) {
            Err(errno) if done > 0 => {
                if ![libc::EAGAIN, libc::EFAULT].contains(&errno) {
                    // Kept for the next call.
                    lib.need_socket(key)?.error = errno;
                }
                Ok(done)
            }
            got => got.map(|more| done + more),
        };
    }
    let deadline = timeout.map(|timeout| waking::now() + timeout);
    // SAFETY: the caller vouches for the buffers.
    let got = unsafe { wait_for_rest(lib, key, into, wanted, done, deadline) };
    direct::finish(lib, key);
    got
}

/// The same in a call that waits, until `deadline` at most. Where its buffer lies in the heap, bytes land there.
///
/// # Safety
/// The buffers are valid.
unsafe fn wait_for_rest(
    lib: &mut Guard,
    key: Key,
    into: &[iovec],
    wanted: Wanted,
    mut done: usize,
    deadline: Option<Instant>,
) -> Result<usize> {
    let targets = [Target::Socket(key)];
    let signals = if deadline.is_some() { Signals::Interrupt } else { Signals::Restart };
    loop {
        if wanted.flags & (libc::MSG_PEEK | libc::MSG_TRUNC) == 0 {
            direct::post(lib, key, into, done);
        }
        let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
        // SAFETY: the caller vouches for the buffers.
        let got = waiting::until(lib, wait, |lib, _| unsafe { take_enough(lib, key, into, wanted, done) });
        match got {
            Ok(Ok(0)) => return Ok(done),
            Ok(Ok(more)) => done += more,
            Err(errno) if done == 0 => {
                // SAFETY: as above. Peeking has waited for more than there is.
                let rest = unsafe { take_now(lib, key, into, wanted, 0) };
                return rest.unwrap_or(Err(if errno == libc::ETIMEDOUT { libc::EAGAIN } else { errno }));
            }
            Ok(Err(errno)) if done == 0 => return Err(errno),
            Ok(Err(libc::EFAULT)) => return Ok(done),
            Ok(Err(errno)) => {
                // Kept for the next call.
                lib.need_socket(key)?.error = errno;
                return Ok(done);
            }
            Err(_) => return Ok(done),
        }
        if done >= wanted.least || wanted.peeks() || urgent::is_at_mark(lib, key) {
            return Ok(done);
        }
    }
}

/// [`take_now`] in a call that may wait. One that peeks gets all at once what it waits for, as it takes nothing out.
///
/// # Safety
/// The buffers are valid.
#[inline]
unsafe fn take_enough(lib: &mut Lib, key: Key, into: &[iovec], wanted: Wanted, done: usize) -> Option<Result<usize>> {
    if wanted.peeks() && wanted.least > 1 && waits_for_more(lib, key, wanted.least) {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { take_now(lib, key, into, wanted, done) }
}

/// An open connection has fewer bytes to read, and room for more.
fn waits_for_more(lib: &mut Lib, key: Key, least: usize) -> bool {
    match lib.socket(key) {
        Some(Socket { kind: Kind::Stream(stream), broken: false, error: 0, .. }) => {
            let over = stream.flags() & (RX_FIN | SHUT_READ | URGENT) != 0;
            !over && (stream.readable() as usize) < least.min(stream.buffer_sizes().0 as usize)
        }
        _ => false,
    }
}

/// Takes what is there; `None` where nothing is and more may come.
///
/// # Safety
/// The buffers are valid.
#[inline]
unsafe fn take_now(
    lib: &mut Lib,
    key: Key,
    into: &[iovec],
    Wanted { bytes, flags, .. }: Wanted,
    done: usize,
) -> Option<Result<usize>> {
    let Lib { sockets, link, .. } = lib;
    let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else {
        return Some(Err(libc::EBADF));
    };
    let Kind::Stream(stream) = &mut socket.kind else { return Some(not_connected(socket)) };
    let exclusive = stream.exclusively();
    if done > 0 && stream.is_at_mark() {
        return Some(Ok(0));
    }
    let posted = if stream.has_posted() { direct::own_piece(link, stream, into, done) } else { None };
    // Who asks for nothing passes no mark.
    let (hole, most) = if bytes > done { stream.readable_part(socket.options.inline_urgent) } else { (0, 0) };
    if stream.readable() <= hole {
        if hole > 0 && stream.readable() == hole && flags & libc::MSG_PEEK == 0 {
            // As in Linux, a read that goes on at the mark gives up the urgent byte.
            stream.consume(hole);
        }
        let flags = stream.flags();
        drop(exclusive);
        return end_of_stream(socket, flags);
    }
    // SAFETY: the caller vouches for the buffers.
    let copied = unsafe {
        if let Some(piece) = posted {
            stream.copy_out_rest(piece)
        } else if flags & libc::MSG_TRUNC != 0 {
            Ok(((stream.readable() - hole) as usize).min(bytes - done).min(most))
        } else if done == 0 {
            stream.copy_out(into, hole, MOST.min(most))
        } else {
            stream.copy_out(&behind(into, done), hole, MOST.min(most))
        }
    };
    let copied = match copied {
        Ok(copied) => copied,
        Err(errno) => return Some(Err(errno)),
    };
    if flags & libc::MSG_PEEK == 0 {
        stream.consume(hole + copied as u32);
        if stream.window_update_is_due() {
            if let Link::Attached(context) = link {
                context.open_window(key, stream, socket.options.receive_size);
            }
        }
    }
    Some(Ok(copied))
}

/// What reading gives where all that came has been read. An error that comes after the peer's FIN is for writers; what
/// had come before the program shut its side down could still be read.
fn end_of_stream(socket: &mut Socket, flags: u32) -> Option<Result<usize>> {
    match socket.error {
        _ if flags & RX_FIN != 0 => Some(Ok(0)),
        0 => (flags & SHUT_READ != 0 || socket.broken).then_some(Ok(0)),
        _ => Some(Err(socket.take_error())),
    }
}

/// What reading from a socket without a connection gives.
fn not_connected(socket: &mut Socket) -> Result<usize> {
    match (socket.error, &socket.kind) {
        (0, Kind::Connecting { .. }) => Err(libc::EAGAIN),
        (0, _) if socket.attempt_failed() => Ok(0),
        (0, _) => Err(libc::ENOTCONN),
        _ => Err(socket.take_error()),
    }
}

/// The program's buffers from byte `skip` on.
fn behind(buffers: &[iovec], mut skip: usize) -> Vec<iovec> {
    let mut rest = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let cut = skip.min(buffer.iov_len);
        skip -= cut;
        let iov_base = buffer.iov_base.cast::<u8>().wrapping_add(cut).cast();
        rest.push(iovec { iov_base, iov_len: buffer.iov_len - cut });
    }
    rest
}

/// `send` in all its forms. A blocking one returns when all bytes are in the connection's buffer. `EPIPE` is for
/// the caller to turn into `SIGPIPE`.
///
/// # Safety
/// The buffers are valid.
pub(crate) unsafe fn transmit(lib: &mut Guard, key: Key, from: &[iovec], flags: c_int) -> Result<usize> {
    if flags & libc::MSG_ZEROCOPY == 0 {
        // SAFETY: the caller vouches for the buffers.
        return unsafe { transmit_all(lib, key, from, flags) };
    }
    // SAFETY: the same.
    zero_copy_sends::transmit(lib, key, flags, |lib, flags| unsafe { transmit_all(lib, key, from, flags) })
}

/// The same, where `MSG_ZEROCOPY` is among the flags only if the call is to send by reference.
///
/// # Safety
/// The buffers are valid.
unsafe fn transmit_all(lib: &mut Guard, key: Key, from: &[iovec], flags: c_int) -> Result<usize> {
    if flags & libc::MSG_OOB != 0 && !urgent::can_be_sent(lib) {
        return Err(libc::EOPNOTSUPP);
    }
    check_buffers(from)?;
    share::claim(lib, key)?;
    lib.drain_replies_now();
    let wanted = total(from);
    if lib.need_socket(key)?.awaits_data() {
        // SAFETY: the caller vouches for the buffers.
        let done = unsafe { early::transmit(lib, key, from, flags & libc::MSG_DONTWAIT != 0)? };
        let opens = !lib.need_socket(key)?.is_stream();
        if opens && done == 0 {
            // No data went with the SYN: the call is one that connects.
            return Err(libc::EINPROGRESS);
        }
        if done == wanted || opens {
            return Ok(done);
        }
        // SAFETY: the same.
        return unsafe { transmit_rest(lib, key, from, wanted, done, flags) };
    }
    // SAFETY: the caller vouches for the buffers.
    let put = unsafe {
        match put_now(lib, key, from, wanted, 0, flags) {
            Some(Ok(done)) if done < wanted => transmit_rest(lib, key, from, wanted, done, flags),
            Some(result) => result,
            None => transmit_rest(lib, key, from, wanted, 0, flags),
        }
    };
    share::confirm(lib, key);
    put
}

/// Waits for room and writes on, until all is written.
///
/// # Safety
/// The buffers are valid.
unsafe fn transmit_rest(
    lib: &mut Guard,
    key: Key,
    from: &[iovec],
    wanted: usize,
    mut done: usize,
    flags: c_int,
) -> Result<usize> {
    let socket = lib.need_socket(key)?;
    let timeout = socket.options.send_timeout;
    let dont_wait = socket.nonblocking || flags & libc::MSG_DONTWAIT != 0;
    if dont_wait {
        lib.drain();
        grow(lib, key, wanted);
        // SAFETY: the caller vouches for the buffers.
        let put = unsafe { put_now(lib, key, from, wanted, done, flags) };
        return if done > 0 { Ok(done + put.unwrap_or(Ok(0)).unwrap_or(0)) } else { put.unwrap_or(Err(libc::EAGAIN)) };
    }
    let deadline = timeout.map(|timeout| waking::now() + timeout);
    let targets = [Target::Socket(key)];
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    while done < wanted {
        // Who waits for room has a larger ring only where the path asks for one.
        grow(lib, key, 0);
        let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
        // SAFETY: the caller vouches for the buffers.
        let put = waiting::until(lib, wait, |lib, _| unsafe { put_now(lib, key, from, wanted, done, flags) });
        match put {
            Ok(Ok(written)) => done += written,
            _ if done > 0 => return Ok(done),
            Ok(Err(errno)) => return Err(errno),
            Err(libc::ETIMEDOUT) => return Err(libc::EAGAIN),
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Not all has found room.
fn grow(lib: &mut Guard, key: Key, wanted: usize) {
    if let Some(Kind::Stream(stream)) = lib.socket(key).map(|socket| &mut socket.kind) {
        let _exclusive = stream.exclusively();
        stream.grow_for(wanted);
    }
}

/// Writes what there is room for; `None` where there is none.
///
/// # Safety
/// The buffers are valid.
#[inline]
unsafe fn put_now(
    lib: &mut Lib,
    key: Key,
    from: &[iovec],
    wanted: usize,
    done: usize,
    flags: c_int,
) -> Option<Result<usize>> {
    let Lib { sockets, link, .. } = lib;
    let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else {
        return Some(Err(libc::EBADF));
    };
    let (more, urgent) = (flags & libc::MSG_MORE != 0, flags & libc::MSG_OOB != 0);
    let corked = (more || socket.options.cork) && !urgent;
    if let Err(errno) = can_write(socket) {
        return Some(Err(errno));
    }
    let Kind::Stream(stream) = &mut socket.kind else { return Some(Err(libc::EPIPE)) };
    let exclusive = stream.exclusively();
    // SAFETY: the caller vouches for the buffers.
    let written = unsafe {
        if flags & libc::MSG_ZEROCOPY == 0 {
            stream.copy_in(from, done)
        } else {
            zero_copy_sends::put(link, stream, from, done)
        }
    };
    drop(exclusive);
    let written = match written {
        Ok(written) => written,
        Err(errno) => return Some(Err(errno)),
    };
    let full = done + written < wanted;
    if full {
        stream.waits_for_room = true;
    }
    if written == 0 {
        if stream.bump_held {
            lib.bump(key);
        }
        return (wanted == 0).then_some(Ok(0));
    }
    if let (true, Link::Attached(context)) = (urgent, &mut *link) {
        context.urge(stream);
    }
    if let (true, Link::Attached(context)) = (flags & libc::MSG_EOR != 0 && !full, &mut *link) {
        context.end_record(stream);
    }
    bump_or_hold(link, key, socket, corked && !full);
    Some(Ok(written))
}

/// Notifies the engine of what was written. Held back only while less than a full segment waits, as `TCP_CORK` and
/// `MSG_MORE` have it.
fn bump_or_hold(link: &mut Link, key: Key, socket: &mut Socket, hold: bool) {
    let (Link::Attached(context), Kind::Stream(stream)) = (link, &mut socket.kind) else { return };
    if !hold || stream.in_flight() >= stream.mss as u32 {
        context.bump_and_ask(key, stream);
    } else if !stream.bump_held {
        stream.bump_held = true;
        context.held.push(key);
    }
}

/// Bytes were put into the transmit buffer by other means than `put_now`.
pub(crate) fn wrote(lib: &mut Lib, key: Key, more: bool) {
    let Lib { sockets, link, .. } = lib;
    let Some(socket) = sockets.get_mut(key.index) else { return };
    let corked = more || socket.options.cork;
    bump_or_hold(link, key, socket, corked);
}

/// Bytes were read by other means than `take_now`.
pub(crate) fn bump_window(lib: &mut Lib, key: Key) {
    let Lib { sockets, link, .. } = lib;
    let Some(socket) = sockets.get_mut(key.index) else { return };
    let (Kind::Stream(stream), Link::Attached(context)) = (&mut socket.kind, link) else { return };
    if stream.window_update_is_due() {
        context.open_window(key, stream, socket.options.receive_size);
    }
}

/// Why bytes cannot be written now, where they never can.
pub(crate) fn can_write(socket: &mut Socket) -> Result<()> {
    if socket.error != 0 {
        return Err(socket.take_error());
    }
    match &socket.kind {
        _ if socket.broken => Err(libc::EPIPE),
        Kind::Stream(stream) if stream.flags() & (SHUT_WRITE | SPLICED) != 0 => Err(libc::EPIPE),
        Kind::Stream(_) => Ok(()),
        Kind::Connecting { .. } => Err(libc::EAGAIN),
        // Linux returns EPIPE on a socket that was never connected.
        _ => Err(libc::EPIPE),
    }
}

/// Before a blocking close with `SO_LINGER`: waits until the peer has acknowledged everything, or the time is over.
pub(crate) fn linger(lib: &mut Guard, key: Key) {
    let Some(socket) = lib.socket(key) else { return };
    let last = socket.descriptors == 1 && !socket.nonblocking && !socket.broken;
    let Some(seconds) = socket.options.linger.filter(|seconds| *seconds > 0 && last) else { return };
    let deadline = Some(waking::now() + Duration::from_secs(seconds as u64));
    let targets = [Target::Socket(key)];
    let wait = WaitOptions { deadline, targets: &targets, ..WaitOptions::forever() };
    let _ = waiting::until(lib, wait, |lib, _| match lib.socket(key) {
        Some(Socket { kind: Kind::Stream(stream), broken: false, .. }) if stream.in_flight() > 0 => {
            // Each acknowledgement is news.
            stream.waits_for_room = true;
            None
        }
        _ => Some(()),
    });
}

/// `sendfile`: reads a file directly into the connection's buffer. Returns the bytes sent.
pub(crate) fn transmit_file(lib: &mut Guard, key: Key, file: RawFd, start: Option<i64>, count: usize) -> Result<usize> {
    let mut done = 0;
    if lib.need_socket(key)?.awaits_data() {
        // What a file holds follows the SYN.
        // SAFETY: there is no buffer.
        unsafe { early::transmit(lib, key, &[], false)? };
    }
    while done < count {
        let at = start.map(|start| start + done as i64);
        match wait_for_room(lib, key, done > 0).and_then(|()| put_file(lib, key, file, at, count - done)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn wait_for_room(lib: &mut Guard, key: Key, some_sent: bool) -> Result<()> {
    let socket = lib.need_socket(key)?;
    let timeout = socket.options.send_timeout;
    let dont_wait = socket.nonblocking;
    let deadline = if dont_wait { Some(waking::now()) } else { timeout.map(|timeout| waking::now() + timeout) };
    let targets = [Target::Socket(key)];
    let signals = if timeout.is_some() || some_sent { Signals::Interrupt } else { Signals::Restart };
    let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
    let room = waiting::until(lib, wait, |lib, _| {
        let Some(socket) = lib.socket(key) else { return Some(Err(libc::EBADF)) };
        if let Err(errno) = can_write(socket) {
            return Some(Err(errno));
        }
        let Kind::Stream(stream) = &mut socket.kind else { return Some(Err(libc::EPIPE)) };
        let room = stream.room_to_write();
        stream.waits_for_room = room == 0;
        (room > 0).then_some(Ok(()))
    });
    room.map_err(|errno| if errno == libc::ETIMEDOUT { libc::EAGAIN } else { errno })?
}

/// Reads as much of the file as there is room for, and sends it.
fn put_file(lib: &mut Lib, key: Key, file: RawFd, at: Option<i64>, most: usize) -> Result<usize> {
    let socket = lib.sockets.get_mut(key.index).ok_or(libc::EBADF)?;
    let corked = socket.options.cork;
    let stream = socket.stream()?;
    let _exclusive = stream.exclusively();
    let len = (stream.room_to_write() as usize).min(most) as u32;
    let pieces = stream.place(len).pieces(stream.tx_head(), len);
    let buffers = pieces.map(|(base, len)| iovec { iov_base: base.cast(), iov_len: len });
    // SAFETY: both pieces lie in the connection's ring, in the part that the engine does not read yet.
    let got = errno::check(unsafe {
        match at {
            Some(at) => libc::preadv(file, buffers.as_ptr(), 2, at),
            None => real::readv(file, buffers.as_ptr(), 2),
        }
    })?;
    stream.produced(got as u32);
    if got > 0 && (!corked || stream.in_flight() >= stream.mss as u32) {
        drop(_exclusive);
        lib.bump(key);
    }
    Ok(got as usize)
}
