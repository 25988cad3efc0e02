//! `syscall`: system calls that a program makes by number, through the C library's function of that name. libuv closes
//! all descriptors so, vsftpd forks so. What concerns sockets, descriptors, waiting and processes goes the way of the
//! interposed function of the same name; everything else goes to the kernel.
//!
//! Calls made by an instruction of the program's own are not seen here (docs/POSIX.md).
use super::{descriptors, events, io, limits, messages, pipes, process, sockets};
use crate::daemon::attach;
use crate::process::{confine, exec, fork as forking};
use crate::system::{errno, real, user_memory};
use libc::{c_char, c_int, c_long, c_uint, c_ulong, pid_t};

/// The first field of `struct clone_args` (clone3(2)), and the second argument's least size.
const CLONE_ARGS_FLAGS: usize = size_of::<u64>();

/// `syscall`. C callers pass a variable number of arguments; the kernel reads no more than six.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    if !attach::is_enabled() {
        // SAFETY: passed on.
        return unsafe { real::system_call(number, arguments) };
    }
    // SAFETY: the program's arguments for this call.
    let taken = unsafe { take(number, arguments).or_else(|| child(number, arguments)) };
    // SAFETY: passed on.
    taken.unwrap_or_else(|| unsafe { real::system_call(number, arguments) })
}

/// What the interposed function for a system call returns, with `errno` where it fails; `None` where there is none.
///
/// # Safety
/// The program's arguments for this call, which makes no process.
pub(super) unsafe fn take(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    // SAFETY: the caller's.
    unsafe {
        bytes(number, arguments)
            .or_else(|| socket(number, arguments))
            .or_else(|| descriptor(number, arguments))
            .or_else(|| event(number, arguments))
            .or_else(|| filter(number, arguments))
            .or_else(|| resource(number, arguments))
    }
}

/// A pointer that a program passes as a number.
pub(super) fn at<T>(argument: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(argument)
}

/// Calls that move bytes.
unsafe fn bytes(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's arguments, in the order of the system call.
    let moved = unsafe {
        match number {
            libc::SYS_read => io::read(fd, at(b), c),
            libc::SYS_write => io::write(fd, at(b), c),
            libc::SYS_readv => io::readv(fd, at(b), c as c_int),
            libc::SYS_writev => io::writev(fd, at(b), c as c_int),
            libc::SYS_recvfrom => io::recvfrom(fd, at(b), c, d as c_int, at(e), at(f)),
            libc::SYS_sendto => io::sendto(fd, at(b), c, d as c_int, at(e), f as c_uint),
            libc::SYS_recvmsg => messages::recvmsg(fd, at(b), c as c_int),
            libc::SYS_sendmsg => messages::sendmsg(fd, at(b), c as c_int),
            libc::SYS_recvmmsg => messages::recvmmsg(fd, at(b), c as c_uint, d as c_int, at(e)) as isize,
            libc::SYS_sendmmsg => messages::sendmmsg(fd, at(b), c as c_uint, d as c_int) as isize,
            libc::SYS_sendfile => io::sendfile(fd, b as c_int, at(c), d),
            libc::SYS_splice => pipes::splice(fd, at(b), c as c_int, at(d), e, f as c_uint),
            _ => return None,
        }
    };
    Some(moved as c_long)
}

