//! A half-open connection, or one that waits to be accepted.
use ::tcp::congestion::CongestionName;
use ::tcp::{ChallengeLimit, Established, Handshake, State};
use context::Slot;
use engine::stream::FourTuple;
use engine::{ContextId, Nanos};
use port::Frame;
use serde::{Deserialize, Serialize};
use wire::Mac;
use wire::tcp::Cookie;

/// A connection being opened.
pub(crate) struct HalfOpen {
    pub tuple: FourTuple,
    pub handshake: Handshake,
    pub owner: Owner,
    pub congestion: CongestionName,
    /// Time until the SYN is sent again, and how often it was.
    pub rto: Nanos,
    pub tries: u32,
    /// Most of these, where the program has set it (`TCP_SYNCNT`).
    pub most_tries: Option<u8>,
    /// Its SYN waits for the next hop's hardware address.
    pub unsent: bool,
    /// The error of an ICMP message: the reason if no answer comes (RFC 9293 section 3.9.2.2).
    pub soft_error: Option<i32>,
    /// The peer's hardware address as last seen, for when ARP has none.
    pub peer_mac: Option<Mac>,
    /// Open, and waiting for a context that takes it.
    pub open: Option<Established>,
    /// Its limit on challenge acknowledgements.
    pub challenges: ChallengeLimit,
    /// Data of its own SYN (RFC 7413).
    pub early: SynData,
    /// Frames that came while it waited: the engine gets them when it takes over.
    pub held: Vec<Box<Frame>>,
}

impl HalfOpen {
    /// RFC 9293's state. One whose handshake is done waits for a place in the engine.
    pub(crate) fn state(&self) -> State {
        if self.open.is_some() { State::Established } else { self.handshake.state() }
    }
}

/// The data of a SYN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SynData {
    /// There is none, or it has been sent.
    No,
    /// The SYN waits until the application has written its data, of which there may be so much.
    Awaited(Option<Cookie>, u16),
    /// The SYN is about to carry this.
    There(Vec<u8>),
}

/// The owner of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Owner {
    Connect { context: ContextId, tag: u32, slot: Slot, binding: u32 },
    Listener(u32),
}
