//! Asynchronous sends and receives in place (`toe_comm_*` in include/toe.h, docs/ZERONIC.md): the contract between a
//! program and a ZeroNIC host of the daemon.
//!
//! Over the daemon's UNIX seqpacket socket go [`Hello`], [`Answer`] and the registration of memory, as JSON. All else
//! is in a region of queues ([`crate::queues`]): [`Post`]s in its send queue, [`Completion`]s in its completion queue.
//! With [`Answer::Welcome`] come three descriptors: the region, the eventfd of the daemon's doorbell, and the program's
//! end of its own ([`shm::Doorbell::pair`]).
use crate::directory::APP_BELL;
use serde::{Deserialize, Serialize};
use shm::{Doorbell, Region};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Version of what is in this file.
pub const VERSION: u32 = 4;
/// Posts that wait to be taken; a power of two.
pub const POSTS: u32 = 1024;
/// Completions that wait to be taken; a power of two.
pub const COMPLETIONS: u32 = 4096;

/// Program to daemon: the first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the library.
    pub comm: u32,
    /// The ZeroNIC host; `None` for the daemon's first.
    pub host: Option<String>,
    /// Command line of the process, for people.
    pub command: String,
}

/// Program to daemon, once it is attached. `D` describes memory (`memory::Description`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<D> {
    /// The descriptor that comes along is the program's `/proc/self/mem`.
    HandOver,
    /// Registers memory; the descriptors that come along are those that it counts.
    Register(D),
    /// Ends a registration: afterwards no byte of it is touched.
    Deregister(u32),
    /// Makes a device: memory that is reached by a DMA queue only. The answer is [`Answer::Device`].
    Device,
    /// Registers memory of a device.
    RegisterDevice {
        /// Its number.
        device: u32,
        /// The first byte, as the queue's server calls it.
        address: u64,
        /// Bytes.
        len: u64,
    },
}

/// Daemon to program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Attached, to the host of this name.
    Welcome(String),
    /// Attached, to a volume (`crate::volume`).
    Volume {
        /// Its length.
        bytes: u64,
        /// It is only read.
        read_only: bool,
    },
    /// It is done.
    Done,
    /// The key of what was registered.
    Key(u32),
    /// A device's number. With it comes a socket, through which whoever serves the device gets its queue
    /// (`memory::DmaServer`). The device is gone when the last copy of that descriptor is closed.
    Device(u32),
    /// It is not done: a Linux error number, and a sentence with the reason.
    Refused(i32, String),
}

/// The program's doorbell, in the region of its queues.
pub fn program_bell(region: &Arc<Region>, fd: OwnedFd) -> Doorbell {
    Doorbell::new(region, APP_BELL, fd)
}

/// Content of a connection, by agreement of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carries {
    /// Streams: lengths of sends and receives have nothing to do with each other.
    #[default]
    Stream,
    /// Messages: each send takes one receive of the peer's.
    Messages,
}

impl Carries {
    fn word(self) -> u64 {
        match self {
            Carries::Stream => 0,
            Carries::Messages => 1,
        }
    }

    fn of(word: u64) -> Option<Carries> {
        [Carries::Stream, Carries::Messages].into_iter().find(|carries| carries.word() == word)
    }
}

/// Order of a program to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Open a connection. [`Outcome::Connected`] follows at once, or [`Outcome::Failed`].
    Connect(SocketAddrV4, Carries),
    /// Accept connections to a port: [`Outcome::Accepted`] for each. [`Outcome::Listening`] follows, or
    /// [`Outcome::Failed`].
    Listen(u16, Carries),
    /// Open a flow of datagrams from this port, or with 0 from one that the host chooses.
    /// [`Outcome::Connected`] follows at once, or [`Outcome::Failed`].
    Datagrams(u16, SocketAddrV4),
    /// Send from memory, which must not change until [`Outcome::Sent`].
    Send(Piece),
    /// Receive into memory: [`Outcome::Received`] when it is full, or the stream has ended.
    Receive(Piece),
    /// Nothing will be sent behind what was posted.
    End,
    /// Forget the connection: from now on its memory is neither read nor written.
    Close,
}

/// A part of registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The registration's key.
    pub key: u32,
    /// Byte of it where the part begins.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A post: an order, on a connection where it concerns one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    /// The program's own number, which what follows repeats.
    pub id: u64,
    /// From [`Completion::connection`]; 0 where there is none yet.
    pub connection: u32,
    /// What to do.
    pub order: Order,
}

const CONNECT: u64 = 1;
const LISTEN: u64 = 2;
const SEND: u64 = 3;
const RECEIVE: u64 = 4;
const END: u64 = 5;
const CLOSE: u64 = 6;
const DATAGRAMS: u64 = 7;

