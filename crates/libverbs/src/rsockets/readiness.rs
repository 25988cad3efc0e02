//! `rpoll` and `rselect`, also over descriptors that are no rsockets.
use super::table::{self, Rsocket};
use super::waiting::AGAIN;
use crate::errno;
use libc::{c_int, c_short, fd_set, nfds_t, pollfd, timeval};
use std::time::{Duration, Instant};

/// Rounds before a thread sleeps.
const ROUNDS: u32 = 200;

/// One round: what all are ready for.
fn poll_round(fds: &mut [pollfd], sockets: &[Option<Rsocket>], arms: bool) -> c_int {
    let mut plain: Vec<pollfd> = Vec::new();
    let mut count = 0;
    for (fd, socket) in fds.iter_mut().zip(sockets) {
        fd.revents = 0;
        let Some(socket) = socket else {
            plain.push(*fd);
            continue;
        };
        let wanted = fd.events | libc::POLLERR | libc::POLLHUP;
        fd.revents = socket.with(|state| {
            state.progress();
            if arms && state.ready() & wanted == 0 {
                state.arm();
            }
            state.ready() & wanted
        });
        count += c_int::from(fd.revents != 0);
    }
    if !plain.is_empty() {
        // SAFETY: valid entries, without waiting.
        unsafe { libc::poll(plain.as_mut_ptr(), plain.len() as nfds_t, 0) };
        let places = fds.iter_mut().zip(sockets).filter(|(_, socket)| socket.is_none());
        for ((fd, _), found) in places.zip(&plain) {
            fd.revents = found.revents;
            count += c_int::from(found.revents != 0);
        }
    }
    count
}

/// Sleeps until something may have happened, `timeout` milliseconds at most.
fn sleep(fds: &[pollfd], sockets: &[Option<Rsocket>], timeout: c_int) -> c_int {
    let mut all: Vec<pollfd> = Vec::new();
    for (fd, socket) in fds.iter().zip(sockets) {
        match socket {
            Some(socket) => all.extend(socket.with(|state| state.fds())),
            None => all.push(*fd),
        }
    }
    // SAFETY: valid entries.
    let found = unsafe { libc::poll(all.as_mut_ptr(), all.len() as nfds_t, timeout) };
    for socket in sockets.iter().flatten() {
        socket.with(|state| state.drain());
    }
    found
}

/// Waits until a descriptor is ready. `timeout`: `None` without end.
fn wait(fds: &mut [pollfd], timeout: Option<Duration>) -> c_int {
    let sockets: Vec<_> = fds.iter().map(|fd| table::find(fd.fd).ok()).collect();
    let end = timeout.map(|timeout| Instant::now() + timeout);
    let mut rounds = 0;
    loop {
        rounds += 1;
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        let sleeps = rounds >= ROUNDS;
        let count = poll_round(fds, &sockets, sleeps || is_over);
        if count > 0 || is_over {
            return count;
        }
        if sleeps {
            let left = end.map_or(AGAIN, |end| {
                let left = end.saturating_duration_since(Instant::now()).as_millis() + 1;
                left.min(AGAIN as u128) as c_int
            });
            if sleep(fds, &sockets, left) < 0 {
                return -1;
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let fds = match count {
        0 => &mut [],
        // SAFETY: the program passes so many entries.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    wait(fds, u64::try_from(timeout).ok().map(Duration::from_millis))
}

/// The descriptors of a set, out of the first `count`, each with an event.
///
/// # Safety
/// The set is valid, or null.
unsafe fn wanted(set: *const fd_set, count: c_int, event: c_short, into: &mut [pollfd]) {
    for fd in 0..if set.is_null() { 0 } else { count } {
        // SAFETY: as the caller guarantees; the number is one of a set.
        if unsafe { libc::FD_ISSET(fd, set) } {
            into[fd as usize].fd = fd;
            into[fd as usize].events |= event;
        }
    }
}

/// Leaves those in the set that have one of the events: how many.
///
/// # Safety
/// The set is valid, or null.
unsafe fn keep(set: *mut fd_set, asked: c_short, events: c_short, fds: &[pollfd]) -> c_int {
    if set.is_null() {
        return 0;
    }
    let mut count = 0;
    for fd in fds {
        // SAFETY: as the caller guarantees; the numbers are those of a set.
        unsafe {
            if fd.fd < 0 || !libc::FD_ISSET(fd.fd, set) {
                continue;
            }
            if fd.events & asked != 0 && fd.revents & events != 0 {
                count += 1;
            } else {
                libc::FD_CLR(fd.fd, set);
            }
        }
    }
    count
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    exceptions: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if count < 0 || count as usize > libc::FD_SETSIZE {
        return errno::minus_one(Err(libc::EINVAL));
    }
    let mut fds = vec![pollfd { fd: -1, events: 0, revents: 0 }; count as usize];
    // SAFETY: the program passes sets, and a time, or null.
    unsafe {
        wanted(reads, count, libc::POLLIN, &mut fds);
        wanted(writes, count, libc::POLLOUT, &mut fds);
        wanted(exceptions, count, libc::POLLPRI, &mut fds);
        let timeout = timeout.as_ref().map(|time| {
            Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
        });
        let found = wait(&mut fds, timeout);
        if found < 0 {
            return found;
        }
        let ended = libc::POLLHUP | libc::POLLERR;
        keep(reads, libc::POLLIN, libc::POLLIN | ended, &fds)
            + keep(writes, libc::POLLOUT, libc::POLLOUT | libc::POLLERR, &fds)
            + keep(exceptions, libc::POLLPRI, libc::POLLPRI, &fds)
    }
}
