//! Loss recovery of a sender with several holes (SACK, RFC 2018). It decides what counts as lost and how much is in
//! flight (RFC 6675). It does fast retransmit and its end (RFC 5681 section 3.2, RFC 6582).
//!
//! A hole is lost, and is sent again, once the peer has something that was sent later, and had the time that reordering
//! takes ([`crate::rack`]). One that was sent again is lost again by the same rule. What comes after the last block is
//! a hole, too, once a timeout marks it. What was sent just before the timeout is not lost, but such a hole as well.
use crate::few::Few;
use crate::prr::{Prr, PrrInput};
use crate::rack::{Rack, RackInput};
use crate::spurious::{AckUpdate, SpuriousCheck, Verdict};
use crate::{DUPLICATES, Nanos};
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
    /// [`Rack::resent`] then.
    stamp: u32,
    /// When the hole was sent again. Once the peer has something later: since when.
    time: Nanos,
    /// The peer has something that was sent later.
    overtaken: bool,
    /// What lies behind `resent` was sent once.
    once: bool,
    /// The hole is lost.
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

/// A sender's retransmission timer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeout {
    /// First byte that is not acknowledged.
    pub una: Seq,
    /// After the last one that was sent.
    pub max: Seq,
    /// Bytes from here on were sent too recently to be lost.
    pub recent: Seq,
    /// Payload bytes of a full segment.
    pub mss: u32,
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
    /// A tail loss probe is under way.
    probing: bool,
    /// Since the first disorder: apart, since most connections have none.
    rack: Option<Box<Rack>>,
}

impl Scoreboard {
    /// Nothing is lost of a stream that begins here.
    pub const fn new(at: Seq) -> Scoreboard {
        Scoreboard { blocks: Few::new(), recover: at, active: false, several: false, probing: false, rack: None }
    }

    /// Nothing is lost or being probed, and the peer has nothing beyond a hole.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        !self.active && !self.probing && self.blocks.is_empty()
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

    fn rack(&mut self) -> &mut Rack {
        self.rack.get_or_insert_default()
    }

    /// A loss was found between `una` and `max`, and the congestion window is reduced for it. Another one within
    /// recovery is part of it.
    pub fn lose(&mut self, una: Seq, max: Seq) {
        if !self.active {
            let rack = self.rack();
            rack.undo.arm(una, max);
            rack.spurious = SpuriousCheck::of_loss();
        }
        self.start(max);
    }

    fn start(&mut self, max: Seq) {
        (self.active, self.recover, self.probing) = (true, max, false);
        self.rack.iter_mut().for_each(|rack| rack.forget_probe());
    }

    /// A loss was found by what the peer has, and not by a timeout: fast recovery reduces what is in flight (RFC 9937).
    /// Before the acknowledgement that showed it, there were `una` and `sacked` bytes beyond holes.
    pub fn begin_reduction(&mut self, una: Seq, max: Seq, sacked: u32) {
        let rack = self.rack();
        rack.prr = Some(Prr::new(una, max, sacked, rack.resent));
    }

    /// Fast recovery has begun and is not over.
    #[inline]
    pub fn is_reducing(&self) -> bool {
        self.active && self.rack.as_ref().is_some_and(|rack| rack.prr.is_some())
    }

    /// The congestion window has been reduced for the loss.
    pub fn note_reduced(&mut self) {
        if let Some(rack) = &mut self.rack {
            rack.prr.iter_mut().for_each(|prr| prr.reduced = true);
        }
    }

    /// Bytes that may be sent now; nothing outside fast recovery. Something was acknowledged, where it `advances`.
    pub fn room(&mut self, at: &PrrInput, advances: bool) -> Option<u32> {
        let sacked = self.sacked();
        let rack = self.rack.as_mut().filter(|_| self.active)?;
        let (resent, safe) = (rack.resent, advances && !rack.found);
        rack.prr.as_mut().map(|prr| prr.room(at, sacked, resent, safe))
    }

    /// Sending goes back for another reason than a loss: what was sent up to `max` is sent again.
    pub fn begin(&mut self, max: Seq) {
        if !self.active {
            for rack in self.rack.iter_mut() {
                rack.undo.disarm();
                rack.spurious = SpuriousCheck::default();
            }
        }
        self.start(max);
    }

