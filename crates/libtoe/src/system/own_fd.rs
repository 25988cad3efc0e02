//! Descriptors of the library's own: their numbers are where a program does not expect its own.
use crate::system::errno::{self, Result};
use crate::system::real;
use crate::table::{self, Entry};
use context::attach::own_descriptors;
use std::os::fd::RawFd;

/// A descriptor of the library's own, out of the way of the program's.
pub(crate) struct OwnFd(RawFd);

impl OwnFd {
    /// A fresh eventfd.
    pub(crate) fn new() -> Result<OwnFd> {
        // SAFETY: a plain system call.
        errno::check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }).map(OwnFd::adopt)
    }
    /// Takes over a descriptor that was just made.
    pub(crate) fn adopt(fd: RawFd) -> OwnFd {
        OwnFd(out_of_the_way(fd))
    }
    /// Its number.
    pub(crate) fn fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        table::clear(self.0);
        // SAFETY: ours, closed once.
        unsafe { real::close(self.0) };
    }
}

/// Moves a descriptor of the library to a [high number](own_descriptors) and marks it.
pub(crate) fn out_of_the_way(fd: RawFd) -> RawFd {
    // SAFETY: duplicates and closes a descriptor that the caller owns; the limit is read into a local.
    let moved = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        let moved = real::fcntl(fd, libc::F_DUPFD_CLOEXEC, own_descriptors(limit.rlim_cur).start);
        if moved >= 0 {
            real::close(fd);
        }
        moved
    };
    let fd = if moved >= 0 { moved } else { fd };
    table::set(fd, Entry::Internal);
    fd
}
