//! A received segment, as the rules use it.
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
