//! A queue pair.
use crate::abi::{IbvQp, IbvQpEx, IbvQpInitAttr};
use crate::attachment::{Attachment, SendPipe};
use crate::build::Building;
use crate::channel::Unacknowledged;
use crate::queues::Queues;
use buffers::Lock;
use std::sync::Arc;
use verbs::{QpKind, QpNumber};

/// A queue pair.
#[repr(C)]
pub(crate) struct Qp {
    /// What programs see.
    pub(crate) public: IbvQpEx,
    /// The tie to the daemon.
    pub(crate) attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: QpNumber,
    /// What it transports.
    pub(crate) kind: QpKind,
    /// Its work requests.
    pub(crate) queues: Arc<Queues>,
    /// What it was made with, its capacities as they are.
    pub(crate) made: IbvQpInitAttr,
    /// Which send pipe it uses.
    pub(crate) pipe: u32,
    /// What `ibv_wr_start` begins.
    pub(crate) building: Lock<Building>,
    /// Asynchronous events.
    pub(crate) events: Unacknowledged,
}

impl Qp {
    /// The queue pair behind the public part.
    ///
    /// # Safety
    /// `ibv_create_qp` gave the pointer, and the queue pair is not destroyed.
    #[inline]
    pub(crate) unsafe fn of<'a>(qp: *mut IbvQp) -> &'a Qp {
        // SAFETY: the public part is its first member.
        unsafe { &*qp.cast() }
    }

    /// Its send pipe.
    #[inline]
    pub(crate) fn send_pipe(&self) -> crate::errno::Result<&Lock<SendPipe>> {
        self.attachment.pipe(self.pipe)
    }
}
