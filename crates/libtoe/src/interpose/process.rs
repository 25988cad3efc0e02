//! `fork`, `exec` and their relatives.
use crate::daemon::attach;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::process::static_host::{Host, NO_HOST, in_path};
use crate::process::{confine, exec, fork as forking};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::system::errno;
use crate::system::{real, warn};
use libc::{c_char, c_int, c_ulong, c_void, pid_t};

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
    unsafe { loaded(path, arguments, environment).unwrap_or_else(|| real::execve(path, arguments, environment)) }
}

/// Runs a static program in such a process; `None` where the kernel is to run it.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
unsafe fn loaded(path: *const c_char, arguments: Strings, environment: Strings) -> Option<c_int> {
    // SAFETY: the caller's.
    unsafe {
        let host = Host::of(path, environment)?;
        let result = real::execve(host.path.as_ptr(), arguments, host.environment.as_ptr());
        // There may be no /proc, or no dynamic linker in this root.
        if errno::get() == libc::ENOENT {
            warn::line(NO_HOST);
            return None;
        }
        Some(result)
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
unsafe fn loaded(_: *const c_char, _: Strings, _: Strings) -> Option<c_int> {
    None
}

/// `posix_spawn`. Of the C library's own calls in there nothing is seen but where system calls are intercepted.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: passed on, with the file that a static program is loaded into.
    unsafe {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(host) = Host::of(path, environment) {
            let (path, environment) = (host.path.as_ptr(), host.environment.as_ptr());
            return real::posix_spawn(pid, path, actions, attributes, arguments, environment);
        }
        real::posix_spawn(pid, path, actions, attributes, arguments, environment)
    }
}

/// `posix_spawnp`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: passed on, with the file that a static program is loaded into.
    unsafe {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if let Some(host) = in_path(file).and_then(|path| Host::of(path.as_ptr(), environment)) {
            let (path, environment) = (host.path.as_ptr(), host.environment.as_ptr());
            return real::posix_spawn(pid, path, actions, attributes, arguments, environment);
        }
        real::posix_spawnp(pid, file, actions, attributes, arguments, environment)
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
    unsafe {
        exec::with_sockets(environment, |environment| {
            let path = in_path(file);
            let found = path.and_then(|path| loaded(path.as_ptr(), arguments, environment));
            found.unwrap_or_else(|| real::execvpe(file, arguments, environment))
        })
    }
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
