//! The next definitions of the functions that this library interposes: glibc's, or those of another preloaded
//! library. Resolved when first called, so that calls from other libraries' constructors work as well.
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, ifaddrs, iovec, mmsghdr, msghdr, nfds_t,
    off_t, pid_t, pollfd, rlimit, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr};

fn resolve(cache: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let found = cache.load(Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name is NUL-terminated by the macro below.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    cache.store(found, Relaxed);
    found
}

/// Whether the C library's own system calls come back to this library (`interpose::layer`).
static COME_BACK: AtomicBool = AtomicBool::new(false);

/// From now on, calls that would come back to this library go to the kernel directly.
pub(crate) fn come_back() {
    COME_BACK.store(true, Relaxed);
}

/// Whether a call would come back: it makes a descriptor that the library enters by itself, or it is about one that it
/// has. Others pass below as well, and stay cancellation points.
#[inline]
fn comes_back(number: c_long, arguments: [usize; 6]) -> bool {
    COME_BACK.load(Relaxed) && (NEVER_NEXT.contains(&number) || crate::table::is_ours(arguments[0] as c_int))
}

/// Numbers of system calls; architectures without a call have a number that no system call has.
mod number {
    pub(super) use libc::*;
    #[cfg(not(target_arch = "x86_64"))]
    pub const SYS_dup2: c_long = -1;
}

/// System calls whose result the library enters, or whose arguments are more than one descriptor.
const NEVER_NEXT: [c_long; 9] = [
    number::SYS_socket,
    number::SYS_epoll_create1,
    number::SYS_dup2,
    number::SYS_dup3,
    number::SYS_close_range,
    number::SYS_sendmsg,
    number::SYS_recvmsg,
    number::SYS_sendmmsg,
    number::SYS_recvmmsg,
];

/// An argument of a system call.
trait Argument {
    fn number(self) -> usize;
}

impl Argument for c_int {
    fn number(self) -> usize {
        self as isize as usize
    }
}

impl Argument for c_uint {
    fn number(self) -> usize {
        self as usize
    }
}

impl Argument for usize {
    fn number(self) -> usize {
        self
    }
}

impl Argument for c_ulong {
    fn number(self) -> usize {
        self as usize
    }
}

impl<T> Argument for *const T {
    fn number(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    fn number(self) -> usize {
        self.expose_provenance()
    }
}

/// One function of this module per interposed symbol, calling the next definition of the same name. Where the
/// system's C library has none, it fails with `ENOSYS`. Where a system call is named that takes the same arguments, it
/// is made directly instead of coming back.
macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty $(, $number:ident)?;)*) => {$(
        #[doc = concat!("The next definition of `", stringify!($name), "`.")]
        /// # Safety
        /// As the function itself.
        #[inline]
        pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
            #[allow(unused, reason = "for functions that name a system call")]
            let arguments = || {
                let given: &[usize] = &[$(Argument::number($arg)),*];
                let mut arguments = [0; 6];
                arguments[..given.len()].copy_from_slice(given);
                arguments
            };
            $(
                if comes_back(number::$number, arguments()) {
                    // SAFETY: the caller keeps the contract.
                    return unsafe { system_call(number::$number, arguments()) as $result };
                }
            )?
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let next = resolve(&NEXT, concat!(stringify!($name), "\0"));
            if next.is_null() {
                crate::system::errno::set(libc::ENOSYS);
                return -1;
            }
            // SAFETY: the symbol has this signature in the C library; the caller keeps its contract.
            unsafe {
                let next: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(next);
                next($($arg),*)
            }
        }
    )*};
}

next! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, SYS_socket;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, SYS_bind;
    listen(fd: c_int, backlog: c_int) -> c_int, SYS_listen;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, SYS_accept4;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, SYS_connect;
    shutdown(fd: c_int, how: c_int) -> c_int, SYS_shutdown;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, SYS_getsockname;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, SYS_getpeername;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int, SYS_getsockopt;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int, SYS_setsockopt;
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t, SYS_read;
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t, SYS_write;
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t, SYS_readv;
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t, SYS_writev;
    recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t, SYS_recvfrom;
    send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t, SYS_sendto;
    recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t, SYS_recvfrom;
    sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> ssize_t, SYS_sendto;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, SYS_recvmsg;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, SYS_sendmsg;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int, SYS_recvmmsg;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, SYS_sendmmsg;
    sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(input: c_int, input_offset: *mut i64, output: c_int, output_offset: *mut i64, len: size_t, flags: c_uint) -> ssize_t;
    close(fd: c_int) -> c_int, SYS_close;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, SYS_close_range;
    dup(fd: c_int) -> c_int, SYS_dup;
    dup2(old: c_int, new: c_int) -> c_int, SYS_dup2;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int, SYS_dup3;
    fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int, SYS_fcntl;
    ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int, SYS_ioctl;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create1(flags: c_int) -> c_int, SYS_epoll_create1;
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int, SYS_epoll_ctl;
    epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    prlimit(pid: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int;
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    signal(signal: c_int, handler: size_t) -> isize;
    sysv_signal(signal: c_int, handler: size_t) -> isize;
    getifaddrs(list: *mut *mut ifaddrs) -> c_int;
    freeifaddrs(list: *mut ifaddrs) -> c_int;
    if_nametoindex(name: *const c_char) -> c_int;
    if_indextoname(index: c_uint, name: *mut c_char) -> isize;
    if_nameindex() -> isize;
    fork() -> pid_t;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
}

/// A system call as the C library's `syscall` gives its result: -1 with `errno` set where it failed. It is no
/// cancellation point, and it is not interposed.
///
/// # Safety
/// As the system call.
#[inline]
pub(crate) unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller's arguments.
    let result = unsafe { shm::system_call::raw(number, arguments) };
    if (-4095..0).contains(&result) {
        crate::system::errno::set(-result as c_int);
        return -1;
    }
    result as c_long
}

/// Reads a limit of this process, past whoever interposes the function.
///
/// # Safety
/// As the function.
pub(crate) unsafe fn getrlimit(resource: c_uint, old: *mut rlimit) -> c_int {
    let arguments = [0, resource as usize, 0, old.expose_provenance(), 0, 0];
    // SAFETY: the caller's pointer.
    unsafe { system_call(libc::SYS_prlimit64, arguments) as c_int }
}

/// Sets one likewise.
///
/// # Safety
/// As the function.
pub(crate) unsafe fn setrlimit(resource: c_uint, new: *const rlimit) -> c_int {
    let arguments = [0, resource as usize, new.expose_provenance(), 0, 0, 0];
    // SAFETY: the caller's pointer.
    unsafe { system_call(libc::SYS_prlimit64, arguments) as c_int }
}

/// A system call that is no cancellation point and that nobody interposes.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn ppoll_raw(fds: &mut [pollfd], timeout: *const timespec, mask: *const sigset_t) -> c_long {
    let (at, timeout, mask) =
        (fds.as_mut_ptr().expose_provenance(), timeout.expose_provenance(), mask.expose_provenance());
    // SAFETY: the slice is valid for the call; eight bytes is the kernel's size of a signal set.
    unsafe { system_call(libc::SYS_ppoll, [at, fds.len(), timeout, mask, 8, 0]) }
}

/// Likewise, waits for events of a set of the kernel, so many milliseconds or, below 0, for ever.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn epoll_pwait_raw(
    set: c_int,
    events: *mut epoll_event,
    most: usize,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_long {
    let most = most.min(c_int::MAX as usize);
    let (at, mask) = (events.expose_provenance(), mask.expose_provenance());
    // SAFETY: the caller's place; eight bytes is the kernel's size of a signal set.
    unsafe { system_call(libc::SYS_epoll_pwait, [set as usize, at, most, timeout as usize, mask, 8]) }
}
