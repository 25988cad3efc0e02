//! Calls that are refused: options of vendors.
use crate::abi::{IbvEce, RdmaCmId};
use crate::errno;
use libc::c_int;

/// Calls that return -1 and set `errno`.
macro_rules! refused {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            errno::minus_one(Err(libc::EOPNOTSUPP))
        })+
    };
}

refused! {
    rdma_set_local_ece
}

/// The peer's options are not read: none.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_remote_ece(_id: *mut RdmaCmId, into: *mut IbvEce) -> c_int {
    // SAFETY: the program passes a place for the answer.
    unsafe { into.write(IbvEce { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
