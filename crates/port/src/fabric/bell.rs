//! Doorbell of a member: it announces frames on their way, by a word while it polls, by an eventfd while it sleeps.
use crate::Nanos;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

pub(super) struct Bell {
    /// When the member next has something to receive: 0 for now, `Nanos::MAX` for nothing.
    next_due: AtomicU64,
    /// The member sleeps, or may. It does until it announces otherwise: a thread that never announces its sleep is
    /// woken more often than needed, not too rarely.
    asleep: AtomicBool,
    /// The eventfd is signalled and has not been cleared.
    rung: AtomicBool,
    fd: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let fd = shm::Doorbell::eventfd()?;
        Ok(Bell { next_due: AtomicU64::new(Nanos::MAX), asleep: true.into(), rung: false.into(), fd })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn next_due(&self) -> Nanos {
        self.next_due.load(SeqCst)
    }

    /// Publishes when the member next has something to receive; without waking it.
    pub(super) fn set_next_due(&self, due: Nanos) {
        self.next_due.store(due, SeqCst);
    }

    /// Wakes the member where it sleeps. After [`Bell::set_next_due`], and under the switch's lock.
    pub(super) fn ring(&self) {
        fence(SeqCst);
        // One ringer at a time: the switch's lock is held. The word follows the write, so that a signalled descriptor
        // never stays unnoticed: clearing begins with the word.
        if self.asleep.load(SeqCst) && !self.rung.load(SeqCst) {
            let one = 1u64.to_ne_bytes();
            // SAFETY: writes eight bytes from a local array to an owned descriptor. Failing (EAGAIN at the counter's
            // limit) means that it is already signalled.
            unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            self.rung.store(true, SeqCst);
        }
    }

    /// Takes a signal, so that the descriptor is no longer readable. Before looking for frames.
    pub(super) fn clear(&self) {
        if self.rung.load(SeqCst) {
            let mut count = [0u8; 8];
            // SAFETY: reads at most eight bytes into a local array; EAGAIN means that there was no signal.
            unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            self.rung.store(false, SeqCst);
        }
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, SeqCst);
        fence(SeqCst);
    }
}
