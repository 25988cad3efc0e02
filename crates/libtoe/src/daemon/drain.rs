//! Draining of the daemon's rings: completions of connections, replies, the daemon's end.
use crate::state::context_side::LIFE_CHECK;
use crate::state::slab::Key;
use crate::state::socket::{Kind, Pending};
use crate::state::{Lib, Link, events, readiness};
use crate::system::waking::{self, Point};
use crate::system::warn::{self, Topic};
use context::{Completion, Reply, Slot};

impl Lib {
    /// Takes in all completions and replies of the daemon.
    #[inline]
    pub(crate) fn drain(&mut self) {
        waking::point(Point::Poll);
        let Some(context) = self.context() else { return self.find_daemon() };
        if context.is_quiet() {
            context.empty_drains = context.empty_drains.wrapping_add(1);
            if context.empty_drains % LIFE_CHECK == 0 {
                self.check_daemon();
            }
            return;
        }
        self.taken_in = self.taken_in.wrapping_add(1);
        self.flush_pending();
        self.drain_replies();
        self.drain_completions();
        self.note_activity();
    }

    /// Takes replies in, where there are any: for calls that need no completions.
    #[inline]
    pub(crate) fn drain_replies_now(&mut self) {
        if self.context().is_some_and(|context| context.was_answered()) {
            self.drain();
        }
    }

    fn drain_replies(&mut self) {
        while let Some(context) = self.context() {
            match context.end.replies.pop() {
                Ok(Some(words)) => {
                    if let Some(reply) = Reply::from_words(words) {
                        self.take_reply(reply);
                    }
                }
                Ok(None) => return,
                Err(_) => return self.daemon_died(),
            }
        }
    }

    fn drain_completions(&mut self) {
        let Lib { link: Link::Attached(context), sockets, sets, .. } = self else { return };
        // Looked up once: nothing below changes where it is.
        let context = &mut **context;
        // The engine may go on while we drain; one ring's worth is enough for one call.
        let mut left = context.end.geometry.data_entries;
        while left > 0 {
            let waiting = match context.end.completions.waiting() {
                Ok(0) => return,
                Ok(waiting) => waiting,
                Err(_) => return self.daemon_died(),
            };
            for before in 0..waiting {
                let words = context.end.completions.at(before);
                if context.take_completion_fast(sockets, sets, words).is_none() {
                    context.take_completion(sockets, sets, &Completion::from_words(words));
                }
            }
            context.end.completions.release(waiting);
            left = left.saturating_sub(waiting);
        }
    }

    /// Applies a completion to the socket's connection and wakes whom it concerns.
    pub(crate) fn apply(&mut self, key: Key, completion: &Completion) {
        let Lib { link, sockets, sets, .. } = self;
        if let Link::Attached(context) = link {
            context.note_urgent(sockets, key.index, completion);
        }
        readiness::apply(sockets, sets, key.index, completion);
    }

    fn take_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Failed { tag, .. } | Reply::Connecting { tag, .. } | Reply::Connected { tag, .. } => {
                let connecting = self.context().and_then(|context| context.connects.get(&tag).copied());
                match (connecting, reply) {
                    (Some(key), _) => self.connect_reply(key, reply),
                    // Opened in spite of its cancellation: ours to close.
                    (None, Reply::Connected { slot, .. }) => self.refuse_connection(slot),
                    (None, _) => self.answer(tag, reply),
                }
            }
            Reply::Done { tag }
            | Reply::Bound { tag, .. }
            | Reply::Forked { tag, .. }
            | Reply::Claimed { tag, .. }
            | Reply::Adopted { tag, .. }
            | Reply::Info { tag, .. } => self.answer(tag, reply),
            Reply::Accept { binding, slot, local, remote, mss } => {
                self.accept_reply(binding, Pending { slot, local, remote, mss, errno: 0, taken: false });
            }
            Reply::Unaccept { binding, slot } => self.unaccept_reply(binding, slot),
            Reply::Error { slot, errno } => self.error_reply(slot, errno as i32),
            Reply::Ended { slot, rx_tail, tx_tail } => {
                self.ended(Completion { slot, rx_tail, tx_tail, fin: true, ring: 0, urgent: false })
            }
            Reply::SpliceOver { slot, errno: 0 } => self.splice_over(slot),
            Reply::SpliceOver { slot, errno } => self.error_reply(slot, errno as i32),
            Reply::Reclaimed { slot, done } => self.reclaimed(slot, done),
            Reply::NotAdopted => warn::once(Topic::NotAdopted),
            // Which slots are free is the control plane's business; nothing is sent from there any more.
            Reply::Freed { slot } => self.context().into_iter().for_each(|context| context.unpin(slot)),
        }
    }

    /// The last completion of a connection, by another way.
    fn ended(&mut self, completion: Completion) {
        let Lib { link: Link::Attached(context), sockets, sets, .. } = self else { return };
        context.take_completion(sockets, sets, &completion);
    }

    fn answer(&mut self, tag: u32, reply: Reply) {
        // An answer that nobody waits for any more is dropped; what it grants goes with the context.
        if let Some(place) = self.context().and_then(|context| context.answers.get_mut(&tag)) {
            *place = Some(reply);
        }
        self.wake_askers();
    }

    fn unaccept_reply(&mut self, binding: u32, slot: Slot) {
        let Some(context) = self.context() else { return };
        let listener = context.listeners.get(&binding).copied();
        let accepted = context.socket_of(slot);
        if let Some(socket) = listener.and_then(|key| self.socket(key)) {
            if let Kind::Listener(listener) = &mut socket.kind {
                listener.took_back(slot);
            }
        }
        // A daemon takes nothing back that was accepted; to the program, the connection was reset.
        if let Some(index) = accepted {
            self.error_reply(slot, libc::ECONNRESET);
            if let Some(Kind::Stream(stream)) = self.sockets.get_mut(index).map(|socket| &mut socket.kind) {
                stream.gone = true;
            }
        }
    }

    fn error_reply(&mut self, slot: Slot, errno: i32) {
        let Some(context) = self.context() else { return };
        match context.socket_of(slot) {
            Some(index) => self.fail_stream(index, errno),
            None => self.fail_waiting(slot, errno),
        }
    }

    pub(crate) fn fail_stream(&mut self, index: usize, errno: i32) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if let Kind::Stream(_) = socket.kind {
            socket.error = errno;
            socket.broken = true;
            readiness::notify(socket, &mut self.sets, events::ALL);
        }
    }
}
