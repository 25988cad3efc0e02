//! Faults of instructions that touch the program's memory at an address that the program gave
//! ([`crate::system::user_memory`]). The handler of `SIGSEGV` and `SIGBUS` lets the thread go on where the call returns
//! that the address is bad.
//!
//! The two signals are the program's as well. What it asks of `sigaction` and `signal` about them is kept here, and its
//! own handler gets all other faults. It sees no other dispositions than its own.
use crate::system::errno::Result;
use crate::system::real;
use libc::{c_int, c_void, siginfo_t, sigset_t};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};

/// The signals of bad addresses.
pub(crate) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What the program asked for about a signal.
struct Asked {
    handler: AtomicUsize,
    flags: AtomicI32,
    /// The first 64 signals of the mask: all that Linux has.
    mask: AtomicU64,
}

static ASKED: [Asked; 2] =
    [const { Asked { handler: AtomicUsize::new(0), flags: AtomicI32::new(0), mask: AtomicU64::new(0) } }; 2];
/// The handler below is the kernel's for both signals.
static INSTALLED: AtomicBool = AtomicBool::new(false);

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn slot(signal: c_int) -> Option<&'static Asked> {
    let at = SIGNALS.iter().position(|one| *one == signal)?;
    INSTALLED.load(Relaxed).then(|| &ASKED[at])
}

impl Asked {
    fn get(&self) -> libc::sigaction {
        // SAFETY: zeros are a valid action; a set begins with 64 bits.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (action.sa_sigaction, action.sa_flags) = (self.handler.load(Relaxed), self.flags.load(Relaxed));
            (&raw mut action.sa_mask).cast::<u64>().write(self.mask.load(Relaxed));
            action
        }
    }

    fn set(&self, action: &libc::sigaction) {
        // SAFETY: as above.
        self.mask.store(unsafe { (&raw const action.sa_mask).cast::<u64>().read() }, Relaxed);
        self.flags.store(action.sa_flags, Relaxed);
        self.handler.store(action.sa_sigaction, Relaxed);
    }

    /// The kernel's action for it: the handler below, on the stack and with the mask that the program set.
    fn for_kernel(&self) -> libc::sigaction {
        let mut action = self.get();
        if [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            // As the program has no handler, none of its signals is to wait for ours.
            action.sa_flags = libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        }
        action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
        action.sa_sigaction = handler as Handler as usize;
        action
    }
}

/// Installs the handler, when the library is loaded. Only x86-64 has instructions that may fault.
pub(crate) fn start() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    for (signal, asked) in SIGNALS.iter().zip(&ASKED) {
        // SAFETY: locals and a handler that lives as long as the process.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if real::sigaction(*signal, std::ptr::null(), &mut before) != 0 {
                return;
            }
            asked.set(&before);
            real::sigaction(*signal, &asked.for_kernel(), null_mut());
        }
    }
    INSTALLED.store(true, Relaxed);
}

/// The program's `sigaction` of one of the two signals; `None` for others.
pub(crate) fn change(signal: c_int, new: Option<libc::sigaction>) -> Option<Result<libc::sigaction>> {
    let asked = slot(signal)?;
    let before = asked.get();
    if let Some(new) = new {
        asked.set(&new);
        // SAFETY: a local, and a handler that lives as long as the process.
        if unsafe { real::sigaction(signal, &asked.for_kernel(), null_mut()) } != 0 {
            asked.set(&before);
            return Some(Err(crate::system::errno::get()));
        }
    }
    Some(Ok(before))
}

/// Takes the signals of bad addresses out of a set that is to be blocked: they would end the process.
pub(crate) fn leave_open(set: &mut sigset_t) {
    if INSTALLED.load(Relaxed) {
        SIGNALS.iter().for_each(|signal| {
            // SAFETY: a valid set.
            let _ = unsafe { libc::sigdelset(set, *signal) };
        });
    }
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    // The linker's names for the ends of the section to which `program` adds the places that may fault.
    static __start_toe_faults: [[i32; 2]; 0];
    static __stop_toe_faults: [[i32; 2]; 0];
}

/// Where to go on from an instruction that faulted; `None` where it is none of those that may.
#[cfg(target_arch = "x86_64")]
fn way_out(at: usize) -> Option<usize> {
    let (start, stop) = ((&raw const __start_toe_faults).cast::<i32>(), (&raw const __stop_toe_faults).cast::<i32>());
    let mut place = start;
    while place < stop {
        // SAFETY: pairs of words between the section's ends, each the distance from itself.
        unsafe {
            let of = |word: *const i32| (word as usize).wrapping_add_signed(word.read() as isize);
            if of(place) == at {
                return Some(of(place.add(1)));
            }
            place = place.add(2);
        }
    }
    None
}

/// The kernel's handler of both signals. It may run with a thread pointer that is not the C library's own.
unsafe extern "C" fn handler(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's, for a handler with SA_SIGINFO.
    let is_fault = unsafe { (*info).si_code } > 0;
    #[cfg(target_arch = "x86_64")]
    if is_fault {
        // SAFETY: as above.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        if let Some(out) = way_out(registers[libc::REG_RIP as usize] as usize) {
            registers[libc::REG_RIP as usize] = out as i64;
            return;
        }
    }
    let Some(asked) = slot(signal) else { return };
    match asked.handler.load(Relaxed) {
        libc::SIG_IGN if !is_fault => {}
        // A fault cannot be ignored (signal(7)).
        libc::SIG_DFL | libc::SIG_IGN => by_default(signal, is_fault),
        own => {
            if asked.flags.load(Relaxed) & libc::SA_RESETHAND != 0 {
                asked.handler.store(libc::SIG_DFL, Relaxed);
            }
            // SAFETY: the program registered this handler; one without SA_SIGINFO does not read the other two.
            unsafe { std::mem::transmute::<usize, Handler>(own)(signal, info, context) }
        }
    }
}

/// The signal does what it does by default: a fault when the instruction runs again, any other one at once.
fn by_default(signal: c_int, is_fault: bool) {
    // The kernel's `struct sigaction` has 32 bytes; all zeros are the default.
    let default = [0u64; 4];
    let arguments = [signal as usize, default.as_ptr().expose_provenance(), 0, size_of::<u64>(), 0, 0];
    // SAFETY: plain calls of the kernel with a local.
    unsafe {
        shm::system_call::raw(libc::SYS_rt_sigaction, arguments);
        if !is_fault {
            let process = shm::system_call::raw(libc::SYS_getpid, [0; 6]) as usize;
            let thread = shm::system_call::raw(libc::SYS_gettid, [0; 6]) as usize;
            shm::system_call::raw(libc::SYS_tgkill, [process, thread, signal as usize, 0, 0, 0]);
        }
    }
}
