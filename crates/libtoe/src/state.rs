//! All that the library knows, behind its one lock.
use crate::context_side::Context;
use crate::epoll::EpollSet;
use crate::errno::Result;
use crate::few::Few;
use crate::lists::Lists;
use crate::lost::{Lost, Remains};
use crate::option_values::Recent;
use crate::quiet::Hand;
use crate::socket::Socket;
use crate::stand_in::StandIns;
use crate::table::{self, Entry};
use crate::waking::{self, Point};
use context::IpAddress;
use std::os::fd::RawFd;

/// The process's tie to the daemon.
pub(crate) enum Link {
    /// No stream socket was made yet.
    Detached,
    /// Attached.
    Attached(Box<Context>),
    /// The daemon died, and another one may come, for what lasts of the context.
    Lost(Lost, Option<Box<Remains>>),
    /// There is no daemon for this process any more: nothing works, and says so.
    Dead,
}

/// The library's state.
pub(crate) struct Lib {
    /// The tie to the daemon.
    pub link: Link,
    /// Sockets that are ours or may become so.
    pub sockets: Slab<Socket>,
    /// Every epoll set of the process.
    pub sets: Slab<EpollSet>,
    /// Wake descriptors of threads that sleep until an answer comes.
    pub askers: Few<RawFd>,
    /// The kernel sockets that most descriptors refer to.
    pub stand_ins: StandIns,
    /// What gives back the memory of quiet connections.
    pub hand: Hand,
    /// Options that sockets share.
    pub recent_options: Recent,
    /// What is added to the kernel's lists of interfaces.
    pub lists: Lists,
    /// How often news of the daemon was taken in.
    pub taken_in: u32,
    /// Identities given so far.
    last_id: u64,
    /// Contexts that the process has had so far; a forked child continues its parent's count.
    contexts: u32,
}

/// A sleeper announced on the bell of one context.
#[derive(Clone, Copy)]
pub(crate) struct Announced {
    /// Which of [`Lib::contexts`].
    context: u32,
}

// SAFETY: the raw pointers inside lead into shared mappings that live as long as the values that hold them; all
// access goes through the library's lock or through atomics.
unsafe impl Send for Lib {}

/// Names a socket or set across a time without the lock: index and identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index into its slab.
    pub index: usize,
    /// Never given twice in a process.
    pub id: u64,
}

impl Lib {
    /// Nothing yet.
    pub(crate) const fn new() -> Lib {
        Lib {
            link: Link::Detached,
            sockets: Slab::new(),
            sets: Slab::new(),
            askers: Few::None,
            stand_ins: StandIns::new(),
            hand: Hand::new(),
            recent_options: Recent::new(),
            taken_in: 0,
            last_id: 0,
            contexts: 0,
            lists: Lists::new(),
        }
    }

    /// A fresh identity.
    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The process has a context from now on.
    pub(crate) fn attached(&mut self, mut context: Context) {
        self.contexts += 1;
        context.number = self.contexts;
        self.link = Link::Attached(Box::new(context));
    }

    /// Announces a sleeper on the context's bell: the daemon rings it from now on. Look for news once more before sleeping.
    /// Nothing without a context.
    pub(crate) fn announce_sleep(&mut self) -> Option<Announced> {
        waking::point(Point::Look);
        self.context()?.end.app_bell.prepare_to_sleep();
        Some(Announced { context: self.contexts })
    }

    /// Takes an announcement back. The process may have got its context, or another one, during the sleep: a count taken
    /// from that bell would hide a thread that sleeps on it.
    pub(crate) fn end_sleep(&mut self, announced: Option<Announced>) {
        if announced.is_some_and(|announced| announced.context == self.contexts) {
            self.context().into_iter().for_each(|context| context.end.app_bell.awake());
        }
    }

    /// The context, where attached.
    #[inline]
    pub(crate) fn context(&mut self) -> Option<&mut Context> {
        match &mut self.link {
            Link::Attached(context) => Some(context),
            _ => None,
        }
    }