/// Calls about sockets.
unsafe fn socket(number: c_long, [a, b, c, d, e, _]: [usize; 6]) -> Option<c_long> {
    let (fd, len) = (a as c_int, c as c_uint);
    // SAFETY: the program's arguments, in the order of the system call.
    let result = unsafe {
        match number {
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int),
            libc::SYS_bind => sockets::bind(fd, at(b), len),
            libc::SYS_listen => sockets::listen(fd, b as c_int),
            libc::SYS_accept => sockets::accept(fd, at(b), at(c)),
            libc::SYS_accept4 => sockets::accept4(fd, at(b), at(c), d as c_int),
            libc::SYS_connect => sockets::connect(fd, at(b), len),
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int),
            libc::SYS_getsockname => sockets::getsockname(fd, at(b), at(c)),
            libc::SYS_getpeername => sockets::getpeername(fd, at(b), at(c)),
            libc::SYS_setsockopt => sockets::setsockopt(fd, b as c_int, c as c_int, at(d), e as c_uint),
            libc::SYS_getsockopt => sockets::getsockopt(fd, b as c_int, c as c_int, at(d), at(e)),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Calls about descriptors of any kind.
unsafe fn descriptor(number: c_long, [a, b, c, ..]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's arguments, in the order of the system call.
    let result = unsafe {
        match number {
            libc::SYS_close => descriptors::close(fd),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int),
            libc::SYS_dup => descriptors::dup(fd),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as c_int),
            libc::SYS_dup3 => descriptors::dup3(fd, b as c_int, c as c_int),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as c_int, c as c_ulong),
            libc::SYS_ioctl => descriptors::ioctl(fd, b as c_ulong, c as c_ulong),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Calls that wait.
unsafe fn event(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> Option<c_long> {
    let fd = a as c_int;
    // SAFETY: the program's arguments, in the order of the system call.
    let result = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => events::poll(at(a), b as c_ulong, c as c_int),
            libc::SYS_ppoll => events::ppoll(at(a), b as c_ulong, at(c), at(d)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => events::select(fd, at(b), at(c), at(d), at(e)),
            libc::SYS_pselect6 => {
                // The last argument leads to a pointer to the signals and their size.
                let mask = match user_memory::read_any(at::<usize>(f)) {
                    Ok(mask) => mask.unwrap_or(0),
                    Err(errno) => return Some(errno::give::<c_int>(Err(errno)).into()),
                };
                events::pselect(fd, at(b), at(c), at(d), at(e), at(mask))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => events::epoll_create(fd),
            libc::SYS_epoll_create1 => events::epoll_create1(fd),
            libc::SYS_epoll_ctl => events::epoll_ctl(fd, b as c_int, c as c_int, at(d)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => events::epoll_wait(fd, at(b), c as c_int, d as c_int),
            libc::SYS_epoll_pwait => events::epoll_pwait(fd, at(b), c as c_int, d as c_int, at(e)),
            libc::SYS_epoll_pwait2 => events::epoll_pwait2(fd, at(b), c as c_int, at(d), at(e)),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Calls that make a process, or give it another program. A child that shares the caller's memory, a thread, is left to
/// the kernel.
pub(super) unsafe fn child(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, c, ..] = arguments;
    let shares_memory = |flags: usize| flags & libc::CLONE_VM as usize != 0;
    // SAFETY: the program's arguments, in the order of the system call.
    unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork => Some(process::fork().into()),
            libc::SYS_clone if !shares_memory(a) => Some(fork_by(number, arguments)),
            // At a bad address the kernel returns `EFAULT`.
            libc::SYS_clone3 if b >= CLONE_ARGS_FLAGS => {
                let flags = user_memory::read(at::<u64>(a)).ok()?;
                (!shares_memory(flags as usize)).then(|| fork_by(number, arguments))
            }
            libc::SYS_execve => Some(process::execve(at(a), at(b), at(c)).into()),
            libc::SYS_execveat => Some(execveat(arguments)),
            _ => None,
        }
    }
}

/// Calls about limits.
unsafe fn resource(number: c_long, [a, b, c, d, ..]: [usize; 6]) -> Option<c_long> {
    // SAFETY: the program's arguments, in the order of the system call.
    let result = unsafe {
        match number {
            libc::SYS_getrlimit => limits::getrlimit(a as c_int, at(b)),
            libc::SYS_setrlimit => limits::setrlimit(a as c_int, at(b)),
            libc::SYS_prlimit64 => limits::prlimit64(a as pid_t, b as c_int, at(c), at(d)),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Calls that filter system calls.
unsafe fn filter(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [operation, ..] = arguments;
    let sets = match number {
        libc::SYS_seccomp => {
            [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER].contains(&(operation as c_uint))
        }
        libc::SYS_prctl => operation as c_int == libc::PR_SET_SECCOMP,
        _ => false,
    };
    // SAFETY: passed on.
    sets.then(|| confine::install(|| unsafe { real::system_call(number, arguments) }))
}

pub(super) unsafe fn fork_by(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the program's arguments.
    forking::fork_by(|| unsafe { real::system_call(number, arguments) as pid_t }).into()
}

unsafe fn execveat([directory, path, words, environment, flags, _]: [usize; 6]) -> c_long {
    let exec = |environment: *const *const c_char| {
        let arguments = [directory, path, words, environment.expose_provenance(), flags, 0];
        // SAFETY: the program's arguments, with the environment that the sockets need.
        unsafe { real::system_call(libc::SYS_execveat, arguments) as c_int }
    };
    // SAFETY: the program's environment.
    unsafe { exec::with_sockets(at(environment), exec).into() }
}
