//! Children that share this process's memory until they run another program. They are those of `posix_spawn`, `system`
//! and `popen`, and of a `vfork` by an instruction of the program's own.
//!
//! Such a child has descriptors of its own, and this library's table is its parent's. So what the child does to
//! descriptors goes to the kernel and is noted beside the table. When the child runs its program, the sockets that are
//! left go with it. The thread that made the child sleeps until then, and the child has that thread's variables.
use crate::calls::inherited_sets;
use crate::lock;
use crate::process::exec::Prepared;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::process::static_host::{Host, NO_HOST};
use crate::state::Lib;
use crate::state::socket::Socket;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::system::warn;
use crate::system::{errno, real, sharing};
use crate::table::{self, Entry};
use crate::wait::thread;
use libc::{c_char, c_int, c_long, c_uint};
use std::cell::RefCell;
use std::os::fd::RawFd;

thread_local! {
    /// What the child did.
    static CHILD: RefCell<Child> = const { RefCell::new(Child::new()) };
}

struct Child {
    /// Descriptors that refer to something else than in the parent, the last change last.
    changes: Vec<(RawFd, Entry)>,
    /// The environment of its program: in the parent's memory, and the parent frees it.
    environment: Option<Prepared>,
}

impl Child {
    const fn new() -> Child {
        Child { changes: Vec::new(), environment: None }
    }
}

/// This thread is about to make such a child.
pub(crate) fn begin() {
    // Other processes get the descriptors, as with a fork.
    if let Ok(mut lib) = lock::lock() {
        lib.own_kernel_sockets();
        thread::prepare_for_child(lib.link.bells());
    }
    CHILD.set(Child::new());
    sharing::begins();
}

/// True in the child.
pub(crate) fn in_child() -> bool {
    if sharing::is_over() {
        CHILD.set(Child::new());
    }
    sharing::is_child()
}

/// What a descriptor is to the child.
fn entry(fd: RawFd) -> Entry {
    let changed = |child: &RefCell<Child>| child.borrow().changes.iter().rev().find(|(one, _)| *one == fd).copied();
    CHILD.with(changed).map_or_else(|| table::get(fd), |(_, entry)| entry)
}

fn note(fd: RawFd, entry: Entry) {
    CHILD.with(|child| child.borrow_mut().changes.push((fd, entry)));
}

/// A system call of the child, as C returns it; `None` where the kernel is to do it.
///
/// # Safety
/// The child's arguments.
pub(crate) unsafe fn call(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, ..] = arguments;
    // SAFETY: the child's arguments, passed on.
    let kernel = || unsafe { real::system_call(number, arguments) };
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => Some(replace(a as RawFd, b as RawFd, kernel)),
        libc::SYS_dup3 => Some(replace(a as RawFd, b as RawFd, kernel)),
        libc::SYS_dup => Some(duplicate(a as RawFd, kernel)),
        libc::SYS_fcntl if [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&(b as c_int)) => {
            Some(duplicate(a as RawFd, kernel))
        }
        libc::SYS_close => Some(close(a as RawFd, kernel)),
        libc::SYS_close_range => Some(close_range(arguments)),
        // SAFETY: the child's arguments.
        libc::SYS_execve | libc::SYS_execveat => unsafe { run(number, arguments) },
        _ => None,
    }
}

fn fail(error: c_int) -> c_long {
    errno::set(error);
    -1
}

fn duplicate(old: RawFd, kernel: impl FnOnce() -> c_long) -> c_long {
    let new = kernel();
    if new >= 0 {
        note(new as RawFd, entry(old));
    }
    new
}

fn replace(old: RawFd, new: RawFd, kernel: impl FnOnce() -> c_long) -> c_long {
    if entry(new) == Entry::Internal {
        return fail(libc::EBUSY);
    }
    if old == new { kernel() } else { duplicate(old, kernel) }
}

/// `close` in the child. What the parent has under this number stays.
pub(crate) fn close(fd: RawFd, kernel: impl FnOnce() -> c_long) -> c_long {
    if entry(fd) == Entry::Internal {
        return fail(libc::EBADF);
    }
    note(fd, Entry::Kernel);
    kernel()
}

