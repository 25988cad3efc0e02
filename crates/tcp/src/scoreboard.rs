//! Loss recovery of a sender with several holes (SACK, RFC 2018). It decides what counts as lost and how much is in
//! flight (RFC 6675). It does fast retransmit and its end (RFC 5681 section 3.2, RFC 6582).
//!
//! A hole is sent again once it is lost. One that was sent again is lost again where the peer has enough of what was
//! sent after that, for the first time or again. (The idea of RFC 8985: order of sending, not of numbers.) What comes
//! after the last block is a hole, too, once a timeout marks it.
use crate::DUPLICATES;
use crate::few::Few;
use crate::undo::Undo;
use wire::Seq;

/// Blocks at once. Of more, those with the highest numbers are forgotten.
const MOST: usize = 32;

/// What the peer has, and the hole before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Block {
    left: Seq,
    /// Equal to `left` where the peer has nothing here, and the hole ends all the same.
    right: Seq,
    /// Up to where the hole was sent again: between its first byte and `left`.
    resent: Seq,
    /// After the highest number that had been sent then.
    mark: Seq,
    /// [`Learnt::resent`] then.
    stamp: u32,
    /// The hole is lost, whatever the peer has beyond it.
    lost: bool,
}

impl Block {
    /// The hole, as far as `end`: what lies beyond it was sent again later.
    fn up_to(self, end: Seq) -> Block {
        if !end.before(self.resent) {
            return self;
        }
        Block { resent: end, stamp: self.stamp.wrapping_sub(self.resent - end), ..self }
    }
}

/// State of loss recovery, beside the positions in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scoreboard {
    /// In the order of their numbers, apart from each other.
    blocks: Few<Block, MOST>,
    /// Recovery ends where this is acknowledged.
    recover: Seq,
    active: bool,
    /// The peer keeps several ranges beyond a hole.
    several: bool,
    /// Since the first disorder.
    learnt: Option<Box<Learnt>>,
}

/// What losses and disorder of a connection have taught: apart, since most connections have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Learnt {
    /// Bytes that were sent again so far, modulo 2^32.
    resent: u32,
    /// What that was for the latest of them that the peer has.
    delivered: u32,
    undo: Undo,
}

impl Scoreboard {
    /// Nothing is lost of a stream that begins here.
    pub const fn new(at: Seq) -> Scoreboard {
        Scoreboard { blocks: Few::new(), recover: at, active: false, several: false, learnt: None }
    }

