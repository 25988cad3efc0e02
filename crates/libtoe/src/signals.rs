//! Signals during a wait.
//!
//! From the moment a call finds nothing at once until it returns, signals are blocked, except inside the one system
//! call that sleeps. So no handler can run unseen between the last look and the sleep, and an interrupted call
//! says `EINTR` exactly when a handler ran. That includes the time for which a call yields before it sleeps: a
//! program may rely on a signal after its last look at a flag ending the next wait (`alarm`, then `poll`).
use crate::errno;
use crate::faults;
use libc::{c_int, sigset_t};

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

/// Signals blocked for the time of a wait; what was before comes back at its end.
pub(crate) struct BlockedSignals {
    before: sigset_t,
    outside: sigset_t,
}

impl BlockedSignals {
    /// Blocks them from a wait's beginning where one of them would end it.
    ///
    /// Not with a mask: the program itself blocks then what it waits for. Nor where the wait goes on anyway.
    pub(crate) fn of_wait(signals: Signals, mask: Option<sigset_t>) -> Option<BlockedSignals> {
        (signals != Signals::Keep && mask.is_none()).then(|| BlockedSignals::new(None))
    }

    /// Blocks all signals. While the thread sleeps, `mask` is in force, or what was before.
    pub(crate) fn new(mask: Option<sigset_t>) -> BlockedSignals {
        // SAFETY: the sets are local; pthread_sigmask does not fail with a valid operation.
        let before = unsafe {
            let mut all: sigset_t = std::mem::zeroed();
            let mut before: sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            faults::leave_open(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            before
        };
        let mut outside = mask.unwrap_or(before);
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if intercept::has_net() {
            // SAFETY: a local set.
            unsafe { libc::sigdelset(&mut outside, libc::SIGSYS) };
        }
        BlockedSignals { before, outside }
    }

    /// The mask in force while the thread sleeps.
    pub(crate) fn outside(&self) -> *const sigset_t {
        &self.outside
    }

    /// Whether a call goes on after a handler ran. Which one ran is not known, so a call is restarted only if every
    /// handler that could have run asks for it.
    pub(crate) fn goes_on(&self, signals: Signals) -> bool {
        match signals {
            Signals::Keep => true,
            Signals::Interrupt => false,
            Signals::Restart => (1..=64).all(|signal| self.restarts_after(signal)),
        }
    }

    fn restarts_after(&self, signal: c_int) -> bool {
        // SAFETY: reads the disposition into a local; for the two signals that the C library keeps for itself it
        // fails and leaves the zeroes, which mean the default.
        let (action, blocked) = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut action);
            (action, libc::sigismember(&self.outside, signal) == 1)
        };
        let handled = action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN;
        blocked || !handled || action.sa_flags & libc::SA_RESTART != 0
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let errno = errno::get();
        // SAFETY: restores the mask that `new` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
        errno::set(errno);
    }
}
