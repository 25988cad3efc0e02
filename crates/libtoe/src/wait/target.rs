//! Targets and options of a wait.
use crate::lock;
use crate::state::slab::Key;
use crate::system::waking;
use crate::wait::signals::Signals;
use libc::{pollfd, sigset_t};
use std::time::{Duration, Instant};

/// Target of a thread's wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Something about a socket.
    Socket(Key),
    /// Something in an epoll set that is polled itself.
    Set(Key),
    /// A member of a set of either kind: the thread sleeps on the set, as `epoll_wait` does. It has no other target.
    Members(Key),
}

/// Options of the wait.
pub(crate) struct WaitOptions<'a> {
    /// `ETIMEDOUT` from then on.
    pub deadline: Option<Instant>,
    /// Targets whose events end the sleep. Answers to requests always do.
    pub targets: &'a [Target],
    /// Descriptors of the kernel that end it as well.
    pub kernel: Vec<pollfd>,
    /// About signals.
    pub signals: Signals,
    /// Signals that are blocked meanwhile; `None` for those that the thread blocks anyway.
    pub mask: Option<sigset_t>,
}

/// Shorter times than this are kept to the microsecond, others to the millisecond.
const EXACT: Duration = Duration::from_millis(20);

impl WaitOptions<'_> {
    /// Until an answer comes, whatever happens.
    pub(crate) fn forever() -> WaitOptions<'static> {
        WaitOptions { deadline: None, targets: &[], kernel: Vec::new(), signals: Signals::Keep, mask: None }
    }

    /// Other threads may poll for it: a thread that waits for sockets or sets is notified by the one that takes their
    /// completions in.
    pub(super) fn has_others(&self) -> bool {
        !self.targets.is_empty() && !lock::is_alone()
    }

    /// Of the threads that sleep so, a ring of the bell need only wake one.
    pub(super) fn may_use_sleep_set(&self) -> bool {
        let exact = self.deadline.is_some_and(|deadline| deadline < waking::now() + EXACT);
        self.has_others() && self.kernel.is_empty() && !exact
    }

    /// The set whose members it is for.
    pub(super) fn own_set(&self) -> Option<Key> {
        match self.targets {
            [Target::Members(key)] => Some(*key),
            _ => None,
        }
    }
}
