//! Extended reliable connections (IBTA 1.3, annex A14): domains, and queue pairs that receive. Each message names the
//! shared receive queue that it is for.
use crate::abi::{IbvContext, IbvQp, IbvQpInitAttr, IbvQpInitAttrEx, IbvXrcd, IbvXrcdInitAttr};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::errno::{self, Result};
use crate::qp_calls::{Parts, add};
use crate::queues::{Queues, SendQueue};
use libc::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use verbs::control::{Answer, Request};
use verbs::{Number, QpKind};

/// `IBV_XRCD_INIT_ATTR_FD` and `IBV_XRCD_INIT_ATTR_OFLAGS`.
const BOTH: u32 = 0b11;

/// A domain.
#[repr(C)]
pub(crate) struct XrcDomain {
    public: IbvXrcd,
    attachment: Arc<Attachment>,
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

/// The receiving half of a connection. It has neither queues nor a protection domain.
///
/// # Safety
/// The domain is one of the program's.
pub(crate) unsafe fn create_receiver(asked: &mut IbvQpInitAttrEx) -> Result<*mut IbvQp> {
    if asked.xrcd.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    let of = unsafe { XrcDomain::of(asked.xrcd) };
    let (answer, _) = of.attachment.ask(&Request::CreateXrcReceiver(of.number))?;
    let Answer::Qp { number, capacities, pipe } = answer else { return Err(libc::EIO) };
    asked.cap = crate::attributes::cap(&capacities);
    let made = IbvQpInitAttr {
        qp_context: asked.qp_context,
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: asked.cap,
        qp_type: asked.qp_type,
        sq_sig_all: asked.sq_sig_all,
    };
    let queues = Arc::new(Queues { qp: number, send: SendQueue::new(0), receive: None });
    let attachment = Arc::clone(&of.attachment);
    let parts = Parts { attachment, domain: null_mut(), kind: QpKind::XrcReceive, queues, made, pipe };
    // SAFETY: the domain's context is open.
    Ok(unsafe { add(of.public.context, parts) }.cast())
}
