//! Output array of `epoll_wait`.
use crate::system::user_memory;
use libc::epoll_event;

/// An address that may be bad, and how many fit.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub at: *mut epoll_event,
    pub len: usize,
}

impl Out {
    /// The place behind the first ones.
    pub(super) fn behind(self, used: usize) -> Out {
        Out { at: self.at.wrapping_add(used), len: self.len - used }
    }

    /// Whether one of the first `found` events has this number of the program's.
    pub(super) fn has(self, found: usize, data: u64) -> bool {
        // SAFETY: all bytes are values of an event.
        let event = |at: usize| unsafe { user_memory::read(self.at.wrapping_add(at)) };
        (0..found).any(|at| event(at).is_ok_and(|event| event.u64 == data))
    }
}
