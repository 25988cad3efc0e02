//! Sockets that get a kernel socket of their own in place of the stand-in.
use crate::state::Lib;
use crate::state::option_values::Options;
use crate::state::slab::Key;
use crate::system::errno::Result;
use crate::system::placeholder::{kernel_socket, replace};
use crate::system::real;
use libc::IPPROTO_TCP;
use std::os::fd::RawFd;
use tcp::congestion::CongestionName;

/// Gives a kernel socket everything that was set. A refused option is one that an accepted connection does not
/// inherit from its listener.
fn set_all(fd: RawFd, options: &Options) {
    for (level, name, value) in &options.set {
        // SAFETY: the value is a valid buffer of the length given.
        unsafe { real::setsockopt(fd, *level, *name, value.as_ptr().cast(), value.len() as u32) };
    }
    if let Some(policy) = CongestionName::from_code(options.congestion) {
        set_policy(fd, policy.name.as_bytes());
    }
}

/// The kernel may not have the policy: then its own goes on.
pub(crate) fn set_policy(fd: RawFd, name: &[u8]) {
    // SAFETY: the slice is valid for its length.
    unsafe { real::setsockopt(fd, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), name.len() as u32) };
}

impl Lib {
    /// Gives a socket that has only the stand-in a kernel socket of its own, with everything that was set, behind all
    /// of its descriptors.
    pub(crate) fn own_kernel_socket(&mut self, key: Key) -> Result<()> {
        let socket = self.need_socket(key)?;
        if !socket.stands_in {
            return Ok(());
        }
        let flags = if socket.nonblocking { libc::SOCK_NONBLOCK } else { 0 };
        let fresh = kernel_socket(socket.is_v6, flags | libc::SOCK_CLOEXEC)?;
        set_all(fresh, &socket.options);
        socket.stands_in = false;
        self.descriptors(key.index).into_iter().for_each(|fd| replace(fresh, fd));
        // SAFETY: made above; its duplicates stay.
        unsafe { real::close(fresh) };
        Ok(())
    }

    /// The kernel's half lets go of the port that the kernel chose for it: only a fresh socket is without one.
    pub(crate) fn release_kernel_half(&mut self, key: Key) {
        if let Some(socket) = self.socket(key).filter(|socket| socket.kernel_half) {
            (socket.kernel_half, socket.stands_in) = (false, true);
            // Where the system has none left, the old one stays, and the program's next `bind` fails.
            let _ = self.own_kernel_socket(key);
        }
    }

    /// Before other processes get the descriptors: what is not connected yet must be the same socket to all of them.
    pub(crate) fn own_kernel_sockets(&mut self) {
        for index in self.sockets.indices() {
            let Some(socket) = self.sockets.get(index).filter(|socket| !socket.is_stream()) else { continue };
            let key = Key { index, id: socket.id };
            // Where the system has none left, the stand-in goes on.
            let _ = self.own_kernel_socket(key);
        }
    }
}
