//! Domains of extended reliable connections (IBTA 1.3, annex A14): of queue pairs that receive, and of the shared
//! receive queues that their messages name.
use crate::abi::{IbvContext, IbvXrcd, IbvXrcdInitAttr};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::errno;
use libc::c_int;
use std::sync::Arc;
use verbs::Number;
use verbs::control::Request;

/// `IBV_XRCD_INIT_ATTR_FD` and `IBV_XRCD_INIT_ATTR_OFLAGS`.
const BOTH: u32 = 0b11;

/// A domain.
#[repr(C)]
pub(crate) struct XrcDomain {
    public: IbvXrcd,
    /// The tie to the daemon.
    pub(crate) attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: Number,
}

impl XrcDomain {
    /// The domain behind the public part.
    ///
    /// # Safety
    /// [`open_xrcd`] gave the pointer, and the domain is not closed.
    pub(crate) unsafe fn of<'a>(domain: *mut IbvXrcd) -> &'a XrcDomain {
        // SAFETY: the public part is its first member.
        unsafe { &*domain.cast() }
    }

    /// The context that it belongs to.
    pub(crate) fn context(&self) -> *mut IbvContext {
        self.public.context
    }
}

/// `ibv_open_xrcd`. With hardware, processes that pass the same file share a domain. Here each has its own: the daemon
/// serves each context by itself.
pub(crate) unsafe extern "C" fn open_xrcd(context: *mut IbvContext, asked: *mut IbvXrcdInitAttr) -> *mut IbvXrcd {
    // SAFETY: the program passes an open context and attributes.
    let (of, mask) = unsafe { (Context::of(context), (*asked).comp_mask) };
    if mask != BOTH {
        return errno::pointer(Err(if mask & !BOTH != 0 { libc::EOPNOTSUPP } else { libc::EINVAL }));
    }
    errno::pointer(of.attachment.number(&Request::OpenXrcDomain).map(|(number, _)| {
        let attachment = Arc::clone(&of.attachment);
        Box::into_raw(Box::new(XrcDomain { public: IbvXrcd { context }, attachment, number })).cast()
    }))
}

/// `ibv_close_xrcd`.
pub(crate) unsafe extern "C" fn close_xrcd(domain: *mut IbvXrcd) -> c_int {
    // SAFETY: `open_xrcd` gave it.
    let of = unsafe { XrcDomain::of(domain) };
    errno::number(of.attachment.done(&Request::CloseXrcDomain(of.number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(domain.cast::<XrcDomain>()) });
    }))
}
