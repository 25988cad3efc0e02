//! A socket that is OpenTOE's or may become so: what it is, and how it changes.
use crate::connect;
use crate::context_side::{self, Context};
use crate::errno::{self, Result};
use crate::lock::Guard;
use crate::options::Options;
use crate::state::{Key, Lib, Link};
use crate::stream::{SHUT_READ, SHUT_WRITE, Stream};
use crate::table::{self, Entry};
use crate::{epoll, readiness, real};
use context::{Endpoint, Notice, Request, Slot, Unaccelerated};
use libc::c_int;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// A stream socket. Its descriptor is a kernel socket that stays idle (or serves as the kernel's half of a
/// listener); to fall back to the kernel is to forget that it is ours.
pub struct Socket {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them: what `toe why` is told.
    pub fd: RawFd,
    /// `AF_INET6`: addresses are shown IPv4-mapped.
    pub is_v6: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
    /// Error for `SO_ERROR` or the next call.
    pub error: c_int,
    /// The connection was reset, or the daemon died.
    pub broken: bool,
    /// What it is.
    pub kind: Kind,
    /// Options that the library acts upon.
    pub options: Options,
    /// The kernel socket is bound as well (`AF_INET6` wildcard), or listens.
    pub kernel_half: bool,
    /// Epoll sets that have it: set and entry.
    pub watchers: Vec<(usize, usize)>,
    /// Wake descriptors of threads that wait for it.
    pub waiters: Vec<RawFd>,
}

/// What a socket is.
pub enum Kind {
    /// Neither bound nor connected: it may become the kernel's or OpenTOE's.
    Fresh,
    /// Bound to an address of the host.
    Bound {
        /// Names the binding in the daemon.
        binding: u32,
        /// The address.
        local: Endpoint,
    },
    /// Listening.
    Listener(Box<Listener>),
    /// Being connected.
    Connecting {
        /// Of the request.
        tag: u32,
        /// The peer.
        remote: Endpoint,
        /// This end, once the control plane has chosen it.
        local: Option<Endpoint>,
    },
    /// Connected.
    Stream(Box<Stream>),
}

/// A listening socket.
pub struct Listener {
    /// Names the binding in the daemon.
    pub binding: u32,
    /// The address.
    pub local: Endpoint,
    /// Most connections that wait in the queue.
    pub backlog: u32,
    /// Connections that may still be handed over; `None` until the process shows interest.
    pub credits: Option<u32>,
    /// Connections that wait to be accepted.
    pub queue: VecDeque<Pending>,
}

/// A connection that waits to be accepted.
#[derive(Debug, Clone, Copy)]
pub struct Pending {
    /// Its slot.
    pub slot: Slot,
    /// This end.
    pub local: Endpoint,
    /// The other end.
    pub remote: Endpoint,
    /// Payload bytes of a full segment.
    pub mss: u16,
}

/// Most connections that wait in one context for one listener.
const MOST_CREDITS: u32 = 256;

impl Listener {
    fn most(&self) -> u32 {
        self.backlog.clamp(1, MOST_CREDITS)
    }

    /// The request that lets more connections come, when it is time for one.
    pub fn arm(&mut self) -> Option<Request> {
        let waiting = self.queue.len() as u32;
        let wanted = self.most().saturating_sub(waiting);
        if self.credits.is_some_and(|credits| credits > self.most() / 2 || credits >= wanted) {
            return None;
        }
        self.credits = Some(wanted);
        Some(Request::Arm { binding: self.binding, credits: wanted })
    }
}

impl Socket {
    /// A socket that was just made.
    pub fn fresh(id: u64, fd: RawFd, is_v6: bool, nonblocking: bool) -> Socket {
        Socket {
            id,
            descriptors: 1,
            fd,
            is_v6,
            nonblocking,
            error: 0,
            broken: false,
            kind: Kind::Fresh,
            options: Options::default(),
            kernel_half: false,
            watchers: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// The open connection; the error of calls on a socket that has none.
    pub fn stream(&mut self) -> Result<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(libc::ENOTCONN),
        }
    }

    /// Takes the pending error.
    pub fn take_error(&mut self) -> c_int {
        std::mem::take(&mut self.error)
    }

