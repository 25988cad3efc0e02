//! `recv` and `send` with `MSG_OOB`, and what others ask of the mark.
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::slab::Key;
use crate::state::slot_state::{RX_FIN, SHUT_READ};
use crate::state::socket::Kind;
use crate::system::errno::Result;
use libc::{c_int, iovec};

/// The urgent byte; the call never waits for it. `EINVAL` where there is none out of the stream, as in Linux.
///
/// # Safety
/// The buffers are valid.
pub(crate) unsafe fn receive(lib: &mut Guard, key: Key, into: &[iovec], flags: c_int) -> Result<usize> {
    share::claim(lib, key)?;
    lib.drain();
    let socket = lib.need_socket(key)?;
    let stream = match &socket.kind {
        Kind::Stream(stream) if !socket.options.inline_urgent => stream,
        Kind::Listener(_) => return Err(libc::ENOTCONN),
        _ => return Err(libc::EINVAL),
    };
    // SAFETY: the caller vouches for the buffers.
    match unsafe { stream.take_urgent(into, flags & libc::MSG_PEEK != 0) } {
        Err(libc::EAGAIN) if socket.broken || stream.flags() & (RX_FIN | SHUT_READ) != 0 => Ok(0),
        taken => taken,
    }
}

/// The next byte is the urgent one.
pub(super) fn is_at_mark(lib: &mut Lib, key: Key) -> bool {
    lib.socket(key).is_some_and(|socket| matches!(&socket.kind, Kind::Stream(stream) if stream.is_at_mark()))
}

/// The host's engine sends urgent data.
pub(super) fn can_be_sent(lib: &mut Lib) -> bool {
    lib.context().is_some_and(|context| context.welcome.urgent)
}
