//! A bound on bytes that are held for requests.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that are held, and whoever waits for fewer.
#[derive(Default)]
pub(super) struct Budget {
    bytes: Mutex<usize>,
    changed: Condvar,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this many bytes are `enough`.
    pub(super) fn wait_until(&self, enough: impl Fn(usize) -> bool) {
        let mut bytes = self.lock();
        while !enough(*bytes) {
            bytes = self.changed.wait(bytes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Holds so many bytes more until the share is dropped.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Share {
        *self.lock() += bytes;
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
        *self.budget.lock() -= self.bytes;
        self.budget.changed.notify_all();
    }
}
