//! UDP over IPv4 (RFC 768).
use crate::checksum::Sum;
use crate::ip::Ends;
use crate::{Malformed, be16, ipv4};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Where the header has its checksum.
pub const CHECKSUM_AT: usize = 6;

/// A UDP header, but for its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// Bytes of payload that follow the header.
    pub payload_len: u16,
}

impl Header {
    /// Reads the header at the beginning of an IP packet's payload: what follows the datagram is padding.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let len = be16(bytes, 4);
        let payload_len = len.checked_sub(HEADER_LEN as u16).ok_or(Malformed::Field)?;
        if usize::from(len) > bytes.len() {
            return Err(Malformed::Truncated);
        }
        Ok(Header { src_port: be16(bytes, 0), dst_port: be16(bytes, 2), payload_len })
    }

    /// Writes the header into the first [`HEADER_LEN`] bytes. The checksum is left partial: the field holds the folded
    /// sum of the pseudo-header, and [`complete`] makes it whole.
    pub fn emit(&self, ends: Ends, bytes: &mut [u8]) {
        let len = HEADER_LEN as u16 + self.payload_len;
        let sum = Sum::pseudo_header(ends.src, ends.dst, ipv4::UDP, len.into()).partial();
        for (at, half) in [(0, self.src_port), (2, self.dst_port), (4, len), (CHECKSUM_AT, sum)] {
            bytes[at..at + 2].copy_from_slice(&half.to_be_bytes());
        }
    }
}

/// Completes the checksum of a datagram with a partial one. A sum of zero is sent as all ones: zero is no checksum.
pub fn complete(datagram: &mut [u8]) {
    let mut sum = Sum::new();
    sum.add(datagram);
    let checksum = match sum.finish() {
        0 => u16::MAX,
        checksum => checksum,
    };
    datagram[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The checksum of a datagram, header included, is right, or it has none.
pub fn is_sound(datagram: &[u8], ends: Ends) -> bool {
    let mut sum = Sum::pseudo_header(ends.src, ends.dst, ipv4::UDP, datagram.len() as u32);
    sum.add(datagram);
    be16(datagram, CHECKSUM_AT) == 0 || sum.finish() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IpAddress, Ipv4Addr};

    const fn host(last: u8) -> IpAddress {
        IpAddress::v4(Ipv4Addr::new(10, 0, 0, last))
    }

    const ENDS: Ends = Ends { src: host(1), dst: host(2) };

    fn datagram(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend_from_slice(payload);
        Header { src_port: 7, dst_port: 65_535, payload_len: payload.len() as u16 }.emit(ENDS, &mut bytes);
        complete(&mut bytes);
        bytes
    }

    #[test]
    fn a_datagram_comes_back_and_each_changed_bit_shows() {
        for payload in [&b""[..], b"x", b"abcdefg"] {
            let mut bytes = datagram(payload);
            let expected = Header { src_port: 7, dst_port: 65_535, payload_len: payload.len() as u16 };
            assert_eq!(Header::parse(&bytes), Ok(expected));
            assert!(is_sound(&bytes, ENDS));
            assert!(!is_sound(&bytes, Ends { dst: host(3), ..ENDS }));
            for bit in 0..8 * bytes.len() {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_sound(&bytes, ENDS), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    /// RFC 768: "If the computed checksum is zero, it is transmitted as all ones".
    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones() {
        let mut found = false;
        for word in 0..=u16::MAX {
            let bytes = datagram(&word.to_be_bytes());
            assert_ne!(be16(&bytes, CHECKSUM_AT), 0);
            found |= be16(&bytes, CHECKSUM_AT) == u16::MAX;
        }
        assert!(found, "one of all words gives it");
        let mut none = datagram(b"ab");
        none[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        assert!(is_sound(&none, ENDS));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let whole = datagram(b"abc");
        (0..whole.len()).for_each(|len| assert_eq!(Header::parse(&whole[..len]), Err(Malformed::Truncated)));
        let mut short = whole.clone();
        short[4..6].copy_from_slice(&7u16.to_be_bytes());
        assert_eq!(Header::parse(&short), Err(Malformed::Field));
        let padded = [&whole[..], &[0; 9]].concat();
        assert_eq!(Header::parse(&padded).map(|header| header.payload_len), Ok(3));
    }
}
