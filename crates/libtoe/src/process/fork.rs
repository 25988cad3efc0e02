//! Fork: the child gets a context of its own that shares all that the parent had.
//!
//! The forking thread holds the library's lock, so both processes go on from a state that is whole.
use crate::calls::{direct, inherited_sets, signaller};
use crate::daemon::{ask, attach};
use crate::lock::{self, Guard};
use crate::state::few::Few;
use crate::state::socket::{Kind, Socket};
use crate::state::{Lib, Link, idle};
use crate::system::real;
use crate::wait::{self, thread};
use context::{Reply, Request};
use libc::pid_t;
use std::cell::RefCell;

/// `fork`.
pub(crate) fn fork() -> pid_t {
    // SAFETY: a plain call.
    fork_by(|| unsafe { real::fork() })
}

/// The same by a call of the program's choice that makes a child with a copy of this process' memory.
pub(crate) fn fork_by(fork: impl FnOnce() -> pid_t) -> pid_t {
    // In a signal handler that interrupted the library: the child must not use its sockets, and cannot.
    let Some(forking) = Forking::begin() else { return fork() };
    let pid = fork();
    match pid {
        0 => forking.in_child(),
        1.. => forking.in_parent(),
        _ => {}
    }
    pid
}

/// A fork under way. The thread holds the library's lock; in the child only this thread goes on.
struct Forking {
    lib: Guard,
    token: Option<u64>,
}

impl Forking {
    /// `None` where this thread has the lock: a fork is under way already.
    fn begin() -> Option<Forking> {
        let mut lib = lock::lock().ok()?;
        lib.come_back();
        lib.own_kernel_sockets();
        direct::take_all_back(&mut lib);
        let token = announce(&mut lib);
        Some(Forking { lib, token })
    }

    fn in_parent(mut self) {
        if self.token.is_some() {
            share_sockets(&mut self.lib);
            inherited_sets::after_fork(&mut self.lib, false);
        }
    }

    fn in_child(mut self) {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        intercept::go_on_in_child();
        in_child(&mut self.lib, self.token);
        signaller::start_in_child(&mut self.lib);
    }
}

thread_local! {
    /// A fork that the C library makes by itself.
    static OWN: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

/// Registers for the C library's own forks (`daemon`, `forkpty`): before it locks its memory, and after.
pub(crate) fn handle_forks() {
    extern "C" fn before() {
        OWN.set(Forking::begin());
    }
    extern "C" fn in_parent() {
        OWN.take().into_iter().for_each(Forking::in_parent);
    }
    extern "C" fn in_child() {
        OWN.take().into_iter().for_each(Forking::in_child);
    }
    // SAFETY: functions that live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

/// Lets the daemon hold everything for the child. `None` where there is nothing to share.
fn announce(lib: &mut Guard) -> Option<u64> {
    lib.context()?;
    match ask::ask(lib, |tag| Request::Fork { tag }) {
        Ok(Reply::Forked { token, .. }) => Some(token),
        _ => None,
    }
}

/// Processes may read and write these at the same time from now on.
pub(crate) fn share_sockets(lib: &mut Lib) {
    for index in lib.sockets.indices() {
        lib.sockets.get_mut(index).into_iter().for_each(Socket::share);
    }
}

fn in_child(lib: &mut Lib, token: Option<u64>) {
    thread::forget();
    wait::forget_others();
    lib.askers = Few::None;
    let was_attached = matches!(lib.link, Link::Attached(_));
    // Closes the child's copies of the parent's descriptors: the daemon learns of the parent's end by them.
    lib.link = match &lib.link {
        Link::Dead => Link::Dead,
        // What lasts of the parent's context is the parent's.
        Link::Lost(lost, _) => Link::Lost(*lost, None),
        Link::Attached(_) | Link::Detached => Link::Detached,
    };
    match token {
        Some(token) => attach::again_in_child(lib, token),
        None if was_attached => lib.link = Link::Dead,
        None => {}
    }
    if lib.context().is_some() {
        // The child may filter its system calls before it waits for the first time.
        let _ = thread::prepare_single(lib.link.bells());
    }
    inherit_sockets(lib);
    inherited_sets::after_fork(lib, true);
}

fn inherit_sockets(lib: &mut Lib) {
    let attached = lib.context().is_some();
    for index in lib.sockets.indices() {
        let Some(socket) = lib.sockets.get_mut(index) else { continue };
        socket.waiters = Few::None;
        if let Kind::Stream(stream) = &mut socket.kind {
            stream.forget_references();
        }
        socket.share();
        let key = crate::state::slab::Key { index, id: socket.id };
        match &mut socket.kind {
            Kind::Fresh | Kind::Bound(_) => {}
            // It is the parent's.
            Kind::Log(_) => socket.kind = Kind::Fresh,
            Kind::Connecting { .. } => {
                // Its answer goes to the parent.
                socket.error = libc::ECONNABORTED;
                socket.kind = Kind::Fresh;
            }
            Kind::Listener(listener) => {
                listener.queue.clear();
                listener.credits = None;
                let binding = listener.bound.binding;
                if let Some(context) = lib.context() {
                    context.listeners.insert(binding, key);
                }
            }
            Kind::Stream(stream) => {
                if let Some(name) = stream.name.take() {
                    stream.claim_by.1 = name;
                }
                stream.pending = false;
                stream.bump_held = false;
                // The answer to a parent that has just asked for reclaim goes to the parent.
                stream.reclaim = idle::State::default();
                if !attached {
                    socket.error = libc::ECONNRESET;
                    socket.broken = true;
                }
            }
        }
    }
}
