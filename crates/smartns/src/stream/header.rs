//! The header of a message (docs/ZERONIC.md, "Verbs"): the first 32 bytes of each, in network byte order.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | what it is ([`MessageKind`]) |
//! | 1 | bit 0: the receiver's completion is solicited |
//! | 2 | why a request is refused: 1 invalid request, 2 remote access, 3 remote operation |
//! | 3 | 0 |
//! | 4 to 7 | requests of the receiver that the sender has carried out, modulo 2^32 |
//! | 8 to 11 | number of the request, or of the request that is answered; the sender's queue pair of a datagram |
//! | 12 to 15 | messages before it that take a receive work request; the receiver's queue pair of a datagram |
//! | 16 to 19 | key of the peer's region; queue key of a datagram |
//! | 20 to 23 | immediate data, the key that is invalidated, or the bytes that are read |
//! | 24 to 31 | the peer's address; of a response, how many bytes come before these |

/// Bytes of a header.
pub const HEADER_LEN: usize = 32;
const SOLICITED: u8 = 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// The first one of a connection: which queue pairs it is between.
    Hello = 1,
    /// A message of connection management.
    Management = 2,
    /// A datagram.
    Datagram = 3,
    /// A datagram with immediate data.
    DatagramImmediate = 4,
    /// SEND.
    Send = 8,
    /// SEND with immediate data.
    SendImmediate = 9,
    /// SEND that invalidates a key.
    SendInvalidate = 10,
    /// RDMA WRITE.
    Write = 11,
    /// RDMA WRITE with immediate data.
    WriteImmediate = 12,
    /// RDMA READ.
    Read = 13,
    /// A part of what was read.
    Response = 16,
    /// It only has how many requests were carried out.
    Acknowledge = 17,
    /// A request is refused.
    Refusal = 18,
    /// The queue pair has failed, or is gone: nothing more is carried out.
    Gone = 19,
}

impl MessageKind {
    const ALL: [MessageKind; 14] = [
        MessageKind::Hello,
        MessageKind::Management,
        MessageKind::Datagram,
        MessageKind::DatagramImmediate,
        MessageKind::Send,
        MessageKind::SendImmediate,
        MessageKind::SendInvalidate,
        MessageKind::Write,
        MessageKind::WriteImmediate,
        MessageKind::Read,
        MessageKind::Response,
        MessageKind::Acknowledge,
        MessageKind::Refusal,
        MessageKind::Gone,
    ];

    /// It asks the receiver to do something, and takes a number.
    pub fn is_request(self) -> bool {
        (MessageKind::Send as u8..=MessageKind::Read as u8).contains(&(self as u8))
    }

    /// It is a datagram, with or without immediate data.
    pub fn is_datagram(self) -> bool {
        matches!(self, MessageKind::Datagram | MessageKind::DatagramImmediate)
    }

    /// It is a SEND, in any form.
    pub(crate) fn is_send(self) -> bool {
        matches!(self, MessageKind::Send | MessageKind::SendImmediate | MessageKind::SendInvalidate)
    }
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: MessageKind,
    /// The receiver's completion is solicited.
    pub solicited: bool,
    /// Why a request is refused.
    pub code: u8,
    /// Requests of the receiver that the sender has carried out.
    pub carried_out: u32,
    /// Number of the request; the sender's queue pair of a datagram.
    pub number: u32,
    /// Messages before it that take a receive work request; the receiver's queue pair of a datagram.
    pub receive: u32,
    /// Key of the peer's region; queue key of a datagram.
    pub key: u32,
    /// Immediate data, the key that is invalidated, or the bytes that are read.
    pub detail: u32,
    /// The peer's address; of a response, how many bytes come before these.
    pub address: u64,
}

impl Header {
    /// A header with zeros.
    pub const fn new(kind: MessageKind) -> Header {
        Header { kind, solicited: false, code: 0, carried_out: 0, number: 0, receive: 0, key: 0, detail: 0, address: 0 }
    }

    /// As it is on the wire.
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..3].copy_from_slice(&[self.kind as u8, if self.solicited { SOLICITED } else { 0 }, self.code]);
        let words = [self.carried_out, self.number, self.receive, self.key, self.detail];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[24..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// Reads a header; `None` where there is no such kind of message.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Header> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Header {
            kind: MessageKind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0])?,
            solicited: bytes[1] & SOLICITED != 0,
            code: bytes[2],
            carried_out: word(4),
            number: word(8),
            receive: word(12),
            key: word(16),
            detail: word(20),
            address: u64::from(word(24)) << 32 | u64::from(word(28)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        for kind in MessageKind::ALL {
            let sent = Header {
                kind,
                solicited: true,
                code: 3,
                carried_out: u32::MAX,
                number: 0x0102_0304,
                receive: 5,
                key: 6,
                detail: 7,
                address: 0x0102_0304_0506_0708,
            };
            assert_eq!(Header::parse(&sent.bytes()), Some(sent));
        }
        for unknown in [0, 5, 7, 14, 15, 20, 255] {
            let mut bytes = [0; HEADER_LEN];
            bytes[0] = unknown;
            assert_eq!(Header::parse(&bytes), None, "{unknown}");
        }
    }
}
