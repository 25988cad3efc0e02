//! Closing, duplicating and controlling descriptors.
use super::interfaces;
use super::sockets::{ours, route};
use crate::calls::{data, options, signaller};
use crate::interfaces::netlink;
use crate::lock::{self, Guard};
use crate::process::spawn;
use crate::state::Lib;
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::system::errno::{self, Result, give};
use crate::system::{owner, placeholder, real, user_memory};
use crate::table::{self, Entry};
use libc::{c_int, c_uint, c_ulong};

/// `close`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !table::is_ours(fd) {
        // SAFETY: passed on.
        return unsafe { real::close(fd) };
    }
    match close_ours(fd) {
        Ok(result) => result,
        Err(errno) => give(Err(errno)),
    }
}

fn close_ours(fd: c_int) -> Result<c_int> {
    // SAFETY: the descriptor is the program's to close.
    let kernel = || unsafe { real::close(fd) };
    // A file that the library opens there may have a number that is a socket's in the parent, whose memory it shares.
    if spawn::in_child() {
        return Ok(spawn::close(fd, || kernel().into()) as c_int);
    }
    match table::get(fd) {
        Entry::Kernel => Ok(kernel()),
        Entry::Internal if !lock::is_mine() => Err(libc::EBADF),
        Entry::Internal => Ok(kernel()),
        Entry::Netlink => {
            netlink::forget(fd);
            Ok(kernel())
        }
        Entry::Socket(_) | Entry::Set(_) => {
            let mut lib = lock::lock()?;
            if let Some(key) = lib.socket_of(fd) {
                data::linger(&mut lib, key);
            }
            release(&mut lib, fd);
            // Under the lock: whoever gets the number next enters it after this.
            Ok(kernel())
        }
    }
}

/// Takes a descriptor out of the table, and what it refers to with its last descriptor.
pub(super) fn release(lib: &mut Lib, fd: c_int) {
    let entry = table::get(fd);
    table::clear(fd);
    match entry {
        Entry::Socket(index) => {
            rename(lib, entry, fd);
            if lib.sockets.get(index).is_some_and(|socket| socket.descriptors > 1) {
                lib.label_closed(fd);
            }
            lib.drop_descriptor(index);
        }
        Entry::Set(index) => {
            rename(lib, entry, fd);
            lib.drop_set_descriptor(index);
        }
        Entry::Kernel | Entry::Internal | Entry::Netlink => {}
    }
}

/// Where other descriptors refer to the same thing, one of them stands for it from now on.
fn rename(lib: &mut Lib, entry: Entry, closed: c_int) {
    let place = match entry {
        Entry::Socket(index) => lib.sockets.get_mut(index).map(|socket| (&mut socket.fd, socket.descriptors)),
        Entry::Set(index) => lib.sets.get_mut(index).map(|set| (&mut set.fd, set.descriptors)),
        _ => None,
    };
    let Some((fd, descriptors)) = place else { return };
    if *fd == closed && descriptors > 1 {
        if let Some((other, _)) = table::entries_from(0).find(|(_, found)| *found == entry) {
            *fd = other;
        }
    }
}

/// A fresh descriptor refers to the same thing as an old one.
fn refer(lib: &mut Lib, old: c_int, new: c_int) {
    let entry = table::get(old);
    let count = match entry {
        Entry::Socket(index) => lib.sockets.get_mut(index).map(|socket| &mut socket.descriptors),
        Entry::Set(index) => lib.sets.get_mut(index).map(|set| &mut set.descriptors),
        Entry::Netlink => {
            table::set(new, entry);
            None
        }
        _ => None,
    };
    if let Some(count) = count {
        if table::set(new, entry) {
            *count += 1;
            if let Entry::Socket(index) = entry {
                lib.label_duplicate(index, new);
            }
        }
    }
}

