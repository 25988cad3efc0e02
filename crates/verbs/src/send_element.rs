//! Elements of the send pipe: 64 bytes each.
//!
//! A work request is one element, and as many further ones as the first states. Words of the first element:
//!
//! | word | content |
//! |---|---|
//! | 0 | number of the work request in its queue pair (low half); immediate data or a key (high half) |
//! | 1 | remote address; for datagrams the address handle (low half) and the remote queue pair (high half) |
//! | 2 | remote key, or a datagram's queue key (low half); bytes of inline data (15 bits); low 17 bits of the SRQ |
//! | 3, 4 | first scatter-gather entry, or inline data |
//! | 5, 6 | second one, or inline data, or an atomic's operands: compare or add, swap |
//! | 7 | queue pair (24 bits), opcode, flags, further elements, entries (8 bits each), 7 bits of the SRQ, valid bit |
//!
//! A further element has three scatter-gather entries in words 0 to 5, or 56 bytes of inline data in words 0 to 6; its
//! word 7 is the valid bit alone. Immediate data are as they are on the wire, read as big endian.
use crate::{Number, QP_MASK, QpNumber, SendOpcode};
use std::ops::BitOr;

/// Bytes of inline data in a first element.
pub const INLINE_FIRST: usize = 32;
/// Bytes of inline data in a further element.
pub const INLINE_NEXT: usize = 56;
/// Scatter-gather entries in a first element.
pub const PIECES_FIRST: usize = 2;
/// Scatter-gather entries in a further element.
pub const PIECES_NEXT: usize = 3;
/// Most elements of a work request.
pub const MOST_ELEMENTS: usize = 19;
/// Most bytes of inline data of a work request.
pub const MOST_INLINE: usize = INLINE_FIRST + (MOST_ELEMENTS - 1) * INLINE_NEXT;
/// Most scatter-gather entries of a work request.
pub const MOST_PIECES: usize = 32;

/// Bits of the count of inline bytes; beside them stand the low bits of the SRQ's number, and the others in word 7.
const INLINE_BITS: u32 = 15;
const INLINE_MASK: u32 = (1 << INLINE_BITS) - 1;
const SRQ_LOW: u32 = 32 - INLINE_BITS;
const SRQ_HIGH_MASK: u32 = 0x7f;

/// Flags of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendFlags(pub u8);

impl SendFlags {
    /// Waits for the reads and atomics before it (`IBV_SEND_FENCE`).
    pub const FENCE: SendFlags = SendFlags(1);
    /// It gets a completion also where it succeeds (`IBV_SEND_SIGNALED`).
    pub const SIGNALED: SendFlags = SendFlags(1 << 1);
    /// The receiver's completion is solicited (`IBV_SEND_SOLICITED`).
    pub const SOLICITED: SendFlags = SendFlags(1 << 2);
    /// The elements have the payload itself (`IBV_SEND_INLINE`).
    pub const INLINE: SendFlags = SendFlags(1 << 3);

    /// All of `other` are among them.
    #[inline]
    pub const fn has(self, other: SendFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for SendFlags {
    type Output = SendFlags;
    fn bitor(self, other: SendFlags) -> SendFlags {
        SendFlags(self.0 | other.0)
    }
}

/// A scatter-gather entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// First byte, as an address of the program (or of the region's own numbering).
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Key of its region.
    pub key: u32,
}

/// What an operation on the peer's memory names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operand {
    /// First byte, as an address of the peer.
    pub address: u64,
    /// Key of the peer's region.
    pub key: u32,
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Datagram {
    /// The program's address handle.
    pub handle: Number,
    /// The remote queue pair.
    pub qp: QpNumber,
    /// The queue key that the receiver checks.
    pub key: u32,
}

/// What a memory window is bound to. Words of its element: 0 the window in the high half, 1 the address, 2 the key in
/// the low half, 3 the length. Word 4 has the region's key (low half) and the granted access (high half).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Binding {
    /// Number of the window.
    pub window: u32,
    /// The key that the peer uses from then on; its upper 24 bits are the window's number.
    pub key: u32,
    /// Key of the region.
    pub region: u32,
    /// First byte, as an address of the region.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// What the peer may do: bits of `enum ibv_access_flags`.
    pub rights: u8,
    /// The peer names the first byte by address 0.
    pub zero_based: bool,
}

/// Where [`Binding::rights`] ends, and [`Binding::zero_based`] stands.
const ZERO_BASED: u32 = 1 << 8;

