//! The DMA queues of a table's devices.
use crate::dma::DmaQueue;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Queues that a data-path polls. Where there are none, that costs nothing.
#[derive(Default)]
pub struct Devices {
    some: AtomicBool,
    queues: Mutex<Vec<Arc<DmaQueue>>>,
}

impl Devices {
    /// Adds a queue. [`Devices::poll`] includes it from the next time on.
    pub fn add(&self, queue: &Arc<DmaQueue>) {
        self.queues().push(Arc::clone(queue));
        self.some.store(true, Release);
    }

    /// Gives a device up: what is under way has failed.
    pub fn remove(&self, queue: &Arc<DmaQueue>) {
        queue.lose();
        let mut queues = self.queues();
        queues.retain(|held| !Arc::ptr_eq(held, queue));
        self.some.store(!queues.is_empty(), Release);
    }

    /// Takes in what their servers have done, and rings for what they are to do. Returns how many copies have ended.
    /// `now` is nanoseconds.
    pub fn poll(&self, now: u64) -> usize {
        if !self.some.load(Acquire) {
            return 0;
        }
        self.queues().iter().map(|queue| queue.poll(now)).sum()
    }

    /// Rings for what was ordered since the last poll.
    pub fn flush(&self) {
        if self.some.load(Acquire) {
            self.queues().iter().for_each(|queue| queue.flush());
        }
    }

    /// See [`DmaQueue::has_news`].
    pub fn have_news(&self) -> bool {
        self.some.load(Acquire) && self.queues().iter().any(|queue| queue.has_news())
    }

    /// Nanoseconds: when the first of them is lost, if nothing comes.
    pub fn next_deadline(&self) -> Option<u64> {
        if !self.some.load(Acquire) {
            return None;
        }
        self.queues().iter().filter_map(|queue| queue.next_deadline()).min()
    }

    /// The data-path is about to sleep: servers must ring from now on.
    pub fn prepare_to_sleep(&self) {
        if self.some.load(Acquire) {
            self.queues().iter().for_each(|queue| queue.prepare_to_sleep());
        }
    }

    /// The data-path polls again.
    pub fn awake(&self) {
        if self.some.load(Acquire) {
            self.queues().iter().for_each(|queue| queue.awake());
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Arc<DmaQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
