//! Hash functions, bit by bit.
use crate::ir::{HashKind, mask};

/// Of the bytes, cut to `width` bits.
pub(crate) fn hash(kind: HashKind, bytes: &[u8], width: u32) -> u128 {
    let value = match kind {
        HashKind::Identity => bytes.iter().rev().take(16).rev().fold(0, |v: u128, b| v << 8 | *b as u128),
        HashKind::Crc16 => crc(bytes, 0, 0xa001, 0) as u128,
        HashKind::Crc32 => crc(bytes, 0xffff_ffff, 0xedb8_8320, 0xffff_ffff) as u128,
        HashKind::Random => crc(bytes, 0x1234_5678, 0xedb8_8320, 0xffff_ffff) as u128,
    };
    value & mask(width)
}

/// Reflected CRC.
fn crc(bytes: &[u8], init: u32, polynomial: u32, xor: u32) -> u32 {
    let step = |value: u32| if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
    let byte = |value: u32, b: &u8| (0..8).fold(value ^ *b as u32, |v, _| step(v));
    bytes.iter().fold(init, byte) ^ xor
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the catalogue of CRC algorithms.
    #[test]
    fn check_values() {
        assert_eq!(hash(HashKind::Crc16, b"123456789", 16), 0xbb3d);
        assert_eq!(hash(HashKind::Crc32, b"123456789", 32), 0xcbf4_3926);
        assert_eq!(hash(HashKind::Identity, &[1, 2, 3], 16), 0x0203);
    }
}
