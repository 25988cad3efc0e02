//! A socket that is OpenTOE's or may become so: what it is, and how it changes.
use crate::context_side::{self, Context};
use crate::epoll::{self, Watcher, kernel_half};
use crate::errno::Result;
use crate::few::Few;
pub(crate) use crate::listener::{Bound, Listener, Pending};
use crate::lock::Guard;
use crate::log_records::Log;
use crate::option_values::Options;
use crate::readiness;
use crate::state::{Key, Lib, Link};
use crate::stream::{SHUT_READ, SHUT_WRITE, Stream};
use crate::table::{self, Entry};
use context::{Endpoint, FourTuple, IpAddress, Notice, Request, Slot, Unaccelerated};
use libc::c_int;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// A stream socket. Behind its descriptor is a kernel socket that stays idle (or serves as the kernel's half of a
/// listener), the [stand-in](crate::stand_in) of the process or one of its own; to fall back to the kernel is to forget
/// that it is ours.
pub(crate) struct Socket {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them: what `opentoe why` is told.
    pub fd: RawFd,
    /// `AF_INET6`: addresses are shown IPv4-mapped.
    pub is_v6: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
    /// Error for `SO_ERROR` or the next call.
    pub error: c_int,
    /// Local addresses that it once had; `None` for most.
    pub past: Option<Box<Past>>,
    /// No `connect` has told yet what came of the last attempt to connect (Linux's state SS_CONNECTING).
    pub outcome_owed: bool,
    /// The connection was reset, or the daemon died.
    pub broken: bool,
    /// What it is.
    pub kind: Kind,
    /// Options that the library acts upon.
    pub options: Options,
    /// The kernel socket is bound as well (`AF_INET6` wildcard), or listens.
    pub kernel_half: bool,
    /// It has no kernel socket of its own.
    pub stands_in: bool,
    /// Epoll sets that have it.
    pub watchers: Few<Watcher>,
    /// Wake descriptors of threads that wait for it.
    pub waiters: Few<RawFd>,
}

/// Local addresses that a socket once had.
pub(crate) struct Past {
    /// That of an attempt that failed or a listener that was shut down: what `getsockname` goes on to say.
    last_local: Endpoint,
    /// The address that the program asked `bind` for: it stays where the port goes.
    asked_ip: IpAddress,
}

/// What a socket is.
pub(crate) enum Kind {
    /// Neither bound nor connected: it may become the kernel's or OpenTOE's.
    Fresh,
    /// Bound to an address of the host.
    Bound(Box<Bound>),
    /// Listening.
    Listener(Box<Listener>),
    /// Being connected.
    Connecting(Box<Attempt>),
    /// Connected.
    Stream(Box<Stream>),
    /// The process's shared log: no socket to the program, but a descriptor to wait on.
    Log(Box<Log>),
}

impl Kind {
    /// Bound to an address of the host.
    pub(crate) fn bound(bound: Bound) -> Kind {
        Kind::Bound(Box::new(bound))
    }
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Of the request.
    pub tag: u32,
    /// The peer.
    pub remote: Endpoint,
    /// This end, once the control plane has chosen it.
    pub local: Option<Endpoint>,
    /// Where the socket was bound before.
    pub bound: Option<Bound>,
}

impl Socket {
    /// A socket that was just made.
    pub(crate) fn fresh(id: u64, fd: RawFd, is_v6: bool, nonblocking: bool) -> Socket {
        Socket {
            id,
            descriptors: 1,
            fd,
            is_v6,
            nonblocking,
            error: 0,
            past: None,
            outcome_owed: false,
            broken: false,
            kind: Kind::Fresh,
            options: Options::default(),
            kernel_half: false,
            stands_in: true,
            watchers: Few::None,
            waiters: Few::None,
        }
    }

    /// The local address of an attempt that failed or a listener that was shut down: what `getsockname` goes on to say.
    pub(crate) fn last_local(&self) -> Endpoint {
        self.past.as_ref().map_or(ANY, |past| past.last_local)
    }

    /// The address that the program asked `bind` for: it stays where the port goes.
    pub(crate) fn asked_ip(&self) -> IpAddress {
        self.past.as_ref().map_or(ANY.ip, |past| past.asked_ip)
    }

    /// Sets [`Socket::last_local`].
    pub(crate) fn set_last_local(&mut self, local: Endpoint) {
        if local != self.last_local() {
            self.past().last_local = local;
        }
    }

    fn set_asked_ip(&mut self, ip: IpAddress) {
        if ip != self.asked_ip() {
            self.past().asked_ip = ip;
        }
    }

