//! `epoll_ctl`.
use crate::lock::Guard;
use crate::state::set::{Entry, Target, Watcher, became_ready, forget};
use crate::state::slab::Key;
use crate::state::socket::Socket;
use crate::state::{Lib, events};
use crate::system::errno::{self, Result};
use crate::system::real;
use crate::table;
use libc::{c_int, epoll_event};
use std::os::fd::RawFd;

/// `epoll_ctl` where the set is known and the descriptor may be anything.
pub(crate) fn control(
    lib: &mut Guard,
    set: Key,
    operation: c_int,
    fd: RawFd,
    event: Option<epoll_event>,
) -> Result<()> {
    let target = match table::get(fd) {
        table::Entry::Socket(index) => lib.sockets.get(index).map(|_| Target::Socket(index as u32)),
        table::Entry::Set(index) => lib.sets.get(index).map(|_| Target::Set(index as u32)),
        _ => None,
    };
    let kernel_half = match target {
        Some(Target::Socket(index)) => lib.sockets.get(index as usize).is_some_and(|s| s.listens_in_kernel()),
        _ => true,
    };
    if kernel_half {
        match (control_kernel(lib, set, operation, fd, event), target) {
            // The kernel's half is there already, for another descriptor of the socket that is closed by now.
            (Err(libc::EEXIST), Some(target)) if lib.member(set, fd, target).is_none() => {}
            // It is not there yet, since the entry had reported once when the socket became a listener.
            (Err(libc::ENOENT), Some(target)) if lib.member(set, fd, target).is_some() => {
                if operation == libc::EPOLL_CTL_MOD {
                    control_kernel(lib, set, libc::EPOLL_CTL_ADD, fd, event)?;
                }
            }
            (result, _) => result?,
        }
    }
    let Some(target) = target else { return Ok(()) };
    if target == Target::Set(set.index as u32) {
        return Err(libc::EINVAL);
    }
    control_ours(lib, set, operation, (fd, target), event)?;
    if kernel_half && event.is_some_and(|event| event.events & events::ONCE != 0) {
        let entry = lib.member(set, fd, target).map(|watcher| watcher.entry);
        lib.set(set).zip(entry).into_iter().for_each(|(set, entry)| set.may_report_once_in_kernel(entry));
    }
    Ok(())
}

/// The kernel's descriptors, nested sets, and the kernel's half of a listener are really in the kernel's set.
fn control_kernel(lib: &mut Lib, key: Key, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
    let set = lib.set(key).ok_or(libc::EBADF)?;
    let mut event = event;
    let pointer = event.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: `pointer` is null or a local event.
    errno::check(unsafe { real::epoll_ctl(set.fd, operation, fd, pointer) })?;
    set.has_kernel = true;
    Ok(())
}

fn control_ours(
    lib: &mut Guard,
    key: Key,
    operation: c_int,
    (fd, target): (RawFd, Target),
    event: Option<epoll_event>,
) -> Result<()> {
    let present = lib.member(key, fd, target);
    let shared =
        matches!(target, Target::Socket(index) if lib.sockets.get(index as usize).is_some_and(Socket::is_shared));
    let set = lib.sets.get_mut(key.index).ok_or(libc::EBADF)?;
    match (operation, present, event) {
        (libc::EPOLL_CTL_ADD, Some(_), _) => Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            // A thread that sleeps on the kernel's members alone is to be notified of ours from now on.
            set.kick();
            set.may_share |= shared;
            let entry = Entry { fd, target, events: event.events, data: event.u64, queued: false, disabled: false };
            let watcher = Watcher { set: key.index as u32, entry: set.insert(entry) as u32 };
            lib.watchers(target).into_iter().for_each(|watchers| watchers.push(watcher));
            queue_if_ready(lib, watcher);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD, Some(watcher), Some(event)) => {
            if let Some(entry) = set.entries.get_mut(watcher.entry as usize) {
                (entry.events, entry.data, entry.disabled) = (event.events, event.u64, false);
            }
            queue_if_ready(lib, watcher);
            Ok(())
        }
        (libc::EPOLL_CTL_DEL, Some(watcher), _) => {
            forget(&mut lib.sets, watcher);
            lib.watchers(target).into_iter().for_each(|watchers| watchers.remove(watcher));
            Ok(())
        }
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => Err(libc::EFAULT),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => Err(libc::ENOENT),
        _ => Err(libc::EINVAL),
    }
}

fn queue_if_ready(lib: &mut Lib, watcher: Watcher) {
    let entry = lib.sets.get(watcher.set as usize).and_then(|set| set.entries.get(watcher.entry as usize));
    let Some((target, events)) = entry.map(|entry| (entry.target, entry.events)) else { return };
    if let Target::Socket(index) = target {
        lib.key_of(index as usize).into_iter().for_each(|socket| lib.request_events(socket));
    }
    let bits = lib.ready_bits(target, events, 0);
    became_ready(&mut lib.sets, watcher, bits);
}

impl Lib {
    /// A set's entry for a descriptor.
    fn member(&self, set: Key, fd: RawFd, target: Target) -> Option<Watcher> {
        let watchers = match target {
            Target::Socket(index) => &self.sockets.get(index as usize)?.watchers,
            Target::Set(index) => &self.sets.get(index as usize)?.parents,
        };
        let entries = &self.sets.get(set.index)?.entries;
        let is_it = |watcher: &&Watcher| {
            let entry = entries.get(watcher.entry as usize);
            watcher.set as usize == set.index && entry.is_some_and(|entry| entry.fd == fd)
        };
        watchers.as_slice().iter().find(is_it).copied()
    }
}