/// The first element of a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendElement {
    /// Whose it is.
    pub qp: QpNumber,
    /// What it asks for.
    pub opcode: SendOpcode,
    /// How.
    pub flags: SendFlags,
    /// Elements that follow it.
    pub more: u8,
    /// Scatter-gather entries, here and in the elements that follow.
    pub pieces: u8,
    /// Its number in its queue pair, modulo 2^32.
    pub number: u32,
    /// Immediate data, or the key that a SEND invalidates.
    pub immediate: u32,
    /// Word 1: [`SendElement::operand`] or [`SendElement::datagram`].
    pub target: u64,
    /// The low half of word 2.
    pub key: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// The peer's shared receive queue, where the queue pair is the sending half of an extended reliable connection.
    pub srq: Number,
    /// Words 3 to 6: entries, inline data, or operands of an atomic.
    pub words: [u64; 4],
}

impl SendElement {
    /// A work request without payload that names nothing yet: number 0, no flags.
    pub const fn new(qp: QpNumber, opcode: SendOpcode) -> SendElement {
        SendElement {
            qp,
            opcode,
            flags: SendFlags(0),
            more: 0,
            pieces: 0,
            number: 0,
            immediate: 0,
            target: 0,
            key: 0,
            inline: 0,
            srq: 0,
            words: [0; 4],
        }
    }

    /// As words of the pipe.
    #[inline]
    pub fn encode(&self) -> [u64; 8] {
        let control = u64::from(self.qp & QP_MASK)
            | u64::from(self.opcode.code()) << 24
            | u64::from(self.flags.0) << 32
            | u64::from(self.more) << 40
            | u64::from(self.pieces) << 48
            | u64::from(self.srq >> SRQ_LOW & SRQ_HIGH_MASK) << 56;
        let [a, b, c, d] = self.words;
        let second = halves(self.key, self.inline & INLINE_MASK | self.srq << INLINE_BITS);
        [halves(self.number, self.immediate), self.target, second, a, b, c, d, control]
    }

    /// Reads and checks an element; whether its queue pair exists is for the caller. `None` where it is none: what
    /// follows in the pipe then means nothing either.
    #[inline]
    pub fn decode(words: &[u64; 8]) -> Option<SendElement> {
        let [first, target, second, a, b, c, d, control] = *words;
        let element = SendElement {
            qp: control as u32 & QP_MASK,
            opcode: SendOpcode::from_code((control >> 24) as u8)?,
            flags: SendFlags((control >> 32) as u8),
            more: (control >> 40) as u8,
            pieces: (control >> 48) as u8,
            number: first as u32,
            immediate: (first >> 32) as u32,
            target,
            key: second as u32,
            inline: (second >> 32) as u32 & INLINE_MASK,
            srq: (second >> (32 + INLINE_BITS)) as u32 | ((control >> 56) as u32 & SRQ_HIGH_MASK) << SRQ_LOW,
            words: [a, b, c, d],
        };
        (element.more == element.further()?).then_some(element)
    }

    /// How many elements must follow it; `None` where it asks for more than an element can.
    #[inline]
    pub fn further(&self) -> Option<u8> {
        let (pieces, inline) = (usize::from(self.pieces), self.inline as usize);
        let further = if self.flags.has(SendFlags::INLINE) {
            (pieces == 0 && inline <= MOST_INLINE).then_some(())?;
            inline.saturating_sub(INLINE_FIRST).div_ceil(INLINE_NEXT)
        } else if self.opcode.is_atomic() {
            // The second place holds the operands.
            (pieces == 1 && inline == 0).then_some(0)?
        } else {
            (pieces <= MOST_PIECES && inline == 0).then_some(())?;
            pieces.saturating_sub(PIECES_FIRST).div_ceil(PIECES_NEXT)
        };
        u8::try_from(further).ok()
    }

    /// What it does to the peer's memory.
    #[inline]
    pub fn operand(&self) -> Operand {
        Operand { address: self.target, key: self.key }
    }

    /// Where it goes as a datagram.
    pub fn datagram(&self) -> Datagram {
        Datagram { handle: self.target as u32, qp: (self.target >> 32) as u32 & QP_MASK, key: self.key }
    }

    /// Sets where it goes as a datagram.
    pub fn set_datagram(&mut self, datagram: Datagram) {
        self.target = halves(datagram.handle, datagram.qp);
        self.key = datagram.key;
    }

