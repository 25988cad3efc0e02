//! Epoll sets over any mix of OpenTOE sockets and the kernel's descriptors.
//!
//! A program's set is a real epoll set of the kernel: its kernel descriptors are really in it. OpenTOE sockets
//! are kept beside it, with a list of those that are ready, so a wait costs nothing for those that are not. To
//! sleep on both, a second set of the kernel, the [bed](bed), holds the program's set and what ends a sleep.
//!
//! Here is what a set is and how members become ready; [`control`] adds and removes them, [`wait_events`] waits, and
//! [`kernel_half`] keeps the kernel's set true.
mod bed;
mod control;
mod inherited;
pub(crate) mod kernel_half;
mod wait;

pub(crate) use bed::{BELL, Bed, DAEMON, KICK, REASONS};
pub(crate) use control::control;
pub(crate) use inherited::after_fork;
pub(crate) use wait::{Out, wait_events};

use crate::few::Few;
use crate::own_fd::OwnFd;
use crate::socket::Socket;
use crate::state::{Key, Lib, Slab};
use crate::{readiness, table, waking};
use std::os::fd::RawFd;

/// Longest chain of sets within sets, as in Linux.
const MOST_NESTED: usize = 5;

/// An epoll set.
pub(crate) struct EpollSet {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them.
    pub fd: RawFd,
    /// As in the kernel, an entry outlives its descriptor while others refer to the same socket, and the descriptor's
    /// number may be another one's by then: so a descriptor is looked up among those who [watch](Watcher) its socket.
    entries: Slab<Entry>,
    /// How many of them there are.
    members: usize,
    /// How many of them are sets.
    nested: usize,
    /// Entries that may be ready, in their order.
    ready: Vec<u32>,
    /// What its threads sleep on, and what others write to wake one.
    bed: Option<Bed>,
    kick: Option<OwnFd>,
    /// Threads that sleep there.
    sleepers: u32,
    /// One of them was told to get up, and is not up yet.
    kicked: bool,
    /// Wake descriptors of threads that poll the set itself.
    pub waiters: Few<RawFd>,
    /// Sets that hold this one.
    parents: Few<Watcher>,
    /// Whether the kernel's set may have something to say.
    has_kernel: bool,
    turn: u32,
    /// Whether another process may take news of a connection in it, as far as anybody has looked.
    pub may_share: bool,
}

/// A set that has a socket, and its entry there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    set: u32,
    entry: u32,
}

struct Entry {
    fd: RawFd,
    events: u32,
    data: u64,
    target: Target,
    /// In the ready list.
    queued: bool,
    /// `EPOLLONESHOT` has reported.
    disabled: bool,
}

/// By index: an entry goes before its target does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
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
            bed: None,
            kick: None,
            sleepers: 0,
            kicked: false,
            waiters: Few::None,
            parents: Few::None,
            has_kernel: false,
            turn: 0,
            may_share: false,
        }
    }

    /// Ends the sleep of a thread. A whole batch of members may become ready while it gets up.
    fn kick(&mut self) {
        if self.sleepers > 0 && !std::mem::replace(&mut self.kicked, true) {
            self.kick.iter().for_each(|kick| waking::wake(kick.fd()));
        }
    }

    /// Whether members of it live in user space.
    pub(crate) fn has_ours(&self) -> bool {
        self.members > 0
    }

    fn insert(&mut self, entry: Entry) -> usize {
        self.members += 1;
        self.nested += matches!(entry.target, Target::Set(_)) as usize;
        self.ready.reserve(self.members.saturating_sub(self.ready.len()));
        self.entries.insert(entry)
    }

    fn remove(&mut self, entry: usize) -> Option<Entry> {
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
    let wanted = entry.events | readiness::ERR | readiness::HUP;
    if entry.disabled || bits & wanted == 0 {
        return;
    }
    // One that is in the list already may have been taken, and read empty since: whoever sleeps must look again.
    if !std::mem::replace(&mut entry.queued, true) {
        found.ready.push(watcher.entry);
    }
    let alone = found.sleepers == 0 && matches!((&found.waiters, &found.parents), (Few::None, Few::None));
    if !alone {
        tell(sets, watcher.set);
    }
}

