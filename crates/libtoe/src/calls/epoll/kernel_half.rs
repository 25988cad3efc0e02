//! The kernel's half of an epoll set, for sockets that were or become OpenTOE's. It is of a socket that falls back, and
//! the kernel's half of a listener. A set within a set is in the kernel's set, too.
use super::out::Out;
use crate::state::events;
use crate::state::set::{Entry, EpollSet, Target, Watcher};
use crate::state::slab::Slab;
use crate::state::socket::Socket;
use crate::system::real;
use crate::table;
use libc::{epoll_event, pollfd};
use std::os::fd::RawFd;

/// A socket became the kernel's: the kernel's set watches it from now on.
pub(crate) fn hand_over(sets: &mut Slab<EpollSet>, watcher: Watcher) {
    let Some(found) = sets.get_mut(watcher.set as usize) else { return };
    let Some(entry) = found.remove(watcher.entry as usize) else { return };
    found.has_kernel = true;
    let mut event = epoll_event { events: if entry.disabled { 0 } else { entry.events }, u64: entry.data };
    // SAFETY: valid descriptors and a local event. A kernel half is in the set already.
    unsafe { real::epoll_ctl(found.fd, libc::EPOLL_CTL_ADD, entry.fd, &mut event) };
    found.kick();
}

/// The kernel's half of a listener that is in the set, by the descriptor with which it was added. Where that is gone,
/// it is another one of the same socket, here `fd`. An entry that has reported once comes to the kernel when it is
/// armed again: even without events, the kernel would report a hang-up there.
pub(crate) fn watch(sets: &mut Slab<EpollSet>, watcher: Watcher, fd: RawFd) {
    let Some(set) = sets.get_mut(watcher.set as usize) else { return };
    let Some(entry) = set.entries.get(watcher.entry as usize).filter(|entry| !entry.disabled) else { return };
    let same = table::get(entry.fd) == table::get(fd);
    let fd = if same { entry.fd } else { fd };
    let mut event = epoll_event { events: entry.events, u64: entry.data };
    // SAFETY: valid descriptors and a local event.
    unsafe { real::epoll_ctl(set.fd, libc::EPOLL_CTL_ADD, fd, &mut event) };
    set.has_kernel = true;
    if entry.events & events::ONCE != 0 {
        set.may_report_once_in_kernel(watcher.entry);
    }
}

/// The kernel's half of a listener that is in the set listens no more.
pub(crate) fn unwatch(sets: &mut Slab<EpollSet>, watcher: Watcher) {
    let Some(set) = sets.get_mut(watcher.set as usize) else { return };
    set.entries.get(watcher.entry as usize).into_iter().for_each(|entry| silence(set.fd, entry));
}

/// The kernel's half of an entry reports nothing more: nor does one that has reported once on OpenTOE's half, until it
/// is armed again.
fn silence(set: RawFd, entry: &Entry) {
    if is_its_own(entry) {
        // SAFETY: valid descriptors; no event is read. It may not be there, where the kernel had no room for it.
        unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_DEL, entry.fd, std::ptr::null_mut()) };
    }
}

/// The number of the entry's descriptor is not another one's since.
fn is_its_own(entry: &Entry) -> bool {
    let target = match entry.target {
        Target::Socket(index) => table::Entry::Socket(index as usize),
        Target::Set(index) => table::Entry::Set(index as usize),
    };
    table::get(entry.fd) == target
}

/// An entry that reports once did so on OpenTOE's half: it is silent on the kernel's, where it has one.
#[cold]
pub(super) fn reported_here(sockets: &Slab<Socket>, set: RawFd, entry: &Entry) {
    if has_one(sockets, entry.target) {
        silence(set, entry);
    }
}

/// Entries that report once, and did so in these events of the kernel's: they are silent on OpenTOE's half.
///
/// The kernel names an event by the program's own number. Another descriptor may have the same one: so the entry must
/// be ready in the kernel, too. Where it is, it would be the next to report.
#[cold]
pub(super) fn reported_there(sockets: &Slab<Socket>, set: &mut EpollSet, out: Out, found: usize) {
    let EpollSet { entries, once_in_kernel, .. } = set;
    once_in_kernel.retain(|index| {
        let Some(entry) = entries.get_mut(*index as usize) else { return false };
        let may_report = entry.events & events::ONCE != 0 && has_one(sockets, entry.target);
        if may_report && !entry.disabled && out.has(found, entry.data) && is_ready(entry) {
            entry.disabled = true;
        }
        may_report
    });
}

/// Whether a member is in the kernel's set, too.
fn has_one(sockets: &Slab<Socket>, target: Target) -> bool {
    match target {
        Target::Socket(index) => sockets.get(index as usize).is_some_and(Socket::listens_in_kernel),
        Target::Set(_) => true,
    }
}

/// Whether the kernel has something to read there.
fn is_ready(entry: &Entry) -> bool {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [pollfd { fd: entry.fd, events: libc::POLLIN, revents: 0 }];
    // SAFETY: local values, no mask.
    is_its_own(entry) && unsafe { real::ppoll_raw(&mut fds, &now, std::ptr::null()) == 1 }
}
