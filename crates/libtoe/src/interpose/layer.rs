//! The system calls below the symbols: those that the C library makes inside itself, and instructions of the program's
//! own ([docs/SYSTEM-CALLS.md](../../../../docs/SYSTEM-CALLS.md)). They go the way of the interposed function for the
//! same call.
//!
//! What the library itself asks of the kernel does not come here. Its own instructions are not rewritten, and `real`
//! goes past the C library where a call would come back.
use super::events::{self, Sets};
use super::limits;
use super::masks;
use super::system_call::{self, at};
use crate::daemon::attach;
use crate::lock;
use crate::process::{fork, spawn};
use crate::system::{errno, real};
use crate::table::{self, Entry};
use crate::wait::signals;
use context::attach::{INTERCEPT_VARIABLE, SYMBOLS, SYSTEM_CALLS};
use intercept::{Call, Class, Rules, Verdict};
use libc::{c_int, c_long, pid_t};

/// The place of `stack` in `struct clone_args`, in words of 64 bits (clone3(2)).
const CLONE_ARGS_STACK: usize = 5;

/// When the library is loaded: rewrites the system calls of what is loaded, where the environment asks for it or the
/// program needs it.
pub(crate) fn start() {
    if !attach::is_enabled() {
        return;
    }
    let layer = std::env::var_os(INTERCEPT_VARIABLE).unwrap_or_default();
    let is_go = is_go();
    if layer == SYMBOLS && is_go {
        return write(GO_BY_SYMBOLS);
    }
    if layer == SYMBOLS || layer != SYSTEM_CALLS && !is_go {
        return;
    }
    if !lock::is_alone() {
        return warn("the program has threads already");
    }
    real::come_back();
    fork::handle_forks();
    let rules = Rules { class_of, descriptors: table::words(), ask, has_small_stacks: is_go };
    // SAFETY: the dynamic linker runs this before the program has threads or handlers.
    let report = unsafe { intercept::install(&rules, is_own) };
    if report.rewritten == 0 {
        return warn("the system does not let code in memory be changed");
    }
    // SAFETY: as above.
    if let Err(error) = unsafe { intercept::spread_net() } {
        let error = std::io::Error::from_raw_os_error(error);
        write(&format!("libtoe: system calls of code that is loaded later are not intercepted: {error}\n"));
    }
}

/// Nothing of such a program's network is seen.
const GO_BY_SYMBOLS: &str = "libtoe: a program in Go stays on the kernel's TCP where only symbols are interposed, since \
                             it makes system calls by instructions of its own: leave --intercept symbols out\n";

/// What Go's linker puts at a multiple of 16 bytes in the data of each program (Go's debug/buildinfo).
const GO: &[u8] = b"\xff Go buildinf:";

/// Whether the program is one in Go: goroutines begin with stacks of two KiB. It is a dynamic one: of static ones
/// nothing is loaded when this library starts.
fn is_go() -> bool {
    unsafe extern "C" fn inspect(object: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> c_int {
        // SAFETY: the dynamic linker's description of what it has mapped; the data of a program can be read.
        unsafe {
            let object = &*object;
            let headers = std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into());
            let is_data =
                |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0;
            *found.cast::<bool>() = headers.iter().filter(is_data).any(|header| {
                let at: *const u8 = at((object.dlpi_addr + header.p_vaddr) as usize);
                let data = std::slice::from_raw_parts(at, header.p_filesz as usize);
                let first = at.align_offset(GO_ALIGNMENT);
                data.get(first..).is_some_and(|data| data.chunks(GO_ALIGNMENT).any(|piece| piece.starts_with(GO)))
            });
        }
        // The program itself is the first.
        1
    }
    let mut found = false;
    // SAFETY: the function keeps the contract, and the place lives as long as the call.
    unsafe { libc::dl_iterate_phdr(Some(inspect), (&raw mut found).cast()) };
    found
}

const GO_ALIGNMENT: usize = 16;

fn warn(why: &str) {
    write(&format!("libtoe: system calls are not intercepted, only the C library's functions are: {why}\n"));
}

fn write(line: &str) {
    // SAFETY: a local buffer.
    unsafe { real::write(2, line.as_ptr().cast(), line.len()) };
}

/// Whether an object is this library.
fn is_own(path: &str) -> bool {
    path.ends_with("/libtoe.so")
}

/// Which system calls are intercepted.
pub(crate) fn class_of(number: usize) -> Class {
    match number as c_long {
        libc::SYS_read | libc::SYS_write | libc::SYS_readv | libc::SYS_writev => Class::Descriptor,
        libc::SYS_recvfrom | libc::SYS_sendto => Class::Descriptor,
        // Over a UNIX socket, sockets of ours may go.
        libc::SYS_recvmsg | libc::SYS_sendmsg | libc::SYS_recvmmsg | libc::SYS_sendmmsg => Class::Ask,
        libc::SYS_bind | libc::SYS_listen | libc::SYS_accept | libc::SYS_accept4 => Class::Descriptor,
        libc::SYS_connect | libc::SYS_shutdown | libc::SYS_getsockname | libc::SYS_getpeername => Class::Descriptor,
        libc::SYS_setsockopt | libc::SYS_getsockopt => Class::Descriptor,
        libc::SYS_close | libc::SYS_dup | libc::SYS_fcntl | libc::SYS_ioctl => Class::Descriptor,
        libc::SYS_epoll_ctl | libc::SYS_epoll_wait => Class::Descriptor,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Class::Ask,
        libc::SYS_socket | libc::SYS_sendfile | libc::SYS_splice => Class::Ask,
        libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_close_range => Class::Ask,
        libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => Class::Ask,
        libc::SYS_epoll_create | libc::SYS_epoll_create1 => Class::Ask,
        libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => Class::Ask,
        libc::SYS_execve | libc::SYS_execveat | libc::SYS_prctl | libc::SYS_seccomp => Class::Ask,
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask | libc::SYS_rt_sigsuspend => Class::Ask,
        libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => Class::Ask,
        _ => Class::Pass,
    }
}