/// A set has a ready member: whoever waits for it hears of it. This ends, since the kernel refuses sets that hold each
/// other (`ELOOP`).
#[cold]
fn tell(sets: &mut Slab<EpollSet>, set: u32) {
    let Some(found) = sets.get_mut(set as usize) else { return };
    found.kick();
    found.waiters.as_slice().iter().for_each(|fd| waking::wake(*fd));
    for parent in found.parents.clone().as_slice() {
        became_ready(sets, *parent, readiness::IN);
    }
}

/// A socket is gone: so is the entry.
pub(crate) fn forget(sets: &mut Slab<EpollSet>, watcher: Watcher) {
    if let Some(set) = sets.get_mut(watcher.set as usize) {
        set.remove(watcher.entry as usize);
    }
}

#[inline(always)]
fn among(sockets: &mut Slab<Socket>, socket: u32, wanted: u32) -> u32 {
    match sockets.get_mut(socket as usize) {
        Some(socket) => readiness::ready_bits(socket, wanted).unwrap_or_else(|| readiness::among(socket, wanted)),
        None => 0,
    }
}

impl Lib {
    /// Enters a set that was just made.
    pub(crate) fn add_set(&mut self, fd: RawFd) {
        let id = self.fresh_id();
        let index = self.sets.insert(EpollSet::new(id, fd));
        if !table::set(fd, table::Entry::Set(index)) {
            self.sets.remove(index);
        }
    }

    /// One descriptor of the set is gone; with the last one the set is.
    pub(crate) fn drop_set_descriptor(&mut self, index: usize) {
        let Some(set) = self.sets.get_mut(index) else { return };
        set.descriptors -= 1;
        if set.descriptors > 0 {
            return;
        }
        let Some(set) = self.sets.remove(index) else { return };
        for parent in set.parents.as_slice() {
            forget(&mut self.sets, *parent);
        }
        for member in set.entries.indices() {
            if let Some(target) = set.entries.get(member).map(|entry| entry.target) {
                let watcher = Watcher { set: index as u32, entry: member as u32 };
                self.watchers(target).into_iter().for_each(|watchers| watchers.remove(watcher));
            }
        }
    }

    fn ready_bits(&mut self, target: Target, wanted: u32, depth: usize) -> u32 {
        match target {
            Target::Socket(index) => among(&mut self.sockets, index, wanted),
            Target::Set(index) if self.is_ready(index as usize, depth + 1) => readiness::IN & wanted,
            Target::Set(_) => 0,
        }
    }

    /// Whether a wait on the set would find something: what `poll` says of an epoll descriptor.
    pub(crate) fn set_is_ready(&mut self, key: Key) -> bool {
        self.set(key).is_some() && self.is_ready(key.index, 0)
    }

    fn is_ready(&mut self, index: usize, depth: usize) -> bool {
        let Some(set) = self.sets.get(index).filter(|_| depth <= MOST_NESTED) else { return false };
        for entry in set.ready.clone() {
            let entry = self.sets.get(index).and_then(|set| set.entries.get(entry as usize));
            let Some((target, events)) = entry.filter(|e| !e.disabled).map(|e| (e.target, e.events)) else { continue };
            if self.ready_bits(target, events, depth) != 0 {
                return true;
            }
        }
        false
    }
}

/// Whether another process may take news of a connection in the set.
pub(crate) fn has_shared(lib: &mut Lib, key: Key) -> bool {
    members_after_fork(lib, key).iter().any(|member| is_shared(lib, *member))
}

fn is_shared(lib: &mut Lib, key: Key) -> bool {
    lib.socket(key).is_some_and(|socket| socket.is_shared())
}

/// The sockets of a set that existed when the process forked; none for others, which costs nothing.
fn members_after_fork(lib: &mut Lib, key: Key) -> Vec<Key> {
    let Some(set) = lib.set(key).filter(|set| set.may_share) else { return Vec::new() };
    let targets: Vec<Target> =
        set.entries.indices().iter().filter_map(|i| set.entries.get(*i)).map(|entry| entry.target).collect();
    let key = |target| match target {
        Target::Socket(index) => lib.key_of(index as usize),
        Target::Set(_) => None,
    };
    targets.into_iter().filter_map(key).collect()
}
