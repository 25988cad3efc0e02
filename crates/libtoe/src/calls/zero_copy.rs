//! The zero-copy interface (include/toe.h, man/toe_zc.3): the program writes into the transmit buffer and reads out of
//! the receive buffer itself. Positions move as in `data`, and so do waiting and errors.
use crate::calls::data::{self, can_write};
use crate::calls::{direct, waiting};
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::slab::Key;
use crate::state::slot_state::{RX_FIN, SHUT_READ};
use crate::state::socket::{Kind, Socket};
use crate::state::stream::Stream;
use crate::system::errno::Result;
use crate::system::waking;
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use libc::{c_int, iovec};
use std::time::Duration;

/// No bytes.
const NOTHING: [iovec; 2] = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];

/// The room of the transmit buffer in at most two pieces; waits until there are `least` bytes.
pub(crate) fn reserve(lib: &mut Guard, key: Key, least: usize, flags: c_int) -> Result<[iovec; 2]> {
    crate::daemon::share::claim(lib, key)?;
    let socket = check(lib, key, flags, libc::MSG_DONTWAIT)?;
    let (timeout, dont_wait) = (socket.options.send_timeout, is_impatient(socket, flags));
    if !(1..=own(socket)?.buffer_sizes().1 as usize).contains(&least) {
        return Err(libc::EINVAL);
    }
    lib.drain_replies_now();
    wait_for(lib, key, dont_wait, timeout, |lib| {
        let socket = lib.socket(key)?;
        if let Err(errno) = can_write(socket) {
            return Some(Err(errno));
        }
        let Kind::Stream(stream) = &mut socket.kind else { return Some(Err(libc::EPIPE)) };
        let room = stream.room();
        stream.waits_for_room |= (room as usize) < least;
        // Who writes in place writes much: all of the buffer is theirs.
        let pieces = stream.place(room).pieces(stream.tx_head(), room);
        let pieces = pieces.map(|(base, len)| iovec { iov_base: base.cast(), iov_len: len });
        stream.reclaim.reserved |= room as usize >= least;
        (room as usize >= least).then_some(Ok(pieces))
    })
}

/// Sends what was written to the room that was reserved.
pub(crate) fn commit(lib: &mut Guard, key: Key, len: usize, flags: c_int) -> Result<()> {
    crate::daemon::share::claim(lib, key)?;
    let socket = check(lib, key, flags, libc::MSG_MORE)?;
    can_write(socket)?;
    let stream = own(socket)?;
    if len > stream.room() as usize {
        return Err(libc::EINVAL);
    }
    stream.reclaim.reserved = false;
    stream.produced(len as u32);
    data::wrote(lib, key, flags & libc::MSG_MORE != 0);
    Ok(())
}

/// What was received and not yet released, in at most two pieces; waits until there are `least` bytes or no more come.
pub(crate) fn peek(lib: &mut Guard, key: Key, least: usize, flags: c_int) -> Result<[iovec; 2]> {
    let socket = check(lib, key, flags, libc::MSG_DONTWAIT)?;
    let (timeout, dont_wait) = (socket.options.receive_timeout, is_impatient(socket, flags));
    if !(1..=own(socket)?.buffer_sizes().0 as usize).contains(&least) {
        return Err(libc::EINVAL);
    }
    wait_for(lib, key, dont_wait, timeout, |lib| {
        direct::take_back(lib, key);
        let socket = lib.socket(key)?;
        let broken = socket.broken;
        let stream = socket.stream().ok()?;
        let (len, state) = (stream.readable(), stream.flags());
        if state & SHUT_READ != 0 {
            return Some(Ok(NOTHING));
        }
        let over = broken || state & RX_FIN != 0;
        if len as usize >= least || (over && len > 0) {
            return Some(Ok(stream.unread(0)));
        }
        match socket.take_error() {
            0 => over.then_some(Ok(NOTHING)),
            errno => Some(Err(errno)),
        }
    })
}

/// The program has done with bytes that it peeked at.
pub(crate) fn release(lib: &mut Guard, key: Key, len: usize) -> Result<()> {
    let stream = own(check(lib, key, 0, 0)?)?;
    if len > stream.readable() as usize {
        return Err(libc::EINVAL);
    }
    stream.consume(len as u32);
    data::bump_window(lib, key);
    Ok(())
}

/// The next `len` bytes, which are read with this but stay where they are until they are freed. Waits until all are
/// there or no more come.
pub(crate) fn take(lib: &mut Guard, key: Key, len: usize, flags: c_int) -> Result<[iovec; 2]> {
    let stream = own(check(lib, key, flags, libc::MSG_DONTWAIT)?)?;
    let size = stream.buffer_sizes().0 as usize;
    if !(1..=size).contains(&len) {
        return Err(libc::EINVAL);
    }
    // A stream that has outgrown its buffer may have more there.
    if len > size.saturating_sub(stream.occupied() as usize) {
        return Err(libc::ENOBUFS);
    }
    if stream.keeps() && stream.unadvertised_window() > 0 && (stream.readable() as usize) < len {
        lib.bump(key);
    }
    let there: usize = peek(lib, key, len, flags)?.iter().map(|piece| piece.iov_len).sum();
    Ok(own(lib.need_socket(key)?)?.keep(there.min(len) as u32))
}

/// The program has done with places that it took, in any order.
pub(crate) fn free(lib: &mut Guard, key: Key, pieces: &[iovec]) -> Result<()> {
    // Not `own`: a process that forks may still free what it took before.
    let stream = check(lib, key, 0, 0)?.stream()?;
    let all = pieces.iter().all(|piece| stream.free(*piece));
    if !stream.keeps() {
        lib.note_activity();
    }
    data::bump_window(lib, key);
    if all { Ok(()) } else { Err(libc::EINVAL) }
}

fn check(lib: &mut Lib, key: Key, flags: c_int, known: c_int) -> Result<&mut Socket> {
    if flags & !known != 0 {
        return Err(libc::EINVAL);
    }
    lib.need_socket(key)
}

/// The connection, which no other process has: it could not be kept from using the same bytes.
fn own(socket: &mut Socket) -> Result<&mut Stream> {
    let stream = socket.stream()?;
    if stream.shared { Err(libc::EOPNOTSUPP) } else { Ok(stream) }
}

fn is_impatient(socket: &Socket, flags: c_int) -> bool {
    socket.nonblocking || flags & libc::MSG_DONTWAIT != 0
}

fn wait_for<T>(
    lib: &mut Guard,
    key: Key,
    dont_wait: bool,
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut Lib) -> Option<Result<T>>,
) -> Result<T> {
    if let Some(found) = poll(lib) {
        return found;
    }
    let deadline = if dont_wait { Some(waking::now()) } else { timeout.map(|timeout| waking::now() + timeout) };
    let targets = [Target::Socket(key)];
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
    let found =
        waiting::until(lib, wait, |lib, _| if lib.socket(key).is_some() { poll(lib) } else { Some(Err(libc::EBADF)) });
    found.map_err(|errno| if errno == libc::ETIMEDOUT { libc::EAGAIN } else { errno })?
}
