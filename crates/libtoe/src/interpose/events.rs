//! `poll`, `select`, `epoll`.
use crate::calls::epoll::{self, Out};
use crate::calls::poll as polling;
use crate::daemon::attach;
use crate::lock::{self, Guard};
use crate::state::slab::Key;
use crate::system::errno::{Result, give};
use crate::system::{real, user_memory, waking};
use crate::table::{self, Entry};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use std::time::{Duration, Instant};

/// A timeout in milliseconds; negative is for ever.
fn millis(timeout: c_int) -> Option<Duration> {
    (timeout >= 0).then(|| Duration::from_millis(timeout as u64))
}

/// A timeout as `timespec`; null is for ever.
unsafe fn time(timeout: *const timespec) -> Result<Option<Duration>> {
    // SAFETY: the caller's pointer.
    let Some(time) = (unsafe { user_memory::read_any(timeout)? }) else { return Ok(None) };
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)))
}

/// When a timeout that begins now is over.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| waking::now().checked_add(timeout))
}

/// Programs that make the system call pass the kernel's set, which is the first word.
unsafe fn mask_of(mask: *const sigset_t) -> Result<Option<sigset_t>> {
    // SAFETY: the caller's pointer; zeros are a valid set, which begins with 64 bits.
    unsafe {
        let Some(word) = user_memory::read_any(mask.cast::<u64>())? else { return Ok(None) };
        let mut mask: sigset_t = std::mem::zeroed();
        (&raw mut mask).cast::<u64>().write(word);
        Ok(Some(mask))
    }
}

/// The caller's list; `None` where the kernel alone can answer, also that an address is bad.
pub(super) unsafe fn list<'a>(fds: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    let bytes = (count as usize).checked_mul(size_of::<pollfd>())?;
    if !attach::is_enabled() || !user_memory::can_read(fds, bytes) || count == 0 {
        return None;
    }
    // SAFETY: the caller's array.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    (!polling::is_kernels(fds)).then_some(fds)
}

/// `poll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's array.
    unsafe {
        match list(fds, count) {
            None => real::poll(fds, count, timeout),
            Some(fds) => give(poll_ours(fds, deadline(millis(timeout)), None)),
        }
    }
}

/// `ppoll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        match list(fds, count) {
            None => real::ppoll(fds, count, timeout, mask),
            Some(fds) => give(timed(timeout, mask, |deadline, mask| poll_ours(fds, deadline, mask))),
        }
    }
}

/// Calls with a deadline and a mask, as the program gave them.
unsafe fn timed(
    timeout: *const timespec,
    mask: *const sigset_t,
    call: impl FnOnce(Option<Instant>, Option<sigset_t>) -> Result<c_int>,
) -> Result<c_int> {
    // SAFETY: the caller's pointers.
    let (timeout, mask) = unsafe { (time(timeout)?, mask_of(mask)?) };
    call(deadline(timeout), mask)
}

fn poll_ours(fds: &mut [pollfd], deadline: Option<Instant>, mask: Option<sigset_t>) -> Result<c_int> {
    if !user_memory::can_write(fds.as_ptr(), size_of_val(fds)) {
        return Err(libc::EFAULT);
    }
    let mut lib = lock::lock()?;
    polling::poll(&mut lib, fds, deadline, mask).map(|ready| ready as c_int)
}

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// `poll`, compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int {
    // SAFETY: as `poll`.
    unsafe { if room / size_of::<pollfd>() < count as usize { __chk_fail() } else { poll(fds, count, timeout) } }
}

/// `ppoll`, compiled with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    // SAFETY: as `ppoll`.
    unsafe { if room / size_of::<pollfd>() < count as usize { __chk_fail() } else { ppoll(fds, count, timeout, mask) } }
}

/// The three sets of a `select`.
pub(super) type Sets = [*mut fd_set; 3];

/// Whether the kernel alone can answer a `select`, also that an address is bad.
pub(super) unsafe fn select_is_kernels(count: c_int, sets: Sets) -> bool {
    // The kernel reads and writes whole words.
    let bytes = (count.clamp(0, libc::FD_SETSIZE as c_int) as usize).div_ceil(64) * 8;
    let is_good = |set: &*mut fd_set| set.is_null() || user_memory::can_write(*set, bytes);
    if !attach::is_enabled() || !sets.iter().all(is_good) {
        return true;
    }
    !(0..count.min(libc::FD_SETSIZE as c_int))
        .any(|fd| matches!(table::get(fd), Entry::Socket(_) | Entry::Set(_)) && sets.iter().any(|set| has(*set, fd)))
}

fn has(set: *mut fd_set, fd: c_int) -> bool {
    // SAFETY: the caller's set, where there is one.
    !set.is_null() && unsafe { libc::FD_ISSET(fd, set) }
}

/// What `select` calls readable, writable and exceptional, in `poll`'s terms (POLLIN_SET and so on in Linux).
const SELECT_READ: i16 = libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDNORM | libc::POLLRDBAND;
const SELECT_WRITE: i16 = libc::POLLOUT | libc::POLLERR | libc::POLLWRNORM | libc::POLLWRBAND;
const SELECT_EXCEPT: i16 = libc::POLLPRI;

