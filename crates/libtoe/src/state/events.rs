//! Events of sockets, in epoll's bits.

/// Something can be read or accepted.
pub(crate) const IN: u32 = libc::EPOLLIN as u32 | libc::EPOLLRDNORM as u32;
/// There is room to write.
pub(crate) const OUT: u32 = libc::EPOLLOUT as u32 | libc::EPOLLWRNORM as u32;
/// The peer will send nothing more.
pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
/// Both directions are over.
pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
/// An error is pending.
pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
/// An urgent byte is there.
pub(crate) const PRI: u32 = libc::EPOLLPRI as u32;
/// All of them, but for urgent bytes.
pub(crate) const ALL: u32 = IN | OUT | RDHUP | HUP | ERR;
/// An entry that reports once, and is silent then.
pub(crate) const ONCE: u32 = libc::EPOLLONESHOT as u32;