    /// The peer reports that it got `left` to `right` twice, with `una` to `max` outstanding. True where nothing was
    /// lost: recovery is over, and what is held for lost is not sent again. A probe that came twice was no loss in
    /// question.
    pub fn note_dsack(&mut self, left: Seq, right: Seq, una: Seq, max: Seq) -> bool {
        let rack = self.rack();
        if rack.probe_end() != Some(right) {
            rack.widen(una, max);
        }
        let undone = rack.undo.note_dsack(left, right);
        if undone {
            // They were late.
            (rack.reordered, rack.spurious) = (true, SpuriousCheck::default());
            self.undo(una);
        }
        undone
    }

    /// Nothing was lost: what is held for lost is on its way.
    fn undo(&mut self, una: Seq) {
        self.active = false;
        for at in (0..self.blocks.len()).rev() {
            let (block, begin) = (self.blocks[at], self.hole_start(at, una));
            let (whole, none) = (block.resent == block.left, block.resent == begin);
            let resent = if whole { block.left } else { begin };
            self.blocks[at] = Block { lost: false, overtaken: false, resent, once: block.once && none, ..block };
            if block.left == block.right {
                self.blocks.remove(at, 1);
            }
        }
    }

    /// Judges by an acknowledgement, once its blocks are taken in, whether a loss was one. Where it was none, recovery
    /// is over, and what is held for lost is not sent again.
    pub fn check_spurious(&mut self, update: &AckUpdate) -> Verdict {
        let active = self.active;
        let Some(rack) = &mut self.rack else { return Verdict::Open };
        let verdict = rack.spurious.decide(update, active);
        if verdict == Verdict::Spurious {
            rack.undo.disarm();
            rack.prr = None;
            self.undo(update.una);
        }
        verdict
    }

    /// F-RTO has something new under way, whose answer decides.
    pub fn awaits_answer(&self) -> bool {
        self.rack.as_ref().is_some_and(|rack| rack.spurious.sends_new_only())
    }

    /// F-RTO has nothing new to send.
    pub fn send_lost_all_the_same(&mut self) {
        self.rack().spurious.give_up();
    }

    /// Something is sent again from `begin` on, with this timestamp. True for the first one after a timeout, where no
    /// earlier transmission has the same timestamp: the least timeout is a tick of that clock.
    pub fn note_stamp(&mut self, begin: Seq, stamp: u32) -> bool {
        let rack = self.rack();
        rack.spurious.note_resent(begin, stamp);
        std::mem::take(&mut rack.timed_out) & (rack.last_stamp.replace(stamp) != Some(stamp))
    }

    /// A tail loss probe was sent that ends before `end`: something sent `again`, or something new.
    pub fn begin_probe(&mut self, end: Seq, again: bool) {
        self.probing = true;
        self.rack().begin_probe(end, again);
    }

    /// A tail loss probe is under way.
    #[inline]
    pub fn is_probing(&self) -> bool {
        self.probing
    }

    /// An acknowledgement up to `ack` came that reports `dsack`, or is a `duplicate` without SACK blocks. True where
    /// the probe that is under way has repaired a loss.
    pub fn judge_probe(&mut self, ack: Seq, dsack: Option<(Seq, Seq)>, duplicate: bool) -> bool {
        let judged = self.rack().judge_probe(ack, dsack, duplicate);
        self.probing &= judged.is_none();
        judged == Some(true)
    }

    /// A round-trip time was measured, nanoseconds.
    pub fn note_rtt(&mut self, rtt: u32) {
        self.rack().latest = rtt;
    }

    /// When the wait of the first hole that may be late is over: [`Scoreboard::find_lost`] then.
    pub fn due(&self) -> Option<Nanos> {
        self.rack.as_ref().map(|rack| rack.due).filter(|due| *due > 0)
    }

    /// Whether a timer runs for [`Scoreboard::due`], as it was before; from now on, `runs`.
    pub fn set_timed(&mut self, runs: bool) -> bool {
        std::mem::replace(&mut self.rack().timed, runs)
    }

    /// All from `una` to `max` is lost, and what was selectively acknowledged counts for nothing (RFC 2018
    /// section 8).
    // Meets RFC 2018: 8-a.
    pub fn lose_all(&mut self, una: Seq, max: Seq) {
        self.blocks.truncate(0);
        self.rack.iter_mut().for_each(|rack| (rack.due, rack.prr) = (0, None));
        self.push_end(una, max);
        if una != max {
            self.begin(max);
        }
    }