fn address_word(address: SocketAddrV4) -> u64 {
    u64::from(u32::from(*address.ip())) << 16 | u64::from(address.port())
}

fn address_of(word: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from((word >> 16) as u32), word as u16)
}

impl Post {
    /// The element of a send queue.
    pub fn to_words(self) -> [u64; 8] {
        let (kind, words) = match self.order {
            Order::Connect(to, carries) => (CONNECT, [address_word(to), carries.word(), 0]),
            Order::Listen(port, carries) => (LISTEN, [port.into(), carries.word(), 0]),
            Order::Datagrams(from, to) => (DATAGRAMS, [address_word(to), from.into(), 0]),
            Order::Send(piece) => (SEND, [piece.key.into(), piece.offset, piece.len]),
            Order::Receive(piece) => (RECEIVE, [piece.key.into(), piece.offset, piece.len]),
            Order::End => (END, [0; 3]),
            Order::Close => (CLOSE, [0; 3]),
        };
        [kind, self.id, self.connection.into(), words[0], words[1], words[2], 0, 0]
    }

    /// Reads an element. `None` for what no library of ours writes.
    pub fn from_words(words: [u64; 8]) -> Option<Post> {
        let [kind, id, connection, a, b, c, ..] = words;
        let piece = Piece { key: a as u32, offset: b, len: c };
        let order = match kind {
            CONNECT => Order::Connect(address_of(a), Carries::of(b)?),
            LISTEN => Order::Listen(a as u16, Carries::of(b)?),
            DATAGRAMS => Order::Datagrams(b as u16, address_of(a)),
            SEND => Order::Send(piece),
            RECEIVE => Order::Receive(piece),
            END => Order::End,
            CLOSE => Order::Close,
            _ => return None,
        };
        Some(Post { id, connection: connection as u32, order })
    }
}

/// Outcome of a post, or event of a connection. The numbers are those of include/toe.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// A connection is being opened: it may be used.
    Connected = 1,
    /// A port is listened on.
    Listening = 2,
    /// A peer has opened a connection to a port; [`Completion::value`] is that port.
    Accepted = 3,
    /// The peer has the bytes of a send; of a datagram: it has left, or was dropped.
    Sent = 4,
    /// A receive has [`Completion::value`] bytes, in order: those of its message, where the connection carries some.
    Received = 5,
    /// The peer's stream has ended.
    Ended = 6,
    /// A post was not carried out; [`Completion::value`] is a Linux error number.
    Failed = 7,
    /// The connection is gone, with all that was posted; [`Completion::value`] is a Linux error number.
    Lost = 8,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 8] = {
        use Outcome::*;
        [Connected, Listening, Accepted, Sent, Received, Ended, Failed, Lost]
    };
}

/// An element of a completion queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// What happened.
    pub outcome: Outcome,
    /// The post's number; 0 for what no post asked for.
    pub id: u64,
    /// Names the connection in this program; never 0 where there is one.
    pub connection: u32,
    /// By the outcome.
    pub value: u64,
}

impl Completion {
    /// The element.
    pub fn to_words(self) -> [u64; 8] {
        [self.outcome as u64, self.id, self.connection.into(), self.value, 0, 0, 0, 0]
    }

    /// Reads an element; `None` for what no daemon of this version writes.
    pub fn from_words(words: [u64; 8]) -> Option<Completion> {
        let outcome = Outcome::ALL.into_iter().find(|outcome| *outcome as u64 == words[0])?;
        Some(Completion { outcome, id: words[1], connection: words[2] as u32, value: words[3] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back() {
        let piece = Piece { key: u32::MAX, offset: 1 << 35, len: 1 << 34 };
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 255), 65_535);
        let orders = [
            Order::Connect(to, Carries::Messages),
            Order::Listen(1, Carries::Stream),
            Order::Datagrams(u16::MAX, to),
            Order::Send(piece),
            Order::Receive(piece),
            Order::End,
            Order::Close,
        ];
        for order in orders {
            let post = Post { id: u64::MAX, connection: 7, order };
            assert_eq!(Post::from_words(post.to_words()), Some(post));
            assert!(post.to_words()[7] < shm::VALID);
        }
        assert_eq!(Post::from_words([0; 8]), None);
        for outcome in Outcome::ALL {
            let completion = Completion { outcome, id: 3, connection: u32::MAX, value: u64::MAX };
            assert_eq!(Completion::from_words(completion.to_words()), Some(completion));
        }
        assert_eq!(Completion::from_words([9; 8]), None);
    }
}
