//! A received segment as TCP's rules see it, and why they drop one.
use crate::FourTuple;
use wire::tcp::{Flags, Header};

/// A received segment: its header, and how much payload follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The connection, seen from this host.
    pub tuple: FourTuple,
    /// Its TCP header.
    pub header: Header,
    /// Payload bytes.
    pub payload: u32,
}

impl Segment {
    /// SEG.LEN: payload, and one each for SYN and FIN (RFC 9293 section 3.3.1).
    #[expect(clippy::len_without_is_empty, reason = "the RFC's name; an empty segment is one of length 0")]
    pub fn len(&self) -> u32 {
        self.payload + self.syn() as u32 + self.fin() as u32
    }

    /// SYN is set.
    pub fn syn(&self) -> bool {
        self.header.flags.has(Flags::SYN)
    }

    /// ACK is set.
    pub fn ack(&self) -> bool {
        self.header.flags.has(Flags::ACK)
    }

    /// RST is set.
    pub fn rst(&self) -> bool {
        self.header.flags.has(Flags::RST)
    }

    /// FIN is set.
    pub fn fin(&self) -> bool {
        self.header.flags.has(Flags::FIN)
    }
}

/// Why TCP's rules do not process a segment. The registry of drop reasons has an entry for each, under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unacceptable {
    /// The timestamp is older than the last one (PAWS, RFC 7323 section 5).
    Paws,
    /// The sequence number is outside the receive window (RFC 9293 section 3.4), or the acknowledgement outside what
    /// was sent.
    OutsideWindow,
    /// All of its payload was received before.
    Duplicate,
    /// It acknowledges what was never sent (RFC 5961 section 5).
    AckBeyondSent,
    /// Its acknowledgement is older than any window (RFC 5961 section 5).
    AckTooOld,
    /// It has no ACK where every valid segment has one.
    NoAck,
    /// RST inside the window, but not exact (RFC 5961 section 3).
    RstChallenged,
    /// SYN in a synchronised state (RFC 5961 section 4).
    SynChallenged,
}
