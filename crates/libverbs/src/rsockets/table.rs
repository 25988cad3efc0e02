//! The sockets of the process, by descriptor.
use super::datagrams::Datagrams;
use super::socket::Socket;
use super::waiting::State;
use crate::errno::Result;
use libc::c_int;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError, RwLock};

static SOCKETS: RwLock<Option<HashMap<RawFd, Rsocket>>> = RwLock::new(None);

/// A socket of either kind.
#[derive(Clone)]
pub(super) enum Rsocket {
    /// A stream.
    Stream(Arc<Socket>),
    /// Datagrams.
    Datagrams(Arc<Datagrams>),
}

impl Rsocket {
    /// Its descriptor.
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Rsocket::Stream(socket) => socket.fd,
            Rsocket::Datagrams(socket) => socket.fd,
        }
    }

    /// What both kinds have, for one thread.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut dyn State) -> T) -> T {
        match self {
            Rsocket::Stream(socket) => act(&mut *socket.lock()),
            Rsocket::Datagrams(socket) => act(&mut *socket.lock()),
        }
    }
}

/// Adds a socket: its descriptor.
pub(super) fn add(socket: Rsocket) -> c_int {
    let fd = socket.fd();
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.get_or_insert_default().insert(fd, socket);
    fd
}

/// The socket of a descriptor; EBADF where there is none.
pub(super) fn find(fd: c_int) -> Result<Rsocket> {
    let sockets = SOCKETS.read().unwrap_or_else(PoisonError::into_inner);
    sockets.as_ref().and_then(|sockets| sockets.get(&fd)).cloned().ok_or(libc::EBADF)
}

/// The same for what only streams do: EOPNOTSUPP where it is none.
pub(super) fn find_stream(fd: c_int) -> Result<Arc<Socket>> {
    match find(fd)? {
        Rsocket::Stream(socket) => Ok(socket),
        Rsocket::Datagrams(_) => Err(libc::EOPNOTSUPP),
    }
}

/// Takes a socket out.
pub(super) fn remove(fd: c_int) -> Result<Rsocket> {
    let mut sockets = SOCKETS.write().unwrap_or_else(PoisonError::into_inner);
    sockets.as_mut().and_then(|sockets| sockets.remove(&fd)).ok_or(libc::EBADF)
}