/// The library's own descriptors stay: the child needs them until its program runs.
fn close_range([first, last, flags, ..]: [usize; 6]) -> c_long {
    let (first, last) = (first as c_uint, last as c_uint);
    let kernel = |first: c_uint, last: c_uint| {
        // SAFETY: descriptors of the child.
        unsafe { real::system_call(libc::SYS_close_range, [first as usize, last as usize, flags, 0, 0, 0]) }
    };
    if flags & libc::CLOSE_RANGE_CLOEXEC as usize != 0 || first > last {
        return kernel(first, last);
    }
    let mut from = first;
    for (fd, entry) in table::entries_from(first.min(c_int::MAX as c_uint) as c_int) {
        let number = fd as c_uint;
        if number > last {
            break;
        }
        if entry != Entry::Internal {
            note(fd, Entry::Kernel);
            continue;
        }
        if number > from && kernel(from, number - 1) < 0 {
            return -1;
        }
        from = number + 1;
    }
    if from > last { 0 } else { kernel(from, last) }
}

/// The descriptors that the child has of a socket.
fn descriptors(lib: &Lib, index: usize) -> Vec<RawFd> {
    let mut all = lib.descriptors(index);
    all.extend(CHILD.with(|child| child.borrow().changes.iter().map(|(fd, _)| *fd).collect::<Vec<_>>()));
    all.sort_unstable();
    all.dedup();
    all.retain(|fd| entry(*fd) == Entry::Socket(index));
    all
}

/// Runs the child's program with the sockets that are left. `None` where the kernel is to do it, or to refuse it.
unsafe fn run(number: c_long, mut arguments: [usize; 6]) -> Option<c_long> {
    let (place, environment) = if number == libc::SYS_execve { (0, 2) } else { (1, 3) };
    // The C library tries one folder after the other: nothing is prepared for a file that is not there.
    if place == 0 && !is_program(arguments[0]) {
        return None;
    }
    let list = std::ptr::with_exposed_provenance::<*const c_char>(arguments[environment]);
    {
        let mut lib = lock::lock().ok()?;
        // SAFETY: the child's environment.
        let prepared = unsafe { Prepared::new(&mut lib, list, descriptors)? };
        for index in &prepared.carried {
            lib.sockets.get_mut(*index).into_iter().for_each(Socket::share);
        }
        inherited_sets::after_fork(&mut lib, false);
        arguments[environment] = prepared.list.as_ptr().expose_provenance();
        CHILD.with(|child| child.borrow_mut().environment = Some(prepared));
    }
    // Without the lock, which the parent would never get again.
    // SAFETY: the child's arguments with the environment that the sockets need.
    let failed = unsafe { execute(number, arguments) };
    let error = errno::get();
    if let (Some(prepared), Ok(mut lib)) = (CHILD.with(|child| child.borrow_mut().environment.take()), lock::lock()) {
        prepared.withdraw(&mut lib);
    }
    errno::set(error);
    Some(failed)
}

/// The exec itself: returns only where it failed.
///
/// # Safety
/// Arguments of `execve` or `execveat`.
unsafe fn execute(number: c_long, arguments: [usize; 6]) -> c_long {
    // SAFETY: the caller's arguments.
    unsafe {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if number == libc::SYS_execve {
            let environment = std::ptr::with_exposed_provenance(arguments[2]);
            if let Some(host) = Host::of(std::ptr::with_exposed_provenance(arguments[0]), environment) {
                let with = [
                    host.path.as_ptr().expose_provenance(),
                    arguments[1],
                    host.environment.as_ptr().expose_provenance(),
                    0,
                    0,
                    0,
                ];
                let result = real::system_call(number, with);
                if errno::get() != libc::ENOENT {
                    return result;
                }
                warn::line(NO_HOST);
            }
        }
        real::system_call(number, arguments)
    }
}

fn is_program(path: usize) -> bool {
    let arguments = [libc::AT_FDCWD as isize as usize, path, libc::X_OK as usize, 0, 0, 0];
    // SAFETY: the child's path.
    unsafe { real::system_call(libc::SYS_faccessat, arguments) == 0 }
}