/// Runs a call that duplicates a descriptor, and enters the result.
fn duplicate(old: c_int, run: impl FnOnce() -> c_int) -> c_int {
    if !table::is_ours(old) {
        return run();
    }
    match lock::lock() {
        Ok(mut lib) => {
            let new = run();
            if new >= 0 {
                refer(&mut lib, old, new);
            }
            new
        }
        Err(errno) => give(Err(errno)),
    }
}

/// `dup`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: passed on.
    duplicate(fd, || unsafe { real::dup(fd) })
}

/// `dup2`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: passed on.
    replace(old, new, || unsafe { real::dup2(old, new) })
}

/// `dup3`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: passed on.
    replace(old, new, || unsafe { real::dup3(old, new, flags) })
}

fn replace(old: c_int, new: c_int, run: impl FnOnce() -> c_int) -> c_int {
    if old == new || (!table::is_ours(old) && !table::is_ours(new)) {
        return run();
    }
    if table::get(new) == Entry::Internal {
        errno::set(libc::EBUSY);
        return -1;
    }
    match lock::lock() {
        Ok(mut lib) => {
            // SAFETY: asks whether the old descriptor is open; otherwise the new one stays as it is.
            if unsafe { real::fcntl(old, libc::F_GETFD, 0) } < 0 {
                return -1;
            }
            release(&mut lib, new);
            let result = run();
            if result >= 0 {
                refer(&mut lib, old, new);
            }
            result
        }
        Err(errno) => give(Err(errno)),
    }
}

/// `close_range`. The library's own descriptors stay.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first > last {
        errno::set(libc::EINVAL);
        return -1;
    }
    // SAFETY: passed on. Setting close-on-exec changes nothing for the library.
    let kernel = |first, last| unsafe { real::close_range(first, last, flags) };
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
        return kernel(first, last);
    }
    let mut from = first;
    for (fd, entry) in table::entries_from(first.min(c_int::MAX as c_uint) as c_int) {
        let number = fd as c_uint;
        if number > last {
            break;
        }
        if entry == Entry::Internal {
            if number > from && kernel(from, number - 1) < 0 {
                return -1;
            }
            from = number + 1;
        } else {
            let _ = close_ours(fd);
        }
    }
    if from > last { 0 } else { kernel(from, last) }
}

/// `closefrom`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: passed on.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// `fcntl`. The third argument is an integer or a pointer, of the same size.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::fcntl(fd, command, argument) };
    if !table::is_ours(fd) {
        return kernel();
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, kernel),
        libc::F_SETFL => {
            route!(fd, |lib, key| set_flags(lib, key, fd, argument), real::fcntl(fd, command, argument))
        }
        libc::F_GETFL => {
            let get = |lib: &mut Guard, key: Key| -> Result<c_int> {
                let flags = errno::check(kernel())?;
                let nonblocking = lib.need_socket(key)?.nonblocking;
                Ok(if nonblocking { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK })
            };
            route!(fd, |lib, key| get(lib, key), real::fcntl(fd, command, argument))
        }
        libc::F_GETFD | libc::F_SETFD => kernel(),
        // Owners, signals, leases: of this socket alone.
        _ => route!(
            fd,
            |lib, key| control_own(lib, key, owner::is_set_by(command), kernel),
            real::fcntl(fd, command, argument)
        ),
    }
}

/// A call on the socket's own kernel socket, which may be about its `owner`.
fn control_own(lib: &mut Guard, key: Key, owner: bool, call: impl FnOnce() -> c_int) -> Result<c_int> {
    lib.own_kernel_socket(key)?;
    let result = errno::check(call())?;
    if owner {
        signaller::owned(lib, key)?;
    }
    Ok(result)
}

/// `fcntl64`: the same on 64-bit machines.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: passed on.
    unsafe { fcntl(fd, command, argument) }
}

