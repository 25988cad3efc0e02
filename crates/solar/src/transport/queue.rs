//! Requests from other threads to the data-path thread that has a client, and back.
use crate::operations::Direction;
use crate::packet::Status;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request, with its memory.
pub struct Submission {
    /// Which way.
    pub direction: Direction,
    /// The first block of the volume.
    pub lba: u64,
    /// The blocks: what is to be written, or room for what is read. Some times [`BLOCK_LEN`](crate::BLOCK_LEN) bytes,
    /// not none.
    pub buffer: Vec<u8>,
    /// Called on the data-path thread when the request has ended, with its memory: it must not wait.
    pub done: Box<dyn FnOnce(Status, Vec<u8>) + Send>,
}

/// What is known of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Its server has not answered yet.
    Opening,
    /// It has so many blocks.
    Open {
        /// Blocks.
        blocks: u64,
    },
    /// It cannot be used.
    Ended(Status),
}

struct Inner {
    submissions: Vec<Submission>,
    view: View,
}

/// The queue of one volume.
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
    pending: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Queue {
    /// `wake` wakes the data-path thread, where it sleeps.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Queue {
        let inner = Inner { submissions: Vec::new(), view: View::Opening };
        Queue { inner: inner.into(), changed: Condvar::new(), pending: false.into(), wake }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for some things at once: the data-path thread is woken once for all of them.
    pub fn submit_all(&self, submissions: Vec<Submission>) {
        if !submissions.is_empty() {
            self.lock().submissions.extend(submissions);
            self.pending.store(true, Ordering::SeqCst);
            (self.wake)();
        }
    }

    /// What is known of the volume, after the server has answered, or after `most`.
    pub fn wait(&self, most: Duration) -> View {
        let end = Instant::now() + most;
        let mut inner = self.lock();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if inner.view != View::Opening || left.is_zero() {
                return inner.view;
            }
            inner = self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn view(&self) -> View {
        self.lock().view
    }

    pub(crate) fn set_view(&self, view: View) {
        let mut inner = self.lock();
        if inner.view != view {
            inner.view = view;
            self.changed.notify_all();
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// What was asked for.
    pub(crate) fn take(&self) -> Vec<Submission> {
        if !self.is_pending() {
            return Vec::new();
        }
        self.pending.store(false, Ordering::SeqCst);
        std::mem::take(&mut self.lock().submissions)
    }
}