    /// Nothing is lost, and the peer has nothing beyond a hole.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        !self.active && self.blocks.is_empty()
    }

    /// A loss was found, and not all of what was sent before it is acknowledged.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// The peer has something beyond a hole.
    #[inline(always)]
    pub fn has_block(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn learnt(&mut self) -> &mut Learnt {
        self.learnt.get_or_insert_default()
    }

    /// A loss was found between `una` and `max`, and the congestion window is reduced for it. Another one within
    /// recovery is part of it.
    pub fn lose(&mut self, una: Seq, max: Seq) {
        if !self.active {
            self.learnt().undo.arm(una, max);
        }
        (self.active, self.recover) = (true, max);
    }

    /// Sending goes back for another reason than a loss: what was sent up to `max` is sent again.
    pub fn begin(&mut self, max: Seq) {
        if !self.active {
            self.learnt.iter_mut().for_each(|learnt| learnt.undo.disarm());
        }
        (self.active, self.recover) = (true, max);
    }

    /// The peer reports that it got `left` to `right` twice. True where nothing was lost: recovery is over, and what is
    /// held for lost is not sent again.
    pub fn note_twice(&mut self, left: Seq, right: Seq) -> bool {
        let undone = self.learnt.as_mut().is_some_and(|learnt| learnt.undo.note_twice(left, right));
        if undone {
            self.active = false;
            for at in (0..self.blocks.len()).rev() {
                self.blocks[at].lost = false;
                self.blocks[at].resent = self.blocks[at].left;
                if self.blocks[at].left == self.blocks[at].right {
                    self.blocks.remove(at, 1);
                }
            }
        }
        undone
    }

    /// All from `una` to `max` is lost, and what was selectively acknowledged counts for nothing (RFC 2018
    /// section 8).
    // Meets RFC 2018: 8-a.
    pub fn lose_all(&mut self, una: Seq, max: Seq) {
        self.blocks.truncate(0);
        self.push_end(una, max);
        if una != max {
            self.begin(max);
        }
    }

    /// What lies between `una` and `end` is lost, and nothing beyond it is known.
    fn push_end(&mut self, una: Seq, end: Seq) {
        if una.before(end) {
            let stamp = self.learnt().resent;
            self.blocks.insert(0, Block { left: end, right: end, resent: una, mark: end, stamp, lost: true });
        }
    }

    /// Takes in a block that the peer has beyond a hole, where what it reports was sent at all. True where that is new.
    // Meets RFC 2018: 5-a.
    pub fn note_block(&mut self, left: Seq, right: Seq, una: Seq, max: Seq) -> bool {
        if !una.before(left) || !left.before(right) || max.before(right) {
            return false;
        }
        let from = self.blocks.iter().take_while(|block| block.right.before(left)).count();
        let touched = self.blocks[from..].iter().take_while(|block| block.left.at_or_before(right)).count();
        let begin = self.hole_start(from, una);
        for at in from..=from + touched {
            self.note_delivered(at, self.hole_start(at, una), left, right);
        }
        if touched == 0 {
            return self.insert(from, begin, left, right);
        }
        let (first, last) = (self.blocks[from], self.blocks[from + touched - 1]);
        let left = if left.before(first.left) { left } else { first.left };
        let whole = Block { left, right: right.max(last.right), ..first }.up_to(left);
        if touched == 1 && whole == first {
            return false;
        }
        self.blocks[from] = whole;
        self.blocks.remove(from + 1, touched - 1);
        self.follow(from);
        true
    }

    /// A block that touches no other one, at place `at`, whose hole begins at `begin`.
    fn insert(&mut self, at: usize, begin: Seq, left: Seq, right: Seq) -> bool {
        if at == MOST {
            return false;
        }
        let block = match self.blocks.get(at) {
            // A hole is parted.
            Some(whole) => Block { left, right, ..*whole },
            None => {
                let stamp = self.learnt().resent;
                Block { left, right, resent: begin, mark: right, stamp, lost: false }
            }
        };
        let block = block.up_to(left);
        self.blocks.insert(at, block);
        self.follow(at);
        self.several |= self.blocks.iter().filter(|block| block.left != block.right).count() > 1;
        true
    }

    /// The peer has `left` to `right` of the hole that begins at `begin` before block `at`: whether that was
    /// sent again.
    fn note_delivered(&mut self, at: usize, begin: Seq, left: Seq, right: Seq) -> bool {
        let Some(block) = self.blocks.get(at).copied() else { return false };
        let again = begin.before(block.resent) && left.before(block.resent) && begin.before(right);
        if again {
            let (stamp, learnt) = (block.up_to(right).stamp, self.learnt());
            learnt.delivered = Seq(learnt.delivered).max(Seq(stamp)).0;
        }
        again
    }

    /// The hole behind a block begins where that ends.
    fn follow(&mut self, at: usize) {
        let end = self.blocks[at].right;
        if let Some(next) = self.blocks.get_mut(at + 1) {
            next.resent = next.resent.max(end);
        }
    }

    fn hole_start(&self, at: usize, una: Seq) -> Seq {
        at.checked_sub(1).map_or(una, |before| self.blocks[before].right)
    }

    /// Everything before `una` is acknowledged, and was not before `old`.
    ///
    /// Recovery ends when all that was sent before it is acknowledged. Without SACK it ends when more than
    /// that is: segments that go-back-N sent twice bring duplicate acknowledgements (RFC 6582 section 4.1).
    ///
    /// A peer that keeps one range only has dropped what lay beyond another hole. So where a hole is filled, what was
    /// sent again before that and still is not there is lost. (A partial acknowledgement, RFC 6582 section 3.2 step 3.)
    pub fn acknowledge(&mut self, old: Seq, una: Seq, with_sack: bool) {
        let past = self.recover.before(una) || (with_sack && self.recover == una);
        self.active &= !past;
        let gone = self.blocks.iter().take_while(|block| block.left.at_or_before(una)).count();
        let mut filled = None;
        for at in 0..=gone {
            let begin = self.hole_start(at, old);
            if self.note_delivered(at, begin, begin, una) && at < gone {
                filled = Some(self.blocks[at].mark);
            }
        }
        self.blocks.remove(0, gone);
        if let Some(first) = self.blocks.first_mut() {
            first.resent = first.resent.max(una);
        }
        let mark = filled.filter(|mark| !self.several && self.active && self.blocks.is_empty() && una.before(*mark));
        if let Some(mark) = mark {
            self.push_end(una, mark);
        }
    }

    /// Three acknowledgements report a hole at the front: it is lost (RFC 6675 section 5, step 4.1).
    pub fn lose_front(&mut self) {
        if let Some(first) = self.blocks.first_mut() {
            first.lost = true;
        }
    }

    /// RFC 6675 section 4, IsLost, for each hole; and what was sent again and is lost again. True where there
    /// is a hole to be sent again.
    pub fn find_lost(&mut self, una: Seq, mss: u32) -> bool {
        let (mut bytes, mut blocks, mut any) = (0u32, 0, false);
        let enough = u32::from(DUPLICATES - 1) * mss;
        let delivered = self.learnt.as_ref().map_or(0, |learnt| learnt.delivered);
        for at in (0..self.blocks.len()).rev() {
            let block = self.blocks[at];
            bytes += block.right - block.left;
            blocks += u32::from(block.right != block.left);
            let later = delivered.wrapping_sub(block.stamp) as i32;
            let overtaken = (later > 0 && later as u32 > enough) || self.bytes_from(block.mark) > enough;
            let again = block.resent == block.left && overtaken;
            let resent = if again { self.hole_start(at, una) } else { block.resent };
            let lost = block.lost || again || bytes > enough || blocks >= DUPLICATES.into();
            (self.blocks[at].resent, self.blocks[at].lost) = (resent, lost);
            any |= lost && resent != block.left;
        }
        any
    }

    /// Bytes from `mark` on that the peer has beyond holes.
    fn bytes_from(&self, mark: Seq) -> u32 {
        let beyond = |block: &Block| if mark.before(block.right) { block.right - block.left.max(mark) } else { 0 };
        self.blocks.iter().rev().take_while(|block| mark.before(block.right)).map(beyond).sum()
    }

    /// The first bytes that are lost and to be sent again, with their number in a row (RFC 6675 section 4, NextSeg,
    /// rule 1).
    // Meets RFC 2018: 5-b.
    // Meets RFC 5681: 4.3-a.
    pub fn next_lost(&self) -> Option<(Seq, u32)> {
        let block = self.blocks.iter().find(|block| block.lost && block.resent != block.left)?;
        Some((block.resent, block.left - block.resent))
    }

    /// Segments of at most `most` bytes in which all that is lost would be sent again.
    pub fn lost_segments(&self, most: u32) -> u32 {
        let lost = self.blocks.iter().filter(|block| block.lost);
        lost.map(|block| (block.left - block.resent).div_ceil(most)).sum()
    }

    /// Bytes up to `end` of what [`Scoreboard::next_lost`] gave were sent again, `max` being after all that
    /// was ever sent.
    pub fn note_resent(&mut self, end: Seq, max: Seq) {
        let lost = self.blocks.iter().position(|block| block.lost && block.resent != block.left);
        let Some(at) = lost else { return };
        let block = self.blocks[at];
        let end = if block.left.before(end) { block.left } else { end };
        let learnt = self.learnt();
        learnt.undo.note_resent(end - block.resent);
        learnt.resent = learnt.resent.wrapping_add(end - block.resent);
        self.blocks[at] = Block { resent: end, mark: max, stamp: learnt.resent, ..block };
    }

    /// Bytes that are sent and not acknowledged, but not in flight. The peer has them, or they are lost and were not
    /// sent again (RFC 6675 section 4, SetPipe).
    pub fn absent(&self) -> u32 {
        let absent =
            |block: &Block| (block.right - block.left) + if block.lost { block.left - block.resent } else { 0 };
        self.blocks.iter().map(absent).sum()
    }

    /// Bytes that the peer has beyond holes.
    pub fn sacked(&self) -> u32 {
        self.blocks.iter().map(|block| block.right - block.left).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNA: Seq = Seq(u32::MAX - 1999);
    const MSS: u32 = 100;

    fn at(off: u32) -> Seq {
        UNA + off
    }

    /// What the peer has, from a stream of 10,000 bytes.
    fn board(blocks: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::new(UNA);
        for (left, right) in blocks {
            assert!(board.note_block(at(*left), at(*right), UNA, at(10_000)));
        }
        board
    }

    /// All that is sent again now, as the engine does it.
    fn resend(board: &mut Scoreboard, una: u32, max: u32) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        board.find_lost(at(una), MSS);
        while let Some((seq, len)) = board.next_lost() {
            sent.push((seq - UNA, len));
            board.note_resent(seq + len, at(max));
        }
        sent
    }

    // Checks RFC 2018: 5-a, 5-b.
    #[test]
    fn only_holes_are_sent_again() {
        let mut board = board(&[(100, 400), (500, 600), (700, 900)]);
        assert!(!board.note_block(at(950), at(10_001), UNA, at(10_000)), "more than was sent");
        assert!(!board.note_block(at(150), at(400), UNA, at(10_000)), "nothing new");
        assert_eq!(board.sacked(), 600);
        assert_eq!(resend(&mut board, 0, 1000), [(0, 100), (400, 100)]);
        assert_eq!(board.absent(), 600, "what was sent again is in flight");
        assert!(board.note_block(at(1000), at(1100), UNA, at(10_000)));
        assert_eq!(resend(&mut board, 0, 1100), [(600, 100)], "now there is enough beyond it");
    }

    #[test]
    fn a_hole_is_lost_by_bytes_by_blocks_or_by_three_acknowledgements() {
        assert_eq!(resend(&mut board(&[(100, 300)]), 0, 1000), []);
        assert_eq!(resend(&mut board(&[(100, 301)]), 0, 1000), [(0, 100)]);
        assert_eq!(resend(&mut board(&[(100, 110), (120, 130)]), 0, 1000), []);
        assert_eq!(resend(&mut board(&[(100, 110), (120, 130), (140, 150)]), 0, 1000), [(0, 100)]);
        let mut counted = board(&[(100, 110), (120, 130)]);
        counted.lose_front();
        assert_eq!(counted.absent(), 120, "lost, and what the peer has");
        assert_eq!(resend(&mut counted, 0, 1000), [(0, 100)]);
    }

    #[test]
    fn what_was_sent_again_is_lost_again_by_what_was_sent_after_it() {
        let mut board = board(&[(100, 500)]);
        board.begin(at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(0, 100)]);
        board.note_block(at(100), at(1200), UNA, at(10_000));
        assert_eq!(resend(&mut board, 0, 1200), [], "two segments may have overtaken it");
        board.note_block(at(100), at(1201), UNA, at(10_000));
        assert_eq!(resend(&mut board, 0, 1300), [(0, 100)]);
        board.note_block(at(100), at(1300), UNA, at(10_000));
        assert_eq!(resend(&mut board, 0, 1300), []);
    }

    /// RFC 6582 section 3.2 step 3, for peers that keep one range.
    #[test]
    fn a_filled_hole_shows_what_lay_beyond_another_one() {
        let mut one = board(&[(100, 500)]);
        one.begin(at(1000));
        resend(&mut one, 0, 1000);
        one.acknowledge(UNA, at(500), true);
        assert_eq!(resend(&mut one, 500, 1100), [(500, 500)]);
        one.acknowledge(at(500), at(1000), true);
        assert!(one.is_idle());

        let mut several = board(&[(100, 500), (600, 700)]);
        several.begin(at(1000));
        resend(&mut several, 0, 1000);
        several.acknowledge(UNA, at(700), true);
        assert_eq!(resend(&mut several, 700, 1100), [], "it would have told");
    }

    /// RFC 6582 section 4.1: without blocks, duplicates of what was sent twice would look like another loss.
    #[test]
    fn recovery_without_sack_ends_beyond_what_was_sent() {
        for (with_sack, active) in [(true, false), (false, true)] {
            let mut board = Scoreboard::new(UNA);
            board.begin(at(1000));
            board.acknowledge(UNA, at(1000), with_sack);
            assert_eq!(board.is_active(), active);
            board.acknowledge(at(1000), at(1001), with_sack);
            assert!(board.is_idle());
        }
    }

    // Checks RFC 2018: 8-a.
    #[test]
    fn after_a_timeout_all_is_lost_whatever_the_peer_had() {
        let mut board = board(&[(100, 300)]);
        board.lose_all(UNA, at(1000));
        assert_eq!((board.sacked(), board.absent(), board.next_lost()), (0, 1000, Some((UNA, 1000))));
        board.note_resent(at(200), at(1000));
        board.note_block(at(100), at(300), UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(300, 700)], "not what was sent again, and not what the peer has");
        board.acknowledge(UNA, at(1000), true);
        assert!(board.is_idle());
    }

    /// Nothing new can be sent here: only the order of what was sent again decides.
    #[test]
    fn what_was_sent_again_is_lost_again_by_what_was_sent_again_after_it() {
        let mut board = Scoreboard::new(UNA);
        board.lose_all(UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(0, 1000)]);
        board.note_block(at(100), at(300), UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [], "two segments may have overtaken it");
        board.note_block(at(400), at(500), UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(0, 100)]);
        board.note_block(at(500), at(800), UNA, at(1000));
        assert_eq!(resend(&mut board, 0, 1000), [(300, 100)], "the first was sent after these");
        board.acknowledge(UNA, at(100), true);
        assert_eq!(resend(&mut board, 100, 1000), [], "the second sending of the first hole tells of none yet");
    }

    proptest! {
        /// Whatever a peer reports, blocks stay in order, and only holes are ever sent again.
        #[test]
        fn blocks_and_holes_are_what_a_map_of_bytes_says(
            steps in prop::collection::vec((0..3u8, 1..400u32, 1..60u32), 1..80),
        ) {
            let (mut board, mut una, mut map) = (Scoreboard::new(UNA), 0u32, [false; 600]);
            for (step, off, len) in steps {
                match step {
                    0 => {
                        let end = (una + off / 8).min(500);
                        // A peer acknowledges all that it has in a row.
                        let end = end + map[end as usize..].iter().take_while(|has| **has).count() as u32;
                        board.acknowledge(at(una), at(end), true);
                        una = end;
                        map[..una as usize].fill(true);
                    }
                    1 => {
                        for (seq, len) in resend(&mut board, una, 600) {
                            prop_assert!(seq >= una && len > 0);
                            prop_assert!(map[seq as usize..(seq + len) as usize].iter().all(|has| !has));
                        }
                    }
                    _ => {
                        let (left, right) = (una + off, (una + off + len).min(600));
                        // A full board forgets; the rest of this test would have to know what.
                        if left < right && board.blocks.len() < MOST {
                            board.note_block(at(left), at(right), at(una), at(600));
                            map[left as usize..right as usize].fill(true);
                            if board.recover.at_or_before(at(una)) {
                                board.begin(at(600));
                            }
                        }
                    }
                }
                let mut before = at(una);
                for block in board.blocks.iter() {
                    prop_assert!(before.before(block.left) && block.left.at_or_before(block.right), "{:?}", board);
                    prop_assert!(before.at_or_before(block.resent) && block.resent.at_or_before(block.left), "{:?}", board);
                    prop_assert!(map[(block.left - UNA) as usize..(block.right - UNA) as usize].iter().all(|has| *has));
                    before = block.right;
                }
                let told: u32 = map[una as usize..].iter().map(|has| u32::from(*has)).sum();
                prop_assert!(board.sacked() <= told);
            }
        }
    }
}
