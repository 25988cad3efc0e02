//! Connection management, as programs ask for it: identifiers (`struct rdma_cm_id`), their event channels, and what
//! happens to them. Requests are part of [`crate::control`]; of an event, its channel's pipe has one byte, and the
//! library asks for the event itself ([`Request::Event`]). So an identifier that moves takes its events along.
use crate::{Number, QpNumber, QpState};
use serde::{Deserialize, Serialize};
use std::net::SocketAddrV4;

/// Bytes of private data that a program may give with each call, and that its peer gets (`rdma_connect`(3)).
pub mod room {
    /// With `rdma_connect` of a connection.
    pub const CONNECT: usize = 56;
    /// With `rdma_accept` of a connection.
    pub const ACCEPT: usize = 196;
    /// With `rdma_reject` of a connection.
    pub const REJECT: usize = 148;
    /// With `rdma_connect` of datagrams.
    pub const LOOKUP: usize = 180;
    /// With `rdma_accept` and `rdma_reject` of datagrams.
    pub const LOOKUP_REPLY: usize = 136;
}

/// The queue key of datagrams between identifiers (`RDMA_UDP_QKEY`).
pub const DATAGRAM_KEY: u32 = 0x0123_4567;

/// What an identifier is for (`enum rdma_port_space`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Space {
    /// Connections: `RDMA_PS_TCP`.
    Connections,
    /// Datagrams: `RDMA_PS_UDP`.
    Datagrams,
}

/// What the two sides send each other of a connection (`struct rdma_conn_param`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Parameters {
    /// Private data.
    pub data: Vec<u8>,
    /// Reads and atomics that this side takes at once.
    pub responder_resources: u8,
    /// Reads and atomics that it may have outstanding.
    pub initiator_depth: u8,
    /// Credits are counted.
    pub flow_control: bool,
    /// Retransmissions, at most 7.
    pub retries: u8,
    /// Retransmissions that the peer is to make after RNR NAKs, at most 7.
    pub rnr_retries: u8,
    /// The queue pair has an SRQ.
    pub srq: bool,
    /// The queue pair: the program's own in a request, the peer's in an event.
    pub qp: QpNumber,
    /// Unreliable connections instead of reliable ones.
    pub unreliable: bool,
}

/// Library to daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A channel. [`crate::control::Answer::Number`], with the read end of its pipe.
    OpenChannel,
    /// A channel of this device at a pipe that another device of the program has opened; the read end comes along.
    /// [`crate::control::Answer::Number`].
    JoinChannel {
        /// The byte that stands for an event of this device; those of [`Request::OpenChannel`] are 1.
        token: u8,
    },
    /// Ends a channel, whose identifiers are gone.
    CloseChannel(Number),
    /// An identifier. [`crate::control::Answer::Number`].
    Create {
        /// Where its events go.
        channel: Number,
        /// What it is for.
        space: Space,
    },
    /// Ends an identifier, its connection and its listening. Events of it that nobody took are dropped.
    Destroy(Number),
    /// Its events, also those that nobody took yet, go to another channel.
    Migrate {
        /// Which.
        id: Number,
        /// Where to.
        channel: Number,
    },
    /// Gives it a local address. [`Answer::Bound`].
    Bind {
        /// Which.
        id: Number,
        /// The host's address, or none in particular; port 0 asks for any free one.
        address: SocketAddrV4,
        /// Other programs may have the same port, where they allow it too and do not listen.
        shared: bool,
    },
    /// Finds the next hop to an address; gives the identifier a local address where it has none. [`Answer::Bound`], and
    /// [`Happened::AddressResolved`] later.
    Resolve {
        /// Which.
        id: Number,
        /// The peer.
        to: SocketAddrV4,
        /// How long it may take, in milliseconds.
        timeout: u32,
    },
    /// Finds the path: it is known. [`Happened::RouteResolved`].
    Route(Number),
    /// Listens.
    Listen {
        /// Which.
        id: Number,
        /// Requests that may wait for the program; 0 for as many as there may be.
        backlog: u32,
    },
    /// Asks the peer for a connection, or for its queue pair of datagrams.
    Connect {
        /// Which.
        id: Number,
        /// What is sent to the peer.
        parameters: Parameters,
    },
    /// Accepts what the peer asked for.
    Accept {
        /// Which.
        id: Number,
        /// What is sent to the peer.
        parameters: Parameters,
    },
    /// Refuses what the peer asked for, or its reply.
    Reject {
        /// Which.
        id: Number,
        /// Private data.
        data: Vec<u8>,
    },
    /// The queue pair is ready: the connection is there.
    Establish(Number),
    /// Ends the connection.
    Disconnect(Number),
    /// The attributes by which the queue pair goes to this state (`rdma_init_qp_attr`).
    /// [`crate::control::Answer::Attributes`].
    Attributes {
        /// Which.
        id: Number,
        /// To which state.
        state: QpState,
    },
    /// Its queue pair of datagrams is to be a member of a multicast group. [`Happened::Joined`].
    Join {
        /// Which.
        id: Number,
        /// The group.
        group: SocketAddrV4,
    },
    /// The next event of a channel. [`Answer::Event`].
    Event(Number),
}

/// Daemon to library: of what has no answer among those of [`crate::control`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The local address.
    Bound(SocketAddrV4),
    /// The next event, where there is one.
    Event(Option<Event>),
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Whose.
    pub id: Number,
    /// What.
    pub what: Happened,
}

/// What happens to an identifier (`enum rdma_cm_event_type`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happened {
    /// The next hop answered.
    AddressResolved,
    /// It did not; an error number.
    AddressError(i32),
    /// The path is known.
    RouteResolved,
    /// A peer asks for a connection, or for the queue pair of datagrams. The identifier is a new one.
    Requested {
        /// Who listens.
        listener: Number,
        /// The own address.
        local: SocketAddrV4,
        /// The peer's.
        remote: SocketAddrV4,
        /// What the peer sent; of datagrams, only private data.
        parameters: Parameters,
    },
    /// The peer accepts: the queue pair is to be made ready, then [`Request::Establish`] follows.
    Replied(Parameters),
    /// The connection is there, which this side accepted.
    Established(Parameters),
    /// The queue pair of datagrams.
    Found {
        /// Its number.
        qp: QpNumber,
        /// Its queue key.
        key: u32,
        /// Private data.
        data: Vec<u8>,
    },
    /// The multicast group can be used: the library attaches the queue pair ([`crate::control::Request::Attach`]).
    Joined(SocketAddrV4),
    /// The peer did not answer.
    TimedOut,
    /// The peer, or nobody at its port, refused.
    Rejected {
        /// The reason, as on the wire (IBTA 1.3, 12.6.7.2).
        reason: u16,
        /// Private data.
        data: Vec<u8>,
    },
    /// The peer gives no queue pair of datagrams; the status, as on the wire (IBTA 1.3, table 333).
    NotFound {
        /// The status.
        status: u8,
        /// Private data.
        data: Vec<u8>,
    },
    /// The connection has ended.
    Disconnected,
    /// Packets of the connection are gone: the queue pair can be used again.
    TimeWaitOver,
}
