//! Protection domains.
use crate::abi::{IbvContext, IbvPd};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::errno;
use libc::c_int;
use std::sync::Arc;
use verbs::Number;
use verbs::control::Request;

/// A protection domain.
#[repr(C)]
pub(crate) struct Domain {
    public: IbvPd,
    /// The tie to the daemon.
    pub(crate) attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: Number,
}

impl Domain {
    /// The domain behind the public part.
    ///
    /// # Safety
    /// `ibv_alloc_pd` gave the pointer, and the domain is not freed.
    pub(crate) unsafe fn of<'a>(domain: *mut IbvPd) -> &'a Domain {
        // SAFETY: the public part is its first member.
        unsafe { &*domain.cast() }
    }

    /// The context that it belongs to.
    pub(crate) fn context(&self) -> *mut IbvContext {
        self.public.context
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd {
    // SAFETY: an open context.
    let of = unsafe { Context::of(context) };
    errno::pointer(of.attachment.number(&Request::AllocateDomain).map(|(number, _)| {
        let public = IbvPd { context, handle: number };
        let attachment = Arc::clone(&of.attachment);
        Box::into_raw(Box::new(Domain { public, attachment, number })).cast()
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: *mut IbvPd) -> c_int {
    // SAFETY: `ibv_alloc_pd` gave it.
    let of = unsafe { Domain::of(domain) };
    errno::number(of.attachment.done(&Request::FreeDomain(of.number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(domain.cast::<Domain>()) });
    }))
}

/// Domains and regions of other processes cannot be reached: the daemon serves each context by itself.
#[unsafe(no_mangle)]
extern "C" fn ibv_import_pd(_context: *mut IbvContext, _handle: u32) -> *mut IbvPd {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_pd(_domain: *mut IbvPd) {}
