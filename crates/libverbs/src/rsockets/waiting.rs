//! Sockets of either kind: what calls ask of them, and threads that wait in calls.
use super::named::{Named, Side};
use super::settings::Options;
use crate::errno::Result;
use libc::{c_int, c_short, pollfd};
use std::os::fd::RawFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Polls of the queue before a thread sleeps; the queue yields between them.
const POLLS: u32 = 1000;
/// Two threads may take the same event: so a sleeping thread polls again after so many milliseconds.
pub(super) const AGAIN: c_int = 100;

/// What stands behind a descriptor.
pub(super) trait State {
    /// What was set.
    fn options(&mut self) -> &mut Options;
    /// Queues and buffers are there: their sizes are not changed any more.
    fn is_fixed(&self) -> bool;
    /// The error that is returned once.
    fn take_error(&mut self) -> c_int;
    /// The address of a side; ENOTCONN where the peer has none.
    fn address(&self, side: Side) -> Result<Named>;
    /// Goes on with whatever has happened.
    fn progress(&mut self);
    /// What it is ready for: events of `poll`(2).
    fn ready(&self) -> c_short;
    /// The descriptors become readable with what happens next; what has happened is polled.
    fn arm(&mut self);
    /// What a thread that sleeps waits for.
    fn fds(&self) -> Vec<pollfd>;
    /// Takes what the descriptors have.
    fn drain(&mut self);
    /// What is waited for comes through a queue, so that it is worth a few polls.
    fn has_queue(&self) -> bool;
}

/// A socket.
pub(super) struct Waiting<S> {
    /// Its descriptor.
    pub(super) fd: RawFd,
    held: Mutex<Held<S>>,
    /// Signalled after a poll of the queues.
    polled: Condvar,
}

struct Held<S> {
    state: S,
    /// A thread sleeps on the descriptors.
    sleeps: bool,
}

/// The state of a socket, for one thread.
pub(super) struct Locked<'a, S>(MutexGuard<'a, Held<S>>);

impl<S> std::ops::Deref for Locked<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0.state
    }
}

impl<S> std::ops::DerefMut for Locked<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0.state
    }
}

impl<S: State> Waiting<S> {
    /// A socket that this descriptor names.
    pub(super) fn new(fd: RawFd, state: S) -> Waiting<S> {
        Waiting { fd, held: Mutex::new(Held { state, sleeps: false }), polled: Condvar::new() }
    }

    /// What it is now.
    pub(super) fn lock(&self) -> Locked<'_, S> {
        Locked(self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tries until there is a result; EAGAIN at once where that is not to be waited for.
    pub(super) fn until<T>(&self, wait: bool, mut attempt: impl FnMut(&mut S) -> Option<Result<T>>) -> Result<T> {
        let mut polls = 0;
        loop {
            let mut state = self.lock();
            state.progress();
            if let Some(result) = attempt(&mut state) {
                return result;
            }
            polls += 1;
            if polls < POLLS && wait && state.has_queue() {
                continue;
            }
            state.arm();
            if let Some(result) = attempt(&mut state) {
                return result;
            }
            if !wait {
                return Err(libc::EAGAIN);
            }
            self.sleep(state);
        }
    }

    /// Sleeps until something has happened. One thread sleeps on the descriptors, and wakes the others.
    fn sleep(&self, Locked(mut held): Locked<'_, S>) {
        if held.sleeps {
            let waited = self.polled.wait_timeout(held, Duration::from_millis(AGAIN as u64));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return;
        }
        held.sleeps = true;
        let mut fds = held.state.fds();
        drop(held);
        // SAFETY: valid entries of descriptors that stay open as long as the socket.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, AGAIN) };
        let Locked(mut held) = self.lock();
        held.sleeps = false;
        held.state.drain();
        drop(held);
        self.wake();
    }

    /// Waiting threads poll again.
    pub(super) fn wake(&self) {
        self.polled.notify_all();
    }
}
