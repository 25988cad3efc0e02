//! The sockets of the process, by descriptor.
use super::socket::Socket;
use crate::errno::Result;
use libc::c_int;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

static SOCKETS: RwLock<Option<HashMap<RawFd, Arc<Socket>>>> = RwLock::new(None);

/// Adds a socket: its descriptor.
pub(super) fn add(socket: Arc<Socket>) -> c_int {
    let fd = socket.fd;
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.get_or_insert_default().insert(fd, socket);
    fd
}

/// The socket of a descriptor; EBADF where there is none.
pub(super) fn find(fd: c_int) -> Result<Arc<Socket>> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.as_ref().and_then(|sockets| sockets.get(&fd)).cloned().ok_or(libc::EBADF)
}

/// Takes a socket out.
pub(super) fn remove(fd: c_int) -> Result<Arc<Socket>> {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.as_mut().and_then(|sockets| sockets.remove(&fd)).ok_or(libc::EBADF)
}