    fn label(&self, reason: Unaccelerated) -> Request {
        let (slot, binding) = match &self.kind {
            Kind::Stream(stream) => (stream.name, 0),
            Kind::Bound { binding, .. } => (None, *binding),
            Kind::Listener(listener) => (None, listener.binding),
            _ => (None, 0),
        };
        Request::Label { fd: self.fd as u32, reason, slot, binding }
    }
}

/// The unspecified endpoint.
pub const ANY: Endpoint = Endpoint { ip: Ipv4Addr::UNSPECIFIED, port: 0 };

impl Lib {
    /// Tells the daemon what a socket is, for `toe why`. Not worth waiting for: a full ring loses it.
    pub fn label(&mut self, key: Key, reason: Unaccelerated) {
        let Some(request) = self.socket(key).map(|socket| socket.label(reason)) else { return };
        if let Some(context) = self.context() {
            context.tell(request);
        }
    }

    /// The same for an accepted connection, where it also says that the program has it: must not be lost.
    pub fn label_accepted(&mut self, key: Key) {
        let Some(request) = self.socket(key).map(|socket| socket.label(Unaccelerated::No)) else { return };
        if let Some(context) = self.context() {
            context.tell_surely(request);
        }
    }

    /// The socket becomes the kernel's: the library forgets it, and epoll sets watch the descriptor itself.
    pub fn leave_to_kernel(&mut self, key: Key, reason: Unaccelerated) {
        self.label(key, reason);
        let mut left = self.sockets.get(key.index).map_or(0, |socket| socket.descriptors);
        for (fd, entry) in table::entries_from(0) {
            if left == 0 {
                break;
            }
            if entry == Entry::Socket(key.index) {
                table::clear(fd);
                left -= 1;
            }
        }
        let Some(socket) = self.sockets.remove(key.index) else { return };
        for (set, entry) in &socket.watchers {
            epoll::hand_to_kernel(&mut self.sets, *set, *entry);
        }
    }

    /// One descriptor of the socket is gone; with the last one the socket is closed.
    pub fn drop_descriptor(&mut self, index: usize) {
        let Some(socket) = self.sockets.get_mut(index) else { return };
        socket.descriptors -= 1;
        if socket.descriptors > 0 {
            return;
        }
        let Some(socket) = self.sockets.remove(index) else { return };
        for (set, entry) in &socket.watchers {
            epoll::forget(&mut self.sets, *set, *entry);
        }
        socket.waiters.iter().for_each(|fd| crate::wait::wake(*fd));
        self.close_socket(socket);
    }

    fn close_socket(&mut self, socket: Socket) {
        let abort = socket.options.linger == Some(0);
        let Some(context) = self.context() else { return };
        match socket.kind {
            Kind::Fresh => {}
            Kind::Bound { binding, .. } => context.tell_surely(Request::Unbind { binding }),
            Kind::Listener(listener) => {
                context.listeners.remove(&listener.binding);
                context.tell_surely(Request::Unbind { binding: listener.binding });
            }
            Kind::Connecting { tag, .. } => {
                context.connects.remove(&tag);
                context.tell_surely(Request::CancelConnect { tag });
            }
            Kind::Stream(stream) => context.close_stream(stream, abort),
        }
    }

