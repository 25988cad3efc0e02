//! Programs without a C library of the process: static ones, which the library has loaded itself. Their calls are all
//! caught by the net, and answered on a stack of the library's own, with the thread pointer of its C library. Programs
//! may have stacks of two KiB (Go), or none left at all (a thread of musl's that ends).
//!
//! Each thread of such a program is one of the C library's. The GS register leads to its [`Own`]; the net's selector is
//! in there: calls of the library itself are not caught.
use crate::entry::{self, Call, Rules};
use crate::{dispositions, running, user_dispatch};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::AtomicU8;

/// What a thread has of its own. The assembly has the same offsets.
#[derive(Debug)]
#[repr(C)]
struct Own {
    own: u64,
    own_fs: u64,
    program_fs: u64,
    stack: u64,
    stack_low: u64,
    stack_high: u64,
    leave: u64,
    selector: AtomicU8,
    clear_tid: usize,
}

const _: () = assert!(offset_of!(Own, program_fs) == 16 && offset_of!(Own, stack) == 24);
const _: () = assert!(offset_of!(Own, stack_high) == 40 && offset_of!(Own, leave) == 48);
/// Values of the selector (prctl(2), `PR_SET_SYSCALL_USER_DISPATCH`): calls are not caught, or are.
const LIBRARY: u8 = 0;
const PROGRAM: u8 = 1;
/// Where the selector is.
const SELECTOR: usize = 56;
const _: () = assert!(offset_of!(Own, selector) == SELECTOR && size_of::<Frame>() == 128);

/// All registers of the program at a call; the assembly has the same offsets.
#[derive(Debug, Default, Clone)]
#[repr(C)]
pub struct Frame {
    /// The call.
    pub call: Call,
    /// rbx, rbp, r12 to r15.
    pub kept: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
    /// Where the program goes on.
    pub next: u64,
    /// The flags.
    pub flags: u64,
}

unsafe extern "C" {
    fn toe_intercept_own_entry();
    fn toe_intercept_own_run(frame: *const Frame);
    fn toe_intercept_own_leave() -> !;
    fn toe_intercept_own_signal();
}

/// Spreads the net for programs that this process loads.
///
/// # Errors
/// The system's error number where it has no syscall user dispatch (Linux 5.11), or `ENOSYS` where programs cannot set
/// their thread pointer (Linux 5.9, a processor with FSGSBASE).
///
/// # Safety
/// The process has one thread. `rules.ask` keeps the contract of [`crate::Ask`].
pub unsafe fn host(rules: &Rules) -> Result<(), libc::c_int> {
    // HWCAP2_FSGSBASE of asm/hwcap2.h.
    // SAFETY: a plain call.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & 2 == 0 {
        return Err(libc::ENOSYS);
    }
    entry::set(rules);
    running::prepare();
    dispositions::lead_to(toe_intercept_own_signal as *const () as usize);
    // SAFETY: the caller's promise.
    unsafe { user_dispatch::prepare(toe_intercept_own_entry as *const () as u64, SELECTOR) }
}

/// Runs the program on this thread, whose stack is the range, until [`leave`]. `ready` runs before it begins.
///
/// # Errors
/// The system's error number where the net cannot be spread.
///
/// # Safety
/// [`host`] succeeded. The frame is one of the program's.
pub unsafe fn run(frame: &Frame, program_fs: u64, stack: Range<u64>, ready: impl FnOnce()) -> Result<(), libc::c_int> {
    let mut own = Own {
        own: 0,
        own_fs: thread_pointer(),
        program_fs,
        stack: 0,
        stack_low: stack.start,
        stack_high: stack.end,
        leave: 0,
        selector: AtomicU8::new(LIBRARY),
        clear_tid: 0,
    };
    let at = &raw mut own;
    // SAFETY: `own` lives until the thread has left; the frame is the caller's.
    unsafe {
        (*at).own = at.expose_provenance() as u64;
        std::arch::asm!("wrgsbase {}", in(reg) at, options(nostack, preserves_flags));
        user_dispatch::arm()?;
        ready();
        toe_intercept_own_run(frame);
        user_dispatch::disarm();
        std::arch::asm!("wrgsbase {}", in(reg) 0u64, options(nostack, preserves_flags));
    }
    Ok(())
}

/// Ends the program on this thread: [`run`] returns.
///
/// # Safety
/// Within [`crate::Ask`], on a thread that is in [`run`]. What the caller's frames own is not dropped.
pub unsafe fn leave() -> ! {
    // SAFETY: the caller's promise.
    unsafe { toe_intercept_own_leave() }
}

/// Runs another program in a child that shares its parent's memory; returns where it cannot. The child never comes back
/// to the program's code then, and the parent goes on there: the selector that they share has to have that.
///
/// # Safety
/// Within [`crate::Ask`], on a thread that is in [`run`], in such a child.
pub unsafe fn exec<T>(run: impl FnOnce() -> T) -> T {
    // The child's own calls must not be caught meanwhile.
    user_dispatch::disarm();
    let select = |selector: u8| {
        // SAFETY: a byte of the thread's structure.
        unsafe { word(offset_of!(Own, selector)).cast::<u8>().write(selector) };
    };
    select(PROGRAM);
    let result = run();
    select(LIBRARY);
    if user_dispatch::is_there() {
        // It was possible in the parent.
        let _ = user_dispatch::arm();
    }
    result
}

/// The registers of the program at a call that is asked about.
///
/// # Safety
/// Within [`crate::Ask`], with its call, in a program that [`run`] runs.
pub unsafe fn frame(call: &Call) -> Frame {
    // SAFETY: the entry has put the call at the beginning of a frame.
    unsafe { std::ptr::from_ref(call).cast::<Frame>().read() }
}

fn thread_pointer() -> u64 {
    let found;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("rdfsbase {}", out(reg) found, options(nostack, preserves_flags, nomem)) };
    found
}

fn word(offset: usize) -> *mut u64 {
    let at: u64;
    // SAFETY: reads the thread's own structure: within `run`.
    unsafe { std::arch::asm!("mov {}, gs:[0]", out(reg) at, options(nostack, preserves_flags, readonly)) };
    std::ptr::with_exposed_provenance_mut(at as usize + offset)
}

/// The program's thread pointer.
///
/// # Safety
/// Within [`crate::Ask`], on a thread that is in [`run`].
pub unsafe fn program_fs() -> u64 {
    // SAFETY: a word of the thread's structure.
    unsafe { word(offset_of!(Own, program_fs)).read() }
}

/// Sets it.
///
/// # Safety
/// As above; the address is one of user space.
pub unsafe fn set_program_fs(address: u64) {
    // SAFETY: a word of the thread's structure.
    unsafe { word(offset_of!(Own, program_fs)).write(address) };
}

/// The word that is cleared when the thread ends (set_tid_address(2)).
///
/// # Safety
/// As above.
pub unsafe fn clear_tid() -> usize {
    // SAFETY: a word of the thread's structure.
    unsafe { word(offset_of!(Own, clear_tid)).read() as usize }
}

/// Sets it.
///
/// # Safety
/// As above.
pub unsafe fn set_clear_tid(address: usize) {
    // SAFETY: a word of the thread's structure.
    unsafe { word(offset_of!(Own, clear_tid)).write(address as u64) };
}
