//! The net below the rewritten instructions: syscall user dispatch (prctl(2), `PR_SET_SYSCALL_USER_DISPATCH`). The
//! kernel sends `SIGSYS` for each system call from outside of the range that holds this crate and its stubs.
//!
//! The handler makes a stub for the place and lets the thread go on there, as if the place had been rewritten. Where
//! that can be done while other threads run, it rewrites the place as well, and the next call needs no signal.
use crate::call_sites;
use crate::pool;
use crate::{dispositions, objects};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use shm::system_call;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// prctl(2).
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const OFF: usize = 0;
const ON: usize = 1;
/// `si_code` of a call that was caught so (sigaction(2)).
const SYS_USER_DISPATCH: c_int = 2;

/// The range from which the kernel takes system calls as they are. No length: the net is not there.
static OFFSET: AtomicU64 = AtomicU64::new(0);
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// Where in a thread's [`crate::static_programs`] its selector is: it reports whether the program runs, or the library.
/// 0: it is always the program.
static SELECTOR: AtomicU64 = AtomicU64::new(0);
/// The length while the net is there.
static FULL: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn toe_intercept_child();
}

std::arch::global_asm!(
    include_str!("net.s"),
    offset = sym OFFSET,
    length = sym LENGTH,
    selector = sym SELECTOR,
    prctl = const libc::SYS_prctl,
    dispatch = const PR_SET_SYSCALL_USER_DISPATCH,
    pool = const pool::ROOM,
);

/// Spreads the net for this thread and for all that come after it. `ask`: where stubs ask.
///
/// # Safety
/// The process has one thread; the rules are set.
pub(crate) unsafe fn start(ask: u64) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe { prepare(ask, 0)? };
    arm().inspect_err(|_| give_up_silently())
}

/// Prepares the net; threads are caught from [`arm`] on.
///
/// # Safety
/// As [`start`].
pub(crate) unsafe fn prepare(ask: u64, selector: usize) -> Result<(), c_int> {
    SELECTOR.store(selector as u64, Relaxed);
    let own = toe_intercept_child as *const () as u64;
    let range = objects::code_around(own).ok_or(libc::ENOEXEC)?;
    // SAFETY: no stub of the net runs yet.
    unsafe { pool::begin(ask, own, selector != 0) }.map_err(|_| libc::EACCES)?;
    dispositions::catch(handler)?;
    OFFSET.store(range.start, Relaxed);
    FULL.store(range.len as u64, Relaxed);
    LENGTH.store(range.len as u64, Relaxed);
    Ok(())
}

/// Whether there is a net.
pub fn is_there() -> bool {
    LENGTH.load(Relaxed) != 0
}

/// Catches this thread's calls.
pub(crate) fn arm() -> Result<(), c_int> {
    set(ON, OFFSET.load(Relaxed), LENGTH.load(Relaxed))
}

/// Catches them no longer.
pub(crate) fn disarm() {
    let _ = set(OFF, 0, 0);
}

fn set(mode: usize, offset: u64, length: u64) -> Result<(), c_int> {
    let selector = match SELECTOR.load(Relaxed) as usize {
        offset if offset != 0 && mode == ON => {
            let own: usize;
            // SAFETY: where threads have a selector, the register leads to what it is in.
            unsafe { std::arch::asm!("mov {}, gs:[0]", out(reg) own, options(nostack, preserves_flags, readonly)) };
            own + offset
        }
        _ => 0,
    };
    let arguments = [PR_SET_SYSCALL_USER_DISPATCH, mode, offset as usize, length as usize, selector, 0];
    // SAFETY: a plain call.
    let result = unsafe { system_call::raw(libc::SYS_prctl, arguments) };
    if result == 0 { Ok(()) } else { Err(-result as c_int) }
}

/// After a fork, in the child: the kernel does not hand the net on.
pub fn go_on_in_child() {
    if is_there() {
        call_sites::free_lock();
        // It was possible in the parent. Where the child must not do so, the rewritten places are still seen.
        let _ = arm();
    }
}

/// Takes the net away, for this thread now and for all that begin later: the process filters its own system calls, and
/// the filter may refuse what the net needs.
pub fn take_away() {
    if is_there() {
        LENGTH.store(0, Relaxed);
        disarm();
    }
}

/// What is lost by taking the net away, where something is.
pub fn what_is_lost() -> Option<String> {
    let left = call_sites::left();
    let sentence = || {
        format!(
            "libtoe: the program filters its system calls: {left} places that cannot be rewritten are not seen any more\n"
        )
    };
    (FULL.load(Relaxed) != 0 && left != 0).then(sentence)
}

/// Puts back what [`take_away`] took: there is no filter after all.
pub fn put_back() {
    if FULL.load(Relaxed) != 0 {
        LENGTH.store(FULL.load(Relaxed), Relaxed);
        let _ = arm();
    }
}

/// A system call was caught, or something else raised `SIGSYS`.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    let (code, registers) = unsafe { ((*info).si_code, &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs) };
    if code != SYS_USER_DISPATCH {
        // SAFETY: passed on as it came.
        return unsafe { dispositions::pass_on(signal, info, context) };
    }
    let number = registers[libc::REG_RAX as usize];
    let behind = registers[libc::REG_RIP as usize] as u64;
    if number == libc::SYS_rt_sigreturn {
        // The frame is where the stack pointer is.
        registers[libc::REG_RIP as usize] = dispositions::restorer() as i64;
        return;
    }
    // SAFETY: the thread has just made a system call there.
    match unsafe { call_sites::stub(behind - crate::sites::CALL, number as usize) } {
        Some(enter) => registers[libc::REG_RIP as usize] = enter as i64,
        None => {
            give_up();
            // The call is made once more, uncaught.
            registers[libc::REG_RIP as usize] -= crate::sites::CALL as i64;
        }
    }
}

fn give_up_silently() {
    take_away();
    FULL.store(0, Relaxed);
}

#[cold]
fn give_up() {
    give_up_silently();
    warn("libtoe: too many places of the program make system calls: further ones are not seen\n");
}

/// Writes a line to standard error.
pub fn warn(line: &str) {
    // SAFETY: bytes of a string.
    unsafe { system_call::raw(libc::SYS_write, [2, line.as_ptr().expose_provenance(), line.len(), 0, 0, 0]) };
}
