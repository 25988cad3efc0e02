//! The daemon ends, and the next one comes (docs/RESTART.md).
//!
//! The library has no thread of its own: it tries to attach again in calls of the program, and while none is made, in
//! sleeps of calls that wait.
use crate::attach::{self, Failure};
use crate::listener::Listener;
use crate::lost::Lost;
use crate::quiet;
use crate::readiness;
use crate::say;
use crate::socket::Kind;
use crate::state::{Key, Lib, Link};
use crate::waking;
use context::{Notice, Request, Unaccelerated};
use std::time::Instant;

impl Lib {
    /// Looks whether the daemon's end of the attach socket is still there.
    pub(crate) fn check_daemon(&mut self) {
        if self.context().is_some_and(|context| context.daemon_is_gone()) {
            self.daemon_died();
        }
    }

    /// The daemon is gone: every connection is reset, every wait but those for listeners ends.
    pub(crate) fn daemon_died(&mut self) {
        if !matches!(self.link, Link::Attached(_)) {
            return;
        }
        self.drain_leftovers();
        // Descriptors cannot be opened under a filter of the program's.
        let comes_back = !waking::is_confined();
        let mut listeners = 0;
        for index in self.sockets.indices() {
            listeners += usize::from(self.lose(index, comes_back));
        }
        self.link = if comes_back { Link::Lost(Lost::now(listeners > 0)) } else { Link::Dead };
        if listeners > 0 {
            say::line(&format!(
                "the daemon is gone: connections are reset, listeners ({listeners}) wait for the next one"
            ));
        }
        self.wake_askers();
    }

    /// A socket is without its daemon; says whether it is a listener that may come back.
    fn lose(&mut self, index: usize, comes_back: bool) -> bool {
        let Some(socket) = self.sockets.get_mut(index) else { return false };
        let mut listens = false;
        match &mut socket.kind {
            Kind::Fresh => {}
            Kind::Bound(bound) => bound.binding = 0,
            Kind::Connecting(_) => {
                socket.error = libc::ECONNRESET;
                socket.kind = Kind::Fresh;
            }
            Kind::Listener(listener) => {
                // Credits stay, as a mark of the program's interest.
                listener.queue.clear();
                listens = !socket.broken && comes_back && listener.ticket.is_some();
                socket.broken = !listens;
            }
            Kind::Log(_) => socket.broken = true,
            Kind::Stream(stream) => {
                socket.error = libc::ECONNRESET;
                socket.broken = true;
                // Its slot is nothing to another daemon.
                (stream.name, stream.gone) = (None, true);
                (stream.owed, stream.untold, stream.rest) = (false, false, quiet::State::default());
            }
        }
        readiness::notify(socket, &mut self.sets, readiness::ALL);
        listens
    }

    /// Bytes that had arrived before the daemon died can still be read.
    fn drain_leftovers(&mut self) {
        while let Link::Attached(context) = &mut self.link {
            match context.end.notices.pop() {
                Ok(Some(words)) => {
                    context.take_notice(&mut self.sockets, &mut self.sets, &Notice::from_words(words));
                }
                _ => return,
            }
        }
    }

    /// Without a daemon: looks for the next one where it is time to.
    #[cold]
    pub(crate) fn look_for_daemon(&mut self) {
        if let Link::Lost(lost) = &self.link {
            if lost.is_due(Instant::now()) {
                self.come_back();
            }
        }
    }

    /// Attaches to the next daemon, where one is there.
    pub(crate) fn come_back(&mut self) {
        if !matches!(self.link, Link::Lost(_)) {
            return;
        }
        let tickets = |lib: &mut Lib, index| lib.listener_at(index).and_then(|listener| listener.ticket.clone());
        let ticket = self.sockets.indices().into_iter().find_map(|index| tickets(self, index));
        match attach::attach_again(ticket.map(|ticket| *ticket)) {
            Ok(context) => {
                self.attached(context);
                self.listen_again();
            }
            Err(Failure::Absent(_)) => {
                let wanted = self.sockets.indices().into_iter().any(|index| self.listener_at(index).is_some());
                if let Link::Lost(lost) = &mut self.link {
                    lost.later(wanted);
                }
            }
            Err(Failure::Refused(sentence)) => {
                self.link = Link::Dead;
                for index in self.sockets.indices() {
                    self.give_listener_up(index);
                }
                say::line(&format!("the next daemon refuses this program, and its listeners are lost: {sentence}"));
            }
        }
    }