    fn past(&mut self) -> &mut Past {
        self.past.get_or_insert_with(|| Box::new(Past { last_local: ANY, asked_ip: ANY.ip }))
    }

    /// The open connection; the error of calls on a socket that has none.
    pub(crate) fn stream(&mut self) -> Result<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(libc::ENOTCONN),
        }
    }

    /// Another process may have it as well from now on.
    pub(crate) fn share(&mut self) {
        match &mut self.kind {
            Kind::Stream(stream) => stream.share(),
            Kind::Listener(listener) => listener.shared = true,
            _ => {}
        }
    }

    /// Another process may take news of its connection.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(&self.kind, Kind::Stream(stream) if stream.shared)
    }

    /// It is connected.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_))
    }

    /// It is a listener, and the kernel's half listens as well.
    pub(crate) fn listens_in_kernel(&self) -> bool {
        self.kernel_half && matches!(self.kind, Kind::Listener(_))
    }

    /// An attempt to connect failed and no `connect` has said so yet: until then Linux shows an ended stream.
    pub(crate) fn attempt_failed(&self) -> bool {
        self.outcome_owed && matches!(self.kind, Kind::Fresh | Kind::Bound(_))
    }

    /// Takes the pending error.
    pub(crate) fn take_error(&mut self) -> c_int {
        std::mem::take(&mut self.error)
    }

    fn label(&self, fd: RawFd, reason: Unaccelerated) -> Request {
        let (slot, binding) = match &self.kind {
            Kind::Stream(stream) => (stream.name, 0),
            Kind::Bound(bound) => (None, bound.binding),
            Kind::Listener(listener) => (None, listener.bound.binding),
            _ => (None, 0),
        };
        Request::Label { fd: fd as u32, reason, slot, binding }
    }
}

/// The unspecified endpoint.
pub(crate) const ANY: Endpoint = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 0);

impl Lib {
    /// Tells the daemon what a socket is, for `opentoe why`. Not worth waiting for: a full ring loses it.
    pub(crate) fn label(&mut self, key: Key, reason: Unaccelerated) {
        let Some(request) = self.socket(key).map(|socket| socket.label(socket.fd, reason)) else { return };
        if let Some(context) = self.context() {
            context.tell(request);
        }
    }

    /// The same for an accepted connection, where it also says that the program has it: must not be lost.
    pub(crate) fn label_accepted(&mut self, key: Key) {
        let Some(request) = self.socket(key).map(|socket| socket.label(socket.fd, Unaccelerated::No)) else { return };
        if let Some(context) = self.context() {
            context.tell_surely(request);
        }
    }

    /// A duplicate is what the socket's other descriptors are.
    pub(crate) fn label_duplicate(&mut self, index: usize, fd: RawFd) {
        let Some(socket) = self.sockets.get(index) else { return };
        if matches!(socket.kind, Kind::Bound(_) | Kind::Listener(_) | Kind::Stream(_)) {
            let request = socket.label(fd, Unaccelerated::No);
            if let Some(context) = self.context() {
                context.tell(request);
            }
        }
    }

    /// A descriptor was closed, while its socket lives on with others: its number is free.
    pub(crate) fn label_closed(&mut self, fd: RawFd) {
        let request = Request::Label { fd: fd as u32, reason: Unaccelerated::Undecided, slot: None, binding: 0 };
        if let Some(context) = self.context() {
            context.tell(request);
        }
    }

    /// The socket becomes the kernel's: the library forgets it, and epoll sets watch the descriptor itself.
    pub(crate) fn leave_to_kernel(&mut self, key: Key, reason: Unaccelerated) -> Result<()> {
        self.own_kernel_socket(key)?;
        self.label(key, reason);
        self.descriptors(key.index).into_iter().for_each(table::clear);
        let watchers = self.sockets.remove(key.index).map(|socket| socket.watchers).unwrap_or_default();
        watchers.as_slice().iter().for_each(|watcher| kernel_half::hand_over(&mut self.sets, *watcher));
        Ok(())
    }

    /// All descriptors that refer to a socket. Most have one, and then the table need not be gone through.
    pub(crate) fn descriptors(&self, index: usize) -> Vec<RawFd> {
        let Some(socket) = self.sockets.get(index) else { return Vec::new() };
        if socket.descriptors == 1 {
            return vec![socket.fd];
        }
        let ours = table::entries_from(0).filter(|(_, entry)| *entry == Entry::Socket(index));
        ours.map(|(fd, _)| fd).take(socket.descriptors as usize).collect()
    }

