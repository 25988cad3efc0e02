//! Signals during a wait.
//!
//! The signals that have a handler are blocked from the moment a call finds nothing at once until it returns. Inside
//! the one system call that sleeps, they are not. So no handler can run unseen between the last check and the sleep,
//! and an interrupted call returns `EINTR` exactly when a handler ran. That includes the time for which a call yields
//! before it sleeps. A program may rely on a signal ending the wait that it began just before (`alarm`, then `poll`).
//!
//! Others are not blocked: a signal that is ignored is forgotten at once then, as without this library. Blocked, it
//! would wait, and end a sleep of `epoll_pwait` in which no handler ran (`SIGCHLD`, where a program has no handler).
use crate::system::{errno, faults, waking};
use libc::{c_int, sigset_t};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What to do about a signal whose handler ran while the thread slept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signals {
    /// Go on waiting.
    Keep,
    /// Go on if all handlers were installed with `SA_RESTART`, otherwise `EINTR`: read, write, accept, connect.
    Restart,
    /// `EINTR`: poll, select, epoll, and calls with a timeout.
    Interrupt,
}

/// Signals whose disposition is not known, or may have changed: bit 0 is signal 1.
static UNKNOWN: AtomicU64 = AtomicU64::new(u64::MAX);
/// Of the others, those that have a handler.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Of these, those after which calls are not restarted.
static ENDING: AtomicU64 = AtomicU64::new(0);
/// Signals of Linux.
const LAST: c_int = 64;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The program, in this process, may have changed what a signal does.
pub(crate) fn changed(signal: c_int) {
    if (1..=LAST).contains(&signal) {
        UNKNOWN.fetch_or(bit(signal), Relaxed);
    }
}

/// The signals that have a handler. Where the program's filter of system calls may not let this library ask, those that
/// may have one.
fn handled() -> u64 {
    if waking::is_confined() {
        return HANDLED.load(Relaxed) | UNKNOWN.load(Relaxed);
    }
    learn();
    HANDLED.load(Relaxed)
}

/// Asks the kernel where something is not known.
pub(crate) fn learn() {
    if UNKNOWN.load(Relaxed) != 0 {
        read_masks();
    }
}

/// Asks the kernel about the signals that are not known. A change meanwhile marks its signal again.
#[cold]
fn read_masks() {
    let errno = errno::get();
    let asked = UNKNOWN.swap(0, Relaxed);
    let (mut handled, mut ending, mut once) = (0, 0, 0);
    for signal in (1..=LAST).filter(|signal| asked & bit(*signal) != 0) {
        // SAFETY: reads the disposition into a local; for the two signals that the C library keeps for itself it
        // fails and leaves the zeroes, which mean the default.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            action
        };
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            continue;
        }
        handled |= bit(signal);
        ending |= if action.sa_flags & libc::SA_RESTART == 0 { bit(signal) } else { 0 };
        once |= if action.sa_flags & libc::SA_RESETHAND != 0 { bit(signal) } else { 0 };
    }
    // One that runs once is gone without a call.
    UNKNOWN.fetch_or(once, Relaxed);
    let replace = |all: &AtomicU64, new: u64| all.fetch_update(Relaxed, Relaxed, |old| Some((old & !asked) | new));
    let _ = (replace(&HANDLED, handled), replace(&ENDING, ending));
    errno::set(errno);
}

/// Signals blocked for the time of a wait; what was before comes back at its end.
pub(crate) struct BlockedSignals {
    /// `None` where nothing is blocked.
    before: Option<sigset_t>,
    /// `None`: the thread's own.
    outside: Option<sigset_t>,
}

impl BlockedSignals {
    /// Blocks them from a wait's beginning where one of them would end it.
    ///
    /// Not with a mask: the program itself blocks then what it waits for. Nor where the wait goes on anyway.
    pub(crate) fn of_wait(signals: Signals, mask: Option<sigset_t>) -> Option<BlockedSignals> {
        (signals != Signals::Keep && mask.is_none()).then(|| BlockedSignals::new(None))
    }

    /// Blocks all signals that have a handler. While the thread sleeps, `mask` is in force, or what was before.
    pub(crate) fn new(mask: Option<sigset_t>) -> BlockedSignals {
        let handled = handled();
        let before = (handled != 0).then(|| {
            // SAFETY: the sets are local and begin with 64 bits; pthread_sigmask does not fail with a valid operation.
            unsafe {
                let mut blocked: sigset_t = std::mem::zeroed();
                let mut before: sigset_t = std::mem::zeroed();
                (&raw mut blocked).cast::<u64>().write(handled);
                faults::leave_open(&mut blocked);
                libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
                before
            }
        });
        let mut outside = mask.or(before);
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(outside) = outside.as_mut().filter(|_| intercept::has_net()) {
            // SAFETY: a local set.
            unsafe { libc::sigdelset(outside, libc::SIGSYS) };
        }
        BlockedSignals { before, outside }
    }

    /// The mask in force while the thread sleeps; null for the thread's own.
    pub(crate) fn outside(&self) -> *const sigset_t {
        self.outside.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Whether a call goes on after a handler ran. Which one ran is not known, so a call is restarted only if every
    /// handler that could have run asks for it.
    pub(crate) fn goes_on(&self, signals: Signals) -> bool {
        match signals {
            Signals::Keep => true,
            Signals::Interrupt => false,
            Signals::Restart => {
                // Not all ways to install a handler lead through this library.
                if !waking::is_confined() {
                    UNKNOWN.store(u64::MAX, Relaxed);
                }
                let may_run = |signal: &c_int| {
                    // SAFETY: a valid set.
                    self.outside.is_none_or(|outside| unsafe { libc::sigismember(&outside, *signal) } != 1)
                };
                let ending = handled() & ENDING.load(Relaxed);
                !(1..=LAST).filter(|signal| ending & bit(*signal) != 0).any(|signal| may_run(&signal))
            }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let errno = errno::get();
        // SAFETY: restores the mask that `new` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        errno::set(errno);
    }
}
