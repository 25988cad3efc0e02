//! `epoll` in terms of sockets ([`crate::event_set`]).
use crate::connection::Wakes;
use crate::event_set::{Event, Set};
use crate::sockets::{Errno, Kind, Sockets};
use libc::{EAGAIN, EBADF, EINVAL, EMFILE};
use shm::Doorbell;
use std::os::fd::AsRawFd;

impl Sockets {
    /// `epoll_create`.
    pub fn epoll_create(&mut self, size: i32) -> Result<i32, Errno> {
        if size <= 0 {
            return Err(EINVAL);
        }
        let number = Doorbell::eventfd().map_err(|_| EMFILE)?;
        let fd = number.as_raw_fd();
        self.sets.insert(fd, Set::new(number));
        Ok(fd)
    }

    /// `epoll_ctl`.
    pub fn epoll_ctl(&mut self, set: i32, operation: i32, fd: i32, asked: Event) -> Result<(), Errno> {
        self.get(fd)?;
        self.sets.get_mut(&set).ok_or(EBADF)?.control(operation, fd, asked)
    }

    /// `epoll_wait`: at most `most` events; `EAGAIN` where there are none.
    pub fn epoll_take(&mut self, set: i32, most: usize) -> Result<Vec<Event>, Errno> {
        if most == 0 {
            return Err(EINVAL);
        }
        self.settle();
        let mut taken = self.sets.remove(&set).ok_or(EBADF)?;
        let found = taken.take(most, |fd| (self.wakes(fd), self.readiness(fd).map_or(0, |bits| (bits as u16).into())));
        self.sets.insert(set, taken);
        if found.is_empty() { Err(EAGAIN) } else { Ok(found) }
    }

    /// A descriptor is closed: it is in no set any more. Whether it was a set itself.
    pub(crate) fn forget_in_sets(&mut self, fd: i32) -> bool {
        self.sets.values_mut().for_each(|set| set.forget(fd));
        self.sets.remove(&fd).is_some()
    }

    /// Wake-ups of those who wait for a socket. Each state that follows another one counts more.
    fn wakes(&self, fd: i32) -> Wakes {
        match self.table.get(&fd).map(|socket| &socket.kind) {
            Some(Kind::Listening { arrived, .. }) => Wakes { reads: *arrived, ..Wakes::default() },
            Some(Kind::Open(slot)) => match self.connections.get(&slot.index) {
                Some(connection) => connection.wakes,
                None => Wakes::ENDED,
            },
            Some(Kind::Dead) => Wakes::ENDED,
            _ => Wakes::default(),
        }
    }
}
