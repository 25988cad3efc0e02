//! Bumps: reports to the engine how far the program has come: at once, later where the ring is full, or held back.
use crate::state::slab::Key;
use crate::state::socket::{Kind, Socket};
use crate::state::{Lib, Link};

impl Lib {
    /// Reports to the engine how far the program has come.
    pub(crate) fn bump(&mut self, key: Key) {
        let Lib { sockets, link: Link::Attached(context), .. } = self else { return };
        if let Some(Socket { kind: Kind::Stream(stream), .. }) = sockets.get_mut(key.index) {
            context.bump_and_ask(key, stream);
        }
    }

    /// `TCP_CORK` was taken off, or `TCP_NODELAY` set: what was held back goes out.
    pub(crate) fn uncork(&mut self, key: Key) {
        let held = |socket: &Socket| matches!(&socket.kind, Kind::Stream(stream) if stream.bump_held);
        if self.sockets.get(key.index).is_some_and(held) {
            self.bump(key);
        }
    }

    /// Bumps that found the ring full.
    pub(crate) fn flush_pending(&mut self) {
        let Some(context) = self.context() else { return };
        if context.pending.is_empty() {
            return;
        }
        for key in std::mem::take(&mut context.pending) {
            let Lib { link: Link::Attached(context), sockets, .. } = self else { return };
            let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { continue };
            if let Kind::Stream(stream) = &mut socket.kind {
                stream.pending = false;
                context.bump_and_ask(key, stream);
            }
        }
    }

    /// Before a thread sleeps, everything that was held back goes out: there is no timer that would do it.
    pub(crate) fn send_held(&mut self) {
        while let Some(key) = self.context().and_then(|context| context.held.pop()) {
            self.uncork(key);
        }
    }
}