    /// The socket listens: the daemon gives a ticket with which it comes back, where the program lets us ask for one.
    pub(crate) fn take_ticket(&mut self, key: Key) {
        let Some(Kind::Listener(listener)) = self.socket(key).map(|socket| &socket.kind) else { return };
        let binding = listener.bound.binding;
        if listener.ticket.is_some() || waking::is_confined() {
            return;
        }
        let ticket = self.context().and_then(|context| attach::ticket(context.control(), binding));
        if let Some(Kind::Listener(listener)) = self.socket(key).map(|socket| &mut socket.kind) {
            listener.ticket = ticket.map(Box::new);
        }
    }

    /// Brings all listeners back.
    fn listen_again(&mut self) {
        let (mut back, mut lost) = (0, Vec::new());
        for index in self.sockets.indices() {
            match self.bring_back(index) {
                None => {}
                Some(Ok(())) => back += 1,
                Some(Err((local, errno))) => {
                    self.give_listener_up(index);
                    lost.push(format!("{local} ({})", std::io::Error::from_raw_os_error(errno)));
                }
            }
        }
        if back > 0 {
            say::line(&format!("attached to the next daemon: listeners ({back}) are back"));
        }
        if !lost.is_empty() {
            say::line(&format!("listeners are lost, their addresses cannot be had again: {}", lost.join(", ")));
        }
    }

    /// A listener that is without its daemon; not one that was given up.
    fn listener_at(&mut self, index: usize) -> Option<&mut Listener> {
        match self.sockets.get_mut(index).map(|socket| (socket.broken, &mut socket.kind))? {
            (false, Kind::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Brings a listener back. `None` where the socket is none; on failure the address and the error.
    fn bring_back(&mut self, index: usize) -> Option<Result<(), (context::Endpoint, i32)>> {
        let key: Key = self.key_of(index)?;
        let listener = self.listener_at(index)?;
        let local = listener.bound.local;
        let (ticket, backlog) = (listener.ticket.clone(), listener.backlog);
        let interested = listener.credits.take().is_some();
        let Link::Attached(context) = &mut self.link else { return None };
        let binding =
            match ticket.ok_or(libc::EACCES).and_then(|ticket| attach::listen(context.control(), *ticket, backlog)) {
                Ok(binding) => binding,
                Err(errno) => return Some(Err((local, errno))),
            };
        context.listeners.insert(binding, key);
        self.listener_at(index)?.bound.binding = binding;
        let socket = self.sockets.get(index)?;
        let (interested, in_kernel) = (interested || !socket.watchers.is_empty(), socket.listens_in_kernel());
        self.serve_loopback(binding, in_kernel);
        self.label(key, Unaccelerated::No);
        if interested {
            self.show_interest(key);
        }
        Some(Ok(()))
    }

    /// As after `listen`: loopback addresses are served where the kernel's half has them.
    fn serve_loopback(&mut self, binding: u32, in_kernel: bool) {
        let Some(context) = self.context().filter(|context| in_kernel && context.welcome.loopback) else { return };
        context.tell_surely(Request::Loopback { binding });
    }

    /// Nothing comes to a listener any more but from the kernel. A listener that is readable for ever would make its
    /// server turn for ever, so only `accept` fails.
    fn give_listener_up(&mut self, index: usize) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if let Kind::Listener(_) = socket.kind {
            socket.broken = true;
            readiness::notify(socket, &mut self.sets, readiness::ALL);
        }
    }
}
