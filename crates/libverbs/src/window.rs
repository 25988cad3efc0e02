//! Memory windows of type 2: made and ended here, bound and invalidated by work requests.
use crate::abi::{IbvMw, IbvMwBindInfo, IbvPd};
use crate::attachment::Attachment;
use crate::domain::Domain;
use crate::errno::{self, Result};
use libc::{c_int, c_uint};
use std::sync::Arc;
use verbs::control::Request;
use verbs::{Binding, Number, SendElement};

/// `IBV_MW_TYPE_2`.
const TYPE_2: c_int = 2;
/// `IBV_ACCESS_ZERO_BASED`.
const ZERO_BASED: c_uint = 1 << 5;
/// Bits of a key that the program chooses (`ibv_inc_rkey`).
const CHOSEN_BITS: u32 = 8;

/// A memory window.
#[repr(C)]
struct Window {
    public: IbvMw,
    attachment: Arc<Attachment>,
    number: Number,
}

pub(crate) unsafe extern "C" fn alloc_mw(domain: *mut IbvPd, kind: c_int) -> *mut IbvMw {
    if kind != TYPE_2 {
        return errno::pointer(Err(libc::EOPNOTSUPP));
    }
    // SAFETY: `ibv_alloc_pd` gave the domain.
    let of = unsafe { Domain::of(domain) };
    errno::pointer(of.attachment.number(&Request::AllocateWindow(of.number)).map(|(number, _)| {
        let (rkey, context) = (number << CHOSEN_BITS, of.context());
        let public = IbvMw { context, pd: domain, rkey, handle: number, kind };
        Box::into_raw(Box::new(Window { public, attachment: Arc::clone(&of.attachment), number })).cast()
    }))
}

pub(crate) unsafe extern "C" fn dealloc_mw(window: *mut IbvMw) -> c_int {
    // SAFETY: `alloc_mw` gave it.
    let of = unsafe { &*window.cast::<Window>() };
    errno::number(of.attachment.done(&Request::FreeWindow(of.number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(window.cast::<Window>()) });
    }))
}

/// Windows of type 1 are bound by this call; there are none.
pub(crate) extern "C" fn bind_mw() -> c_int {
    libc::EOPNOTSUPP
}

/// Writes what a window is to be bound to.
///
/// # Safety
/// The window and the region are the program's.
pub(crate) unsafe fn bind(first: &mut SendElement, window: *const IbvMw, key: u32, to: &IbvMwBindInfo) -> Result<()> {
    if window.is_null() || to.mr.is_null() {
        return Err(libc::EINVAL);
    }
    let (flags, zero_based) = (to.mw_access_flags & !ZERO_BASED, to.mw_access_flags & ZERO_BASED != 0);
    // SAFETY: as the caller guarantees.
    let (window, region) = unsafe { ((*window).handle, (*to.mr).lkey) };
    let rights = u8::try_from(flags).map_err(|_| libc::EINVAL)?;
    first.set_binding(&Binding { window, key, region, address: to.addr, len: to.length, rights, zero_based });
    Ok(())
}
