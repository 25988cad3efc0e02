//! `SO_RCVLOWAT`: from how many bytes on a program hears of what came.
//!
//! A connection with such a mark says so in the flags of its slot, which every short way looks at anyway: all others
//! pay nothing for it.
use super::Stream;
use crate::state::slab::Key;
use crate::state::slot_state::LOW_MARK;
use crate::state::socket::Kind;
use crate::state::{Lib, events, readiness};

impl Stream {
    /// The program waits for so many bytes at least. The flag stays: another process may have a mark of its own.
    pub(crate) fn use_low_mark(&mut self, low_mark: u32) {
        self.marked = low_mark > 1;
        if self.marked {
            self.raise(LOW_MARK);
        }
    }

    /// As many bytes can be read as the mark asks for. Half of the buffer is always enough, as in Linux: the peer's
    /// window is open until then.
    pub(crate) fn reaches(&self, low_mark: u32) -> bool {
        self.readable() >= low_mark.min(self.buffer_sizes().0 / 2).max(1)
    }
}

impl Lib {
    /// The program has set `SO_RCVLOWAT`. Where what is there is enough now, whoever waits for it has it.
    pub(crate) fn use_low_mark(&mut self, key: Key) {
        let Lib { sockets, sets, .. } = self;
        let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { return };
        let (Kind::Stream(stream), low_mark) = (&mut socket.kind, socket.options.low_mark) else { return };
        stream.use_low_mark(low_mark);
        if stream.reaches(low_mark) {
            readiness::notify(socket, sets, events::IN);
        }
    }
}
