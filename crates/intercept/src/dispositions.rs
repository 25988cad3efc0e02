//! The process' handlers of signals, as far as the net changes them: `SIGSYS` is the net's. No thread may block it, or
//! the kernel ends the process at the next call that is caught (signal(7), "forced signals").
use libc::{SIGSYS, c_int, c_ulong, c_void, siginfo_t};
use shm::system_call;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// The kernel's `struct sigaction` on x86-64.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Action {
    handler: usize,
    flags: c_ulong,
    restorer: usize,
    mask: u64,
}

/// `SA_RESTORER`: signal.h of the kernel.
const SA_RESTORER: c_ulong = 0x0400_0000;
/// Bytes of the kernel's signal set.
const SET: usize = 8;
/// `SIGSYS` in a signal set.
pub const BIT: u64 = 1 << (SIGSYS - 1);

unsafe extern "C" {
    fn toe_intercept_restore();
}

/// Where a handler returns to.
pub(crate) fn restorer() -> usize {
    toe_intercept_restore as *const () as usize
}

/// Where all handlers of the program are led to; 0: nowhere.
static LED_TO: AtomicUsize = AtomicUsize::new(0);
/// The program's handlers, where they are led elsewhere; by the number of the signal.
pub(crate) static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// One more than the last signal.
const SIGNALS: usize = 65;

/// From now on, the kernel calls this function in place of each handler that the program installs.
pub(crate) fn lead_to(handler: usize) {
    LED_TO.store(handler, Relaxed);
}

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The program's own disposition of `SIGSYS`.
static OWN_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static OWN_FLAGS: AtomicU64 = AtomicU64::new(0);
static OWN_RESTORER: AtomicUsize = AtomicUsize::new(0);
static OWN_MASK: AtomicU64 = AtomicU64::new(0);

fn check(result: isize) -> Result<(), c_int> {
    if result >= 0 { Ok(()) } else { Err(-result as c_int) }
}

unsafe fn set(signal: c_int, new: *const Action, old: *mut Action) -> Result<(), c_int> {
    let arguments = [signal as usize, new.expose_provenance(), old.expose_provenance(), SET, 0, 0];
    // SAFETY: the caller's.
    check(unsafe { system_call::raw(libc::SYS_rt_sigaction, arguments) })
}

/// Installs the net's handler, and lets its signal through.
pub(crate) fn catch(handler: Handler) -> Result<(), c_int> {
    let (mut old, open) = (Action::default(), BIT);
    let new = Action {
        handler: handler as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as c_ulong | SA_RESTORER,
        restorer: restorer(),
        mask: u64::MAX,
    };
    // SAFETY: a handler that lives as long as the process; a local set.
    unsafe {
        set(SIGSYS, &new, &mut old)?;
        keep(&old);
        let arguments = [libc::SIG_UNBLOCK as usize, (&raw const open).expose_provenance(), 0, SET, 0, 0];
        check(system_call::raw(libc::SYS_rt_sigprocmask, arguments))
    }
}

fn keep(action: &Action) {
    OWN_HANDLER.store(action.handler, Relaxed);
    OWN_FLAGS.store(action.flags, Relaxed);
    OWN_RESTORER.store(action.restorer, Relaxed);
    OWN_MASK.store(action.mask, Relaxed);
}

/// Does something that may change a signal's disposition, and puts that back as it was before.
pub fn unchanged<T>(signal: c_int, something: impl FnOnce() -> T) -> T {
    let (mut before, mut after) = (Action::default(), Action::default());
    // SAFETY: locals, and what the kernel reported of this process.
    unsafe {
        let known = set(signal, std::ptr::null(), &mut before).is_ok();
        let done = something();
        if known && set(signal, std::ptr::null(), &mut after).is_ok() && after != before {
            let _ = set(signal, &before, std::ptr::null_mut());
        }
        done
    }
}

/// The program's `rt_sigaction`, as the kernel answers it. `keeps`: its disposition of `SIGSYS` is stored for later,
/// which must not be in a child that shares its parent's memory.
///
/// # Safety
/// The program's arguments.
pub unsafe fn change(signal: c_int, new: *const Action, old: *mut Action, keeps: bool) -> isize {
    // SAFETY: the caller's pointers.
    let asked = unsafe { new.as_ref().copied() };
    if signal != SIGSYS {
        // SAFETY: the program's place for the answer.
        return unsafe { change_other(signal, asked, old) }.map_or_else(|error| -(error as isize), |()| 0);
    }
    let before = Action {
        handler: OWN_HANDLER.load(Relaxed),
        flags: OWN_FLAGS.load(Relaxed),
        restorer: OWN_RESTORER.load(Relaxed),
        mask: OWN_MASK.load(Relaxed),
    };
    asked.iter().filter(|_| keeps).for_each(keep);
    if !old.is_null() {
        // SAFETY: the program's place for the answer.
        unsafe { old.write(before) };
    }
    0
}

/// The same for other signals.
unsafe fn change_other(signal: c_int, asked: Option<Action>, old: *mut Action) -> Result<(), c_int> {
    let led_to = LED_TO.load(Relaxed);
    let own = HANDLERS.get(signal as usize).filter(|_| led_to != 0);
    let before = own.map(|own| own.load(Relaxed));
    let given = asked.map(|mut action| {
        action.mask &= !BIT;
        if let Some(own) = own.filter(|_| ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.handler)) {
            // In front of the kernel's call: the signal may come at once.
            own.store(action.handler, Relaxed);
            action.handler = led_to;
            action.flags |= libc::SA_SIGINFO as c_ulong | SA_RESTORER;
            action.restorer = restorer();
        }
        action
    });
    let given = given.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a local, and the program's place for the answer.
    unsafe {
        set(signal, given, old)?;
        if let Some(old) = old.as_mut().filter(|old| led_to != 0 && old.handler == led_to) {
            old.handler = before.unwrap_or_default();
        }
    }
    Ok(())
}

/// A `SIGSYS` that the net did not cause: the program's disposition of it.
///
/// # Safety
/// The kernel's arguments of the handler.
pub(crate) unsafe fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match OWN_HANDLER.load(Relaxed) {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // It comes again as soon as this handler has ended, and does what it does by default.
            // SAFETY: plain calls of the kernel.
            unsafe {
                let _ = set(SIGSYS, &Action::default(), std::ptr::null_mut());
                let process = system_call::raw(libc::SYS_getpid, [0; 6]) as usize;
                let thread = system_call::raw(libc::SYS_gettid, [0; 6]) as usize;
                system_call::raw(libc::SYS_tgkill, [process, thread, signal as usize, 0, 0, 0]);
            }
        }
        // SAFETY: the program registered this as its handler; one without SA_SIGINFO does not read the other two.
        handler => unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) },
    }
}