unsafe fn select_ours(count: c_int, sets: Sets, deadline: Option<Instant>, mask: Option<sigset_t>) -> Result<c_int> {
    let wanted = [(libc::POLLIN, SELECT_READ), (libc::POLLOUT, SELECT_WRITE), (libc::POLLPRI, SELECT_EXCEPT)];
    let mut fds = Vec::new();
    for fd in 0..count.min(libc::FD_SETSIZE as c_int) {
        let mut events = 0;
        for (set, (event, _)) in sets.iter().zip(wanted) {
            if has(*set, fd) {
                events |= event;
            }
        }
        if events != 0 {
            fds.push(pollfd { fd, events, revents: 0 });
        }
    }
    poll_ours(&mut fds, deadline, mask)?;
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    let mut ready = 0;
    for fd in &fds {
        for (set, (event, bits)) in sets.iter().zip(wanted) {
            if fd.events & event == 0 {
                continue;
            }
            if fd.revents & bits != 0 {
                ready += 1;
            } else {
                // SAFETY: the caller's set, which has this descriptor.
                unsafe { libc::FD_CLR(fd.fd, *set) };
            }
        }
    }
    Ok(ready)
}

/// `select`. As on Linux, the time left is written back.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's pointers.
    unsafe {
        if select_is_kernels(count, sets) {
            return real::select(count, read, write, except, timeout);
        }
        let time = match user_memory::read_any(timeout) {
            Ok(time) => time.map(|t| (t.tv_sec, t.tv_usec)),
            Err(errno) => return give(Err(errno)),
        };
        let deadline = match time {
            Some((seconds, micros)) if seconds < 0 || micros < 0 => return give(Err(libc::EINVAL)),
            Some((seconds, micros)) => {
                waking::now().checked_add(Duration::from_secs(seconds as u64) + Duration::from_micros(micros as u64))
            }
            None => None,
        };
        let result = select_ours(count, sets, deadline, None);
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(waking::now());
            // As on Linux, a place that cannot be written is no error.
            let left = timeval { tv_sec: left.as_secs() as i64, tv_usec: left.subsec_micros() as i64 };
            let _ = user_memory::write(timeout, left);
        }
        give(result)
    }
}

/// `pselect`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's pointers.
    unsafe {
        if select_is_kernels(count, sets) {
            return real::pselect(count, read, write, except, timeout, mask);
        }
        give(timed(timeout, mask, |deadline, mask| select_ours(count, sets, deadline, mask)))
    }
}

fn enter_set(fd: c_int) -> c_int {
    if fd >= 0 && attach::is_enabled() {
        if let Ok(mut lib) = lock::lock() {
            lib.add_set(fd);
        }
    }
    fd
}

/// `epoll_create`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return give(Err(libc::EINVAL));
    }
    // SAFETY: passed on.
    enter_set(unsafe { real::epoll_create1(0) })
}

/// `epoll_create1`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: passed on.
    enter_set(unsafe { real::epoll_create1(flags) })
}

/// The set of a descriptor, with the library locked.
fn set_of(fd: c_int) -> Result<Option<(Guard, Key)>> {
    if !matches!(table::get(fd), Entry::Set(_)) {
        return Ok(None);
    }
    let lib = lock::lock()?;
    Ok(lib.set_of(fd).map(|key| (lib, key)))
}

/// `epoll_ctl`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    match set_of(set) {
        // SAFETY: passed on.
        Ok(None) => unsafe { real::epoll_ctl(set, operation, fd, event) },
        Ok(Some((mut lib, key))) => {
            let event = match operation {
                libc::EPOLL_CTL_DEL => Ok(None),
                // SAFETY: the caller's pointer.
                _ => unsafe { user_memory::read(event) }.map(Some),
            };
            give(event.and_then(|event| epoll::control(&mut lib, key, operation, fd, event).map(|()| 0)))
        }
        Err(errno) => give(Err(errno)),
    }
}

unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Result<Option<Duration>>,
    mask: *const sigset_t,
) -> Option<Result<c_int>> {
    let (mut lib, key) = match set_of(set) {
        Ok(found) => found?,
        Err(errno) => return Some(Err(errno)),
    };
    if count <= 0 {
        return Some(Err(libc::EINVAL));
    }
    // As on Linux, an address in the kernel's half is refused at once, and any other bad one where there is an event.
    if (events as isize) < 0 {
        return Some(Err(libc::EFAULT));
    }
    let out = Out { at: events, len: count as usize };
    let mask = match mask.is_null() {
        true => Ok(None),
        // SAFETY: the caller's pointer.
        false => unsafe { mask_of(mask) },
    };
    let result = timeout.and_then(|timeout| Ok((timeout, mask?)));
    let result = result.and_then(|(timeout, mask)| epoll::wait_events(&mut lib, key, out, timeout, mask.as_ref()));
    Some(result.map(|found| found as c_int))
}

/// `epoll_wait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        match wait(set, events, count, Ok(millis(timeout)), std::ptr::null()) {
            Some(result) => give(result),
            None => real::epoll_wait(set, events, count, timeout),
        }
    }
}

/// `epoll_pwait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        match wait(set, events, count, Ok(millis(timeout)), mask) {
            Some(result) => give(result),
            None => real::epoll_pwait(set, events, count, timeout, mask),
        }
    }
}

/// `epoll_pwait2`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        match wait(set, events, count, time(timeout), mask) {
            Some(result) => give(result),
            None => real::epoll_pwait2(set, events, count, timeout, mask),
        }
    }
}