    /// Takes in a connection that a listener got.
    pub fn accept_reply(&mut self, binding: u32, pending: Pending) {
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

    /// Lets connections come to a listener in which the program shows interest.
    pub fn show_interest(&mut self, key: Key) {
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

    /// Makes the socket the open connection of `slot`.
    pub fn open_stream(&mut self, key: Key, slot: Slot, local: Endpoint, remote: Endpoint, mss: u16) {
        let Link::Attached(context) = &mut self.link else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        let stream = Stream::open(&context.home, slot, local, remote, mss);
        socket.kind = Kind::Stream(Box::new(stream));
        let early: Option<Notice> = context.use_slot(slot, key);
        if let Some(notice) = early {
            self.apply(key, &notice);
        }
    }
}

impl Context {
    /// Sends a request that must not be lost, in a call that cannot wait: the ring is emptied by the daemon soon.
    pub fn tell_surely(&mut self, request: Request) {
        while !self.tell(request) && !self.daemon_is_gone() {
            crate::wait::yield_now();
        }
    }

    fn daemon_is_gone(&self) -> bool {
        let mut fds = [libc::pollfd { fd: self.control_fd(), events: libc::POLLIN, revents: 0 }];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: polls one descriptor of ours without waiting.
        unsafe { real::ppoll_raw(&mut fds, &now, std::ptr::null()) > 0 }
    }

    /// Gives up this process's share of a connection.
    pub fn close_stream(&mut self, stream: Box<Stream>, abort: bool) {
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
pub fn bind(lib: &mut Guard, key: Key, local: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    let (reuse_address, reuse_port) = (socket.options.reuse_address, socket.options.reuse_port);
    let reply = context_side::ask(lib, |tag| Request::Bind { tag, local, reuse_address, reuse_port })?;
    let context::Reply::Bound { binding, local, .. } = reply else { return Err(libc::EPROTO) };
    match lib.socket(key) {
        Some(socket) => socket.kind = Kind::Bound { binding, local },
        None => {
            context_side::tell(lib, Request::Unbind { binding });
            return Err(libc::EBADF);
        }
    }
    lib.label(key, Unaccelerated::No);
    Ok(())
}

/// `listen`. A socket that was not bound gets a port of the host's choice (RFC 6056).
pub fn listen(lib: &mut Guard, key: Key, backlog: u32) -> Result<()> {
    if matches!(lib.need_socket(key)?.kind, Kind::Fresh) {
        bind(lib, key, ANY)?;
    }
    let (binding, local) = match &lib.need_socket(key)?.kind {
        Kind::Bound { binding, local } => (*binding, *local),
        Kind::Listener(listener) => (listener.binding, listener.local),
        _ => return Err(libc::EINVAL),
    };
    context_side::ask(lib, |tag| Request::Listen { tag, binding, backlog })?;
    let socket = lib.need_socket(key)?;
    match &mut socket.kind {
        Kind::Listener(listener) => listener.backlog = backlog,
        kind => {
            *kind =
                Kind::Listener(Box::new(Listener { binding, local, backlog, credits: None, queue: VecDeque::new() }));
        }
    }
    lib.need_context()?.listeners.insert(binding, key);
    if lib.socket(key).is_some_and(|socket| !socket.watchers.is_empty()) {
        lib.show_interest(key);
    }
    Ok(())
}

/// `shutdown`.
pub fn shutdown(lib: &mut Guard, key: Key, how: c_int) -> Result<()> {
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
        if flags & SHUT_READ != 0 {
            // As on Linux, a thread that waits in accept wakes up with EINVAL.
            socket.broken = true;
            readiness::notify(socket, sets, readiness::ALL);
        }
        return Ok(());
    }
    if matches!(socket.kind, Kind::Connecting { .. }) {
        return connect::give_up(lib, key);
    }
    let broken = socket.broken;
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
    Ok(())
}

/// Makes the kernel socket behind a descriptor; `errno` of the system where there is none to be had.
pub fn kernel_socket(is_v6: bool, flags: c_int) -> Result<RawFd> {
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: a plain call.
    errno::check(unsafe { real::socket(family, libc::SOCK_STREAM | flags, libc::IPPROTO_TCP) })
}

impl Lib {
    /// The kernel's half of a listener began to listen: epoll sets that have the listener watch it as well.
    pub fn watch_kernel_half(&mut self, key: Key, fd: RawFd) {
        let watchers = self.socket(key).map(|socket| socket.watchers.clone()).unwrap_or_default();
        for (set, entry) in watchers {
            epoll::watch_in_kernel(&mut self.sets, set, entry, fd);
        }
    }
}

impl Context {
    /// Whether the host has a route to the peer, or is the peer.
    pub fn reaches(&self, remote: Endpoint) -> bool {
        let covers = |network: Ipv4Addr, len: u8| {
            let mask = u32::MAX.checked_shl(32 - len.min(32) as u32).unwrap_or(0);
            u32::from(network) & mask == u32::from(remote.ip) & mask
        };
        let welcome = &self.welcome;
        welcome.addresses.contains(&remote.ip) || welcome.routes.iter().any(|(network, len)| covers(*network, *len))
    }
}
