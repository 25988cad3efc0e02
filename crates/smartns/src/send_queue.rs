//! The work requests of a queue pair's send queue, from the oldest that has not ended to the newest.
use std::collections::VecDeque;
use verbs::{INLINE_FIRST, INLINE_NEXT, PIECES_FIRST, PIECES_NEXT, Piece, SendElement, SendFlags, SendOpcode, Status};
use wire::roce::Psn;

/// A send work request.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// As the program gave it.
    pub(crate) element: SendElement,
    /// Where its further elements begin, counted since the queue was made.
    further: u64,
    /// Bytes of the message.
    pub(crate) len: u32,
    /// Its first packet's number, once it has begun.
    pub(crate) first: Psn,
    /// Packet sequence numbers that it takes: of a read, those of the responses.
    pub(crate) packets: u32,
    /// It fails so, once all earlier ones have ended.
    pub(crate) fault: Option<Status>,
}

impl Work {
    /// It waits for a response that brings data.
    pub(crate) fn is_fetch(&self) -> bool {
        self.element.opcode == SendOpcode::Read || self.element.opcode.is_atomic()
    }

    /// It is a SEND or a WRITE.
    #[inline]
    pub(crate) fn has_payload(&self) -> bool {
        !(SendOpcode::Read.code()..=SendOpcode::BindWindow.code()).contains(&self.element.opcode.code())
    }

    /// The number behind its last packet's.
    pub(crate) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }

    /// Its elements have its payload.
    pub(crate) fn is_inline(&self) -> bool {
        self.element.flags.has(SendFlags::INLINE)
    }
}

/// A send queue. Elements that follow first ones are stored as they came.
#[derive(Default)]
pub(crate) struct SendQueue {
    works: VecDeque<Work>,
    further: VecDeque<[u64; 8]>,
    /// Further elements that have been let go of.
    gone: u64,
}

impl SendQueue {
    /// Adds a work request with its further elements.
    #[inline]
    pub(crate) fn add(&mut self, element: SendElement, further: &[[u64; 8]]) -> &mut Work {
        let at = self.gone + self.further.len() as u64;
        if !further.is_empty() {
            self.further.extend(further);
        }
        // Longer than any message may be where it is too long, so that it is refused.
        let len = u32::try_from(message_len(&element, further)).unwrap_or(u32::MAX);
        let work = Work { element, further: at, len, first: Psn::default(), packets: 0, fault: None };
        self.works.push_back(work);
        let last = self.works.len() - 1;
        &mut self.works[last]
    }