/// Answers a system call.
pub(crate) extern "C" fn ask(call: &mut Call) -> Verdict {
    let errno = errno::get();
    let changes = call.number as c_long == libc::SYS_rt_sigaction && call.arguments[1] != 0;
    let signal = call.arguments[0] as c_int;
    let verdict = if intercept::has_net() {
        // SAFETY: the program's arguments for this call.
        unsafe { masks::with_open_net(call, answer) }
    } else {
        answer(call, call.arguments)
    };
    if changes && !spawn::in_child() {
        signals::changed(signal);
    }
    errno::set(errno);
    verdict
}

/// Asks the interposed functions.
fn answer(call: &mut Call, arguments: [usize; 6]) -> Verdict {
    let number = call.number as c_long;
    // SAFETY: the program's arguments for this call.
    let (verdict, result) = unsafe {
        if spawn::in_child() {
            spawn::call(number, arguments).map_or((Verdict::InPlace, 0), |result| (Verdict::Done, result))
        } else if let Some(made) = process(number, arguments) {
            made
        } else if concerns(number, arguments) {
            system_call::take(number, arguments).map_or((Verdict::Pass, 0), |result| (Verdict::Done, result))
        } else {
            (Verdict::Pass, 0)
        }
    };
    if verdict == Verdict::Done {
        call.number = if result == -1 { -(errno::get() as isize) } else { result as isize };
    }
    verdict
}

/// Whether a call is about something that the library has, or makes something that it may have. Where this is false,
/// the interposed function would come back here.
unsafe fn concerns(number: c_long, [a, b, c, d, ..]: [usize; 6]) -> bool {
    let entry = |argument: usize| table::get(argument as c_int);
    let is_socket = |argument| matches!(entry(argument), Entry::Socket(_));
    // SAFETY: the program's pointers.
    unsafe {
        match number {
            libc::SYS_sendfile => is_socket(a) || is_socket(b),
            libc::SYS_splice => is_socket(a) || is_socket(c),
            libc::SYS_poll | libc::SYS_ppoll => events::list(at(a), b as u64).is_some(),
            libc::SYS_select | libc::SYS_pselect6 => {
                let sets: Sets = [at(b), at(c), at(d)];
                !events::select_is_kernels(a as c_int, sets)
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_epoll_ctl => {
                matches!(entry(a), Entry::Set(_))
            }
            libc::SYS_socket | libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_close_range | libc::SYS_close => true,
            libc::SYS_epoll_create | libc::SYS_epoll_create1 | libc::SYS_prctl | libc::SYS_seccomp => true,
            libc::SYS_getrlimit | libc::SYS_setrlimit => limits::concerns(0, a as c_int),
            libc::SYS_prlimit64 => limits::concerns(a as pid_t, b as c_int),
            // One of the library's own: whoever found its number may use it.
            _ => entry(a) != Entry::Internal,
        }
    }
}

/// Calls that make a process, or give it another program. The library's own are under its lock.
unsafe fn process(number: c_long, arguments: [usize; 6]) -> Option<(Verdict, c_long)> {
    let [a, b, ..] = arguments;
    // SAFETY: the program's arguments.
    let (flags, stack) = unsafe {
        match number {
            libc::SYS_clone => (a, b),
            libc::SYS_clone3 => (*at::<u64>(a) as usize, *at::<u64>(a).add(CLONE_ARGS_STACK) as usize),
            libc::SYS_vfork => ((libc::CLONE_VM | libc::CLONE_VFORK) as usize, 0),
            libc::SYS_fork => (0, 0),
            libc::SYS_execve | libc::SYS_execveat => {
                let run = || system_call::child(number, arguments).map(|result| (Verdict::Done, result));
                return if lock::is_mine() { Some((Verdict::Pass, 0)) } else { run() };
            }
            _ => return None,
        }
    };
    let has = |flag: c_int| flags & flag as usize != 0;
    if has(libc::CLONE_VM) {
        if has(libc::CLONE_VFORK) {
            spawn::begin();
        }
        return Some((Verdict::InPlace, 0));
    }
    if lock::is_mine() || stack != 0 {
        return Some((Verdict::InPlace, 0));
    }
    // SAFETY: the program's arguments; the child goes on with a copy of this stack.
    Some((Verdict::Done, unsafe { system_call::fork_by(number, arguments) }))
}
