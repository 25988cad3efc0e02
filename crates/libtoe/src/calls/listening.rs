//! Listeners: connections come, wait and are taken; `listen`, and its end.
use crate::calls::binding::bind;
use crate::calls::epoll::kernel_half;
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::{Bound, Kind, Listener, Pending};
use crate::state::{Lib, Link, events, readiness};
use crate::system::errno::Result;
use context::{Endpoint, Request, Slot};
use libc::c_int;
use std::collections::VecDeque;

impl Lib {
    /// Takes in a connection that a listener got.
    pub(crate) fn accept_reply(&mut self, binding: u32, pending: Pending) {
        let Link::Attached(context) = &mut self.link else { return };
        let key = context.listeners.get(&binding).copied();
        let socket = key.and_then(|key| self.sockets.get_mut(key.index).filter(|socket| socket.id == key.id));
        let Some(socket) = socket else {
            // The listener was closed meanwhile; the control plane has or will have taken the connection back.
            return;
        };
        if let Kind::Listener(listener) = &mut socket.kind {
            listener.credits = listener.credits.map(|credits| credits.saturating_sub(1));
            listener.queue.push_back(pending);
            readiness::notify(socket, &mut self.sets, events::IN);
        }
    }

    /// A connection that was taken from a listener's queue could not be accepted now: it is the first again.
    pub(crate) fn put_back(&mut self, key: Key, pending: Pending) {
        if let Some(Kind::Listener(listener)) = self.socket(key).map(|socket| &mut socket.kind) {
            listener.queue.push_front(pending);
        }
    }

    /// A connection that waits to be accepted has ended.
    pub(crate) fn fail_waiting(&mut self, slot: Slot, errno: c_int) {
        let Link::Attached(context) = &self.link else { return };
        for key in context.listeners.values() {
            let Some(socket) = self.sockets.get_mut(key.index) else { continue };
            if let Kind::Listener(listener) = &mut socket.kind {
                listener.queue.iter_mut().filter(|pending| pending.slot == slot).for_each(|found| found.errno = errno);
            }
        }
    }

    /// Lets connections come to a listener in which the program shows interest.
    pub(crate) fn request_events(&mut self, key: Key) {
        let Link::Attached(context) = &mut self.link else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        if let Kind::Listener(listener) = &mut socket.kind {
            let before = listener.credits;
            if let Some(request) = listener.arm() {
                if !context.send_request(request) {
                    // Tried again at the next call: the number is absolute.
                    listener.credits = before;
                }
            }
        }
    }

    /// The first connection that waits is this process's, where one waits that was not taken back.
    pub(crate) fn takes_first(&mut self, key: Key) -> bool {
        let Link::Attached(context) = &self.link else { return false };
        let Some(socket) = self.sockets.get_mut(key.index) else { return false };
        let Kind::Listener(listener) = &mut socket.kind else { return false };
        while let Some(pending) = listener.queue.front_mut() {
            pending.taken = pending.taken || context.end.accept(pending.slot);
            if pending.taken {
                return true;
            }
            let slot = pending.slot;
            listener.took_back(slot);
        }
        false
    }
}

/// The program accepts: where nothing waits here, one comes that waits for another process.
pub(crate) fn search_elsewhere(lib: &mut Guard, key: Key) {
    let Some(Kind::Listener(listener)) = lib.socket(key).map(|socket| &socket.kind) else { return };
    if !listener.shared {
        return;
    }
    lib.drain();
    let Some(Kind::Listener(listener)) = lib.socket(key).map(|socket| &mut socket.kind) else { return };
    if !listener.queue.is_empty() {
        return;
    }
    let (binding, credits) = (listener.bound.binding, listener.most());
    listener.credits = Some(credits);
    // Where the daemon is gone, the wait reports it.
    let _ = ask::ask(lib, |tag| Request::Take { tag, binding, credits });
}

/// `listen`. A socket that keeps an address, and has no port, gets one of the host's choice (RFC 6056).
pub(crate) fn listen(lib: &mut Guard, key: Key, backlog: u32) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if socket.outcome_pending {
        return Err(libc::EINVAL);
    }
    if matches!(socket.kind, Kind::Fresh) {
        let asked = socket.asked_ip();
        let ip = if asked.is_unspecified() { lib.any_address(key) } else { asked };
        bind(lib, key, Endpoint { ip, port: 0 })?;
    }
    let bound = match &lib.need_socket(key)?.kind {
        Kind::Bound(bound) => **bound,
        Kind::Listener(listener) => listener.bound,
        _ => return Err(libc::EINVAL),
    };
    let binding = bound.binding;
    ask::ask(lib, |tag| Request::Listen { tag, binding, backlog })?;
    let socket = lib.need_socket(key)?;
    match &mut socket.kind {
        Kind::Listener(listener) => listener.backlog = backlog,
        kind => {
            let (queue, shared) = (VecDeque::new(), false);
            *kind = Kind::Listener(Box::new(Listener { bound, backlog, credits: None, queue, shared, ticket: None }));
        }
    }
    lib.need_context()?.listeners.insert(binding, key);
    let options = &lib.need_socket(key)?.options;
    if options.fast_open.most > 0 || options.mss != 0 {
        lib.send_listener_options(key);
    }
    if lib.socket(key).is_some_and(|socket| !socket.watchers.is_empty()) {
        lib.request_events(key);
    }
    Ok(())
}

/// As on Linux, a listener that is shut down is a bound socket again, and a thread that waits in accept wakes up with
/// EINVAL. Connections that were not accepted are reset.
pub(crate) fn stop_listening(lib: &mut Guard, key: Key) -> Result<()> {
    let socket = lib.need_socket(key)?;
    let Kind::Listener(listener) = std::mem::replace(&mut socket.kind, Kind::Fresh) else { return Ok(()) };
    socket.set_last_local(listener.bound.local);
    let Lib { sockets, sets, .. } = &mut **lib;
    if let Some(socket) = sockets.get_mut(key.index) {
        if socket.kernel_half {
            socket.watchers.as_slice().iter().for_each(|watcher| kernel_half::unwatch(sets, *watcher));
        }
        readiness::notify(socket, sets, events::ALL);
    }
    let context = lib.need_context()?;
    let Bound { binding, local, chosen } = listener.bound;
    context.listeners.remove(&binding);
    context.send_request_surely(Request::Unbind { binding });
    if !chosen {
        // The port may go to somebody else in between; then the next listen fails.
        let _ = bind(lib, key, local);
    }
    Ok(())
}
