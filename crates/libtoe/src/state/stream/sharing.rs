//! Connections that several processes have.
use super::{Stream, StreamChange};
use crate::state::slot_state::RX_FIN;
use std::sync::atomic::Ordering::Acquire;

impl Stream {
    /// Another process may have it as well from now on.
    pub(crate) fn share(&mut self) {
        if !self.shared {
            self.spill_references();
        }
        self.shared = true;
        self.seen_tail = self.shared_tail();
    }

    fn shared_tail(&self) -> u32 {
        self.state().rx_tail.load(Acquire).wrapping_add(u32::from(self.has_fin()))
    }

    fn has_fin(&self) -> bool {
        self.flags() & RX_FIN != 0
    }

    /// Completions come here again. Whether another process took in meanwhile that there are bytes to read, and a FIN.
    pub(crate) fn catch_up(&mut self) -> StreamChange {
        let now = self.shared_tail();
        let is_new = std::mem::replace(&mut self.seen_tail, now) != now;
        StreamChange { bytes: is_new && self.unread_bytes() != 0, room: true, end: is_new && self.has_fin() }
    }
}