    /// One descriptor of the socket is gone; with the last one the socket is closed.
    pub(crate) fn drop_descriptor(&mut self, index: usize) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        socket.descriptors -= 1;
        if socket.descriptors > 0 {
            return;
        }
        let Some(socket) = self.sockets.remove(index) else { return };
        socket.watchers.as_slice().iter().for_each(|watcher| epoll::forget(&mut self.sets, *watcher));
        socket.waiters.as_slice().iter().for_each(|fd| crate::waking::wake(*fd));
        self.close_socket(socket);
    }

    fn close_socket(&mut self, socket: Socket) {
        let abort = socket.options.linger == Some(0);
        if let (Link::Lost(_, Some(remains)), Kind::Stream(stream)) = (&mut self.link, &socket.kind) {
            remains.closed.extend(stream.kept_connection().map(|kept| (kept, abort)));
        }
        let Some(context) = self.context() else { return };
        match socket.kind {
            Kind::Fresh => {}
            Kind::Bound(bound) => context.tell_surely(Request::Unbind { binding: bound.binding }),
            Kind::Listener(listener) => {
                context.listeners.remove(&listener.bound.binding);
                context.tell_surely(Request::Unbind { binding: listener.bound.binding });
            }
            Kind::Connecting(attempt) => {
                context.connects.remove(&attempt.tag);
                context.tell_surely(Request::CancelConnect { tag: attempt.tag });
                if let Some(Bound { binding, .. }) = attempt.bound {
                    context.tell_surely(Request::Unbind { binding });
                }
            }
            Kind::Stream(stream) => context.close_stream(stream, abort),
            // It stays with the daemon as long as the process.
            Kind::Log(_) => context.log = None,
        }
    }

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
            readiness::notify(socket, &mut self.sets, readiness::IN);
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
    pub(crate) fn show_interest(&mut self, key: Key) {
        let Link::Attached(context) = &mut self.link else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        if let Kind::Listener(listener) = &mut socket.kind {
            let before = listener.credits;
            if let Some(request) = listener.arm() {
                if !context.tell(request) {
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

    /// Makes the socket the open connection of `slot`.
    pub(crate) fn open_stream(&mut self, key: Key, slot: Slot, local: Endpoint, remote: Endpoint, mss: u16) {
        let Link::Attached(context) = &mut self.link else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        let mut stream = Stream::open(&context.home, slot, FourTuple::new(local, remote), mss);
        socket.options.send_limit.into_iter().for_each(|limit| stream.limit_sending(limit));
        socket.kind = Kind::Stream(Box::new(stream));
        let early: Option<Notice> = context.use_slot(slot, key);
        if let Some(notice) = early {
            self.apply(key, &notice);
        }
    }
}

/// The program accepts: where nothing waits here, one comes that waits for another process.
pub(crate) fn look_elsewhere(lib: &mut Guard, key: Key) {
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
    // Where the daemon is gone, the wait says so.
    let _ = context_side::ask(lib, |tag| Request::Take { tag, binding, credits });
}

impl Context {
    /// Sends a request that must not be lost, in a call that cannot wait: the ring is emptied by the daemon soon.
    pub(crate) fn tell_surely(&mut self, request: Request) {
        while !self.tell(request) && !self.daemon_is_gone() {
            crate::waking::yield_now();
        }
    }

    /// Gives up this process's share of a connection.
    pub(crate) fn close_stream(&mut self, stream: Box<Stream>, abort: bool) {
        if stream.gone {
            return;
        }
        let Some(slot) = stream.name else {
            // Never claimed: the share is given up with the next call that may wait.
            self.unclaimed.push(stream);
            return;
        };
        self.forget_slot(slot);
        let (tx_head, rx_head) = stream.positions();
        self.tell_surely(Request::Close { slot, tx_head, rx_head, abort });
    }
}

/// `bind`.
pub(crate) fn bind(lib: &mut Guard, key: Key, local: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    let (reuse_address, reuse_port) = (socket.options.reuse_address, socket.options.reuse_port);
    let reply = context_side::ask(lib, |tag| Request::Bind { tag, local, reuse_address, reuse_port })?;
    let context::Reply::Bound { binding, local: got, .. } = reply else { return Err(libc::EPROTO) };
    match lib.socket(key) {
        Some(socket) => {
            // As on Linux, an address that was asked for once is kept, even through a later bind to any.
            if !local.ip.is_unspecified() {
                socket.set_asked_ip(local.ip);
            }
            socket.kind = Kind::bound(Bound { binding, local: got, chosen: local.port == 0 });
        }
        None => {
            context_side::tell(lib, Request::Unbind { binding });
            return Err(libc::EBADF);
        }
    }
    lib.label(key, Unaccelerated::No);
    Ok(())
}

/// `listen`. A socket that was not bound gets a port of the host's choice (RFC 6056).
pub(crate) fn listen(lib: &mut Guard, key: Key, backlog: u32) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if socket.outcome_owed {
        return Err(libc::EINVAL);
    }
    if matches!(socket.kind, Kind::Fresh) {
        let local = Endpoint { ip: socket.asked_ip(), port: 0 };
        bind(lib, key, local)?;
    }
    let bound = match &lib.need_socket(key)?.kind {
        Kind::Bound(bound) => **bound,
        Kind::Listener(listener) => listener.bound,
        _ => return Err(libc::EINVAL),
    };
    let binding = bound.binding;
    context_side::ask(lib, |tag| Request::Listen { tag, binding, backlog })?;
    let socket = lib.need_socket(key)?;
    match &mut socket.kind {
        Kind::Listener(listener) => listener.backlog = backlog,
        kind => {
            let (queue, shared) = (VecDeque::new(), false);
            *kind = Kind::Listener(Box::new(Listener { bound, backlog, credits: None, queue, shared, ticket: None }));
        }
    }
    lib.need_context()?.listeners.insert(binding, key);
    if lib.socket(key).is_some_and(|socket| !socket.watchers.is_empty()) {
        lib.show_interest(key);
    }
    Ok(())
}

/// `shutdown`.
pub(crate) fn shutdown(lib: &mut Guard, key: Key, how: c_int) -> Result<()> {
    crate::share::claim(lib, key)?;
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
        // As Linux has it: who shuts a connection down knows that it is open.
        socket.outcome_owed = false;
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
    readiness::notify(socket, sets, readiness::ALL);
    crate::share::confirm(lib, key);
    Ok(())
}

/// As on Linux, a listener that is shut down is a bound socket again, and a thread that waits in accept wakes up with
/// EINVAL. Connections that were not accepted are reset.
fn stop_listening(lib: &mut Guard, key: Key) -> Result<()> {
    let socket = lib.need_socket(key)?;
    let Kind::Listener(listener) = std::mem::replace(&mut socket.kind, Kind::Fresh) else { return Ok(()) };
    socket.set_last_local(listener.bound.local);
    let Lib { sockets, sets, .. } = &mut **lib;
    if let Some(socket) = sockets.get_mut(key.index) {
        if socket.kernel_half {
            socket.watchers.as_slice().iter().for_each(|watcher| kernel_half::unwatch(sets, *watcher));
        }
        readiness::notify(socket, sets, readiness::ALL);
    }
    let context = lib.need_context()?;
    let Bound { binding, local, chosen } = listener.bound;
    context.listeners.remove(&binding);
    context.tell_surely(Request::Unbind { binding });
    if !chosen {
        // The port may go to somebody else in between; then the next listen says so.
        let _ = bind(lib, key, local);
    }
    Ok(())
}

impl Lib {
    /// The kernel's half of a listener began to listen: epoll sets that have the listener watch it as well.
    pub(crate) fn watch_kernel_half(&mut self, key: Key, fd: RawFd) {
        let watchers = self.socket(key).map(|socket| socket.watchers.clone()).unwrap_or_default();
        watchers.as_slice().iter().for_each(|watcher| kernel_half::watch(&mut self.sets, *watcher, fd));
    }
}

impl Context {
    /// Whether the host has a route to the peer, or is the peer.
    pub(crate) fn reaches(&self, remote: Endpoint) -> bool {
        let welcome = &self.welcome;
        welcome.addresses.contains(&remote.ip) || welcome.routes.iter().any(|route| route.contains(remote.ip))
    }
}

/// `shutdown` of a connection that is being opened.
pub(crate) fn give_up_connecting(lib: &mut Guard, key: Key) -> Result<()> {
    let Kind::Connecting(attempt) = &lib.need_socket(key)?.kind else { return Err(libc::ENOTCONN) };
    let Attempt { tag, bound, .. } = **attempt;
    if let Some(context) = lib.context() {
        context.connects.remove(&tag);
    }
    context_side::tell(lib, Request::CancelConnect { tag });
    let Lib { sockets, sets, .. } = &mut **lib;
    if let Some(socket) = sockets.get_mut(key.index) {
        (socket.kind, socket.outcome_owed) = (bound.map_or(Kind::Fresh, Kind::bound), false);
        readiness::notify(socket, sets, readiness::ALL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/MEMORY.md: tens of thousands of them may be idle.
    #[test]
    fn what_is_kept_of_a_connection_is_small() {
        assert!(size_of::<Option<Socket>>() <= 96, "{}", size_of::<Option<Socket>>());
        assert!(size_of::<Stream>() <= 160, "{}", size_of::<Stream>());
    }
}
