//! A multicast group that an identifier has joined, or is about to.
use std::net::SocketAddrV4;
use verbs::Gid;

/// A membership of an identifier.
pub(crate) struct Membership {
    /// The group.
    pub(crate) group: SocketAddrV4,
    /// What the program gets with the event: a pointer of its own.
    pub(crate) context: usize,
    /// The queue pair is to be attached.
    pub(crate) receives: bool,
    /// It is.
    pub(crate) is_attached: bool,
}

impl Membership {
    /// The GID of the group (IBTA A17.4.4, as of any IPv4 address).
    pub(crate) fn gid(&self) -> Gid {
        Gid(self.group.ip().to_ipv6_mapped().octets())
    }
}
