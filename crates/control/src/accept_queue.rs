//! Accept queue: connections that wait to be accepted, and processes that do not accept them in time
//! (docs/LISTENERS.md).
//!
//! On Linux all processes that share a listener share one queue. Here each has its own, so that data arrives in its
//! buffers at once. What a process does not accept within its offer goes to another one that takes connections.
use crate::timers::MILLISECOND;
use engine::{ContextId, FlowId, Nanos};
use std::collections::VecDeque;

/// How long a connection waits in one process at first, where another one would take it; twice as long in each
/// further one.
pub(crate) const FIRST_WAIT: Nanos = 20 * MILLISECOND;
/// An offer lasts no longer than this power of two of the first.
const MOST_DOUBLED: u8 = 6;
/// How long a process that let an offer expire comes after all others: at first, doubled with each further one in a
/// row.
const PASSIVE: Nanos = 100 * MILLISECOND;
const MOST_PASSIVE_DOUBLED: u8 = 9;

/// A process that takes connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct AcceptQueue {
    /// Connections that it takes more.
    pub credits: u32,
    /// Until when it comes after all others: it let an offer expire.
    pub passive_until: Nanos,
    /// Offers that expired since it last accepted.
    expired: u8,
    /// It has accepted a connection, or tried to.
    pub accepts: bool,
    /// Connections that wait there, as far as the control plane has recorded, in the order in which they will be
    /// accepted.
    pub queued: VecDeque<QueuedConnection>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuedConnection {
    pub flow: FlowId,
    pub since: Nanos,
    /// Earlier offers, which expired.
    pub offers: u8,
}

impl QueuedConnection {
    /// When its offer expires.
    pub(crate) fn due(&self) -> Nanos {
        self.since + (FIRST_WAIT << self.offers.min(MOST_DOUBLED))
    }
}

/// A connection that waits too long where it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overdue {
    pub flow: FlowId,
    pub at: ContextId,
    /// Not even a process that does not accept either would be worse.
    pub anywhere: bool,
}

impl AcceptQueue {
    pub(crate) fn with_credits(credits: u32) -> AcceptQueue {
        AcceptQueue { credits, ..AcceptQueue::default() }
    }

    /// It accepts: no expired offer counts any more.
    pub(crate) fn has_accepted(&mut self) {
        (self.accepts, self.expired, self.passive_until) = (true, 0, 0);
    }

    /// It let an offer expire.
    pub(crate) fn offer_expired(&mut self, now: Nanos) {
        self.passive_until = now + (PASSIVE << self.expired.min(MOST_PASSIVE_DOUBLED));
        self.expired = self.expired.saturating_add(1);
        self.credits += 1;
    }
}
