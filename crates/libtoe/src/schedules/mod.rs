//! Schedules: real threads of this library, one of them running at a time, in an order that a test chooses.
//!
//! Everything is real but the order and the time. That is the calls of a program, the library's lock, rings, bells,
//! sets of the kernel, and sleeps in system calls. Between two [points](Point) one thread runs; at a point, the
//! controller may let another one run, or the daemon's stand-in. Who sleeps in the kernel is asleep there, and only
//! what the kernel wakes goes on. Time is virtual: where nobody can run, it leaps to the next time-out, and what leapt
//! is counted. So a wake-up that is lost shows as a leap, or as threads that sleep for ever.
//!
//! [`controller`] chooses, [`plan`] has the order, [`scenarios`] are what threads do, [`explore`] goes through
//! orders. What two sides do to one word of a doorbell at the same time is not seen here, but by `make model` (`shm`).
mod controller;
mod explore;
mod plan;
mod scenarios;

use crate::system::waking::Point;
use controller::{CONTROL, State, TIME_OVER, me};
use libc::{c_long, sigset_t};
use std::time::{Duration, Instant};

/// What a read of the clock costs, and a yield.
const CLOCK_READ: Duration = Duration::from_nanos(100);
const YIELD: Duration = Duration::from_micros(15);

/// The time, for threads that the controller has.
pub(crate) fn now() -> Option<Instant> {
    me().map(|_| CONTROL.pass(CLOCK_READ))
}

/// The thread lets others run.
pub(crate) fn yields() -> bool {
    let Some(me) = me() else { return false };
    CONTROL.pass(YIELD);
    CONTROL.give_up(me, State::Ready);
    true
}

/// Others run first, where the plan has it.
pub(crate) fn point(point: Point) {
    let Some(me) = me() else { return };
    if CONTROL.deviates() {
        CONTROL.give_up(me, if point == Point::Lock { State::Ready } else { State::Polls });
    }
}

/// Sleeps in the kernel, without its time-out, until something there or the controller ends it.
pub(crate) fn sleep(
    timeout: Option<Duration>,
    mask: *const sigset_t,
    call: impl FnOnce(*const sigset_t) -> c_long,
) -> Option<c_long> {
    let me = me().filter(|_| timeout != Some(Duration::ZERO))?;
    let open = mask_that_leaves_open(mask);
    CONTROL.sleeps(me, timeout);
    let woken = call((&raw const open).cast());
    let errno = crate::system::errno::get();
    let over = CONTROL.is_back(me);
    if woken < 0 && errno == libc::EINTR && over {
        return Some(0);
    }
    crate::system::errno::set(errno);
    Some(woken)
}

/// The kernel's form of a mask, or of the thread's own, in which [`TIME_OVER`] is not blocked.
fn mask_that_leaves_open(mask: *const sigset_t) -> u64 {
    // SAFETY: sets begin with the 64 signals that Linux has; the thread's own is read into a local.
    unsafe {
        let mut own: sigset_t = std::mem::zeroed();
        let mask = if mask.is_null() {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut own);
            &raw const own
        } else {
            mask
        };
        mask.cast::<u64>().read() & !(1 << (TIME_OVER - 1))
    }
}
