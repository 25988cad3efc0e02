//! How threads wake each other, and let each other run.
use crate::real;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// A filter of system calls is installed in this process ([`crate::confine`]).
pub(crate) static CONFINED: AtomicBool = AtomicBool::new(false);

/// A filter is installed in this process. It may concern some of its threads only.
#[inline]
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Relaxed)
}

/// Lets another thread run, where the program's filter lets it. Not a cancellation point.
pub(crate) fn yield_now() {
    if is_confined() {
        return std::hint::spin_loop();
    }
    // SAFETY: a system call without arguments.
    unsafe { libc::sched_yield() };
}

/// How often anybody was woken.
static WAKES: AtomicU32 = AtomicU32::new(0);

/// How often this process has woken threads of its own.
pub(crate) fn wakes() -> u32 {
    WAKES.load(Relaxed)
}

/// Wakes whoever sleeps on the eventfd.
pub(crate) fn wake(fd: RawFd) {
    WAKES.fetch_add(1, Relaxed);
    let one = 1u64;
    // SAFETY: writes eight bytes of a local; failing means that it is signalled already.
    unsafe { real::write(fd, (&raw const one).cast(), 8) };
}
