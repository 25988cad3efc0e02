//! All that the library keeps, behind its one lock, and what follows from completions. That is which socket is ready
//! for what, and which are to be woken. Safe code, but for the bytes of streams ([`ring`], [`stream`]): what it needs
//! of the operating system it asks of [`crate::system`].
#![deny(unsafe_code)]

pub(crate) mod borrowed;
pub(crate) mod context_side;
pub(crate) mod events;
pub(crate) mod fast_open;
pub(crate) mod few;
#[expect(unsafe_code, reason = "calls functions of libtoe_heap.so")]
pub(crate) mod heap;
pub(crate) mod idle;
pub(crate) mod listener;
pub(crate) mod lists;
pub(crate) mod log_records;
pub(crate) mod lost;
pub(crate) mod mapped_region;
mod marks;
pub(crate) mod members;
pub(crate) mod option_values;
pub(crate) mod readiness;
pub(crate) mod references;
#[expect(unsafe_code, reason = "copies bytes between the program's buffers and shared memory")]
pub(crate) mod ring;
pub(crate) mod set;
pub(crate) mod signals;
pub(crate) mod slab;
pub(crate) mod slot_state;
pub(crate) mod socket;
#[expect(unsafe_code, reason = "reads positions that the daemon writes, and calls the copies of `ring`")]
pub(crate) mod stream;
mod tuning;

use crate::state::context_side::Context;
use crate::state::few::Few;
use crate::state::idle::Sweeper;
use crate::state::lists::Lists;
use crate::state::lost::{Lost, Remains};
use crate::state::option_values::Recent;
use crate::state::set::EpollSet;
use crate::state::signals::Signaller;
use crate::state::slab::{Key, Slab};
use crate::state::socket::{ANY, Socket};
use crate::system::errno::Result;
use crate::system::placeholder::Placeholders;
use crate::system::sleep_set::Bells;
use crate::system::waking::{self, Point};
use crate::table::{self, Entry};
use context::IpAddress;
use std::net::Ipv6Addr;
use std::os::fd::RawFd;

/// The process's tie to the daemon.
pub(crate) enum Link {
    /// No stream socket was made yet.
    Detached,
    /// Attached.
    Attached(Box<Context>),
    /// The daemon died, and another one may come, for what lasts of the context.
    Lost(Lost, Option<Box<Remains>>),
    /// There is no daemon for this process any more: all calls fail.
    Dead,
}

impl Link {
    /// The bells that ring for completions, where there is a daemon.
    pub(crate) fn bells(&self) -> Option<Bells> {
        match self {
            Link::Attached(context) => Some(context.bells()),
            _ => None,
        }
    }
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
    pub placeholders: Placeholders,
    /// Sweeper that gives back the memory of quiet connections.
    pub sweeper: Sweeper,
    /// Options that sockets share.
    pub recent_options: Recent,
    /// Additions to the kernel's lists of interfaces.
    pub lists: Lists,
    /// The thread that raises signals to owners of sockets.
    pub signaller: Signaller,
    /// How often the daemon's rings were drained.
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
#[expect(unsafe_code, reason = "raw pointers into mappings that outlive it")]
unsafe impl Send for Lib {}

impl Lib {
    /// Nothing yet.
    pub(crate) const fn new() -> Lib {
        Lib {
            link: Link::Detached,
            sockets: Slab::new(),
            sets: Slab::new(),
            askers: Few::None,
            placeholders: Placeholders::new(),
            sweeper: Sweeper::new(),
            recent_options: Recent::new(),
            signaller: Signaller { wake: None, changes: 0 },
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

    /// Announces a sleeper on the context's bell: the daemon rings it from now on. Poll the rings once more before
    /// sleeping. Nothing without a context.
    pub(crate) fn announce_sleep(&mut self) -> Option<Announced> {
        waking::point(Point::Poll);
        self.context()?.end.app_bell.prepare_to_sleep();
        Some(Announced { context: self.contexts })
    }

    /// Takes an announcement back. The process may have got its context, or another one, during the sleep. A count
    /// taken from that bell would hide a thread that sleeps on it.
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

    /// The host speaks IPv6, and a socket too.
    pub(crate) fn speaks_v6(&mut self, key: Key) -> bool {
        let is_v6 = self.socket(key).is_some_and(|socket| socket.is_v6);
        is_v6 && self.context().is_some_and(|context| context.welcome.v6)
    }

    /// The host and a socket speak the version of IP that an address is of.
    pub(crate) fn has_family(&mut self, key: Key, ip: IpAddress) -> bool {
        // Without a daemon, IPv4's calls fail, as they did when it was there.
        ip.is_v4() || self.speaks_v6(key)
    }

    /// The unspecified address of a socket: of all families that it and the host speak.
    pub(crate) fn any_address(&mut self, key: Key) -> IpAddress {
        if self.speaks_v6(key) { IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0) } else { ANY.ip }
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
