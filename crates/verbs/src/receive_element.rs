//! Elements of a receive pipe: 16 bytes each, one scatter-gather entry.
//!
//! Word 0 is the address. Word 1 has the key (32 bits), the length (30 bits), a bit that states that the next element
//! belongs to the same work request, and the valid bit. A work request without entries is one element of length 0 and
//! key 0. Work requests of a queue are numbered from 0, modulo 2^32, in the order of the pipe.
use crate::Piece;

/// Bytes of an entry at most: more than the longest message.
const MOST_BYTES: u32 = (1 << 30) - 1;
const MORE: u64 = 1 << 62;

/// An entry of a receive work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceivePiece {
    /// Where payload goes. What an element cannot express of its length, a message cannot use.
    pub piece: Piece,
    /// The next element belongs to the same work request.
    pub more: bool,
}

impl ReceivePiece {
    /// As words of the pipe.
    #[inline]
    pub fn encode(&self) -> [u64; 2] {
        let len = u64::from(self.piece.len.min(MOST_BYTES));
        [self.piece.address, u64::from(self.piece.key) | len << 32 | if self.more { MORE } else { 0 }]
    }

    /// Any words are an entry.
    #[inline]
    pub fn decode(words: &[u64; 2]) -> ReceivePiece {
        let [address, word] = *words;
        let len = (word >> 32) as u32 & MOST_BYTES;
        ReceivePiece { piece: Piece { address, len, key: word as u32 }, more: word & MORE != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back() {
        for more in [false, true] {
            let piece = Piece { address: u64::MAX, len: MOST_BYTES, key: u32::MAX };
            let sent = ReceivePiece { piece, more };
            assert_eq!(ReceivePiece::decode(&sent.encode()), sent);
            assert_eq!(sent.encode()[1] >> 63, 0, "the valid bit is the pipe's");
        }
        let long = Piece { address: 1, len: u32::MAX, key: 2 };
        let read = ReceivePiece::decode(&ReceivePiece { piece: long, more: false }.encode());
        assert_eq!(read.piece.len, MOST_BYTES);
    }
}
