//! The common case of reading and writing: an open connection that only this process has, neither direction shut, with
//! bytes or room there.
//!
//! One look-up, one lock, one copy, one bump. Whatever is not common gives `None` before anything was changed, and goes
//! the long way (`data`), which has all cases.
use crate::calls::pieces::Pieces;
use crate::lock::{self, Guard};
use crate::state::context_side::Context;
use crate::state::slab::Key;
use crate::state::slot_state::{SHUT_WRITE, SPLICED, UNSENT_MARK};
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::state::{Lib, Link};
use crate::system::errno;
use crate::table::{self, Entry};
use crate::wait;
use libc::{c_int, iovec, ssize_t};

/// The socket of a descriptor, with the library locked, by its index.
#[inline(always)]
fn locked(fd: c_int) -> Option<(Guard, usize)> {
    let entry = table::get(fd);
    let Entry::Socket(index) = entry else { return None };
    let lib = lock::lock().ok()?;
    // It may have become another one before the lock was there.
    table::is_still(fd, entry).then_some((lib, index))
}

/// The socket at an index and the context.
#[inline(always)]
fn parts(lib: &mut Lib, index: usize) -> Option<(&mut Socket, &mut Context)> {
    let Lib { sockets, link, .. } = lib;
    match link {
        Link::Attached(context) => Some((sockets.get_mut(index)?, context)),
        _ => None,
    }
}

/// The open connection, where no other process has it.
#[inline(always)]
fn own(kind: &mut Kind) -> Option<&mut Stream> {
    match kind {
        Kind::Stream(stream) if !(stream.shared | stream.reclaim.asked) => Some(stream),
        _ => None,
    }
}

/// `recv`, `read` and their kin.
///
/// # Safety
/// The program gave the buffers.
#[inline(always)]
pub(crate) unsafe fn receive(fd: c_int, into: impl Pieces, flags: c_int) -> Option<ssize_t> {
    if flags & !libc::MSG_DONTWAIT != 0 {
        return None;
    }
    let (mut lib, index) = locked(fd)?;
    let (socket, context) = parts(&mut lib, index)?;
    let key = Key { index, id: socket.id };
    let stream = own(&mut socket.kind)?;
    if stream.flags() != 0 {
        return None;
    }
    if stream.unread_bytes() == 0 {
        // Everything was read: reports it, where bytes are wanted and nothing else is to be done.
        let dont_wait = socket.nonblocking || flags != 0;
        let failed = socket.error != 0 || socket.broken;
        let nothing = into.have_bytes() && dont_wait && !failed && context.nothing_new();
        drop(lib);
        return nothing.then(|| errno::give(Err(libc::EAGAIN)));
    }
    // SAFETY: the caller's promise.
    let got = unsafe { stream.take(into) };
    if got == 0 {
        return None;
    }
    if stream.window_update_is_due() {
        context.open_window(key, stream, socket.options.receive_size);
    }
    let enough = context.has_moved(got);
    drop(lib);
    if enough {
        wait::yield_between();
    }
    Some(got as ssize_t)
}

/// `send`, `write` and their kin.
///
/// # Safety
/// The program gave the buffers.
#[inline(always)]
pub(crate) unsafe fn transmit(fd: c_int, from: impl Iterator<Item = iovec>, flags: c_int) -> Option<ssize_t> {
    if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0 {
        return None;
    }
    let (mut lib, index) = locked(fd)?;
    let (socket, context) = parts(&mut lib, index)?;
    if socket.error != 0 || socket.broken || socket.options.cork || context.was_answered() {
        return None;
    }
    context.end.bumps.expect();
    let key = Key { index, id: socket.id };
    let stream = own(&mut socket.kind)?;
    if stream.flags() & (SHUT_WRITE | SPLICED | UNSENT_MARK) != 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    let put = unsafe { stream.put(from) }?;
    context.bump_open(key, stream);
    let enough = context.has_moved(put);
    drop(lib);
    if enough {
        wait::yield_between();
    }
    Some(put as ssize_t)
}
