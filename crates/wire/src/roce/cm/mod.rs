//! Connection management: datagrams of 256 bytes from one general services interface to the other ([`super::GSI_QP`]).
//! IBTA 1.3 has the messages in chapter 12, their common header in 13.4, and the names of IP ports in annex A11.
//!
//! A message never has a length: all have 232 bytes after the header, and what is not used is zero.
mod attribute;
mod bits;
mod connect;
mod end;
mod lookup;
mod named;
mod parts;

pub use connect::{ConnectionPath, QueuePair, Reply, Request};
pub use end::{About, Reason, Reject, Wait};
pub use lookup::{Lookup, LookupReply, LookupStatus};
pub use named::{Named, PortSpace, Service};
pub use parts::{CommId, MAD_LEN, Pair, PrivateData};

use crate::{Malformed, be16, be32};
use bits::{be64, put32};
use parts::{Body, HEADER_LEN, emit_pair, pair, rest};

/// The queue key of all general services interfaces (IBTA 1.3, 3.5.3).
// Meets IBTA: 12.6-a.
pub const GSI_KEY: u32 = 0x8001_0000;

const BASE_VERSION: u8 = 1;
/// The class of communication management (IBTA 1.3, table 111), and its version.
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
/// The method of all its messages (IBTA 1.3, 16.7.2).
const SEND: u8 = 3;

/// A message of connection management.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mad {
    /// Number of the conversation: an answer has that of what it answers.
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

/// Content of a message (IBTA 1.3, 12.6). Alternate paths (LAP, APR) are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// REQ: asks for a connection.
    Request(Box<Request>),
    /// MRA: the answer takes longer.
    Wait(Wait),
    /// REJ: there will be no connection.
    Reject(Box<Reject>),
    /// REP: accepts a connection.
    Reply(Box<Reply>),
    /// RTU: the reply came, and the connection is there.
    Ready(Pair, PrivateData),
    /// DREQ: ends a connection; with the receiver's queue pair.
    Disconnect(Pair, u32, PrivateData),
    /// DREP: it has ended.
    Disconnected(Pair, PrivateData),
    /// SIDR_REQ: asks for the queue pair of a service of datagrams.
    Lookup(Lookup),
    /// SIDR_REP: the answer.
    LookupReply(Box<LookupReply>),
}

impl Mad {
    /// Reads a datagram's payload. Other classes and methods are refused, and fields whose value means nothing.
    pub fn parse(bytes: &[u8]) -> Result<Mad, Malformed> {
        let Some(bytes) = bytes.first_chunk::<MAD_LEN>() else { return Err(Malformed::Truncated) };
        if bytes[..4] != [BASE_VERSION, CLASS, CLASS_VERSION, SEND] {
            return Err(Malformed::Field);
        }
        let body: &Body = bytes.last_chunk().ok_or(Malformed::Truncated)?;
        let message = match be16(bytes, 16) {
            attribute::REQ => Message::Request(Box::new(Request::parse(body)?)),
            attribute::MRA => Message::Wait(Wait::parse(body)?),
            attribute::REJ => Message::Reject(Box::new(Reject::parse(body)?)),
            attribute::REP => Message::Reply(Box::new(Reply::parse(body)?)),
            attribute::RTU => Message::Ready(pair(body), rest(body, 8)),
            attribute::DREQ => Message::Disconnect(pair(body), be32(body, 8) >> 8, rest(body, 12)),
            attribute::DREP => Message::Disconnected(pair(body), rest(body, 8)),
            attribute::SIDR_REQ => Message::Lookup(Lookup::parse(body)?),
            attribute::SIDR_REP => Message::LookupReply(Box::new(LookupReply::parse(body)?)),
            _ => return Err(Malformed::Field),
        };
        Ok(Mad { transaction: be64(bytes, 8), message })
    }

    /// Its bytes. Private data beyond the room of the message are cut off.
    pub fn bytes(&self) -> [u8; MAD_LEN] {
        let mut body: Body = [0; MAD_LEN - HEADER_LEN];
        let number = match &self.message {
            Message::Request(request) => request.emit(&mut body),
            Message::Wait(wait) => wait.emit(&mut body),
            Message::Reject(reject) => reject.emit(&mut body),
            Message::Reply(reply) => reply.emit(&mut body),
            Message::Ready(pair, data) => emit_pair(&mut body, *pair, data, attribute::RTU),
            Message::Disconnect(pair, qp, data) => {
                put32(&mut body, 8, qp << 8);
                emit_pair(&mut body, *pair, data, attribute::DREQ)
            }
            Message::Disconnected(pair, data) => emit_pair(&mut body, *pair, data, attribute::DREP),
            Message::Lookup(lookup) => lookup.emit(&mut body),
            Message::LookupReply(reply) => reply.emit(&mut body),
        };
        let mut bytes = [0; MAD_LEN];
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, SEND]);
        bytes[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        bytes[16..18].copy_from_slice(&number.to_be_bytes());
        bytes[HEADER_LEN..].copy_from_slice(&body);
        bytes
    }
}

#[cfg(test)]
mod tests;
