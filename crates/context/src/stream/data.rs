//! Descriptors of the data pair: two words each.
use crate::Slot;

const FIN: u64 = 1 << 48;
/// The first bit of a stream's ring, and the bits of one.
const RING_AT: u32 = 49;
const RING: u8 = 7;

/// Application to engine: the application's positions in a connection's buffers (thesis section 4.3.1.1, host
/// control). Absolute, so a later bump has all that an earlier one had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bump {
    /// Which connection.
    pub slot: Slot,
    /// Bytes that the application has written into the transmit buffer since the connection began, modulo 2^32.
    pub tx_head: u32,
    /// Bytes that it has taken from the receive buffer since then, modulo 2^32.
    pub rx_head: u32,
    /// Nothing will be written after `tx_head`: send FIN after it.
    pub fin: bool,
    /// The ring in which the transmit stream is, or a later one ([`shm::ByteRing::number`], docs/MEMORY.md). No later
    /// bump has an earlier one. Or [`Bump::UNTIL_SENT`], [`Bump::URGENT`] or
    /// [`Bump::RECORD`].
    pub ring: u8,
}

impl Bump {
    /// In the place of a ring: once all before `tx_head`, which an earlier bump has set, was sent, the engine reports
    /// how far it has sent ([`crate::SENT_AT`]), and gives a completion. An engine that cannot finds nothing new.
    pub const UNTIL_SENT: u8 = 3;

    /// In the place of a ring: the byte before `tx_head` is urgent, which a later bump covers as written. For an
    /// engine that sends urgent data ([`crate::attach::Welcome::urgent`]).
    pub const URGENT: u8 = 4;

    /// In the place of a ring: a record ends before `tx_head` (`MSG_EOR`), which a later bump covers as written. What
    /// is sent first ends there. For an engine that sends urgent data.
    pub const RECORD: u8 = 5;
}

/// Engine to application: the engine's positions in a connection's buffers. Absolute, as in [`Bump`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which connection.
    pub slot: Slot,
    /// Bytes received in order since the connection began, modulo 2^32.
    pub rx_tail: u32,
    /// Bytes sent and acknowledged since then, modulo 2^32: their place in the transmit buffer is free.
    pub tx_tail: u32,
    /// The peer sent FIN: nothing comes after `rx_tail`.
    pub fin: bool,
    /// The ring in which the received stream is ([`shm::ByteRing::number`]), at most 3. No later one has an earlier
    /// ring.
    pub ring: u8,
    /// The peer has sent urgent data, and the last urgent byte is where the slot has it ([`crate::URGENT_AT`]). All
    /// later ones have it, too.
    pub urgent: bool,
}

/// In the place of a ring, of completions: [`Completion::ring`] and [`Completion::urgent`].
const NUMBER: u8 = 3;
const URGENT: u8 = 4;

#[inline]
fn pack(slot: Slot, fin: bool, ring: u8) -> u64 {
    let ring = ((ring & RING) as u64) << RING_AT;
    slot.index as u64 | (slot.generation as u64) << 32 | if fin { FIN } else { 0 } | ring
}

#[inline]
fn unpack(word: u64) -> (Slot, bool, u8) {
    let slot = Slot { index: word as u32, generation: (word >> 32) as u16 };
    (slot, word & FIN != 0, (word >> RING_AT) as u8 & RING)
}

impl Bump {
    /// The descriptor's words.
    #[inline]
    pub fn to_words(self) -> [u64; 2] {
        [pack(self.slot, self.fin, self.ring), self.tx_head as u64 | (self.rx_head as u64) << 32]
    }
    /// Whether the bump after one covers all that this one covers, by their first words: both have positions of one
    /// connection in the same ring, and none takes an end back.
    #[inline(always)]
    pub fn is_overtaken(word: u64, next: u64) -> bool {
        // Mostly it is another connection's, which the index shows.
        next as u32 == word as u32
            && (next ^ word) & !FIN == 0
            && next >= word
            && (word >> RING_AT) as u8 & RING < Bump::UNTIL_SENT
    }

