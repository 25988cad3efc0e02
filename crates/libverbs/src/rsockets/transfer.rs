//! Bytes: sent and received. Nothing is urgent, and no bytes have ancillary data.
use super::calls::{Side, value};
use super::socket::{Inner, Phase, Socket};
use super::table;
use crate::errno::Result;
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t};

/// What a call waits for.
fn waits(socket: &Socket, flags: c_int) -> bool {
    flags & libc::MSG_DONTWAIT == 0 && !socket.lock().options.nonblocking
}

/// Sends all of it; fewer bytes where the call does not wait, or the connection ends.
fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize> {
    let socket = table::find(fd)?;
    let wait = waits(&socket, flags);
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
fn receive(fd: c_int, into: &mut [u8], flags: c_int) -> Result<usize> {
    let socket = table::find(fd)?;
    let (wait, keep) = (waits(&socket, flags), flags & libc::MSG_PEEK != 0);
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
    // SAFETY: as the caller says.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast(), len) } }
}

/// # Safety
/// There is room for so many bytes, which nobody else uses.
unsafe fn room<'a>(into: *mut c_void, len: size_t) -> &'a mut [u8] {
    // SAFETY: as the caller says.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(into.cast(), len) } }
}

/// # Safety
/// There are so many entries.
unsafe fn entries<'a>(list: *const iovec, count: usize) -> Result<&'a [iovec]> {
    if count > libc::UIO_MAXIOV as usize {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(list, count) } })
}

/// Goes through a list until a piece is not done as a whole. `each` is told whether bytes went before.
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

/// # Safety
/// The entries name bytes of the program.
unsafe fn send_list(fd: c_int, list: &[iovec], flags: c_int) -> isize {
    // SAFETY: as the caller says.
    value(all(list, |entry, _| send(fd, unsafe { bytes(entry.iov_base, entry.iov_len) }, flags)))
}

/// # Safety
/// The entries name room of the program.
unsafe fn receive_list(fd: c_int, list: &[iovec], flags: c_int) -> isize {
    value(all(list, |entry, has_some| {
        let more = if has_some && flags & libc::MSG_WAITALL == 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: as the caller says.
        receive(fd, unsafe { room(entry.iov_base, entry.iov_len) }, flags | more)
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsend(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> isize {
    // SAFETY: the program passes so many bytes.
    value(send(fd, unsafe { bytes(from, len) }, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    _to: *const sockaddr,
    _to_len: socklen_t,
) -> isize {
    // SAFETY: as above. A stream has its peer.
    value(send(fd, unsafe { bytes(from, len) }, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwrite(fd: c_int, from: *const c_void, len: size_t) -> isize {
    // SAFETY: as above.
    value(send(fd, unsafe { bytes(from, len) }, 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the program passes a list of bytes.
    unsafe {
        match entries(list, count.max(0) as usize) {
            Ok(list) => send_list(fd, list, 0),
            Err(number) => value(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: the program passes a message.
    unsafe {
        match entries((*message).msg_iov, (*message).msg_iovlen) {
            Ok(_) if (*message).msg_controllen > 0 => value(Err(libc::EOPNOTSUPP)),
            Ok(list) => send_list(fd, list, flags),
            Err(number) => value(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> isize {
    // SAFETY: the program passes room for so many bytes.
    value(receive(fd, unsafe { room(into, len) }, flags))
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
    let received = receive(fd, unsafe { room(into, len) }, flags);
    if received.is_ok() && !from.is_null() {
        if let Ok(named) = table::find(fd).and_then(|socket| socket.lock().address(Side::Peer)) {
            // SAFETY: the program passes a place for an address.
            unsafe { named.write(from, from_len) };
        }
    }
    value(received)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rread(fd: c_int, into: *mut c_void, len: size_t) -> isize {
    // SAFETY: the program passes room for so many bytes.
    value(receive(fd, unsafe { room(into, len) }, 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the program passes a list of room.
    unsafe {
        match entries(list, count.max(0) as usize) {
            Ok(list) => receive_list(fd, list, 0),
            Err(number) => value(Err(number)),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: the program passes a message.
    unsafe {
        ((*message).msg_controllen, (*message).msg_flags) = (0, 0);
        match entries((*message).msg_iov, (*message).msg_iovlen) {
            Ok(list) => receive_list(fd, list, flags),
            Err(number) => value(Err(number)),
        }
    }
}
