//! `sigaction` and `signal`: what they set for the signals that bad addresses raise is kept
//! ([`crate::system::faults`]); of all others, that something changed ([`crate::wait::signals`]).
use crate::process::spawn;
use crate::system::{faults, real};
use crate::wait::signals;
use libc::{c_int, sighandler_t};

/// `sigaction`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: passed on.
    unsafe { act(signal, new, old) }
}

/// `__sigaction`, the same by another name. It does not call that other name: Erlang has a `sigaction` of its own in
/// front of this library, which calls this one.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: passed on.
    unsafe { act(signal, new, old) }
}

unsafe fn act(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !faults::SIGNALS.contains(&signal) {
        // SAFETY: passed on.
        let done = unsafe { real::sigaction(signal, new, old) };
        if !new.is_null() {
            changed(signal);
        }
        return done;
    }
    // SAFETY: the program's action.
    let asked = unsafe { new.as_ref() }.copied();
    match faults::change(signal, asked) {
        // SAFETY: passed on.
        None => unsafe { real::sigaction(signal, new, old) },
        Some(result) => {
            let given = result.map(|before| {
                // SAFETY: the program's place for the answer.
                unsafe { old.as_mut() }.into_iter().for_each(|old| *old = before);
                0
            });
            crate::system::errno::give(given)
        }
    }
}

/// Published after the change, so that the next reader has it. A child that shares this memory has dispositions of its
/// own.
fn changed(signal: c_int) {
    if !spawn::in_child() {
        signals::changed(signal);
    }
}

/// What `signal` and its kin do: the earlier handler.
fn handle(signal: c_int, handler: sighandler_t, flags: c_int) -> Option<sighandler_t> {
    // SAFETY: zeros are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    match faults::change(signal, Some(action))? {
        Ok(before) => Some(before.sa_sigaction),
        Err(errno) => {
            crate::system::errno::set(errno);
            Some(libc::SIG_ERR)
        }
    }
}

/// `signal`: handlers stay, and calls are restarted.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    unsafe { lasting(signal, handler) }
}

unsafe fn lasting(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    let before =
        handle(signal, handler, libc::SA_RESTART).unwrap_or_else(|| unsafe { real::signal(signal, handler) as usize });
    changed(signal);
    before
}

/// `bsd_signal`, the same by another name.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    unsafe { lasting(number, handler) }
}

/// `ssignal`, the same by another name.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    unsafe { lasting(number, handler) }
}

/// `sysv_signal`: handlers run once.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    unsafe { once(signal, handler) }
}

unsafe fn once(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let once = libc::SA_RESETHAND | libc::SA_NODEFER;
    // SAFETY: passed on.
    let before =
        handle(signal, handler, once).unwrap_or_else(|| unsafe { real::sysv_signal(signal, handler) as usize });
    changed(signal);
    before
}

/// `__sysv_signal`, the same by another name.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: passed on.
    unsafe { once(signal, handler) }
}
