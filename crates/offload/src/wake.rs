//! Waking a thread that sleeps, and only then.
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Handle of a thread, for those that have something for it.
pub(crate) struct Wake {
    asleep: AtomicBool,
    fd: OwnedFd,
}

impl Wake {
    /// For a thread that is awake.
    pub(crate) fn new() -> std::io::Result<Wake> {
        Ok(Wake { asleep: AtomicBool::new(false), fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// There is something for it.
    pub(crate) fn wake(&self) {
        if self.asleep.swap(false, SeqCst) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The thread is going to sleep: it polls everything once more, and then waits for [`Wake::fd`].
    pub(crate) fn going_to_sleep(&self) {
        self.asleep.store(true, SeqCst);
        std::sync::atomic::fence(SeqCst);
    }

    /// It is awake.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, SeqCst);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    /// It sleeps, or is about to.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(SeqCst)
    }

    /// Readable once it was woken.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
