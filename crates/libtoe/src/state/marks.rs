//! Options that move the bounds of a connection's readiness: `SO_SNDBUF`, `SO_RCVLOWAT` and `TCP_NOTSENT_LOWAT`.
//! Where a new bound makes a connection ready, waiting threads wake up.
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::state::{Lib, Link, events, readiness};

impl Lib {
    /// The program has set `SO_SNDBUF`. Where it is more than before, whoever waits for room may have it now.
    pub(crate) fn limit_sending(&mut self, key: Key) {
        let Lib { sockets, sets, .. } = self;
        let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { return };
        let (Kind::Stream(stream), Some(limit)) = (&mut socket.kind, socket.options.send_limit) else { return };
        stream.limit_sending(limit);
        if stream.waits_for_room && stream.is_writable() {
            stream.waits_for_room = false;
            readiness::notify(socket, sets, events::OUT);
        }
    }

    /// The program has set `TCP_NOTSENT_LOWAT`.
    pub(crate) fn use_unsent_mark(&mut self, key: Key) {
        let Lib { sockets, sets, link, .. } = self;
        let Some(socket) = sockets.get_mut(key.index).filter(|socket| socket.id == key.id) else { return };
        let (Kind::Stream(stream), Link::Attached(context)) = (&mut socket.kind, link) else { return };
        stream.use_unsent_mark(socket.options.unsent_mark, socket.options.low_mark);
        context.bump_and_ask(key, stream);
        if stream.waits_for_room && stream.is_writable() {
            stream.waits_for_room = false;
            readiness::notify(socket, sets, events::OUT);
        }
    }

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
