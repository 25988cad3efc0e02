//! What a set of the kernel must know of sockets that were or become OpenTOE's: a socket that falls back, and the
//! kernel's half of a listener.
use crate::state::set::{Entry, EpollSet, Target, Watcher};
use crate::state::slab::Slab;
use crate::system::real;
use crate::table;
use libc::epoll_event;
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

/// The kernel's half of a listener that is in the set, by the descriptor with which it was added: another one of the
/// same socket, here `fd`, only where that is gone. An entry that has reported once comes to the kernel when it is
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
}

/// The kernel's half of a listener that is in the set listens no more.
pub(crate) fn unwatch(sets: &mut Slab<EpollSet>, watcher: Watcher) {
    let Some(set) = sets.get_mut(watcher.set as usize) else { return };
    set.entries.get(watcher.entry as usize).into_iter().for_each(|entry| silence(set.fd, entry));
}

/// The kernel's half of a listener's entry reports nothing more: nor does one that has reported once on OpenTOE's half,
/// until it is armed again.
pub(super) fn silence(set: RawFd, entry: &Entry) {
    let Entry { fd, target: Target::Socket(index), .. } = entry else { return };
    if table::get(*fd) == table::Entry::Socket(*index as usize) {
        // SAFETY: valid descriptors; no event is looked at. It may not be there, where the kernel had no room for it.
        unsafe { real::epoll_ctl(set, libc::EPOLL_CTL_DEL, *fd, std::ptr::null_mut()) };
    }
}
