//! The Internet checksum (RFC 1071), computed over pieces and finished once.
use crate::IpAddress;

/// A running one's-complement sum. Pieces of odd length are allowed; a piece that follows an odd number of
/// bytes is swapped, as RFC 1071 section 2 (B) permits.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sum {
    acc: u64,
    odd: bool,
}

impl Sum {
    /// Starts at zero.
    pub fn new() -> Sum {
        Sum::default()
    }

    /// Starts with the pseudo-header of TCP, UDP or ICMPv6 between two addresses of one family (RFC 9293 section
    /// 3.1, RFC 8200 section 8.1): `len` counts header and payload, in bytes.
    // Meets RFC 8200: 8.1-a.
    // Meets RFC 9293: MUST-2.
    #[inline]
    pub fn pseudo_header(src: impl Into<IpAddress>, dst: impl Into<IpAddress>, protocol: u8, len: u32) -> Sum {
        let (src, dst): (IpAddress, IpAddress) = (src.into(), dst.into());
        let mut sum = Sum::new();
        match (src.as_v4(), dst.as_v4()) {
            (Some(src), Some(dst)) => {
                sum.add(&src.octets());
                sum.add(&dst.octets());
            }
            _ => {
                sum.add(&src.to_bits().to_be_bytes());
                sum.add(&dst.to_bits().to_be_bytes());
            }
        }
        // Whether they have 16 bits or 32, with zeros before: the sum is the same.
        sum.add(&len.to_be_bytes());
        sum.add(&[0, protocol]);
        sum
    }

    /// Starts with a sum of 16-bit words.
    #[inline]
    pub(crate) fn of_words(sum: u64) -> Sum {
        Sum { acc: sum, odd: false }
    }

    /// Adds `bytes`, which follow all that was added before.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let part = sum_be(bytes);
        self.acc += if self.odd { part.swap_bytes() } else { part } as u64;
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// The sum folded to 16 bits, not inverted: what a NIC expects in the field for checksum offload.
    #[inline]
    pub fn partial(self) -> u16 {
        fold(self.acc)
    }

    /// The checksum to put into the header: the folded sum inverted. Over data that holds its own correct
    /// checksum, this is zero.
    #[inline]
    pub fn finish(self) -> u16 {
        !fold(self.acc)
    }
}

/// The checksum `field` after what it covers changed, given the folded sums of the changed part before and after (RFC
/// 1624 equation 3). Nothing else has to be read, and what was wrong stays wrong.
#[inline]
pub(crate) fn update(field: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!field) + u64::from(!old) + u64::from(new))
}

/// Sums big-endian 16-bit words; a last odd byte is padded with zero.
#[inline]
fn sum_be(bytes: &[u8]) -> u16 {
    // One's-complement addition is the same in either byte order and in words of any even size (RFC 1071 section 2 (B)
    // and (C)). So whole native words are added with end-around carry, and only the result is swapped.
    let (mut acc, mut carries) = (0u64, 0u64);
    let mut add = |word: u64| {
        let (sum, carry) = acc.overflowing_add(word);
        acc = sum;
        carries += carry as u64;
    };
    let mut words = bytes.chunks_exact(8);
    for word in words.by_ref() {
        add(u64::from_ne_bytes(word.try_into().expect("chunk of eight")));
    }
    let mut tail = words.remainder();
    if let Some((word, remaining)) = tail.split_first_chunk::<4>() {
        add(u32::from_ne_bytes(*word) as u64);
        tail = remaining;
    }
    if let Some((word, remaining)) = tail.split_first_chunk::<2>() {
        add(u16::from_ne_bytes(*word) as u64);
        tail = remaining;
    }
    if let [last] = tail {
        add(u16::from_ne_bytes([*last, 0]) as u64);
    }
    let native = fold(fold(acc) as u64 + carries);
    u16::from_be(native)
}

/// Folds to 16 bits: adding a word to its halves exchanged leaves the end-around sum of both in the upper half.
#[inline]
fn fold(acc: u64) -> u16 {
    let acc = (acc.wrapping_add(acc.rotate_left(32)) >> 32) as u32;
    (acc.wrapping_add(acc.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(bytes: &[u8]) -> u16 {
        let mut acc = 0u32;
        for pair in bytes.chunks(2) {
            acc += u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]) as u32;
            acc = (acc & 0xffff) + (acc >> 16);
        }
        !(acc as u16)
    }

    #[test]
    fn matches_the_plain_definition_in_any_split() {
        let bytes: Vec<u8> = (0..999u32).map(|i| (i * 7 + i / 5) as u8).collect();
        for split in [0, 1, 2, 3, 7, 8, 64, 500, 998, 999] {
            let mut sum = Sum::new();
            sum.add(&bytes[..split]);
            sum.add(&bytes[split..]);
            assert_eq!(sum.finish(), plain(&bytes), "split at {split}");
        }
    }

    #[test]
    fn rfc_1071_example() {
        let mut sum = Sum::new();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.partial(), 0xddf2);
    }
}
