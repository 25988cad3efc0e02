//! What only the kernel has to say about a TCP socket of its own.
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that a program wrote into a TCP socket and the peer has not acknowledged; a FIN counts as one (`SIOCOUTQ`,
/// tcp(7)).
pub fn unacknowledged(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int through the pointer, which is valid for the call.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(bytes.max(0) as u32) } else { Err(io::Error::last_os_error()) }
}
