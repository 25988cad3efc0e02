//! Numbers in bytes.

/// The big-endian number at `at`; the caller has checked the length.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(super) fn put16(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

pub(super) fn put32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
}

pub(super) fn put64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
}

/// As many bytes as there is room for.
pub(super) fn copy(into: &mut [u8], from: &[u8]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into = *from);
}

/// The 16 bytes at `at`.
pub(super) fn gid(bytes: &[u8], at: usize) -> [u8; 16] {
    u128::to_be_bytes(u128::from(be64(bytes, at)) << 64 | u128::from(be64(bytes, at + 8)))
}