    /// What it binds.
    pub fn binding(&self) -> Binding {
        let [len, word, ..] = self.words;
        let (region, flags) = (word as u32, (word >> 32) as u32);
        let (rights, zero_based) = (flags as u8, flags & ZERO_BASED != 0);
        Binding { window: self.immediate, key: self.key, region, address: self.target, len, rights, zero_based }
    }

    /// Sets what it binds.
    pub fn set_binding(&mut self, binding: &Binding) {
        (self.immediate, self.key, self.target) = (binding.window, binding.key, binding.address);
        let flags = u32::from(binding.rights) | if binding.zero_based { ZERO_BASED } else { 0 };
        self.words = [binding.len, halves(binding.region, flags), 0, 0];
    }

    /// The entry at place `index` of the first element.
    #[inline]
    pub fn piece(&self, index: usize) -> Piece {
        piece_of([self.words[2 * index], self.words[2 * index + 1]])
    }

    /// Sets the entry at place `index` of the first element.
    pub fn set_piece(&mut self, index: usize, piece: Piece) {
        [self.words[2 * index], self.words[2 * index + 1]] = piece.words();
    }
}

impl Piece {
    /// As two words of an element.
    pub fn words(&self) -> [u64; 2] {
        [self.address, halves(self.key, self.len)]
    }

    /// The entry at place `index` of a further element.
    pub fn of_further(words: &[u64; 8], index: usize) -> Piece {
        piece_of([words[2 * index], words[2 * index + 1]])
    }
}

#[inline]
fn piece_of([address, word]: [u64; 2]) -> Piece {
    Piece { address, len: (word >> 32) as u32, key: word as u32 }
}

/// A word of two halves.
#[inline]
pub(crate) fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element() -> SendElement {
        SendElement {
            flags: SendFlags::SIGNALED | SendFlags::FENCE,
            pieces: 2,
            number: u32::MAX,
            immediate: 0x0102_0304,
            ..SendElement::new(0x12_3456, SendOpcode::Send)
        }
    }

    #[test]
    fn an_element_comes_back() {
        let mut sent = element();
        sent.set_datagram(Datagram { handle: 7, qp: 0xff_ffff, key: 0x8001_0000 });
        sent.set_piece(1, Piece { address: u64::MAX, len: u32::MAX, key: 9 });
        (sent.inline, sent.srq, sent.pieces) = (0, 0xab_cdef, 2);
        let read = SendElement::decode(&sent.encode()).unwrap();
        assert_eq!(read, sent);
        assert_eq!(read.datagram(), Datagram { handle: 7, qp: 0xff_ffff, key: 0x8001_0000 });
        assert_eq!(read.piece(1), Piece { address: u64::MAX, len: u32::MAX, key: 9 });
        assert_eq!(sent.encode()[7] >> 63, 0, "the valid bit is the pipe's");
        let binding = Binding {
            window: 0xab_cdef,
            key: 0xabcd_ef01,
            region: u32::MAX,
            address: 7,
            len: u64::MAX,
            rights: 0xff,
            zero_based: true,
        };
        let mut binds = SendElement::new(3, SendOpcode::BindWindow);
        binds.set_binding(&binding);
        assert_eq!(SendElement::decode(&binds.encode()).unwrap().binding(), binding);
    }

    #[test]
    fn further_elements_are_counted() {
        let more = |pieces| SendElement { pieces, ..element() }.further();
        assert_eq!([more(0), more(2), more(3), more(5), more(6)], [Some(0), Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(more(33), None);
        let inline = |inline| SendElement { inline, pieces: 0, flags: SendFlags::INLINE, ..element() }.further();
        assert_eq!([inline(32), inline(33), inline(88), inline(89)], [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(inline(MOST_INLINE as u32), Some(MOST_ELEMENTS as u8 - 1));
        assert_eq!(inline(MOST_INLINE as u32 + 1), None);
        let lying = SendElement { more: 3, ..element() };
        assert_eq!(SendElement::decode(&lying.encode()), None);
    }

    proptest! {
        #[test]
        fn any_words_are_read_without_harm(words in any::<[u64; 8]>()) {
            if let Some(element) = SendElement::decode(&words) {
                prop_assert!(element.pieces as usize <= MOST_PIECES && element.inline as usize <= MOST_INLINE);
                prop_assert!((element.more as usize) < MOST_ELEMENTS);
                prop_assert_eq!(element.encode()[..7].to_vec(), words[..7].to_vec());
            }
        }
    }
}
