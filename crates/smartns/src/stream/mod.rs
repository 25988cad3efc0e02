//! Queue pairs over a stream of messages instead of packets: what ZeroNIC does with verbs (docs/ZERONIC.md). The stream
//! loses and repeats nothing, so there are no sequence numbers of packets, and nothing is sent again.
//!
//! The stream's carrier asks a queue pair for its next message ([`crate::Shard::next_message`]). Once a message's
//! header has come, in whatever order, it asks for the payload's place ([`crate::Shard::steer`]). It passes messages on
//! once they are in order ([`crate::Shard::arrived`]).
pub(crate) mod datagrams;
mod header;
pub(crate) mod quantum;
mod requester;
mod responder;
mod shard;
mod unreliable;

pub use datagrams::MOST_BYTES as MOST_DATAGRAM;
pub use header::{HEADER_LEN, Header, MessageKind};

use crate::placement::{Part, Registered, Target};
use crate::receive_queue::Receive;
use crate::refused::{ACCESS, Refused};
use engine::Nanos;
use memory::{Access, Domain, Fault, Key};
use std::collections::VecDeque;
use verbs::Piece;
use wire::roce::NakCode;

/// Bytes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRange {
    /// The region's key.
    pub key: Key,
    /// The first byte's offset in the region.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Where the payload of an outgoing message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Here.
    Bytes(Vec<u8>),
    /// In these places of registered memory, in their order.
    Places(Domain, Vec<RegionRange>),
    /// So many bytes that the receiver has already: what they were does not matter any more.
    Had(u64),
}

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// Its payload.
    pub content: Content,
}

/// What is left to send of a queue pair that is about to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalMessage {
    /// A message without payload that is still to be sent to the peer: its requests that were carried out. With
    /// hardware, their acknowledgement is on its way before the program sees the completion.
    pub message: Option<Header>,
    /// Requests that the peer has carried out, modulo 2^32: it has their payload.
    pub acknowledged: u32,
}

/// Where the payload of a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Steer {
    /// To these places, in their order.
    Places(Domain, Vec<RegionRange>),
    /// Nowhere yet, and it must not hold others up: whoever carries the stream keeps it until
    /// [`crate::Shard::arrived`].
    Keep,
    /// Nowhere: it is refused once it is in order.
    Nowhere(Denied),
    /// The queue pair does not receive yet: to be asked again.
    Later,
}

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied(pub(crate) Refused);

impl Denied {
    /// The memory may not be accessed so.
    pub const ACCESS: Denied = Denied(ACCESS);
}

/// A message that came, and is in order.
#[derive(Debug)]
pub struct Arrived {
    /// Its header.
    pub header: Header,
    /// Bytes of its payload.
    pub len: u32,
    /// The payload, where it was buffered.
    pub kept: Option<Vec<u8>>,
    /// It was steered nowhere.
    pub denied: Option<Denied>,
}

impl Arrived {
    fn kept_len(&self) -> usize {
        self.kept.as_ref().map_or(0, Vec::len)
    }
}

/// A work request whose message was handed out, or which was carried out here.
#[derive(Debug, Clone, Copy)]
struct Begun {
    number: u32,
    /// Bytes of a response that are in order.
    answered: u32,
    /// Nothing is waited for.
    ended: bool,
}

/// An answer to a READ.
#[derive(Debug, Clone, Copy)]
struct Reply {
    number: u32,
    target: Target,
    len: u32,
    sent: u32,
}

/// A queue pair's two halves over a stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// There is a connection.
    linked: bool,
    /// There was one, and nothing comes any more: what was asked for ends then.
    lost: Option<Nanos>,
    /// Number of the next request, and messages so far that take a receive.
    next: u32,
    asked: u32,
    /// The first work requests of the queue.
    begun: VecDeque<Begun>,
    fetches: u8,
    /// Requests that the peer has carried out.
    acknowledged: u32,
    /// Requests of the peer that were carried out; how many the peer was notified of.
    carried_out: u32,
    reported: u32,
    /// Receive work requests that messages have taken which are not in order yet, from this one on.
    taken: VecDeque<Receive>,
    first_taken: u32,
    /// Requests in order that are not carried out yet: the first one has no receive work request.
    waiting: VecDeque<Arrived>,
    /// Bytes of payload that they keep.
    kept: usize,
    replies: VecDeque<Reply>,
    /// A reply was the last message: a request is next, where there is one.
    replied: bool,
    refusal: Option<(u32, NakCode)>,
    /// The first request that will be refused: those behind it have no effect.
    refuses: Option<u32>,
    /// The peer is to be notified that the queue pair has failed.
    reports_gone: bool,
}

impl Stream {
    /// A message waits for a receive work request.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When work requests end as not answered, of a queue pair that has some.
    pub(crate) fn gives_up(&self) -> Option<Nanos> {
        self.lost
    }

    /// The queue pair has failed: what it held is let go.
    pub(crate) fn fail(&mut self) {
        self.reports_gone = self.linked && self.lost.is_none();
        self.begun.clear();
        self.waiting.clear();
        self.kept = 0;
        self.replies.clear();
        (self.fetches, self.refusal) = (0, None);
    }

    fn last_words(&self) -> Option<FinalMessage> {
        let owes = self.reported != self.carried_out;
        let message = Header { carried_out: self.carried_out, ..Header::new(MessageKind::Acknowledge) };
        let last = FinalMessage { message: owes.then_some(message), acknowledged: self.acknowledged };
        (self.linked && self.lost.is_none()).then_some(last)
    }

    /// The oldest receive work request that a message has taken.
    pub(crate) fn give_back(&mut self) -> Option<Receive> {
        self.taken.pop_front()
    }
}

impl Registered {
    /// Where a range of memory is, which the access is permitted to.
    fn locate(&self, target: Target, len: u32, access: Access) -> Result<RegionRange, Fault> {
        let (lease, offset) = self.open(target, access)?;
        let end = offset.checked_add(len.into()).ok_or(Fault::Bounds)?;
        if end > lease.len() {
            return Err(Fault::Bounds);
        }
        Ok(RegionRange { key: Key(target.key), offset, len: len.into() })
    }

    /// Where a part is of what the entries name.
    fn locate_all(
        &self,
        domain: Domain,
        pieces: impl Iterator<Item = Piece>,
        part: Part,
        access: Access,
    ) -> Result<Vec<RegionRange>, Fault> {
        let (mut skip, mut len) = (part.skip, part.len as u32);
        let mut places = Vec::new();
        for piece in pieces {
            let here = skip.min(piece.len);
            let count = (piece.len - here).min(len);
            if count > 0 {
                let target = Target { domain, key: piece.key, address: piece.address }.plus(here.into());
                places.push(self.locate(target, count, access)?);
            }
            (skip, len) = (skip - here, len - count);
        }
        if len == 0 { Ok(places) } else { Err(Fault::Bounds) }
    }
}
