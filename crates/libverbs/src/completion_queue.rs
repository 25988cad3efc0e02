//! A completion queue.
use crate::abi::{IbvCq, IbvCqEx};
use crate::attachment::Attachment;
use crate::channel::Unacknowledged;
use crate::polled::Polled;
use buffers::Lock;
use std::sync::Arc;
use verbs::{Notify, Number};

/// A completion queue.
#[repr(C)]
pub(crate) struct Cq {
    /// What programs see.
    pub(crate) public: IbvCqEx,
    /// The tie to the daemon.
    pub(crate) attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: Number,
    /// What is polled.
    pub(crate) polled: Lock<Polled>,
    /// Whether an event is wanted.
    pub(crate) notify: Notify,
    /// Events of its channel.
    pub(crate) events: Unacknowledged,
    /// Asynchronous events.
    pub(crate) async_events: Unacknowledged,
}

impl Cq {
    /// The queue behind the public part.
    ///
    /// # Safety
    /// `ibv_create_cq` gave the pointer, and the queue is not destroyed.
    #[inline]
    pub(crate) unsafe fn of<'a>(cq: *mut IbvCq) -> &'a Cq {
        // SAFETY: the public part is its first member.
        unsafe { &*cq.cast() }
    }
}
