//! `fork` and its relatives.
use crate::attach;
use crate::fork as forking;
use crate::real;
use libc::pid_t;

/// `fork`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: passed on.
    if attach::is_enabled() { forking::fork() } else { unsafe { real::fork() } }
}

/// `vfork`: a fork. A child that shared the parent's memory would close descriptors in the parent's table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: passed on.
    unsafe { fork() }
}
