//! Threads of static programs. Each one is a thread of this process' C library, which has variables of its own there.
//! It runs the program, with the program's stack and thread pointer, until the program ends it.
use super::system_call::at;
use intercept::Call;
use intercept::static_programs::{self, Frame};
use libc::{c_int, c_long, c_void};
use shm::system_call;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Bytes of the stack on which the library answers a thread's calls.
const STACK: usize = 256 << 10;
/// The first argument for clone3(2): words of `struct clone_args`.
const FLAGS: usize = 0;
const CHILD_TID: usize = 2;
const PARENT_TID: usize = 3;
const STACK_LOW: usize = 5;
const STACK_LEN: usize = 6;
const TLS: usize = 7;

/// What a thread begins with.
struct Begin {
    frame: Frame,
    program_fs: u64,
    flags: usize,
    parent_tid: usize,
    child_tid: usize,
    mask: u64,
    /// Its number, once it has one; [`FAILED`] where its calls cannot be seen.
    tid: AtomicU32,
}

const FAILED: u32 = u32::MAX;
/// All signals. The C library's own sets leave out those that it uses itself, which the program may use as well.
const ALL: u64 = u64::MAX;
/// With it C libraries let all threads change their user (nptl(7)), and Go's programs make other calls in all threads.
/// Here they are the program's. The library's C library takes it with the first thread that it makes.
const IN_ALL_THREADS: c_int = 33;

/// `clone` and `clone3` that make a thread. `None` for those that make a process.
///
/// # Safety
/// The program's call, within `static_programs::run`.
pub(super) unsafe fn start(call: &Call) -> Option<isize> {
    // SAFETY: the program's arguments; clone3's has the size that its second argument gives.
    unsafe {
        let [a, b, c, d, e, _] = call.arguments;
        let word = |index: usize| if b > index * 8 { at::<usize>(a).add(index).read_unaligned() } else { 0 };
        let (flags, stack, parent_tid, child_tid, tls) = match call.number as c_long {
            libc::SYS_clone => (a, b, c, d, e),
            _ => (word(FLAGS), word(STACK_LOW) + word(STACK_LEN), word(PARENT_TID), word(CHILD_TID), word(TLS)),
        };
        let has = |flag: c_int| flags & flag as usize != 0;
        if !has(libc::CLONE_VM) || has(libc::CLONE_VFORK) {
            return None;
        }
        if !has(libc::CLONE_THREAD) {
            intercept::warn("libtoe: the program makes a process that shares its memory, which is refused here\n");
            return Some(-(libc::EPERM as isize));
        }
        let mut frame = static_programs::frame(call);
        frame.call.number = 0;
        frame.stack = if stack == 0 { frame.stack } else { stack as u64 };
        let program_fs = if has(libc::CLONE_SETTLS) { tls as u64 } else { static_programs::program_fs() };
        let mut begin = Begin { frame, program_fs, flags, parent_tid, child_tid, mask: 0, tid: AtomicU32::new(0) };
        Some(make(&mut begin))
    }
}

/// Makes the thread; returns its number, or an error below 0. No handler runs in it before it is the program's.
unsafe fn make(begin: &mut Begin) -> isize {
    // SAFETY: locals, which live until the thread has published its number.
    unsafe {
        begin.mask = block(ALL);
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let mut thread = 0;
        let argument = std::ptr::from_mut(begin).cast();
        let create = || libc::pthread_create(&mut thread, attributes.as_ptr(), run, argument);
        let error = intercept::action_unchanged(IN_ALL_THREADS, create);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        let mut tid = 0;
        while error == 0 && tid == 0 {
            futex(&raw const begin.tid, libc::FUTEX_WAIT, 0);
            tid = begin.tid.load(Acquire);
        }
        block(begin.mask);
        match (error, tid) {
            (0, FAILED) => -(libc::EAGAIN as isize),
            (0, tid) => tid as isize,
            (error, _) => -(error as isize),
        }
    }
}

/// Blocks these signals and no others; those before.
fn block(signals: u64) -> u64 {
    let (new, mut old) = (signals, 0u64);
    let places = [(&raw const new).expose_provenance(), (&raw mut old).expose_provenance()];
    // SAFETY: two locals, of the size that is given.
    unsafe {
        let arguments = [libc::SIG_SETMASK as usize, places[0], places[1], size_of::<u64>(), 0, 0];
        system_call::raw(libc::SYS_rt_sigprocmask, arguments);
    }
    old
}

fn futex(word: *const AtomicU32, operation: c_int, value: u32) {
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: a word of this process; no time limit.
    unsafe { system_call::raw(libc::SYS_futex, [word.expose_provenance(), operation, value as usize, 0, 0, 0]) };
}

extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    let begin = argument.cast::<Begin>();
    // SAFETY: the thread that waits keeps it until it has the number.
    unsafe {
        let Begin { ref frame, program_fs, flags, parent_tid, child_tid, mask, .. } = *begin;
        let (frame, tid) = (frame.clone(), libc::gettid() as u32);
        // Both before the program runs in either thread: the thread may end, and clear the word, at once.
        for (flag, place) in [(libc::CLONE_PARENT_SETTID, parent_tid), (libc::CLONE_CHILD_SETTID, child_tid)] {
            if flags & flag as usize != 0 {
                at::<u32>(place).write_unaligned(tid);
            }
        }
        let local = 0u8;
        let high = (&raw const local).expose_provenance() as u64;
        let stack = high.saturating_sub(STACK as u64 - 16384)..high;
        let clears = flags & libc::CLONE_CHILD_CLEARTID as usize != 0;
        let began = static_programs::run(&frame, program_fs, stack, || {
            static_programs::set_clear_tid(if clears { child_tid } else { 0 });
            (*begin).tid.store(tid, Release);
            futex(&raw const (*begin).tid, libc::FUTEX_WAKE, 1);
            block(mask);
        });
        if began.is_err() {
            (*begin).tid.store(FAILED, Release);
            futex(&raw const (*begin).tid, libc::FUTEX_WAKE, 1);
        }
    }
    null_mut()
}

/// `exit`: the end of this thread. The first one ends as the kernel ends it, and the others go on.
///
/// # Safety
/// The program's call, within `static_programs::run`.
pub(super) unsafe fn end(call: &Call) -> Option<isize> {
    // SAFETY: locals, and the program's word that is cleared; nothing of this function is to be dropped.
    unsafe {
        block(ALL);
        let cleared = static_programs::clear_tid();
        if cleared != 0 {
            let word = at::<AtomicU32>(cleared);
            (*word).store(0, Release);
            // As the kernel does: for those in other processes as well.
            system_call::raw(libc::SYS_futex, [cleared, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]);
        }
        if libc::gettid() == libc::getpid() {
            system_call::raw(libc::SYS_exit, call.arguments);
        }
        static_programs::leave()
    }
}
