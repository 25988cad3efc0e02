//! `shutdown` of connections, listeners and attempts to connect.
use crate::calls::listening::stop_listening;
use crate::daemon::{ask, share};
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::slot_state::{SHUT_READ, SHUT_WRITE};
use crate::state::socket::{Attempt, Kind};
use crate::state::{Lib, Link, events, readiness};
use crate::system::errno::Result;
use context::Request;
use libc::c_int;

/// `shutdown`.
pub(crate) fn shutdown(lib: &mut Guard, key: Key, how: c_int) -> Result<()> {
    share::claim(lib, key)?;
    let Lib { link, sockets, sets, .. } = &mut **lib;
    let socket = sockets.get_mut(key.index).ok_or(libc::EBADF)?;
    let flags = match how {
        libc::SHUT_RD => SHUT_READ,
        libc::SHUT_WR => SHUT_WRITE,
        libc::SHUT_RDWR => SHUT_READ | SHUT_WRITE,
        _ => return Err(libc::EINVAL),
    };
    if let Kind::Listener(_) = socket.kind {
        return if flags & SHUT_READ != 0 { stop_listening(lib, key) } else { Ok(()) };
    }
    if matches!(socket.kind, Kind::Connecting { .. }) {
        return give_up_connecting(lib, key);
    }
    let broken = socket.broken;
    if matches!(socket.kind, Kind::Stream(_)) {
        // As Linux has it: shutdown is a use of a connection that is open.
        socket.outcome_pending = false;
    }
    let stream = socket.stream()?;
    if broken {
        return Err(libc::ENOTCONN);
    }
    let before = stream.raise(flags);
    if flags & SHUT_WRITE != 0 && before & SHUT_WRITE == 0 {
        if let Link::Attached(context) = link {
            context.bump(key, stream);
        }
    }
    readiness::notify(socket, sets, events::ALL);
    share::confirm(lib, key);
    Ok(())
}

/// `shutdown` of a connection that is being opened.
pub(crate) fn give_up_connecting(lib: &mut Guard, key: Key) -> Result<()> {
    let Kind::Connecting(attempt) = &lib.need_socket(key)?.kind else { return Err(libc::ENOTCONN) };
    let Attempt { tag, bound, .. } = **attempt;
    if let Some(context) = lib.context() {
        context.connects.remove(&tag);
    }
    ask::send_request(lib, Request::CancelConnect { tag });
    let Lib { sockets, sets, .. } = &mut **lib;
    if let Some(socket) = sockets.get_mut(key.index) {
        (socket.kind, socket.outcome_pending) = (bound.map_or(Kind::Fresh, Kind::bound), false);
        readiness::notify(socket, sets, events::ALL);
    }
    Ok(())
}
