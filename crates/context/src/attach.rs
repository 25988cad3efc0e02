//! Attaching of an application: one message each way over the daemon's UNIX seqpacket socket, as JSON.
//!
//! With [`Answer::Welcome`] come three descriptors: the region, the application's end of its doorbell
//! ([`shm::Doorbell::pair`]) and the eventfd of the daemon's. The socket stays open as long as the process lives; its
//! end is how the daemon learns that the process is gone. Meanwhile the process may [`Ask`] over it.
use crate::{Geometry, Slot};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use wire::{Endpoint, IpAddress, Prefix};

/// Numbers for descriptors of the library's own, in a process that may have `limit` of them. Programs close all low
/// numbers when they become daemons, and `select` is to keep those that it can hold.
pub fn own_descriptors(limit: u64) -> std::ops::Range<u64> {
    let first = limit.min(1 << 16).saturating_sub(64).max(32);
    first..first + 64
}

/// Environment variable with the path of the daemon's attach socket. libtoe does nothing where it is not set.
pub const SOCKET_VARIABLE: &str = "TOE_SOCKET";
/// Environment variable with the name of the host to attach to; where it is not set, the daemon's first.
pub const HOST_VARIABLE: &str = "TOE_HOST";
/// Environment variable: where libtoe intercepts a program's calls, one of [`LAYERS`].
pub const INTERCEPT_VARIABLE: &str = "TOE_INTERCEPT";
/// Each program has what it needs. System calls are intercepted in those that are linked statically or written in Go,
/// the C library's functions in all others. So it is where the variable is not set.
pub const AUTO: &str = "auto";
/// The C library's functions are interposed.
pub const SYMBOLS: &str = "symbols";
/// So they are, and below them system call instructions are rewritten.
pub const SYSTEM_CALLS: &str = "syscalls";
/// The environment variable that names a static program, which `libtoe.so` loads into the process and runs.
pub const PROGRAM_VARIABLE: &str = "TOE_PROGRAM";
/// The values of [`INTERCEPT_VARIABLE`].
pub const LAYERS: [&str; 3] = [AUTO, SYMBOLS, SYSTEM_CALLS];

/// Application to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::VERSION`] of the library.
    pub version: u32,
    /// Host to attach to; `None` for the daemon's first.
    pub host: Option<String>,
    /// Command line of the process, for people.
    pub command: String,
    /// After fork: the token of [`crate::Reply::Forked`]. The new context then shares all that the parent had.
    pub token: Option<u64>,
    /// After the end of an earlier daemon: the ticket of a listener, which lets the process attach again as it was.
    pub ticket: Option<Ticket>,
    /// After an earlier daemon was killed: the process comes back with the region that it had, which comes with the
    /// message.
    #[serde(default)]
    pub returns: bool,
}

/// The socket for processes that were attached to an earlier daemon and have a ticket. They may not open this one's
/// attach socket, since they gave up a user's rights meanwhile.
pub fn return_path(attach: &Path) -> PathBuf {
    let mut path = attach.as_os_str().to_owned();
    path.push(".return");
    path.into()
}

/// Daemon to application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Attached.
    Welcome(Welcome),
    /// Not attached; a sentence with the reason and what to do.
    Refused(String),
}

/// An attached application to the daemon; one question at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// For the region of another context, where the buffers of a connection are that this one has a share of.
    Region {
        /// That context.
        context: u32,
    },
    /// For a ticket of a listener that it has.
    Ticket {
        /// The listener's binding.
        binding: u32,
    },
    /// To listen as it did at an earlier daemon.
    Listen {
        /// What that daemon gave.
        ticket: Ticket,
        /// Most connections that wait in the queue.
        backlog: u32,
    },
    /// To go on with connections of an earlier daemon, in the region with which the process came back.
    Resume {
        /// At most [`MOST_KEPT`] of them.
        connections: Vec<SurvivingConnection>,
    },
}

/// Connections in one [`Ask::Resume`]: as many as a message has room for.
pub const MOST_KEPT: usize = 64;

/// State of a connection that outlived its daemon. Positions as in [`crate::Bump`] and [`crate::Completion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SurvivingConnection {
    /// Its slot.
    pub slot: Slot,
    /// Received in order, as last reported to the application.
    pub rx_tail: u32,
    /// Acknowledged by the peer, as last reported to the application.
    pub tx_tail: u32,
    /// Read by the program.
    pub rx_head: u32,
    /// Written by the program.
    pub tx_head: u32,
    /// Nothing will be written after `tx_head`.
    pub shut: bool,
    /// Nothing comes after `rx_tail`: the peer's FIN arrived.
    pub peer_ended: bool,
}

/// The right to listen at the next daemon as at this one (docs/RESTART.md). The process keeps it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// A random number that distinguishes the listener from all others.
    pub listener: u64,
    /// Its address.
    pub local: Endpoint,
    /// `SO_REUSEADDR` was set.
    pub reuse_address: bool,
    /// `SO_REUSEPORT` was set.
    pub reuse_port: bool,
    /// The unspecified IPv6 address stands for that of IPv4, too.
    #[serde(default)]
    pub dual_stack: bool,
    /// The user that bound the address.
    pub uid: u32,
    /// Shows that a daemon with the same key gave it.
    pub seal: u64,
}

/// The answer to [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// The region comes with the message.
    Region(Geometry),
    /// Of the listener.
    Ticket(Ticket),
    /// The process listens again: names its binding from now on.
    Listens(u32),
    /// These connections go on; the others are over.
    Resumed(Vec<Slot>),
    /// It does not: a Linux error number.
    Failed(i32),
    /// This context has no share of a connection there, or no such listener.
    Refused,
}

/// Answer to an accepted attach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Number of the context in the daemon.
    pub context: u32,
    /// Sizes of the region.
    pub geometry: Geometry,
    /// The process goes on in the region with which it came back; otherwise in the one that comes with the message.
    pub returned: bool,
    /// Name of the host.
    pub host: String,
    /// The host's own addresses.
    pub addresses: Vec<IpAddress>,
    /// The host has IPv6, at least over its loopback.
    pub v6: bool,
    /// Destinations that the host reaches. A gateway shows as 0.0.0.0/0.
    pub routes: Vec<Prefix>,
    /// The program and the host have one loopback: connections to 127.0.0.0/8 and ::1 may be the host's
    /// (docs/LOOPBACK.md).
    pub loopback: bool,
    /// The host collects short segments where a program does not set `TCP_NODELAY` (Nagle's algorithm).
    pub nagle: bool,
    /// Urgent data goes out as such ([`crate::Bump::URGENT`]), and records end segments ([`crate::Bump::RECORD`]).
    /// Otherwise `MSG_OOB` is refused, and `MSG_EOR` has no effect.
    pub urgent: bool,
    /// The host's default congestion control, as `TCP_CONGESTION` names it.
    pub congestion: String,
    /// The host's ports over which it may have neighbours, for lists of interfaces (docs/POSIX.md).
    pub interfaces: Vec<Interface>,
}

/// An address, and how many of its bits are those of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The address.
    pub address: IpAddress,
    /// Bits of its network part.
    pub prefix_len: u8,
}

/// A port of the host, as a list of interfaces shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The host's address there.
    pub address: IpAddress,
    /// Bits of its network part.
    pub prefix_len: u8,
    /// Its IPv6 address of global scope there, where it has one.
    #[serde(default)]
    pub ipv6: Option<Network>,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Most bytes of an IP packet.
    pub mtu: u16,
}
