//! The kernel sockets behind descriptors.
//!
//! A connection of OpenTOE needs a descriptor, and to be a socket to all who inspect it; the kernel socket itself stays
//! idle. To make and destroy one costs more than the rest of a short connection does. So descriptors start as
//! duplicates of one idle kernel socket of the process, the stand-in. A socket gets one of its own when something is
//! asked of the kernel that must not reach the others. That is an option, a name, to listen, to fall back.
use crate::system::errno::{self, Result};
use crate::system::own_fd::OwnFd;
use crate::system::real;
use libc::{c_int, c_ulong};
use std::os::fd::RawFd;

/// The stand-ins of a process, made when first needed.
pub(crate) struct Placeholders {
    v4: Option<OwnFd>,
    v6: Option<OwnFd>,
}

impl Placeholders {
    pub(crate) const fn new() -> Placeholders {
        Placeholders { v4: None, v6: None }
    }

    /// A fresh descriptor, the lowest that is free, that refers to the stand-in. Of `flags`, `SOCK_CLOEXEC` counts.
    pub(crate) fn descriptor(&mut self, is_v6: bool, flags: c_int) -> Result<RawFd> {
        let place = if is_v6 { &mut self.v6 } else { &mut self.v4 };
        let placeholder = match place {
            Some(there) => there.fd(),
            None => place.insert(OwnFd::adopt(kernel_socket(is_v6, libc::SOCK_CLOEXEC)?)).fd(),
        };
        let command = if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        // SAFETY: a plain call on a descriptor of the library.
        errno::check(unsafe { real::fcntl(placeholder, command, 0) })
    }
}

/// A kernel socket; `errno` of the system where there is none to be had.
pub(crate) fn kernel_socket(is_v6: bool, flags: c_int) -> Result<RawFd> {
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: a plain call.
    errno::check(unsafe { real::socket(family, libc::SOCK_STREAM | flags, libc::IPPROTO_TCP) })
}

/// Makes `fd` refer to another kernel socket; its close-on-exec flag stays.
pub(crate) fn replace(kernel_socket: RawFd, fd: RawFd) {
    // SAFETY: plain calls on descriptors that are ours.
    unsafe {
        let flags = real::fcntl(fd, libc::F_GETFD, 0);
        let close_on_exec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        real::dup3(kernel_socket, fd, close_on_exec);
    }
}

/// What the kernel calls `O_LARGEFILE`; the C library's constant is 0 on 64-bit machines.
const LARGE_FILE: c_int = 0o100_000;

/// Flags of `F_SETFL` with which a stand-in may go on: what a socket has anyway, and `O_NONBLOCK`, which is the
/// library's business.
pub(crate) fn may_have(flags: c_ulong) -> bool {
    let harmless = (libc::O_NONBLOCK | libc::O_ACCMODE | LARGE_FILE) as c_ulong;
    flags & !harmless == 0
}
