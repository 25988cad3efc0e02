//! Sockets that get a kernel socket of their own in place of the stand-in.
use crate::errno::Result;
use crate::real;
use crate::stand_in::{kernel_socket, replace};
use crate::state::{Key, Lib};

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
        socket.options.set_in_kernel(fresh);
        socket.stands_in = false;
        self.descriptors(key.index).into_iter().for_each(|fd| replace(fresh, fd));
        // SAFETY: made above; its duplicates stay.
        unsafe { real::close(fresh) };
        Ok(())
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
