//! Programs whose threads run on small stacks: dynamic ones in Go, whose goroutines begin with 2 KiB. They share the
//! process' C library and thread pointer, other than those that [`crate::static_programs`] runs. The function that
//! answers a call needs more room: each thread gets a stack apart for it with its first call.
//!
//! A handler of a signal may interrupt what runs there. It runs on the thread's signal stack (sigaltstack(2)), as Go
//! has it, and so do its own calls. Without one it is on the stack apart already, and its calls go on there.
//!
//! Only its stack pointer shows that a thread is on the stack apart. So a child that shares its parent's memory
//! and never returns (`vfork`, then an exec) leaves nothing behind.
use crate::entry::{self, Ask, Call, Rules, Verdict};
use libc::{c_long, c_void, pthread_key_t, stack_t};
use shm::system_call;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// Bytes of a stack apart. Those that are not used take no memory.
const ROOM: usize = 256 << 10;

/// A thread's own words; the assembly has the same offsets.
#[repr(C)]
struct Words {
    /// Where the stack apart begins; 0: it is not made yet.
    top: usize,
    low: usize,
    length: usize,
    /// Where the signal stack is.
    signals_low: usize,
    signals_length: usize,
    /// The thread's end takes the stack away.
    is_known: usize,
}

const _: () = assert!(size_of::<Words>() == 48 && std::mem::offset_of!(Words, signals_length) == 32);

unsafe extern "C" {
    fn toe_intercept_apart_entry();
    fn toe_intercept_apart_words() -> *mut Words;
}

/// The handler behind [`ask`].
static NEXT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Its value is where a thread's stack begins; at the thread's end the C library passes it to [`end`].
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
/// The C library has no more: then stacks stay when their threads have ended.
const NO_KEY: u32 = u32::MAX;

std::arch::global_asm!(
    include_str!("apart.s"),
    classes = sym entry::CLASSES,
    descriptors = sym entry::DESCRIPTORS,
    count = sym entry::COUNT,
    numbers = const entry::NUMBERS,
    room = const ROOM,
    // Nobody may touch it at first; then all but the lowest page can be used.
    mapping = const libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
    usable = const libc::PROT_READ | libc::PROT_WRITE,
    mmap = const libc::SYS_mmap,
    mprotect = const libc::SYS_mprotect,
    no_memory = const libc::ENOMEM,
);

/// From now on, the handler has a stack apart. Behind [`entry::set`].
pub(crate) fn set(rules: &Rules) {
    let mut key: pthread_key_t = 0;
    // SAFETY: a local place, and a function that lives as long as the process.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } == 0 {
        KEY.store(key, Relaxed);
    }
    NEXT.store(rules.ask as *mut (), Relaxed);
    entry::lead_to(toe_intercept_apart_entry as *const () as u64, ask, libc::SYS_sigaltstack as usize);
}

extern "C" fn ask(call: &mut Call) -> Verdict {
    // SAFETY: the thread's own words, which only it uses.
    let words = unsafe { &mut *toe_intercept_apart_words() };
    if words.top != 0 && words.is_known == 0 {
        words.is_known = 1;
        let (key, low) = (KEY.load(Relaxed), std::ptr::with_exposed_provenance::<c_void>(words.low));
        if key != NO_KEY {
            // SAFETY: the key was made.
            unsafe { libc::pthread_setspecific(key, low) };
        }
    }
    if call.number as c_long == libc::SYS_sigaltstack {
        // SAFETY: the program's arguments.
        call.number = unsafe { signal_stack(words, call.arguments) };
        return Verdict::Done;
    }
    // SAFETY: `prepare` stored a function of this type.
    let next = unsafe { std::mem::transmute::<*mut (), Ask>(NEXT.load(Relaxed)) };
    next(call)
}

/// The program's `sigaltstack`. What it asks for is remembered where the kernel agrees.
unsafe fn signal_stack(words: &mut Words, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's arguments.
    let result = unsafe { system_call::raw(libc::SYS_sigaltstack, arguments) };
    let new: *const stack_t = std::ptr::with_exposed_provenance(arguments[0]);
    if result == 0 && !new.is_null() {
        // SAFETY: the kernel has just read it.
        let new = unsafe { new.read_unaligned() };
        let is_off = new.ss_flags & libc::SS_DISABLE != 0;
        words.signals_low = new.ss_sp.expose_provenance();
        words.signals_length = if is_off { 0 } else { new.ss_size };
    }
    result
}

/// A thread ends: on its own stack, which the C library gave it. What it still calls is answered there.
extern "C" fn end(low: *mut c_void) {
    // SAFETY: the thread's own words; nothing runs on the stack that goes.
    unsafe {
        let words = &mut *toe_intercept_apart_words();
        (words.signals_low, words.signals_length) = (0, usize::MAX);
        let arguments = [low.expose_provenance(), ROOM, 0, 0, 0, 0];
        system_call::raw(libc::SYS_munmap, arguments);
    }
}
