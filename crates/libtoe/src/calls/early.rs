//! Data that goes with the SYN (TCP Fast Open, RFC 7413): `MSG_FASTOPEN` and `TCP_FASTOPEN_CONNECT`.
//!
//! A connection to a peer whose cookie the host has waits for the program's first bytes. Those that fit are put where
//! the connection's transmit stream begins, and the control plane sends the SYN with them. A call that waits for the
//! connection puts all there that the buffer holds: what the SYN-ACK does not acknowledge goes at once then, without
//! the program. Once the connection is open, all of it counts as written.
use crate::calls::connect;
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::fast_open::FastOpen;
use crate::state::slab::Key;
use crate::state::socket::{Early, Kind};
use crate::state::{Lib, Link};
use crate::system::errno::Result;
use crate::system::user_memory;
use context::{Completion, Request, Slot};
use libc::iovec;

impl Lib {
    /// Sends the control plane what a listener's program has set for its connections.
    pub(crate) fn send_listener_options(&mut self, key: Key) {
        let Some(socket) = self.socket(key) else { return };
        let Kind::Listener(listener) = &socket.kind else { return };
        let (binding, FastOpen { most, keys, no_cookie, .. }) = (listener.bound.binding, socket.options.fast_open);
        let mss = socket.options.mss;
        if let Some(context) = self.context() {
            context.send_request_surely(Request::SegmentSize { binding, mss });
            context.send_request_surely(Request::FastOpen { binding, most, keys, no_cookie });
        }
    }

    /// The connection is open: what was written for its SYN counts, and so much of it is acknowledged.
    pub(crate) fn count_early(&mut self, key: Key, slot: Slot, written: u32, acknowledged: u32) {
        if written == 0 {
            return;
        }
        let Some(Kind::Stream(stream)) = self.socket(key).map(|socket| &mut socket.kind) else { return };
        stream.produced(written);
        stream.apply(&Completion { slot, rx_tail: 0, tx_tail: acknowledged, fin: false, ring: 0, urgent: false });
        self.bump(key);
    }
}

/// Sends the SYN with the first of the program's bytes, and waits for the connection in a blocking call. Returns how
/// many bytes were taken.
///
/// # Safety
/// The buffers are valid.
pub(crate) unsafe fn transmit(lib: &mut Guard, key: Key, from: &[iovec], dont_wait: bool) -> Result<usize> {
    let waits = !dont_wait && !lib.need_socket(key)?.nonblocking;
    // SAFETY: the caller vouches for the buffers.
    let written = unsafe { give(lib, key, from, waits)? };
    if waits {
        connect::wait_for_it(lib, key)?;
    }
    Ok(written)
}

/// Puts the first bytes where the transmit stream begins, and lets the SYN go.
///
/// # Safety
/// The buffers are valid.
unsafe fn give(lib: &mut Guard, key: Key, from: &[iovec], waits: bool) -> Result<usize> {
    let Kind::Connecting(attempt) = &lib.need_socket(key)?.kind else { return Err(libc::ENOTCONN) };
    let (tag, Early::Awaited(slot, room)) = (attempt.tag, attempt.early) else { return Err(libc::EALREADY) };
    let Link::Attached(context) = &mut lib.link else { return Err(libc::ENETDOWN) };
    let (_, tx) = context.end.map_buffers(slot).map_err(|_| libc::ENOMEM)?;
    let wanted = from.iter().fold(0, |sum: usize, buffer| sum.saturating_add(buffer.iov_len));
    let most = wanted.min(if waits { tx.size() as usize } else { room.into() });
    let (mut bytes, mut written) = (vec![0u8; most], 0);
    for buffer in from {
        let len = buffer.iov_len.min(bytes.len() - written);
        // SAFETY: `len` is within both buffers; the caller vouches for the program's.
        unsafe { user_memory::copy_in(buffer.iov_base.cast(), bytes.as_mut_ptr().wrapping_add(written), len) };
        written += len;
    }
    if user_memory::faulted() {
        return Err(libc::EFAULT);
    }
    tx.write(0, &bytes[..written]);
    if let Kind::Connecting(attempt) = &mut lib.need_socket(key)?.kind {
        attempt.early = Early::Written(written as u32);
    }
    ask::send_request(lib, Request::SynData { tag, len: written as u32 });
    Ok(written)
}