    /// The retransmission timer ended. Of what was sent before, what lies before `recent` had its time and is lost. The
    /// rest may be on its way: it is lost as soon as something comes that was sent after now.
    // Meets RFC 8985: 6.3-a.
    pub fn time_out(&mut self, at: &Timeout) {
        let Timeout { una, max, recent, mss } = *at;
        let (first, from, probed) = (!self.active, self.touched(una), self.rack().probe_begin(mss));
        self.lose(una, max);
        let end = probed.map_or(recent, |probed| if probed.before(recent) { probed } else { recent });
        self.rack().spurious.time_out(from, end, first);
        self.rack().timed_out = true;
        self.lose_all(una, recent);
        self.start(max);
        if recent.before(max) {
            let stamp = self.rack().resent;
            let rest =
                Block { left: max, right: max, resent: recent, mark: max, stamp, once: true, ..Block::default() };
            self.blocks.insert(self.blocks.len(), rest);
        }
    }

    /// Behind all that the peer has, or that was sent again.
    fn touched(&self, una: Seq) -> Seq {
        let mut end = una;
        for (at, block) in self.blocks.iter().enumerate() {
            let sent_again = !block.once || block.resent != self.hole_start(at, una);
            end = if block.left != block.right {
                block.right
            } else if sent_again {
                block.left
            } else {
                end
            };
        }
        end
    }

    /// What lies between `una` and `end` is lost, and nothing beyond it is known.
    fn push_end(&mut self, una: Seq, end: Seq) {
        if una.before(end) {
            let stamp = self.rack().resent;
            let whole = Block { left: end, right: end, resent: una, mark: end, stamp, ..Block::default() };
            self.blocks.insert(0, Block { lost: true, once: true, ..whole });
        }
    }