/// The kernel's half of a listener keeps its `O_NONBLOCK`.
fn set_flags(lib: &mut Guard, key: Key, fd: c_int, flags: c_ulong) -> Result<c_int> {
    if !placeholder::may_have(flags) {
        lib.own_kernel_socket(key)?;
    }
    let socket = lib.need_socket(key)?;
    let always = if socket.kernel_half { libc::O_NONBLOCK as c_ulong } else { 0 };
    if !socket.stands_in {
        // SAFETY: a plain call on a descriptor of ours.
        errno::check(unsafe { real::fcntl(fd, libc::F_SETFL, flags | always) })?;
    }
    socket.nonblocking = flags & libc::O_NONBLOCK as c_ulong != 0;
    signaller::asynchronous(lib, key, flags & libc::O_ASYNC as c_ulong != 0)
}

/// `ioctl`. The third argument is an integer or a pointer, of the same size.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    // SAFETY: passed on.
    let kernel = || unsafe { real::ioctl(fd, request, argument) };
    if interfaces::QUESTIONS.contains(&request) {
        // SAFETY: the caller's pointer.
        if let Some(answer) = unsafe { interfaces::control(request, argument, kernel) } {
            return give(answer);
        }
    }
    match ours(fd) {
        Ok(None) => kernel(),
        // SAFETY: the caller's pointer.
        Ok(Some((mut lib, key))) => match unsafe { control(&mut lib, key, fd, request, argument) } {
            Ok(Some(result)) => result,
            Ok(None) => give(control_own(&mut lib, key, owner::is_set_by_request(request), kernel)),
            Err(errno) => give(Err(errno)),
        },
        Err(errno) => give(Err(errno)),
    }
}

const SIOCOUTQ: c_ulong = 0x5411;
const SIOCOUTQNSD: c_ulong = 0x894b;
const SIOCATMARK: c_ulong = 0x8905;

/// The flag of `F_SETFL` that a request sets.
fn flag_of(request: c_ulong) -> Option<c_int> {
    match request {
        libc::FIONBIO => Some(libc::O_NONBLOCK),
        libc::FIOASYNC => Some(libc::O_ASYNC),
        _ => None,
    }
}

/// The requests that a stream answers itself; `None` for the others.
unsafe fn control(lib: &mut Guard, key: Key, fd: c_int, request: c_ulong, argument: c_ulong) -> Result<Option<c_int>> {
    let value = argument as *mut c_int;
    if let Some(flag) = flag_of(request) {
        // SAFETY: the caller's pointer.
        let on = unsafe { user_memory::read(value)? } != 0;
        // SAFETY: a plain call on a descriptor of ours.
        let flags = errno::check(unsafe { real::fcntl(fd, libc::F_GETFL, 0) })? & !libc::O_NONBLOCK;
        let others = flags & !flag | if lib.need_socket(key)?.nonblocking { libc::O_NONBLOCK & !flag } else { 0 };
        let flags = others | if on { flag } else { 0 };
        return set_flags(lib, key, fd, flags as c_ulong).map(Some);
    }
    lib.drain();
    if request == SIOCOUTQNSD && matches!(lib.need_socket(key)?.kind, Kind::Stream(_)) {
        let unsent = options::unsent(lib, key)? as c_int;
        // SAFETY: the caller's pointer.
        return unsafe { user_memory::write(value, unsent) }.map(|()| Some(0));
    }
    let socket = lib.need_socket(key)?;
    let stream = match &socket.kind {
        Kind::Stream(stream) => stream,
        Kind::Listener(_) if request == libc::FIONREAD as c_ulong => return Err(libc::EINVAL),
        _ => return Ok(None),
    };
    let answer = match request {
        _ if request == libc::FIONREAD as c_ulong => stream.countable(socket.options.inline_urgent) as c_int,
        SIOCOUTQ => stream.in_flight() as c_int,
        SIOCATMARK => stream.is_at_mark().into(),
        _ => return Ok(None),
    };
    // SAFETY: the caller's pointer.
    unsafe { user_memory::write(value, answer)? };
    Ok(Some(0))
}

/// `sockatmark`: whether the next byte is the urgent one.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut answer: c_int = 0;
    // SAFETY: a local.
    let result = unsafe { ioctl(fd, SIOCATMARK, (&raw mut answer) as c_ulong) };
    if result < 0 { result } else { answer }
}
