//! Receive queues, shared ones too: work requests out of a pipe of scatter-gather entries.
use shm::PipeConsumer;
use std::collections::VecDeque;
use verbs::{MOST_PIECES, Piece, ReceivePiece};

/// Entries taken from the pipe at once: a line of the cache (SmartNS, section 3.4).
// Meets IBTA: 10.2.9-a.
const AT_ONCE: usize = 4;

/// A receive work request that a message has taken. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub(crate) struct Receive {
    /// Its number in its queue.
    pub(crate) number: u32,
    /// Where payload goes.
    pub(crate) pieces: Vec<Piece>,
    /// It had more entries than a work request may have: nothing can be placed.
    pub(crate) is_malformed: bool,
}

impl Receive {
    /// Bytes that it can take.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }
}

/// A receive queue.
pub(crate) struct ReceiveQueue {
    pipe: PipeConsumer<2>,
    /// Entries that were taken from the pipe and belong to no message yet.
    staged: VecDeque<ReceivePiece>,
    /// Whole work requests among them.
    whole: u32,
    /// The number of the next work request.
    number: u32,
    /// Staged work requests at most.
    most: u32,
    /// Entries of a work request at most.
    pieces: usize,
}

impl ReceiveQueue {
    /// A queue that holds `most` work requests of `pieces` entries.
    pub(crate) fn new(pipe: PipeConsumer<2>, most: u32, pieces: u32) -> ReceiveQueue {
        let pieces = (pieces as usize).clamp(1, MOST_PIECES);
        ReceiveQueue { pipe, staged: VecDeque::with_capacity(64), whole: 0, number: 0, most: most.max(1), pieces }
    }

    /// Takes entries out of the pipe until `wanted` whole work requests are staged, or there are no more. Returns how
    /// many whole ones are staged.
    #[inline]
    pub(crate) fn stage(&mut self, wanted: u32) -> u32 {
        let room = (self.most as usize).saturating_mul(self.pieces);
        while self.whole < wanted && self.staged.len() < room {
            let mut taken = [[0; 2]; AT_ONCE];
            let count = self.pipe.take(&mut taken);
            if count == 0 {
                break;
            }
            for words in &taken[..count] {
                let entry = ReceivePiece::decode(words);
                self.whole += u32::from(!entry.more);
                self.staged.push_back(entry);
            }
        }
        // A work request that never ends is one all the same: the program broke the rules.
        if self.whole == 0 && self.staged.len() >= room {
            if let Some(last) = self.staged.back_mut() {
                (last.more, self.whole) = (false, 1);
            }
        }
        self.whole
    }

    /// Takes the next work request, if there is a whole one.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut Receive) -> bool {
        if self.whole == 0 && self.stage(1) == 0 {
            return false;
        }
        into.pieces.clear();
        (into.number, into.is_malformed) = (self.number, false);
        while let Some(entry) = self.staged.pop_front() {
            if into.pieces.len() < self.pieces {
                into.pieces.push(entry.piece);
            } else {
                into.is_malformed = true;
            }
            if !entry.more {
                break;
            }
        }
        (self.number, self.whole) = (self.number.wrapping_add(1), self.whole - 1);
        true
    }

    /// Forgets what is staged and in the pipe: the queue pair was reset.
    pub(crate) fn clear(&mut self) {
        let mut receive = Receive::default();
        while self.take(&mut receive) {}
        (self.number, self.whole) = (0, 0);
        self.staged.clear();
    }

    /// There is something in it.
    pub(crate) fn has_any(&self) -> bool {
        self.whole > 0 || !self.pipe.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::{PipeProducer, Region, pipe_bytes};
    use std::sync::Arc;

    fn queue(most: u32, pieces: u32) -> (PipeProducer<2>, ReceiveQueue) {
        let region = Arc::new(Region::create("receive", 4096 + pipe_bytes::<2>(64)).unwrap());
        let pipe = PipeConsumer::new(&region, 4096, 64, 0);
        (PipeProducer::new(&region, 4096, 64, 0, 16), ReceiveQueue::new(pipe, most, pieces))
    }

    fn entry(len: u32, more: bool) -> [u64; 2] {
        ReceivePiece { piece: Piece { address: 7, len, key: 9 }, more }.encode()
    }

    #[test]
    fn a_work_request_is_taken_when_it_is_whole() {
        let (mut program, mut queue) = queue(8, 4);
        let mut receive = Receive::default();
        assert!(!queue.take(&mut receive) && !queue.has_any());
        program.push(entry(1, true)).unwrap();
        assert!(!queue.take(&mut receive));
        program.push(entry(2, false)).unwrap();
        program.push(entry(4, false)).unwrap();
        assert_eq!(queue.stage(8), 2);
        assert!(queue.take(&mut receive));
        assert_eq!((receive.number, receive.pieces.len(), receive.len()), (0, 2, 3));
        assert!(queue.take(&mut receive) && !receive.is_malformed);
        assert_eq!((receive.number, receive.len()), (1, 4));
        assert!(!queue.take(&mut receive));
    }

    #[test]
    fn a_work_request_that_never_ends_is_malformed_and_bounded() {
        let (mut program, mut queue) = queue(2, 3);
        let mut receive = Receive::default();
        for _ in 0..20 {
            program.push(entry(1, true)).unwrap();
        }
        assert!(queue.take(&mut receive) && receive.is_malformed);
        assert_eq!(receive.pieces.len(), 3);
        queue.clear();
        assert!(!queue.take(&mut receive));
    }
}
