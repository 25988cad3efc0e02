//! Contexts: an opened device is an attachment of its own.
use crate::abi::{IbvContext, IbvCq, IbvQp, IbvSrq, VerbsContext};
use crate::attachment::Attachment;
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::Number;

/// An opened device. Programs have a pointer to the public part.
#[repr(C)]
pub(crate) struct Context {
    head: VerbsContext,
    /// The tie to the daemon.
    pub(crate) attachment: Arc<Attachment>,
    objects: Mutex<Objects>,
    /// Asynchronous events; programs have its number.
    _events: OwnedFd,
}

/// Objects that events name by number. Each leaves its table before it is freed.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<Number, *mut IbvCq>,
    pub(crate) qps: HashMap<Number, *mut IbvQp>,
    pub(crate) srqs: HashMap<Number, *mut IbvSrq>,
}

impl Context {
    /// An opened device; `head` has its public part, and `events` is the descriptor that stands there.
    pub(crate) fn open(head: VerbsContext, attachment: Attachment, events: OwnedFd) -> *mut IbvContext {
        let (attachment, objects) = (Arc::new(attachment), Mutex::default());
        let context = Box::into_raw(Box::new(Context { head, attachment, objects, _events: events }));
        // SAFETY: it was made just now.
        unsafe { &raw mut (*context).head.context }
    }

    /// The context behind the public part.
    ///
    /// # Safety
    /// [`Context::open`] gave the pointer, and the context is not closed.
    pub(crate) unsafe fn of<'a>(context: *mut IbvContext) -> &'a Context {
        // SAFETY: the public part stands at this place of it.
        unsafe { &*context.byte_sub(offset_of!(VerbsContext, context)).cast::<Context>() }
    }

    /// The context, to be freed.
    ///
    /// # Safety
    /// As [`Context::of`], and nobody uses it any more.
    pub(crate) unsafe fn take(context: *mut IbvContext) -> Box<Context> {
        // SAFETY: the public part stands at this place of it, and `open` made it as a box.
        unsafe { Box::from_raw(context.byte_sub(offset_of!(VerbsContext, context)).cast::<Context>()) }
    }

    /// Objects that events name.
    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of asynchronous events.
    pub(crate) fn async_fd(&self) -> libc::c_int {
        self.head.context.async_fd
    }
}
