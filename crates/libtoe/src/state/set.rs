//! An epoll set: its members, those that may be ready, and the threads that sleep on it.
use crate::state::events;
use crate::state::few::Few;
use crate::state::slab::Slab;
use crate::system::errno::Result;
use crate::system::own_fd::OwnFd;
use crate::system::sleep_set::{Bells, PROGRAM, SleepSet};
use crate::system::waking;
use std::os::fd::RawFd;

/// An epoll set.
pub(crate) struct EpollSet {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them.
    pub fd: RawFd,
    /// As in the kernel, an entry outlives its descriptor while others refer to the same socket. The descriptor's
    /// number may be another one's by then. So a descriptor is looked up among those that [watch](Watcher) its socket.
    pub(crate) entries: Slab<Entry>,
    /// How many of them there are.
    members: usize,
    /// How many of them are sets.
    pub(crate) nested: usize,
    /// Entries that may be ready, in their order.
    pub(crate) ready: Vec<u32>,
    /// What its threads sleep on, and what others write to wake one.
    sleep_set: Option<SleepSet>,
    kick: Option<OwnFd>,
    /// Threads that sleep there.
    sleepers: u32,
    /// One of them was asked to get up, and is not up yet.
    kicked: bool,
    /// Wake descriptors of threads that poll the set itself.
    pub waiters: Few<RawFd>,
    /// Sets that hold this one.
    pub(crate) parents: Few<Watcher>,
    /// Whether the kernel's set may have events.
    pub(crate) has_kernel: bool,
    /// Entries that may be such as report once and are in the kernel's set, too.
    pub(crate) once_in_kernel: Vec<u32>,
    pub(crate) waits: u32,
    /// Whether another process may take completions of a connection in it, as of the last check.
    pub may_share: bool,
}

/// A set that has a socket, and its entry there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    pub(crate) set: u32,
    pub(crate) entry: u32,
}

/// A member.
pub(crate) struct Entry {
    pub fd: RawFd,
    pub events: u32,
    pub data: u64,
    pub target: Target,
    /// In the ready list.
    pub queued: bool,
    /// `EPOLLONESHOT` has reported.
    pub disabled: bool,
}

/// By index: an entry goes before its target does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Socket(u32),
    Set(u32),
}

impl EpollSet {
    /// A set without members.
    pub(crate) fn new(id: u64, fd: RawFd) -> EpollSet {
        EpollSet {
            id,
            descriptors: 1,
            fd,
            entries: Slab::new(),
            members: 0,
            nested: 0,
            ready: Vec::new(),
            sleep_set: None,
            kick: None,
            sleepers: 0,
            kicked: false,
            waiters: Few::None,
            parents: Few::None,
            has_kernel: false,
            once_in_kernel: Vec::new(),
            waits: 0,
            may_share: false,
        }
    }

    /// Ends the sleep of a thread. A whole batch of members may become ready while it gets up.
    pub(crate) fn kick(&mut self) {
        if self.sleepers > 0 && !std::mem::replace(&mut self.kicked, true) {
            self.kick.iter().for_each(|kick| waking::wake(kick.fd()));
        }
    }

    /// Wakes the threads that sleep on it, and those that wait for it and others.
    pub(crate) fn wake_all(&mut self) {
        self.kick();
        self.waiters.as_slice().iter().for_each(|fd| waking::wake(*fd));
    }

    /// A thread begins to sleep on it: a [kick](EpollSet::kick) ends that.
    pub(crate) fn add_sleeper(&mut self) {
        self.sleepers += 1;
    }

    /// A thread that slept on it is up.
    pub(crate) fn remove_sleeper(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        self.kicked = false;
    }

    /// In a forked child: waiting threads are the parent's, and so is their sleep set.
    pub(crate) fn forget_sleepers(&mut self) {
        (self.sleepers, self.kicked, self.waiters) = (0, false, Few::None);
        (self.sleep_set, self.kick) = (None, None);
    }

    /// Whether members of it live in user space.
    pub(crate) fn has_ours(&self) -> bool {
        self.members > 0
    }

    pub(crate) fn insert(&mut self, entry: Entry) -> usize {
        self.members += 1;
        self.nested += matches!(entry.target, Target::Set(_)) as usize;
        self.ready.reserve(self.members.saturating_sub(self.ready.len()));
        self.entries.insert(entry)
    }

    /// An entry that reports once is in the kernel's set, too.
    pub(crate) fn may_report_once_in_kernel(&mut self, entry: u32) {
        if !self.once_in_kernel.contains(&entry) {
            self.once_in_kernel.push(entry);
        }
    }

    pub(crate) fn remove(&mut self, entry: usize) -> Option<Entry> {
        let removed = self.entries.remove(entry)?;
        self.members -= 1;
        self.nested -= matches!(removed.target, Target::Set(_)) as usize;
        if removed.queued {
            self.ready.retain(|ready| *ready as usize != entry);
        }
        Some(removed)
    }
}

/// A watcher's socket or set became ready for `bits`.
#[inline(always)]
pub(crate) fn became_ready(sets: &mut Slab<EpollSet>, watcher: Watcher, bits: u32) {
    let Some(found) = sets.get_mut(watcher.set as usize) else { return };
    let Some(entry) = found.entries.get_mut(watcher.entry as usize) else { return };
    let wanted = entry.events | events::ERR | events::HUP;
    if entry.disabled || bits & wanted == 0 {
        return;
    }
    // One that is in the list already may have been taken, and read empty since: a sleeping thread must check again.
    if !std::mem::replace(&mut entry.queued, true) {
        found.ready.push(watcher.entry);
    }
    let alone = found.sleepers == 0 && matches!((&found.waiters, &found.parents), (Few::None, Few::None));
    if !alone {
        wake_sleepers(sets, watcher.set);
    }
}

/// A set has a ready member: whoever waits for it is notified of it. This ends, since the kernel refuses sets that hold
/// each other (`ELOOP`).
#[cold]
fn wake_sleepers(sets: &mut Slab<EpollSet>, set: u32) {
    let Some(found) = sets.get_mut(set as usize) else { return };
    found.wake_all();
    for parent in found.parents.clone().as_slice() {
        became_ready(sets, *parent, events::IN);
    }
}

/// A socket is gone: so is the entry.
pub(crate) fn forget(sets: &mut Slab<EpollSet>, watcher: Watcher) {
    if let Some(set) = sets.get_mut(watcher.set as usize) {
        set.remove(watcher.entry as usize);
    }
}

impl EpollSet {
    /// Sleep set of its threads, complete as of now.
    pub(crate) fn make_sleep_set(&mut self, bells: Option<Bells>) -> Result<&mut SleepSet> {
        let sleep_set = match &mut self.sleep_set {
            Some(sleep_set) => sleep_set,
            none => {
                let kick = OwnFd::new()?;
                let sleep_set = SleepSet::new(kick.fd())?;
                sleep_set.add(self.fd, PROGRAM, libc::EPOLLIN as u32)?;
                self.kick = Some(kick);
                none.insert(sleep_set)
            }
        };
        sleep_set.watch(bells)?;
        Ok(sleep_set)
    }
}
