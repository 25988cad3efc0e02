//! The time without a daemon: when to look for the next one.
use std::time::{Duration, Instant};

/// First and longest time between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// No daemon is there, and another one may come.
#[derive(Clone, Copy)]
pub(crate) struct Lost {
    next: Instant,
    pause: Duration,
    /// There is something to come back with.
    wanted: bool,
}

impl Lost {
    /// The daemon ended just now.
    pub(crate) fn now(wanted: bool) -> Lost {
        Lost { next: Instant::now() + PAUSES.0, pause: PAUSES.0, wanted }
    }

    /// It is time for an attempt.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.wanted && now >= self.next
    }

    /// How long a thread may sleep until the next attempt; for ever where there is none.
    pub(crate) fn nap(&self) -> Option<Duration> {
        self.wanted.then(|| self.next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
    }

    /// An attempt found nobody.
    pub(crate) fn later(&mut self, wanted: bool) {
        self.wanted = wanted;
        self.pause = (2 * self.pause).min(PAUSES.1);
        self.next = Instant::now() + self.pause;
    }
}
