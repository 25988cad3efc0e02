//! Parts that several messages have.
use super::attribute;
use super::bits::{copy, put32};
use crate::be32;

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;
/// Bytes of the common header (IBTA 1.3, 13.4.3).
pub(super) const HEADER_LEN: usize = 24;
/// Bytes of a message.
pub(super) const BODY_LEN: usize = MAD_LEN - HEADER_LEN;

/// Number of one side of a connection: each message names the receiver's, where it is known.
pub type CommId = u32;

/// The two numbers that a message between two sides has: first the sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    /// The sender's.
    pub local: CommId,
    /// The receiver's; 0 where the sender does not have it.
    pub remote: CommId,
}

/// Data that a program gives to its peer: as many bytes as the message has room for, zeros behind them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PrivateData(pub Vec<u8>);

impl std::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The bytes of a message.
pub(super) type Body = [u8; BODY_LEN];

/// The two numbers in front of most messages.
pub(super) fn pair(body: &Body) -> Pair {
    Pair { local: be32(body, 0), remote: be32(body, 4) }
}

pub(super) fn put_pair(body: &mut Body, pair: Pair) {
    put32(body, 0, pair.local);
    put32(body, 4, pair.remote);
}

/// The private data from `at` to the end.
pub(super) fn rest(body: &Body, at: usize) -> PrivateData {
    PrivateData(body[at..].to_vec())
}

/// A message of two numbers and private data, which begin after the queue pair in a DREQ; returns the message's number.
pub(super) fn emit_pair(body: &mut Body, pair: Pair, data: &PrivateData, number: u16) -> u16 {
    let at = if number == attribute::DREQ { 12 } else { 8 };
    put_pair(body, pair);
    copy(&mut body[at..], &data.0);
    number
}
