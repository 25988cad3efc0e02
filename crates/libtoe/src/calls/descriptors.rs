//! The descriptors of a socket, the daemon's record of them (`opentoe why`), and the end of the last one.
use crate::calls::epoll::kernel_half;
use crate::state::set::forget;
use crate::state::slab::Key;
use crate::state::socket::{Bound, Kind, Socket};
use crate::state::{Lib, Link};
use crate::system::errno::Result;
use crate::system::waking;
use crate::table::{self, Entry};
use context::{Request, Unaccelerated};
use std::os::fd::RawFd;

impl Lib {
    /// Reports to the daemon what a socket is, for `opentoe why`. Not worth waiting for: a full ring loses it.
    pub(crate) fn label(&mut self, key: Key, reason: Unaccelerated) {
        let Some(request) = self.socket(key).map(|socket| socket.label(socket.fd, reason)) else { return };
        if let Some(context) = self.context() {
            context.send_request(request);
        }
    }

    /// The same for an accepted connection, where it also reports that the program has it: must not be lost.
    pub(crate) fn label_accepted(&mut self, key: Key) {
        let Some(request) = self.socket(key).map(|socket| socket.label(socket.fd, Unaccelerated::No)) else { return };
        if let Some(context) = self.context() {
            context.send_request_surely(request);
        }
    }

    /// A duplicate is what the socket's other descriptors are.
    pub(crate) fn label_duplicate(&mut self, index: usize, fd: RawFd) {
        let Some(socket) = self.sockets.get(index) else { return };
        if matches!(socket.kind, Kind::Bound(_) | Kind::Listener(_) | Kind::Stream(_)) {
            let request = socket.label(fd, Unaccelerated::No);
            if let Some(context) = self.context() {
                context.send_request(request);
            }
        }
    }

    /// A descriptor was closed, while its socket lives on with others: its number is free.
    pub(crate) fn label_closed(&mut self, fd: RawFd) {
        let request = Request::Label { fd: fd as u32, reason: Unaccelerated::Undecided, slot: None, binding: 0 };
        if let Some(context) = self.context() {
            context.send_request(request);
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
        socket.watchers.as_slice().iter().for_each(|watcher| forget(&mut self.sets, *watcher));
        socket.waiters.as_slice().iter().for_each(|fd| waking::wake(*fd));
        self.close_socket(socket);
    }

    fn close_socket(&mut self, socket: Socket) {
        let abort = socket.options.linger == Some(0);
        if let (Link::Lost(_, Some(remains)), Kind::Stream(stream)) = (&mut self.link, &socket.kind) {
            remains.closed.extend(stream.surviving_connection().map(|kept| (kept, abort)));
        }
        let Some(context) = self.context() else { return };
        match socket.kind {
            Kind::Fresh => {}
            Kind::Bound(bound) => context.send_request_surely(Request::Unbind { binding: bound.binding }),
            Kind::Listener(listener) => {
                context.listeners.remove(&listener.bound.binding);
                context.send_request_surely(Request::Unbind { binding: listener.bound.binding });
            }
            Kind::Connecting(attempt) => {
                context.connects.remove(&attempt.tag);
                context.send_request_surely(Request::CancelConnect { tag: attempt.tag });
                if let Some(Bound { binding, .. }) = attempt.bound {
                    context.send_request_surely(Request::Unbind { binding });
                }
            }
            Kind::Stream(stream) => context.close_stream(stream, abort),
            // It stays with the daemon as long as the process.
            Kind::Log(_) => context.log = None,
        }
    }
}

impl Lib {
    /// The kernel's half of a listener began to listen: epoll sets that have the listener watch it as well.
    pub(crate) fn watch_kernel_half(&mut self, key: Key, fd: RawFd) {
        let watchers = self.socket(key).map(|socket| socket.watchers.clone()).unwrap_or_default();
        watchers.as_slice().iter().for_each(|watcher| kernel_half::watch(&mut self.sets, *watcher, fd));
    }
}