    /// The host has addresses of this address's family.
    pub(crate) fn has_family(&mut self, ip: IpAddress) -> bool {
        let speaks = |context: &mut Context| context.welcome.addresses.iter().any(|own| own.is_v4() == ip.is_v4());
        // Without a daemon, IPv4's calls fail, as they did when it was there.
        ip.is_v4() || self.context().is_some_and(speaks)
    }

    /// The context, or the error of calls that need one.
    pub(crate) fn need_context(&mut self) -> Result<&mut Context> {
        self.context().ok_or(libc::ENETDOWN)
    }

    /// The socket of a descriptor.
    #[inline]
    pub(crate) fn socket_of(&self, fd: RawFd) -> Option<Key> {
        match table::get(fd) {
            Entry::Socket(index) => self.key_of(index),
            _ => None,
        }
    }

    /// The name of the socket that has an index now.
    #[inline]
    pub(crate) fn key_of(&self, index: usize) -> Option<Key> {
        self.sockets.get(index).map(|socket| Key { index, id: socket.id })
    }

    /// The epoll set of a descriptor.
    #[inline]
    pub(crate) fn set_of(&self, fd: RawFd) -> Option<Key> {
        match table::get(fd) {
            Entry::Set(index) => self.sets.get(index).map(|set| Key { index, id: set.id }),
            _ => None,
        }
    }

    /// The socket of a key, if it still is the same one.
    #[inline]
    pub(crate) fn socket(&mut self, key: Key) -> Option<&mut Socket> {
        self.sockets.get_mut(key.index).filter(|socket| socket.id == key.id)
    }

    /// The socket of a key; one that was closed meanwhile is `EBADF`.
    #[inline]
    pub(crate) fn need_socket(&mut self, key: Key) -> Result<&mut Socket> {
        self.socket(key).ok_or(libc::EBADF)
    }

    /// The set of a key, if it still is the same one.
    #[inline]
    pub(crate) fn set(&mut self, key: Key) -> Option<&mut EpollSet> {
        self.sets.get_mut(key.index).filter(|set| set.id == key.id)
    }

    /// Wakes all threads that wait for an answer.
    pub(crate) fn wake_askers(&self) {
        self.askers.as_slice().iter().for_each(|fd| waking::wake(*fd));
    }

    /// Enters a fresh descriptor of a fresh socket.
    pub(crate) fn add_socket(&mut self, fd: RawFd, make: impl FnOnce(u64) -> Socket) -> Option<Key> {
        let id = self.fresh_id();
        let index = self.sockets.insert(make(id));
        if !table::set(fd, Entry::Socket(index)) {
            self.sockets.remove(index);
            return None;
        }
        Some(Key { index, id })
    }
}

/// Values by small index; an index is used again after its value was removed.
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Empty.
    pub(crate) const fn new() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }
    /// Puts a value in and gives its index.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let index = self.free.pop().map_or_else(
            || {
                self.values.push(None);
                self.values.len() - 1
            },
            |free| free as usize,
        );
        self.values[index] = Some(value);
        index
    }
    /// Takes a value out.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.values.get_mut(index)?.take()?;
        self.free.push(index as u32);
        Some(value)
    }
    /// The value at an index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.values.get(index)?.as_ref()
    }
    /// The value at an index.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.values.get_mut(index)?.as_mut()
    }
    /// One more than the highest index that was ever in use.
    pub(crate) fn span(&self) -> usize {
        self.values.len()
    }
    /// The indices in use.
    pub(crate) fn indices(&self) -> Vec<usize> {
        (0..self.values.len()).filter(|i| self.values[*i].is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_uses_indices_again() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.insert("c"), a);
        assert_eq!((slab.get(a), slab.get(b)), (Some(&"c"), Some(&"b")));
        assert_eq!(slab.indices(), [0, 1]);
    }
}
