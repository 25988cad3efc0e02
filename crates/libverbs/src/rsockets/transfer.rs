//! Bytes and datagrams: sent and received. Nothing is urgent, and no bytes have ancillary data.
use super::calls::value;
use super::named::{Named, Side};
use super::socket::{Inner, Phase, Socket};
use super::table::{self, Rsocket};
use super::waiting::State;
use crate::cm::read_address;
use crate::errno::Result;
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t};
use std::ptr::null;

/// What a call waits for.
fn waits(socket: &Socket, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !socket.lock().options.nonblocking
}

/// Sends all of it; fewer bytes where the call does not wait, or the connection ends.
fn send(socket: &Socket, bytes: &[u8], flags: c_int) -> Result<usize> {
    let wait = waits(socket, flags);
    let mut done = 0;
    let sent = socket.until(wait, |inner| {
        let nothing = match inner.phase {
            Phase::Connected => false,
            Phase::Connecting | Phase::Accepted => true,
            Phase::Dead if inner.error != 0 => return Some(Err(std::mem::take(&mut inner.error))),
            _ => return Some(Err(libc::ENOTCONN)),
        };
        let stream = inner.stream.as_mut().filter(|_| !nothing)?;
        if stream.is_broken() && done == 0 {
            return Some(Err(libc::ECONNRESET));
        }
        if stream.has_shut() || stream.is_over() {
            return Some(if done > 0 { Ok(()) } else { Err(libc::EPIPE) });
        }
        done += stream.send(&bytes[done..]);
        (done == bytes.len()).then_some(Ok(()))
    });
    match sent {
        Err(libc::EAGAIN) if done > 0 => Ok(done),
        sent => sent.map(|()| done),
    }
}

/// Receives what is there; with `MSG_WAITALL`, as much as there is room for.
fn receive(socket: &Socket, into: &mut [u8], flags: c_int) -> Result<usize> {
    let (wait, keep) = (waits(socket, flags), flags & libc::MSG_PEEK != 0);
    let whole = flags & libc::MSG_WAITALL != 0 && !keep;
    let mut done = 0;
    let received = socket.until(wait, |inner| {
        if let Some(early) = not_connected(inner) {
            return early;
        }
        let stream = inner.stream.as_mut()?;
        done += stream.receive(&mut into[done..], keep);
        let is_enough = if whole { done == into.len() } else { done > 0 || into.is_empty() };
        match (is_enough, stream.is_at_end()) {
            (true, _) => Some(Ok(())),
            (false, true) if stream.is_broken() && done == 0 => Some(Err(libc::ECONNRESET)),
            (false, true) => Some(Ok(())),
            (false, false) => None,
        }
    });
    match received {
        Err(libc::EAGAIN) if done > 0 => Ok(done),
        received => received.map(|()| done),
    }
}

/// What a socket without a connection gives; `None` where it has one.
fn not_connected(inner: &mut Inner) -> Option<Option<Result<()>>> {
    match inner.phase {
        Phase::Connected => None,
        Phase::Connecting | Phase::Accepted => Some(None),
        Phase::Dead if inner.error != 0 => Some(Some(Err(std::mem::take(&mut inner.error)))),
        _ => Some(Some(Err(libc::ENOTCONN))),
    }
}

/// # Safety
/// There are so many bytes.
unsafe fn bytes<'a>(from: *const c_void, len: size_t) -> &'a [u8] {
    // SAFETY: as the caller guarantees.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast(), len) } }
}

/// # Safety
/// There is room for so many bytes, which nobody else uses.
unsafe fn room<'a>(into: *mut c_void, len: size_t) -> &'a mut [u8] {
    // SAFETY: as the caller guarantees.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(into.cast(), len) } }
}

/// # Safety
/// There are so many entries.
unsafe fn entries<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count > libc::UIO_MAXIOV as usize {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } })
}

/// Goes through a list until a piece is not done as a whole. `each` gets whether bytes went before.
fn all(list: &[iovec], mut each: impl FnMut(&iovec, bool) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    for entry in list.iter().filter(|entry| entry.iov_len > 0) {
        match each(entry, done > 0) {
            Ok(count) => {
                done += count;
                if count < entry.iov_len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(number) => return Err(number),
        }
    }
    Ok(done)
}

/// Bytes of the program that are to be sent.
struct Outgoing<'a> {
    list: &'a [iovec],
    /// The destination; of a stream, its peer is.
    to: *const sockaddr,
}

/// What was received.
struct Received {
    bytes: usize,
    /// Bytes that the datagram has.
    whole: usize,
    /// The datagram's sender.
    from: Option<Named>,
}

