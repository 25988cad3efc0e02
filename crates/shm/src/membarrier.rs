//! `membarrier(2)`: a fence that one thread has all threads of the registered processes execute.
use crate::system_call;
use libc::c_int;

const QUERY: c_int = 0;
const GLOBAL_EXPEDITED: c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: c_int = 1 << 2;

fn call(command: c_int) -> isize {
    // SAFETY: a system call without pointers. Directly, because the C library has no function for it.
    unsafe { system_call::raw(libc::SYS_membarrier, [command as usize, 0, 0, 0, 0, 0]) }
}

/// Whether the kernel has the barrier and lets this process use it.
pub(crate) fn is_there() -> bool {
    let commands = call(QUERY);
    commands > 0 && commands & GLOBAL_EXPEDITED as isize != 0 && everywhere()
}

/// A full fence in every thread of every registered process; `false` where it was refused.
pub(crate) fn everywhere() -> bool {
    call(GLOBAL_EXPEDITED) == 0
}

/// Lets [`everywhere`] reach this process; `false` where it was refused. Lasts until exec.
pub(crate) fn register() -> bool {
    call(REGISTER_GLOBAL_EXPEDITED) == 0
}
