//! The next definitions of the functions that this library interposes: glibc's, or those of another preloaded
//! library. Resolved when first called, so that calls from other libraries' constructors work as well.
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pid_t,
    pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

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

/// One function of this module per interposed symbol, calling the next definition of the same name. Where the
/// system's C library has none, it fails with `ENOSYS`.
macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("The next definition of `", stringify!($name), "`.")]
        /// # Safety
        /// As the function itself.
        #[inline]
        pub unsafe fn $name($($arg: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            let next = resolve(&NEXT, concat!(stringify!($name), "\0"));
            if next.is_null() {
                crate::errno::set(libc::ENOSYS);
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
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen(fd: c_int, backlog: c_int) -> c_int;
    accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    shutdown(fd: c_int, how: c_int) -> c_int;
    getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> ssize_t;
    sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice(input: c_int, input_offset: *mut i64, output: c_int, output_offset: *mut i64, len: size_t, flags: c_uint) -> ssize_t;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(old: c_int, new: c_int) -> c_int;
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create(size: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait(set: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2(set: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fork() -> pid_t;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
}

/// A system call as the C library's `syscall` gives its result: -1 with `errno` set where it failed. It is no
/// cancellation point, and it is not interposed.
///
/// # Safety
/// As the system call.
#[inline]
pub unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller's arguments.
    let result = unsafe { shm::system_call::raw(number, arguments) };
    if (-4095..0).contains(&result) {
        crate::errno::set(-result as c_int);
        return -1;
    }
    result as c_long
}

/// A system call that is no cancellation point and that nobody interposes.
///
/// # Safety
/// As the system call.
pub unsafe fn ppoll_raw(fds: &mut [pollfd], timeout: *const timespec, mask: *const sigset_t) -> c_long {
    let (at, timeout, mask) =
        (fds.as_mut_ptr().expose_provenance(), timeout.expose_provenance(), mask.expose_provenance());
    // SAFETY: the slice is valid for the call; eight bytes is the kernel's size of a signal set.
    unsafe { system_call(libc::SYS_ppoll, [at, fds.len(), timeout, mask, 8, 0]) }
}

/// Likewise, waits for events of a set of the kernel, so many milliseconds or, below 0, for ever.
///
/// # Safety
/// As the system call.
pub unsafe fn epoll_pwait_raw(set: c_int, events: &mut [epoll_event], timeout: c_int, mask: *const sigset_t) -> c_long {
    let most = events.len().min(c_int::MAX as usize);
    let (at, mask) = (events.as_mut_ptr().expose_provenance(), mask.expose_provenance());
    // SAFETY: the slice has room for `most` events; eight bytes is the kernel's size of a signal set.
    unsafe { system_call(libc::SYS_epoll_pwait, [set as usize, at, most, timeout as usize, mask, 8]) }
}
