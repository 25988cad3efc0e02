//! Members of sets: what they are ready for, and what becomes of them when a set or a socket goes.
use crate::state::few::Few;
use crate::state::set::{EpollSet, Target, Watcher, forget};
use crate::state::slab::{Key, Slab};
use crate::state::socket::Socket;
use crate::state::{Lib, events, readiness};
use crate::table;
use std::os::fd::RawFd;

/// Longest chain of sets within sets, as in Linux.
const MOST_NESTED: usize = 5;

/// What a member that is a socket is ready for among `wanted`.
#[inline(always)]
pub(crate) fn among(sockets: &mut Slab<Socket>, socket: u32, wanted: u32) -> u32 {
    match sockets.get_mut(socket as usize) {
        Some(socket) => readiness::ready_bits(socket, wanted).unwrap_or_else(|| readiness::among(socket, wanted)),
        None => 0,
    }
}

impl Lib {
    /// Watchers of a socket or a set.
    pub(crate) fn watchers(&mut self, target: Target) -> Option<&mut Few<Watcher>> {
        match target {
            Target::Socket(index) => self.sockets.get_mut(index as usize).map(|socket| &mut socket.watchers),
            Target::Set(index) => self.sets.get_mut(index as usize).map(|set| &mut set.parents),
        }
    }

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

    pub(crate) fn ready_bits(&mut self, target: Target, wanted: u32, depth: usize) -> u32 {
        match target {
            Target::Socket(index) => among(&mut self.sockets, index, wanted),
            Target::Set(index) if self.is_ready(index as usize, depth + 1) => events::IN & wanted,
            Target::Set(_) => 0,
        }
    }

    /// Whether a wait on the set would find something: what `poll` returns for an epoll descriptor.
    pub(crate) fn set_is_ready(&mut self, key: Key) -> bool {
        self.set(key).is_some() && self.is_ready(key.index, 0)
    }

    pub(crate) fn is_ready(&mut self, index: usize, depth: usize) -> bool {
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

/// Whether another process may take completions of a connection in the set.
pub(crate) fn has_shared(lib: &mut Lib, key: Key) -> bool {
    members_after_fork(lib, key).iter().any(|member| is_shared(lib, *member))
}

pub(crate) fn is_shared(lib: &mut Lib, key: Key) -> bool {
    lib.socket(key).is_some_and(|socket| socket.is_shared())
}

/// The sockets of a set that existed when the process forked; none for others, which costs nothing.
pub(crate) fn members_after_fork(lib: &mut Lib, key: Key) -> Vec<Key> {
    let Some(set) = lib.set(key).filter(|set| set.may_share) else { return Vec::new() };
    let targets: Vec<Target> =
        set.entries.indices().iter().filter_map(|i| set.entries.get(*i)).map(|entry| entry.target).collect();
    let key = |target| match target {
        Target::Socket(index) => lib.key_of(index as usize),
        Target::Set(_) => None,
    };
    targets.into_iter().filter_map(key).collect()
}
