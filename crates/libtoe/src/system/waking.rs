//! Sleeping and waking: the time, yields, sleeps and wake-ups of the operating system.
//!
//! In one place, so that a test can put a scheduler of its own there (`schedules`). It runs real threads of this
//! library in any order, in virtual time. In the product, nothing of that is left.
#[cfg(test)]
use crate::schedules as hooks;
use crate::system::real;
use libc::{c_int, c_long, epoll_event, pollfd, sigset_t, timespec};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

#[cfg(not(test))]
mod hooks {
    //! Nobody chooses the order.
    use libc::{c_long, sigset_t};
    use std::time::{Duration, Instant};

    #[inline(always)]
    pub(crate) fn now() -> Option<Instant> {
        None
    }

    #[inline(always)]
    pub(crate) fn yields() -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn point(_: super::Point) {}

    #[inline(always)]
    pub(crate) fn sleep(
        _: Option<Duration>,
        _: *const sigset_t,
        _: impl FnOnce(*const sigset_t) -> c_long,
    ) -> Option<c_long> {
        None
    }
}

/// A place where another order of things could show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Before the library's lock is taken: any other thread may be first.
    Lock,
    /// With the lock held, before a poll of the daemon's rings: the daemon may run now.
    Poll,
}

/// Another order of things could show here.
#[inline(always)]
pub(crate) fn point(point: Point) {
    hooks::point(point);
}

/// The time.
#[inline(always)]
pub(crate) fn now() -> Instant {
    hooks::now().unwrap_or_else(Instant::now)
}

/// Sleeps as `ppoll`: until a descriptor is ready, `timeout` is over (null: never), or an unblocked signal came. `mask`
/// is the signal mask (null: the thread's own).
pub(crate) fn sleep_on(fds: &mut [pollfd], timeout: Option<timespec>, mask: *const sigset_t) -> c_long {
    let time = timeout.map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    // SAFETY: valid descriptors and mask, no timeout.
    if let Some(woken) = hooks::sleep(time, mask, |mask| unsafe { real::ppoll_raw(fds, std::ptr::null(), mask) }) {
        return woken;
    }
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: valid descriptors, timeout and mask.
    unsafe { real::ppoll_raw(fds, timeout, mask) }
}

/// Likewise on a set of the kernel; as `epoll_pwait`, whose milliseconds are -1 for ever.
///
/// # Safety
/// `events` is a place for `most` of them, or one of the program's that may be bad.
pub(crate) unsafe fn sleep_in(
    set: RawFd,
    events: *mut epoll_event,
    most: usize,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_long {
    let time = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: the caller's place, and a valid mask.
    let call = |mask| unsafe { real::epoll_pwait_raw(set, events, most, -1, mask) };
    // SAFETY: as above.
    hooks::sleep(time, mask, call).unwrap_or_else(|| unsafe { real::epoll_pwait_raw(set, events, most, timeout, mask) })
}

/// Whether the other end of a socket is gone, where `fd` is one of the library's own.
pub(crate) fn has_ended(fd: RawFd) -> bool {
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: polls one descriptor without waiting.
    unsafe { real::ppoll_raw(&mut [pollfd { fd, events: 0, revents: 0 }], &now, std::ptr::null()) > 0 }
}

/// A filter of system calls is installed in this process ([`crate::process::confine`]).
pub(crate) static CONFINED: AtomicBool = AtomicBool::new(false);

/// A filter is installed in this process. It may concern some of its threads only.
#[inline]
pub(crate) fn is_confined() -> bool {
    CONFINED.load(Relaxed)
}

/// Lets another thread run, where the program's filter lets it. Not a cancellation point.
pub(crate) fn yield_now() {
    if hooks::yields() {
        return;
    }
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