    /// Work requests in it.
    pub(crate) fn len(&self) -> usize {
        self.works.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Work> {
        self.works.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Work> {
        self.works.get_mut(index)
    }

    pub(crate) fn front(&self) -> Option<&Work> {
        self.works.front()
    }

    /// Lets the oldest one go.
    pub(crate) fn pop(&mut self) -> Option<Work> {
        let work = self.works.front()?.clone();
        self.let_go();
        Some(work)
    }

    /// The same, for a caller that has seen it.
    #[inline]
    pub(crate) fn let_go(&mut self) {
        let Some(more) = self.works.front().map(|work| usize::from(work.element.more)) else { return };
        self.works.pop_front();
        if more > 0 {
            let count = more.min(self.further.len());
            self.further.drain(..count);
            self.gone += count as u64;
        }
    }

    /// Lets all go.
    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Which of the first `begun` work requests has this packet.
    pub(crate) fn holding(&self, psn: Psn, begun: usize) -> Option<usize> {
        let holds = |work: &Work| {
            let at = psn.since(work.first);
            at >= 0 && (at as u32) < work.packets
        };
        (0..begun.min(self.works.len())).find(|index| holds(&self.works[*index]))
    }

    /// Further element `at` of a work request.
    fn further(&self, work: &Work, at: usize) -> Option<&[u64; 8]> {
        self.further.get((work.further - self.gone) as usize + at)
    }

    /// Scatter-gather entry `at` of a work request.
    pub(crate) fn piece(&self, work: &Work, at: usize) -> Piece {
        match at.checked_sub(PIECES_FIRST) {
            None => work.element.piece(at),
            Some(later) => {
                let words = self.further(work, later / PIECES_NEXT);
                words.map_or(Piece::default(), |words| Piece::of_further(words, later % PIECES_NEXT))
            }
        }
    }

    /// Appends `len` bytes of inline data from byte `at` on.
    pub(crate) fn append_inline(&self, work: &Work, at: usize, len: usize, into: &mut Vec<u8>) {
        let mut done = 0;
        while done < len {
            let from = at + done;
            let bytes = match from.checked_sub(INLINE_FIRST) {
                None => Chunk::of(&work.element.words, from),
                Some(later) => match self.further(work, later / INLINE_NEXT) {
                    Some(words) => Chunk::of(&words[..INLINE_NEXT / 8], later % INLINE_NEXT),
                    None => return,
                },
            };
            let count = bytes.len.min(len - done);
            into.extend_from_slice(&bytes.bytes[..count]);
            done += count;
        }
    }
}

/// Bytes of the message that a work request asks for.
#[inline]
fn message_len(element: &SendElement, further: &[[u64; 8]]) -> u64 {
    if element.flags.has(SendFlags::INLINE) {
        return u64::from(element.inline);
    }
    let here = usize::from(element.pieces).min(PIECES_FIRST);
    let first: u64 = (0..here).map(|at| u64::from(element.piece(at).len)).sum();
    let later = usize::from(element.pieces) - here;
    let piece =
        |at: usize| further.get(at / PIECES_NEXT).map_or(0, |words| Piece::of_further(words, at % PIECES_NEXT).len);
    first + (0..later).map(|at| u64::from(piece(at))).sum::<u64>()
}

/// Bytes of an element, from one of them on.
struct Chunk {
    bytes: [u8; INLINE_NEXT],
    len: usize,
}

impl Chunk {
    fn of(words: &[u64], from: usize) -> Chunk {
        let mut whole = [0; INLINE_NEXT];
        for (bytes, word) in whole.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let len = words.len() * 8 - from;
        let mut bytes = [0; INLINE_NEXT];
        bytes[..len].copy_from_slice(&whole[from..from + len]);
        Chunk { bytes, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::SendFlags;

    fn element() -> SendElement {
        SendElement::new(1, SendOpcode::Send)
    }

    #[test]
    fn inline_data_come_out_of_all_elements() {
        let data: Vec<u8> = (0..150).collect();
        let word = |at: usize| {
            let mut bytes = [0; 8];
            for (place, byte) in bytes.iter_mut().enumerate() {
                *byte = data.get(at + place).copied().unwrap_or(0);
            }
            u64::from_ne_bytes(bytes)
        };
        let first = std::array::from_fn(|index| word(index * 8));
        let further: Vec<[u64; 8]> =
            (0..3).map(|at| std::array::from_fn(|index| word(INLINE_FIRST + at * INLINE_NEXT + index * 8))).collect();
        let mut queue = SendQueue::default();
        queue.add(SendElement { more: 3, ..element() }, &further);
        let inline = SendElement { more: 3, inline: 150, flags: SendFlags::INLINE, words: first, ..element() };
        assert_eq!(queue.add(inline, &further).len, 150);
        queue.pop();
        for from in 0..150 {
            let mut copy = Vec::new();
            queue.append_inline(queue.front().unwrap(), from, 150 - from, &mut copy);
            assert_eq!(copy, data[from..], "from {from}");
        }
    }

    #[test]
    fn entries_come_out_of_all_elements() {
        let mut queue = SendQueue::default();
        let piece = |at: usize| Piece { address: at as u64, len: 10, key: 3 };
        let mut first = SendElement { more: 2, pieces: 6, ..element() };
        first.set_piece(0, piece(0));
        first.set_piece(1, piece(1));
        let mut further = [[0; 8]; 2];
        for at in 2..6 {
            let place = (at - 2) % 3 * 2;
            further[(at - 2) / 3][place..place + 2].copy_from_slice(&piece(at).words());
        }
        assert_eq!(queue.add(first, &further).len, 60);
        let work = queue.front().unwrap();
        assert!((0..6).all(|at| queue.piece(work, at) == piece(at)));
    }

    #[test]
    fn a_packet_is_found_in_its_work_request() {
        let mut queue = SendQueue::default();
        for (first, packets) in [(0xff_fffe, 3), (1, 1), (2, 5)] {
            let work = queue.add(element(), &[]);
            (work.first, work.packets) = (Psn::new(first), packets);
        }
        let holding = |psn, begun| queue.holding(Psn::new(psn), begun);
        assert_eq!(
            [holding(0xff_fffe, 3), holding(0, 3), holding(1, 3), holding(6, 3)],
            [Some(0), Some(0), Some(1), Some(2)]
        );
        assert_eq!([holding(2, 2), holding(7, 3), holding(0xff_fffd, 3)], [None; 3]);
    }
}
