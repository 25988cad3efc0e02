//! Sets of descriptors, edge-triggered as in Linux. A descriptor that was reported is reported again after a wake-up
//! for an event that the set waits for. The report has all events of that moment.
use crate::connection::Wakes;
use libc::{EEXIST, EINVAL, ENOENT, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int};
use libc::{
    EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, EPOLLRDNORM, EPOLLWRNORM,
};
use std::collections::BTreeMap;
use std::os::fd::{IntoRawFd, OwnedFd};

const READS: u32 = (EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLRDHUP) as u32;
const WRITES: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;

/// What is asked, or reported, of a descriptor: events and the program's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// `EPOLLIN` and others.
    pub events: u32,
    /// `epoll_data`.
    pub data: u64,
}

/// A descriptor in a set.
struct Interest {
    asked: Event,
    /// Wake-ups at its last report; none before the first one.
    seen: Option<Wakes>,
    /// `EPOLLONESHOT`, and it was reported.
    spent: bool,
}

/// A set. Its descriptor is one of the kernel's, as a socket's is.
pub(crate) struct Set {
    number: OwnedFd,
    interests: BTreeMap<i32, Interest>,
}

impl Set {
    pub(crate) fn new(number: OwnedFd) -> Set {
        Set { number, interests: BTreeMap::new() }
    }

    /// `epoll_ctl`.
    pub(crate) fn control(&mut self, operation: c_int, fd: c_int, asked: Event) -> Result<(), c_int> {
        let interests = &mut self.interests;
        match operation {
            EPOLL_CTL_ADD if interests.contains_key(&fd) => Err(EEXIST),
            EPOLL_CTL_ADD => {
                interests.insert(fd, Interest::new(asked));
                Ok(())
            }
            EPOLL_CTL_MOD => interests.get_mut(&fd).map(|interest| *interest = Interest::new(asked)).ok_or(ENOENT),
            EPOLL_CTL_DEL => interests.remove(&fd).map(drop).ok_or(ENOENT),
            _ => Err(EINVAL),
        }
    }

    /// A descriptor is closed.
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.interests.remove(&fd);
    }

    /// At most `most` events, where `poll` gives wake-ups and readiness of a descriptor.
    pub(crate) fn take(&mut self, most: usize, mut poll: impl FnMut(c_int) -> (Wakes, u32)) -> Vec<Event> {
        let mut found = Vec::new();
        for (fd, interest) in self.interests.iter_mut().filter(|(_, interest)| !interest.spent) {
            let (wakes, bits) = poll(*fd);
            if found.len() == most || !interest.is_woken(wakes) {
                continue;
            }
            interest.seen = Some(wakes);
            let events = bits & (interest.asked.events | ALWAYS);
            if events != 0 {
                interest.spent = interest.asked.events & EPOLLONESHOT as u32 != 0;
                found.push(Event { events, ..interest.asked });
            }
        }
        found
    }

    /// The runner closes its descriptor.
    pub(crate) fn abandon(self) {
        let _ = self.number.into_raw_fd();
    }
}

impl Interest {
    fn new(asked: Event) -> Interest {
        Interest { asked, seen: None, spent: false }
    }

    /// Something was woken up for since its last report.
    fn is_woken(&self, wakes: Wakes) -> bool {
        let Some(seen) = self.seen.filter(|_| self.asked.events & EPOLLET as u32 != 0) else { return true };
        (seen.reads != wakes.reads && self.asked.events & READS != 0)
            || (seen.writes != wakes.writes && self.asked.events & WRITES != 0)
            || seen.errors != wakes.errors
    }
}
