//! What a thread sleeps on that waits for a set.
use super::EpollSet;
use crate::errno::{self, Result};
use crate::real;
use crate::state::Link;
use crate::wait::OwnFd;
use libc::epoll_event;
use std::os::fd::{AsRawFd, RawFd};

const EDGE: u32 = libc::EPOLLET as u32;

/// A set of the kernel with everything that ends a sleep.
pub struct Bed {
    pub set: OwnFd,
    /// Written by other threads.
    pub kick: OwnFd,
    has_bell: bool,
}

/// `data` in a bed: the program's set has something.
const PROGRAM: u64 = 0;
/// The context's bell rang.
pub const BELL: u64 = 1;
/// The daemon's socket has come to its end.
pub const DAEMON: u64 = 2;
/// Another thread has something for this set.
const KICK: u64 = 3;
/// How many there are.
pub const REASONS: usize = 4;

impl Bed {
    fn new(program: RawFd) -> Result<Bed> {
        // SAFETY: a plain call.
        let set = errno::check(unsafe { real::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let bed = Bed { set: OwnFd::adopt(set), kick: OwnFd::new()?, has_bell: false };
        bed.add(program, PROGRAM, 0)?;
        bed.add(bed.kick.fd(), KICK, EDGE)?;
        Ok(bed)
    }

    /// Edges: each ring of the bell ends one sleep, whoever clears it.
    fn add(&self, fd: RawFd, data: u64, edge: u32) -> Result<()> {
        let mut event = epoll_event { events: libc::EPOLLIN as u32 | edge, u64: data };
        // SAFETY: valid descriptors and a local event.
        errno::check(unsafe { real::epoll_ctl(self.set.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }).map(|_| ())
    }
}

impl EpollSet {
    /// What its threads sleep on, complete as of now.
    pub fn make_bed(&mut self, link: &Link) -> Result<&mut Bed> {
        let fd = self.fd;
        let bed = match &mut self.bed {
            Some(bed) => bed,
            none => none.insert(Bed::new(fd)?),
        };
        if let (Link::Attached(context), false) = (link, bed.has_bell) {
            bed.add(context.end.app_bell.fd().as_raw_fd(), BELL, EDGE)?;
            bed.add(context.control_fd(), DAEMON, EDGE)?;
            bed.has_bell = true;
        }
        Ok(bed)
    }
}