    /// Reads a descriptor. Any words give a value; the values are to be checked against the connection.
    #[inline]
    pub fn from_words(words: [u64; 2]) -> Bump {
        let (slot, fin, ring) = unpack(words[0]);
        Bump { slot, tx_head: words[1] as u32, rx_head: (words[1] >> 32) as u32, fin, ring }
    }
}

impl Completion {
    /// The bit of the first word for [`Completion::urgent`].
    pub const URGENT_WORD: u64 = (URGENT as u64) << RING_AT;

    /// The descriptor's words.
    #[inline]
    pub fn to_words(self) -> [u64; 2] {
        let marks = self.ring & NUMBER | if self.urgent { URGENT } else { 0 };
        [pack(self.slot, self.fin, marks), self.rx_tail as u64 | (self.tx_tail as u64) << 32]
    }
    /// All that the words have besides slot and positions.
    #[inline(always)]
    pub fn tag(words: [u64; 2]) -> u32 {
        (words[0] >> 32) as u32
    }

    /// The [`Completion::tag`] of a completion with nothing but positions.
    #[inline]
    pub fn plain_tag(generation: u16, ring: u8) -> u32 {
        Completion::tag([pack(Slot { index: 0, generation }, false, ring), 0])
    }

    /// Reads a descriptor.
    #[inline]
    pub fn from_words(words: [u64; 2]) -> Completion {
        let (slot, fin, marks) = unpack(words[0]);
        let (ring, urgent) = (marks & NUMBER, marks & URGENT != 0);
        Completion { slot, rx_tail: words[1] as u32, tx_tail: (words[1] >> 32) as u32, fin, ring, urgent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Positions are absolute: those of a connection cover all that earlier ones of the same cover, and nothing of what
    /// is asked or of another ring.
    #[test]
    fn a_bump_is_overtaken_by_later_positions_of_its_connection() {
        let slot = Slot { index: 7, generation: 2 };
        let bump = Bump { slot, tx_head: 1, rx_head: 2, fin: false, ring: 1 };
        let overtaken = |bump: Bump, next: Bump| Bump::is_overtaken(bump.to_words()[0], next.to_words()[0]);
        assert!(overtaken(bump, Bump { tx_head: 500, rx_head: 3, ..bump }));
        let end = Bump { fin: true, ..bump };
        assert!(overtaken(bump, end) && overtaken(end, end) && !overtaken(end, bump));
        let others = [
            Bump { slot: Slot { index: 8, ..slot }, ..bump },
            Bump { slot: Slot { generation: 3, ..slot }, ..bump },
            Bump { ring: 2, ..bump },
        ];
        assert!(others.iter().all(|next| !overtaken(bump, *next)));
        for ring in [Bump::UNTIL_SENT, Bump::URGENT, Bump::RECORD] {
            assert!(!overtaken(Bump { ring, ..bump }, Bump { ring, ..bump }));
        }
    }

    #[test]
    fn descriptors_come_back() {
        let slot = Slot { index: u32::MAX, generation: u16::MAX };
        let bump = Bump { slot, tx_head: 1, rx_head: u32::MAX, fin: true, ring: 0 };
        for (fin, ring) in [(false, 0), (false, 1), (true, 0), (true, 2)] {
            let bump = Bump { fin, ring, ..bump };
            assert_eq!(Bump::from_words(bump.to_words()), bump);
            for slot in [slot, Slot { index: 3, generation: 0 }] {
                for urgent in [false, true] {
                    let completion = Completion { slot, rx_tail: u32::MAX, tx_tail: 0, fin, ring, urgent };
                    assert_eq!(Completion::from_words(completion.to_words()), completion);
                    let plain = Completion::plain_tag(slot.generation, ring);
                    assert_eq!(Completion::tag(completion.to_words()) == plain, !fin && !urgent);
                }
            }
        }
    }
}
