//! Signals to the owners of sockets (`F_SETOWN`, `O_ASYNC`): which a socket raises, and which are pending.
use crate::state::events::PRI;
use std::os::fd::RawFd;

/// The process's thread that raises signals ([`crate::calls::signaller`]).
pub(crate) struct Signaller {
    /// Descriptor that wakes it; `None` where it is not there.
    pub wake: Option<RawFd>,
    /// Goes up when a socket becomes one that raises signals.
    pub changes: u32,
}

/// Signals that a socket raises, and those pending: events in epoll's bits, and [`URGENT`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Signals {
    raises: u16,
    pending: u16,
}

/// The peer has announced urgent data: `SIGURG`.
const URGENT: u16 = 1 << 15;
/// All that `O_ASYNC` reports.
const EVENTS: u16 = URGENT - 1;

impl Signals {
    /// It has an owner: urgent data is reported.
    pub(crate) fn have_owner(&mut self) {
        self.raises |= URGENT;
    }

    /// `O_ASYNC` is set or not: all events are reported.
    pub(crate) fn report_events(&mut self, on: bool) {
        self.raises = self.raises & URGENT | if on { EVENTS } else { 0 };
    }

    /// It raises some.
    pub(crate) fn are_there(self) -> bool {
        self.raises != 0
    }

    /// Events happened.
    #[inline]
    pub(crate) fn note(&mut self, events: u32) {
        self.pending |= events as u16 & EVENTS & self.raises;
    }

    /// The peer has announced urgent data: Linux reports that as an event, too.
    pub(crate) fn note_urgent(&mut self) {
        self.pending |= (URGENT | PRI as u16) & self.raises;
    }

    /// Some are to be raised.
    pub(crate) fn are_pending(self) -> bool {
        self.pending != 0
    }

    /// Takes what is to be raised: whether `SIGURG`, and for which events `SIGIO`.
    pub(crate) fn take(&mut self) -> (bool, u32) {
        let pending = std::mem::take(&mut self.pending);
        (pending & URGENT != 0, u32::from(pending & EVENTS))
    }
}
