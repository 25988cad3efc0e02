//! Absence of the daemon: when to try the next one, and what lasts until then.
use crate::state::mapped_region::MappedRegion;
use crate::system::waking;
use context::attach::SurvivingConnection;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First and longest time between two attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// How long connections wait for the next daemon. It waits for their programs as long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What lasts of a context whose daemon was killed: its region, with the connections in it (docs/RESTART.md).
pub(crate) struct Remains {
    pub home: Arc<MappedRegion>,
    until: Instant,
    /// Connections that the program has closed meanwhile, or just before; and whether they are to be reset.
    pub closed: Vec<(SurvivingConnection, bool)>,
}

impl Remains {
    /// The daemon ended just now.
    pub(crate) fn now(home: &Arc<MappedRegion>, closed: Vec<(SurvivingConnection, bool)>) -> Remains {
        Remains { home: Arc::clone(home), until: waking::now() + TIMEOUT, closed }
    }

    /// No daemon came in time.
    pub(crate) fn are_over(&self) -> bool {
        waking::now() >= self.until
    }
}

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
        Lost { next: waking::now() + PAUSES.0, pause: PAUSES.0, wanted }
    }

    /// It is time for an attempt.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.wanted && now >= self.next
    }

    /// How long a thread may sleep until the next attempt; for ever where there is none.
    pub(crate) fn nap(&self) -> Option<Duration> {
        self.wanted.then(|| self.next.saturating_duration_since(waking::now()).max(Duration::from_millis(1)))
    }

    /// An attempt found nobody.
    pub(crate) fn later(&mut self, wanted: bool) {
        self.wanted = wanted;
        self.pause = (2 * self.pause).min(PAUSES.1);
        self.next = waking::now() + self.pause;
    }
}