    /// Takes in a block that the peer has beyond a hole, where what it reports was sent at all. True where that is new.
    // Meets RFC 2018: 5-a.
    pub fn note_block(&mut self, left: Seq, right: Seq, una: Seq, max: Seq, moment: &RackInput) -> bool {
        if !una.before(left) || !left.before(right) || max.before(right) {
            return false;
        }
        let from = self.blocks.iter().take_while(|block| block.right.before(left)).count();
        let touched = self.blocks[from..].iter().take_while(|block| block.left.at_or_before(right)).count();
        let begin = self.hole_start(from, una);
        for at in from..=from + touched {
            self.note_delivered(at, self.hole_start(at, una), left, right, moment);
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
                let stamp = self.rack().resent;
                Block { left, right, resent: begin, mark: right, stamp, once: true, ..Block::default() }
            }
        };
        let block = block.up_to(left);
        self.blocks.insert(at, block);
        self.follow(at);
        self.several |= self.blocks.iter().filter(|block| block.left != block.right).count() > 1;
        true
    }

    /// The peer has `left` to `right`, which may be a part of the hole that begins at `begin` before block `at`. True
    /// where that was sent again. What comes sooner after that than any round trip is what was sent before (RFC 8985
    /// section 6.2, step 2). What was not sent again, and comes when the peer has something beyond it, was overtaken
    /// (step 3).
    // Meets RFC 8985: 6.2-b, 6.2-c.
    fn note_delivered(&mut self, at: usize, begin: Seq, left: Seq, right: Seq, moment: &RackInput) -> bool {
        let Some(block) = self.blocks.get(at).copied() else { return false };
        if !begin.before(right) || !left.before(block.left) {
            return false;
        }
        let again = begin.before(block.resent) && left.before(block.resent);
        if block.once {
            let right = if block.left.before(right) { block.left } else { right };
            self.rack().spurious.note_original(left.max(block.resent), right);
        }
        if again {
            let early =
                !block.overtaken && moment.least != u32::MAX && moment.now < block.time + u64::from(moment.least);
            let stamp = block.up_to(right).stamp;
            let rack = self.rack();
            if !early {
                rack.delivered = Seq(rack.delivered).max(Seq(stamp)).0;
            }
        } else if block.once && self.blocks[at..].iter().any(|block| block.left != block.right) {
            self.rack().reordered = true;
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
    pub fn acknowledge(&mut self, old: Seq, una: Seq, with_sack: bool, moment: &RackInput) {
        let past = self.recover.before(una) || (with_sack && self.recover == una);
        if past && self.active {
            self.active = false;
            self.rack().recovered();
        }
        let gone = self.blocks.iter().take_while(|block| block.left.at_or_before(una)).count();
        let mut filled = None;
        for at in 0..=gone {
            let begin = self.hole_start(at, old);
            if self.note_delivered(at, begin, begin, una, moment) && at < gone {
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

    /// Three acknowledgements report a hole at the front: without reordering so far, it is lost (RFC 6675 section 5,
    /// step 4.1).
    pub fn lose_front(&mut self) {
        let reordered = self.rack.as_ref().is_some_and(|rack| rack.reordered);
        if let Some(first) = self.blocks.first_mut().filter(|_| !reordered) {
            first.lost = true;
        }
    }

    /// Finds what is lost (RFC 8985 section 6.2, step 5): holes whose wait is over. True where there is a hole to be
    /// sent again.
    // Meets RFC 8985: 6.2-a, 6.2-g, 6.2-h.
    pub fn find_lost(&mut self, una: Seq, moment: &RackInput) -> bool {
        if self.blocks.is_empty() {
            self.rack.iter_mut().for_each(|rack| (rack.due, rack.found) = (0, false));
            return false;
        }
        let rack = *self.rack();
        let window = rack.window(self.active || self.is_likely(moment.mss), moment);
        let (mut beyond, mut any, mut found, mut next) = (false, false, false, 0);
        for at in (0..self.blocks.len()).rev() {
            let mut block = self.blocks[at];
            beyond |= block.right != block.left;
            let resent = block.resent == block.left;
            let later = rack.delivered.wrapping_sub(block.stamp) as i32 > 0 || self.bytes_from(block.mark) > 0;
            if (resent && later) || (!resent && !block.lost && (beyond || later)) {
                block.time = if block.overtaken { block.time } else { moment.now };
                let due = block.time + window;
                block.overtaken = moment.now < due;
                if block.overtaken {
                    next = if next == 0 { due } else { due.min(next) };
                } else {
                    (block.lost, found) = (true, true);
                    if resent {
                        (block.resent, block.once) = (self.hole_start(at, una), false);
                    }
                }
                self.blocks[at] = block;
            }
            any |= block.lost && block.resent != block.left;
        }
        let rack = self.rack();
        (rack.due, rack.found) = (next, found);
        any
    }

    /// A loss is likely: the peer has three segments beyond a hole (`RACK.segs_sacked`).
    fn is_likely(&self, mss: u32) -> bool {
        let blocks = self.blocks.iter().filter(|block| block.left != block.right).count();
        self.sacked() > u32::from(DUPLICATES - 1) * mss || blocks >= DUPLICATES.into() || self.blocks[0].lost
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
        if self.rack.as_ref().is_some_and(|rack| rack.spurious.sends_new_only()) {
            return None;
        }
        let block = self.blocks.iter().find(|block| block.lost && block.resent != block.left)?;
        Some((block.resent, block.left - block.resent))
    }

    /// Segments of at most `most` bytes in which all that is lost would be sent again.
    pub fn lost_segments(&self, most: u32) -> u32 {
        let lost = self.blocks.iter().filter(|block| block.lost);
        lost.map(|block| (block.left - block.resent).div_ceil(most)).sum()
    }

    /// Bytes up to `end` of what [`Scoreboard::next_lost`] gave were sent again now, `max` being after all that
    /// was ever sent.
    pub fn note_resent(&mut self, end: Seq, max: Seq, now: Nanos) {
        let lost = self.blocks.iter().position(|block| block.lost && block.resent != block.left);
        let Some(at) = lost else { return };
        let block = self.blocks[at];
        let end = if block.left.before(end) { block.left } else { end };
        let rack = self.rack();
        rack.undo.note_resent(end - block.resent);
        rack.resent = rack.resent.wrapping_add(end - block.resent);
        let stamp = rack.resent;
        self.blocks[at] = Block { resent: end, mark: max, stamp, time: now, overtaken: false, ..block };
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

    /// Of these, bytes before `end`.
    pub fn sacked_before(&self, end: Seq) -> u32 {
        let before = |seq: Seq| if seq.before(end) { seq } else { end };
        self.blocks.iter().map(|block| before(block.right) - before(block.left)).sum()
    }
}

#[cfg(test)]
mod tests;
