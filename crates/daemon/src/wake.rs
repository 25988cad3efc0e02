//! Wake-up of a data-path thread that sleeps; free of cost while it is awake.
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// An eventfd and whether anybody sleeps on it.
pub(crate) struct Wake {
    fd: OwnedFd,
    asleep: AtomicBool,
    /// Something was left for the thread in its queue of actions.
    pending: AtomicBool,
}

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Wake { fd, asleep: false.into(), pending: false.into() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Something is in the queue of actions.
    pub(crate) fn notify(&self) {
        self.pending.store(true, SeqCst);
        self.ring();
    }

    /// Takes the note that something is in the queue.
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.load(SeqCst) && self.pending.swap(false, SeqCst)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    /// Wakes the thread where it sleeps or is about to.
    pub(crate) fn ring(&self) {
        if self.is_asleep() {
            // Failing means that the counter is at its limit: it is signalled.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(SeqCst)
    }

    /// The thread is about to sleep: afterwards, it must poll once more for what others left.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, SeqCst);
    }
}

/// Has an epoll set of a data-path thread watch a descriptor: what is readable wakes the thread.
pub(crate) fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN | flags)?)
}
