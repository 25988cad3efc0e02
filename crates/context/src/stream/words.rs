//! Words of requests and replies: eight words, and how slots and addresses lie in them.
use crate::{Endpoint, IpAddress, Slot};

/// A descriptor of the control pair.
pub(crate) type Words = [u64; 8];

pub(crate) fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}
pub(crate) fn low(word: u64) -> u32 {
    word as u32
}
pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
pub(crate) fn put_slot(slot: Slot) -> u64 {
    pair(slot.index, slot.generation as u32)
}
pub(crate) fn get_slot(word: u64) -> Slot {
    Slot { index: low(word), generation: high(word) as u16 }
}
/// A slot with a number in the 16 bits that it leaves free.
pub(crate) fn put_slot_and(slot: Slot, number: u16) -> u64 {
    put_slot(slot) | u64::from(number) << 48
}
/// The number of [`put_slot_and`].
pub(crate) fn get_number(word: u64) -> u16 {
    (word >> 48) as u16
}

/// Words of an endpoint: the address in two, port and zone in one.
const ENDPOINT: usize = 3;

/// Writes an endpoint to the three words from `at` on.
pub(crate) fn put_endpoint(words: &mut Words, at: usize, endpoint: Endpoint) {
    let bits = endpoint.ip.to_bits();
    words[at..at + ENDPOINT].copy_from_slice(&[
        bits as u64,
        (bits >> 64) as u64,
        pair(endpoint.port.into(), endpoint.ip.zone()),
    ]);
}
/// Reads the endpoint in the three words from `at` on. Any words are an endpoint.
pub(crate) fn get_endpoint(words: &Words, at: usize) -> Endpoint {
    let bits = u128::from(words[at]) | u128::from(words[at + 1]) << 64;
    Endpoint { ip: IpAddress::from_bits(bits, high(words[at + 2])), port: low(words[at + 2]) as u16 }
}
