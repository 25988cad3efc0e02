//! Places of a receive buffer that the program still uses although it has read on behind them (`toe_zc_take`). Buffer
//! space is freed out of order, while the head is tracked (thesis section 5.5.2.2). Positions count as in `stream`.
use crate::state::references::References;
use crate::state::tuning::Tuning;
use std::collections::VecDeque;

/// A stretch of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    pos: u32,
    len: u32,
}

impl Stretch {
    fn end(self) -> u32 {
        self.pos.wrapping_add(self.len)
    }
}

/// What is kept of one connection, oldest first; neighbours are one stretch.
#[derive(Default)]
pub(crate) struct Borrowed {
    stretches: VecDeque<Stretch>,
}

/// State that few connections have, apart from the others.
#[derive(Default)]
pub(crate) struct Rare {
    /// Stretches that the program keeps.
    pub borrowed: Borrowed,
    /// It writes only while fewer bytes are unsent; 0 for no such mark.
    pub unsent_mark: u32,
    /// Sent, as far as the engine has reported.
    pub tx_sent: u32,
    /// For how much is offered to the peer.
    pub tuning: Option<Tuning>,
    /// Its sends by reference.
    pub references: Option<Box<References>>,
}

impl Borrowed {
    /// The oldest position that is kept.
    pub(crate) fn first(&self) -> Option<u32> {
        self.stretches.front().map(|oldest| oldest.pos)
    }

    /// Keeps `len` bytes from `pos` on, which is behind all that is kept.
    pub(crate) fn keep(&mut self, pos: u32, len: u32) {
        match self.stretches.back_mut() {
            Some(last) if last.end() == pos => last.len += len,
            _ if len == 0 => {}
            _ => self.stretches.push_back(Stretch { pos, len }),
        }
    }

    /// Keeps `len` bytes from `pos` on no longer. False, and nothing changed, where not all of them are kept.
    pub(crate) fn free(&mut self, pos: u32, len: u32) -> bool {
        let Some(first) = self.first() else { return false };
        let behind = |position: u32| position.wrapping_sub(first);
        let next = self.stretches.partition_point(|stretch| behind(stretch.pos) <= behind(pos));
        let Some(at) = next.checked_sub(1) else { return false };
        let whole = self.stretches[at];
        let before = Stretch { pos: whole.pos, len: pos.wrapping_sub(whole.pos) };
        let Some(rest) = whole.len.checked_sub(before.len).and_then(|left| left.checked_sub(len)) else { return false };
        let after = Stretch { pos: pos.wrapping_add(len), len: rest };
        match (before.len > 0, after.len > 0) {
            (false, false) => {
                self.stretches.remove(at);
            }
            (true, false) => self.stretches[at] = before,
            (false, true) => self.stretches[at] = after,
            (true, true) => {
                self.stretches[at] = before;
                self.stretches.insert(next, after);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any order, any pieces, across the end of the position space: as a set of bytes does it.
    #[test]
    fn it_keeps_what_a_set_of_bytes_keeps() {
        let mut random = 1u64;
        let mut next = |below: u32| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as u32 % below
        };
        for round in 0..200u32 {
            let base = u32::MAX - 500 + round;
            let (mut borrowed, mut set, mut end) = (Borrowed::default(), std::collections::BTreeSet::new(), 0);
            for _ in 0..200 {
                let (at, len) = (next(end + 40), 1 + next(30));
                if next(3) == 0 {
                    // Read in between by other means, or not.
                    end += if next(2) == 0 { next(20) } else { 0 };
                    borrowed.keep(base.wrapping_add(end), len);
                    set.extend(end..end + len);
                    end += len;
                } else {
                    let all = (at..at + len).all(|byte| set.contains(&byte));
                    assert_eq!(borrowed.free(base.wrapping_add(at), len), all, "{len} from {at}");
                    if all {
                        set.retain(|byte| !(at..at + len).contains(byte));
                    }
                }
                assert_eq!(borrowed.first(), set.first().map(|byte| base.wrapping_add(*byte)));
            }
        }
    }

    #[test]
    fn neighbours_are_one_stretch() {
        let mut borrowed = Borrowed::default();
        borrowed.keep(10, 5);
        borrowed.keep(15, 5);
        assert!(borrowed.free(12, 6));
        assert_eq!(borrowed.stretches, [Stretch { pos: 10, len: 2 }, Stretch { pos: 18, len: 2 }]);
        assert!(!borrowed.free(12, 1) && !borrowed.free(11, 3) && !borrowed.free(9, 1) && !borrowed.free(20, 1));
        assert!(
            borrowed.free(10, 2) && borrowed.first() == Some(18) && borrowed.free(18, 2) && borrowed.first().is_none()
        );
        borrowed.keep(30, 0);
        assert!(borrowed.first().is_none());
    }
}
