//! Programs that filter their own system calls (seccomp). A filter may kill the process for a call that the library
//! makes beside the program's own. OpenSSH's server has such a filter in the process that reads from unknown peers.
//!
//! From the moment that a filter is installed, the library waits by `ppoll` on one descriptor and does not yield. All
//! that it needs beyond that are `read` and `write` on descriptors made before, `futex`, `rt_sigprocmask` and
//! `clock_gettime`.
use crate::lock;
use crate::system::waking::CONFINED;
use crate::wait::{signals, thread};
use std::sync::atomic::Ordering::Relaxed;

/// Runs a call that installs a filter for this thread; returns what it returns.
pub(crate) fn install<T: PartialEq + From<i8>>(call: impl FnOnce() -> T) -> T {
    if let Ok(lib) = lock::lock() {
        // Where that is not possible any more, waits under the filter fail with the reason.
        let _ = thread::prepare_single(lib.link.bells());
    }
    signals::learn();
    // The filter may refuse what the net needs: a handler's return, changes of memory.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    let lost = intercept::what_is_lost();
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    intercept::take_net_away();
    let result = call();
    if result == T::from(0) {
        CONFINED.store(true, Relaxed);
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        lost.iter().for_each(|sentence| intercept::warn(sentence));
    } else {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        intercept::put_net_back();
    }
    result
}