/// # Safety
/// The entries name bytes of the program, and the address is one, or null.
unsafe fn give(fd: c_int, what: &Outgoing<'_>, flags: c_int) -> Result<usize> {
    // SAFETY: as the caller guarantees.
    unsafe {
        match (table::find(fd)?, what.list) {
            (Rsocket::Datagrams(socket), list) => {
                let to = if what.to.is_null() { None } else { Some(read_address(what.to)?) };
                socket.send(to, list, flags)
            }
            (Rsocket::Stream(socket), [entry]) => send(&socket, bytes(entry.iov_base, entry.iov_len), flags),
            (Rsocket::Stream(socket), list) => {
                all(list, |entry, _| send(&socket, bytes(entry.iov_base, entry.iov_len), flags))
            }
        }
    }
}

/// # Safety
/// The entries name room of the program.
unsafe fn take(fd: c_int, list: &[iovec], flags: c_int) -> Result<Received> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let socket = match table::find(fd)? {
            Rsocket::Datagrams(socket) => {
                let taken = socket.receive(list, flags)?;
                let family = socket.lock().options().family;
                return Ok(taken.map_or(Received { bytes: 0, whole: 0, from: None }, |taken| Received {
                    bytes: taken.given,
                    whole: taken.len,
                    from: Some(Named::new(family, taken.from)),
                }));
            }
            Rsocket::Stream(socket) => socket,
        };
        let bytes = match list {
            [entry] => receive(&socket, room(entry.iov_base, entry.iov_len), flags)?,
            list => all(list, |entry, has_some| {
                let more = if has_some && flags & libc::MSG_WAITALL == 0 { libc::MSG_DONTWAIT } else { 0 };
                receive(&socket, room(entry.iov_base, entry.iov_len), flags | more)
            })?,
        };
        Ok(Received { bytes, whole: bytes, from: None })
    }
}

impl Received {
    /// What calls return: with `MSG_TRUNC`, the bytes that a datagram has.
    fn count(&self, flags: c_int) -> usize {
        if flags & libc::MSG_TRUNC != 0 { self.whole } else { self.bytes }
    }
}

/// One entry.
fn entry(at: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: at.cast_mut(), iov_len: len }]
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsend(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> isize {
    // SAFETY: the program passes so many bytes.
    value(unsafe { give(fd, &Outgoing { list: &entry(from, len), to: null() }, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    _to_len: socklen_t,
) -> isize {
    // SAFETY: the program passes so many bytes, and an address or null.
    value(unsafe { give(fd, &Outgoing { list: &entry(from, len), to }, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwrite(fd: c_int, from: *const c_void, len: size_t) -> isize {
    // SAFETY: the program passes so many bytes.
    value(unsafe { give(fd, &Outgoing { list: &entry(from, len), to: null() }, 0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the program passes a list of bytes.
    value(unsafe { entries(list, count.max(0) as usize).and_then(|list| give(fd, &Outgoing { list, to: null() }, 0)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the program passes a message.
    unsafe {
        match entries((*message).msg_iov, (*message).msg_iovlen) {
            Ok(_) if (*message).msg_controllen > 0 => value(Err(libc::EOPNOTSUPP)),
            Ok(list) => value(give(fd, &Outgoing { list, to: (*message).msg_name.cast() }, flags)),
            Err(number) => value(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> isize {
    // SAFETY: the program passes room for so many bytes.
    value(unsafe { take(fd, &entry(into, len), flags) }.map(|received| received.count(flags)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvfrom(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> isize {
    // SAFETY: as above.
    let received = unsafe { take(fd, &entry(into, len), flags) };
    value(received.map(|received| {
        let count = received.count(flags);
        let of_stream = || table::find(fd).and_then(|socket| socket.with(|state| state.address(Side::Peer))).ok();
        if let Some(named) = if from.is_null() { None } else { received.from.or_else(of_stream) } {
            // SAFETY: the program passes a place for an address.
            unsafe { named.write(from, from_len) };
        }
        count
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rread(fd: c_int, into: *mut c_void, len: size_t) -> isize {
    // SAFETY: the program passes room for so many bytes.
    value(unsafe { take(fd, &entry(into, len), 0) }.map(|received| received.bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the program passes a list of room.
    let received = unsafe { entries(list, count.max(0) as usize).and_then(|list| take(fd, list, 0)) };
    value(received.map(|received| received.bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the program passes a message, with a place for an address or none.
    let received = unsafe {
        ((*message).msg_controllen, (*message).msg_flags) = (0, 0);
        entries((*message).msg_iov, (*message).msg_iovlen).and_then(|list| take(fd, list, flags))
    };
    if let Ok(received) = &received {
        // SAFETY: as above.
        unsafe {
            if received.whole > received.bytes {
                (*message).msg_flags = libc::MSG_TRUNC;
            }
            if let Some(named) = &received.from {
                named.write((*message).msg_name.cast(), &raw mut (*message).msg_namelen);
            }
        }
    }
    value(received.map(|received| received.count(flags)))
}
