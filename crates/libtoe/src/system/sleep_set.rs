//! Sleep sets: epoll sets of the kernel on which threads sleep that wait for a set or a socket.
//!
//! All sleep sets of a process watch the one bell of its context, and a ring ends the sleep of one thread
//! (`EPOLLEXCLUSIVE`). It takes in what came, and wakes those whom it concerns. Of several with sleepers the kernel
//! takes the one that has watched the bell for longest. A thread that was woken for others' completions steps back
//! behind all of them.
use crate::system::errno::{self, Result};
use crate::system::own_fd::OwnFd;
use crate::system::real;
use libc::epoll_event;
use std::os::fd::RawFd;

/// Edges: each ring of the bell ends one sleep, whoever clears it.
const RINGS: u32 = (libc::EPOLLIN | libc::EPOLLET) as u32;
/// Only the end, no messages.
const ENDED: u32 = (libc::EPOLLHUP | libc::EPOLLET) as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// Bells that wake a process for the daemon's completions, of its present context.
#[derive(Clone, Copy)]
pub(crate) struct Bells {
    /// The context's number, from 1.
    pub context: u32,
    /// Rings for completions.
    pub bell: RawFd,
    /// Comes to its end with the daemon.
    pub daemon: RawFd,
}

/// A set of the kernel with everything that ends a sleep.
pub(crate) struct SleepSet {
    pub set: OwnFd,
    /// The context whose doorbell wakes it, by its number; 0 for none.
    watches_bell: u32,
    /// The same of the daemon's end.
    watches_daemon: u32,
}

/// `data` in a sleep set: the program's set has something.
pub(crate) const PROGRAM: u64 = 0;
/// The context's bell rang.
pub(crate) const BELL: u64 = 1;
/// The daemon's socket has come to its end.
pub(crate) const DAEMON: u64 = 2;
/// Another thread has something for whoever sleeps here.
pub(crate) const KICK: u64 = 3;
/// Number of reasons.
pub(crate) const REASONS: usize = 4;

impl SleepSet {
    /// One that other threads end the sleep in by writing `kick`.
    pub(crate) fn new(kick: RawFd) -> Result<SleepSet> {
        // SAFETY: a plain call.
        let set = errno::check(unsafe { real::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let sleep_set = SleepSet { set: OwnFd::adopt(set), watches_bell: 0, watches_daemon: 0 };
        sleep_set.add(kick, KICK, RINGS)?;
        Ok(sleep_set)
    }

    /// The doorbell and the end of the daemon, of the present context, wake it.
    pub(crate) fn watch(&mut self, bells: Option<Bells>) -> Result<()> {
        let Some(Bells { context, bell, daemon }) = bells else { return Ok(()) };
        if self.watches_bell != context {
            self.add(bell, BELL, RINGS | EXCLUSIVE)?;
            self.watches_bell = context;
        }
        if self.watches_daemon != context {
            self.add(daemon, DAEMON, ENDED)?;
            self.watches_daemon = context;
        }
        Ok(())
    }

    /// The bell wakes others first from now on.
    pub(crate) fn step_back(&mut self, bells: Option<Bells>) -> Result<()> {
        let Some(Bells { bell, .. }) = bells.filter(|bells| bells.context == self.watches_bell) else { return Ok(()) };
        // SAFETY: a valid descriptor, no event.
        errno::check(unsafe { real::epoll_ctl(self.set.fd(), libc::EPOLL_CTL_DEL, bell, std::ptr::null_mut()) })?;
        // Where the kernel has no memory for it, the next sleep begins with another attempt: nobody sleeps deaf.
        self.watches_bell = 0;
        self.watch(bells)
    }

    /// A descriptor ends the sleep for the reason `data`.
    pub(crate) fn add(&self, fd: RawFd, data: u64, events: u32) -> Result<()> {
        let mut event = epoll_event { events, u64: data };
        // SAFETY: valid descriptors and a local event.
        errno::check(unsafe { real::epoll_ctl(self.set.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }).map(|_| ())
    }
}
