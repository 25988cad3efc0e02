//! `fork`, `exec` and their relatives.
use crate::attach;
use crate::confine;
use crate::exec;
use crate::fork as forking;
use crate::real;
use libc::{c_char, c_int, c_ulong, pid_t};

/// `fork`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: passed on.
    if attach::is_enabled() { forking::fork() } else { unsafe { real::fork() } }
}

/// `vfork`: a fork. A child that shared the parent's memory would close descriptors in the parent's table.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: passed on.
    unsafe { fork() }
}

/// `prctl`, which C declares with a variable number of arguments: a filter of system calls concerns the library's own.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    // SAFETY: passed on.
    let call = || unsafe { real::prctl(option, a, b, c, d) };
    if option == libc::PR_SET_SECCOMP && attach::is_enabled() { confine::install(call) } else { call() }
}

/// A list of C strings that ends with null.
type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

/// `execve`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: passed on, with the environment that the sockets need.
    unsafe { exec::with_sockets(environment, |environment| run(path, arguments, environment)) }
}

/// Runs a program; a static one in a process that the library loads it into.
unsafe fn run(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(host) = crate::static_host::Host::of(path, environment) {
            return real::execve(host.path.as_ptr(), arguments, host.environment.as_ptr());
        }
        real::execve(path, arguments, environment)
    }
}

/// `execv`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: passed on; the C library keeps `environ` valid.
    unsafe { execve(path, arguments, environ) }
}

/// `execvpe`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: passed on, with the environment that the sockets need.
    unsafe { exec::with_sockets(environment, |environment| real::execvpe(file, arguments, environment)) }
}

/// `execvp`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: passed on; the C library keeps `environ` valid.
    unsafe { execvpe(file, arguments, environ) }
}

/// `fexecve`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: passed on, with the environment that the sockets need.
    unsafe { exec::with_sockets(environment, |environment| real::fexecve(fd, arguments, environment)) }
}
