//! Epoch-based reclamation: a removed entry is free once every run that may hold a pointer to it has ended.
//!
//! Epoch-based reclamation (Fraser, "Practical lock freedom", 2004, section 5.2.3). There is one count of epochs for a
//! program. A run that reads a map *pins* the epoch of that moment first. Removing an entry notes the epoch in
//! which it was unlinked, and starts the next one. The entry may be used again when no pin is as old as that. A run
//! that pinned later started its lookups after the entry was unlinked, and could not find it any more.
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Release, SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The word of one replica: the epoch of its present run, or 0 while it holds nothing. On a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Pin(AtomicU64);

#[derive(Default)]
pub(crate) struct Epochs {
    now: AtomicU64,
    /// Replicas come and go rarely; only the search for entries to use again takes this lock.
    pins: Mutex<Vec<Weak<Pin>>>,
}

impl Epochs {
    pub(crate) fn new() -> Arc<Epochs> {
        Arc::new(Epochs { now: AtomicU64::new(1), pins: Mutex::default() })
    }

    /// A pin for a replica; it goes with it.
    pub(crate) fn join(&self) -> Arc<Pin> {
        let pin = Arc::new(Pin::default());
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push(Arc::downgrade(&pin));
        pin
    }

    /// Before a run's first lookup. The exchange is also the fence that keeps lookups behind it; without it a
    /// processor may read first and pin later.
    #[inline]
    pub(crate) fn pin(&self, pin: &Pin) {
        pin.0.swap(self.now.load(SeqCst), SeqCst);
    }

    /// After a run: it holds nothing any more.
    #[inline]
    pub(crate) fn unpin(&self, pin: &Pin) {
        pin.0.store(0, Release);
    }

    /// An entry was unlinked: the epoch until which runs may hold it.
    pub(crate) fn retire(&self) -> u64 {
        self.now.fetch_add(1, SeqCst)
    }

    /// The oldest epoch in which a run may be.
    pub(crate) fn oldest(&self) -> u64 {
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let held = pins.iter().filter_map(Weak::upgrade).map(|pin| pin.0.load(SeqCst)).filter(|epoch| *epoch > 0);
        held.min().unwrap_or(u64::MAX)
    }
}
