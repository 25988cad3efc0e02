//! ICMP for IPv4 (RFC 792): echo, destination unreachable, fragmentation needed (RFC 1191).
use crate::checksum::Sum;
use crate::{Malformed, be16};

/// Bytes of the ICMP header of the messages below.
pub const HEADER_LEN: usize = 8;

/// Code of "destination unreachable" for a port that nobody listens on.
pub const PORT_UNREACHABLE: u8 = 3;
/// Code of "destination unreachable" for a packet too large for the next hop (RFC 1191).
pub const FRAGMENTATION_NEEDED: u8 = 4;

/// An ICMP message, its data left in place after [`HEADER_LEN`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Echo request with identifier and sequence number.
    EchoRequest(u16, u16),
    /// Echo reply with identifier and sequence number.
    EchoReply(u16, u16),
    /// Destination unreachable: the data is the IP header and the first 8 bytes of the packet that caused it.
    Unreachable {
        /// Why: [`PORT_UNREACHABLE`], [`FRAGMENTATION_NEEDED`], ...
        code: u8,
        /// With [`FRAGMENTATION_NEEDED`]: the next hop's MTU in bytes, or 0 from an old router.
        mtu: u16,
    },
    /// A message of another type and code.
    Other(u8, u8),
}

impl Message {
    /// Reads a message and checks its checksum; its data follows [`HEADER_LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let mut sum = Sum::new();
        sum.add(bytes);
        if sum.finish() != 0 {
            return Err(Malformed::Checksum);
        }
        Ok(match (bytes[0], bytes[1]) {
            (8, 0) => Message::EchoRequest(be16(bytes, 4), be16(bytes, 6)),
            (0, 0) => Message::EchoReply(be16(bytes, 4), be16(bytes, 6)),
            (3, code) => Message::Unreachable { code, mtu: be16(bytes, 6) },
            (kind, code) => Message::Other(kind, code),
        })
    }

    /// Writes the header in front of the data already in `bytes[HEADER_LEN..]`, checksum included.
    pub fn emit(&self, bytes: &mut [u8]) {
        let (kind, code, high, low) = match *self {
            Message::EchoRequest(id, seq) => (8, 0, id, seq),
            Message::EchoReply(id, seq) => (0, 0, id, seq),
            Message::Unreachable { code, mtu } => (3, code, 0, mtu),
            Message::Other(kind, code) => (kind, code, 0, 0),
        };
        bytes[0..4].copy_from_slice(&[kind, code, 0, 0]);
        bytes[4..6].copy_from_slice(&high.to_be_bytes());
        bytes[6..8].copy_from_slice(&low.to_be_bytes());
        let mut sum = Sum::new();
        sum.add(bytes);
        bytes[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
}
