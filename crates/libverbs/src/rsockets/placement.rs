//! `riomap` and `riowrite`: bytes that a peer writes straight into a buffer of the program.
use super::calls::value;
use super::protocol::{Mapping, RemoteBuffer};
use super::registered::{Access, Registered};
use super::socket::{Inner, Phase};
use super::stream::Stream;
use super::table;
use crate::cm::Id;
use crate::errno::{self, Result};
use libc::{c_int, c_void, off_t, size_t};

/// The connection; nothing yet where it is being made, ENOTCONN where there is none.
fn connected(inner: &mut Inner) -> Option<Result<&mut Stream>> {
    match inner.phase {
        Phase::Connected => inner.stream.as_mut().map(Ok),
        Phase::Connecting | Phase::Accepted => None,
        _ => Some(Err(libc::ENOTCONN)),
    }
}

/// The first entry of the peer's table that is free.
fn free_index(inner: &Inner) -> Option<u32> {
    let most = inner.stream.as_ref().map_or(0, Stream::peer_mappings);
    (0..most).find(|index| inner.mapped.iter().all(|(taken, _)| *taken != Some(*index)))
}

/// Registers a buffer, and notifies the peer of it where the peer may write. Gives the offset by which it is named; -1
/// asks for one.
#[unsafe(no_mangle)]
unsafe extern "C" fn riomap(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    rights: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let mapped = || -> Result<off_t> {
        let socket = table::find_stream(fd)?;
        let service = match socket.lock().id {
            id if id.is_null() => return Err(libc::ENOTCONN),
            // SAFETY: the socket's identifier, which is there while the lock is held.
            id => unsafe { Id::of(id) }.seat().service,
        };
        let domain = service.domain()?;
        let is_peers = match rights {
            libc::PROT_NONE => false,
            libc::PROT_WRITE => true,
            _ => return Err(libc::ENOTSUP),
        };
        let short = u32::try_from(len).map_err(|_| libc::EINVAL)?;
        let access = if is_peers { Access::Peer } else { Access::Own };
        // SAFETY: the program passes a buffer of its own; the service's domain stays.
        let mut registered = Some(unsafe { Registered::new(domain, buffer, len, access)? });
        let offset = if offset == -1 { buffer.addr() as off_t } else { offset };
        socket.until(true, |inner| {
            if let Err(number) = connected(inner)? {
                return Some(Err(number));
            }
            let index = if is_peers { free_index(inner) } else { None };
            let stream = inner.stream.as_mut()?;
            match (is_peers, index) {
                (false, _) => {}
                (true, None) => return Some(Err(libc::ENOBUFS)),
                (true, Some(_)) if stream.is_over() => return Some(Err(libc::EPIPE)),
                (true, Some(_)) if !stream.can_control() => return None,
                (true, Some(index)) => {
                    let key = registered.as_ref().map_or(0, Registered::key);
                    let place = RemoteBuffer { address: buffer.addr() as u64, key, len: short };
                    stream.map(index, Mapping { offset: offset as u64, place });
                }
            }
            inner.mapped.extend(registered.take().map(|registered| (index, registered)));
            Some(Ok(()))
        })?;
        Ok(offset)
    };
    mapped().unwrap_or_else(|number| {
        errno::set(number);
        -1
    })
}

/// The buffer is not written any more.
#[unsafe(no_mangle)]
extern "C" fn riounmap(fd: c_int, buffer: *mut c_void, len: size_t) -> c_int {
    errno::minus_one(table::find_stream(fd).and_then(|socket| {
        let mut inner = socket.lock();
        let range = (buffer.addr(), len);
        let at = inner.mapped.iter().position(|(_, registered)| registered.range() == range).ok_or(libc::EINVAL)?;
        inner.mapped.swap_remove(at);
        Ok(())
    }))
}

/// Writes bytes to where the peer has mapped this offset. They are there before what is sent later.
#[unsafe(no_mangle)]
unsafe extern "C" fn riowrite(fd: c_int, from: *const c_void, len: size_t, offset: off_t, flags: c_int) -> size_t {
    let mut done = 0;
    let written = table::find_stream(fd).and_then(|socket| {
        let wait = flags & libc::MSG_DONTWAIT == 0 && !socket.lock().options.nonblocking;
        // SAFETY: the program passes so many bytes.
        let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) } };
        socket.until(wait, |inner| {
            let stream = match connected(inner)? {
                Ok(stream) if stream.is_over() => return Some(Err(libc::EPIPE)),
                Ok(stream) => stream,
                Err(number) => return Some(Err(number)),
            };
            match stream.write_to(offset as u64 + done as u64, &bytes[done..]) {
                Ok(count) => done += count,
                Err(number) => return Some(Err(number)),
            }
            (done == bytes.len()).then_some(Ok(()))
        })
    });
    let written = match written {
        Err(_) if done > 0 => Ok(()),
        written => written,
    };
    value(written.map(|()| done)) as size_t
}
