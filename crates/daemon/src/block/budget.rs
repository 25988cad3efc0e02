//! A bound on bytes that are held for requests.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that are held, and the threads that wait for fewer.
#[derive(Default)]
pub(super) struct Budget {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// Threads that wait: a wake-up without a waiter would cost a system call all the same.
    waiting: usize,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are held now.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Waits until this many bytes are `enough`.
    pub(super) fn wait_until(&self, enough: impl Fn(usize) -> bool) {
        let mut held = self.lock();
        while !enough(held.bytes) {
            held.waiting += 1;
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            held.waiting -= 1;
        }
    }

    /// Holds so many bytes more until the share is dropped.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Share {
        self.lock().bytes += bytes;
        Share { budget: Arc::clone(self), bytes }
    }
}

/// Bytes that are held.
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.budget.lock();
        held.bytes -= self.bytes;
        if held.waiting > 0 {
            self.budget.changed.notify_all();
        }
    }
}
