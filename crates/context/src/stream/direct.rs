//! Direct stretches: a part of a received stream that lands in the program's memory, beside the ring
//! (docs/ZERONIC.md, "Direct receives").
//!
//! A program's receive *posts* a buffer of the region's heap: from position `pos` of the stream on, `len` bytes belong
//! there. The engine *takes* the post with the first bytes that it places afterwards. From that position on, everything
//! up to the end of the stretch goes to the buffer, and nothing of it to the ring. While it writes, in a batch of
//! frames, it *holds* the stretch. Between two batches the program takes the stretch back by itself, where nothing lies
//! there without a completion. Otherwise it asks, and the engine gives the stretch back with its next batch.
//!
//! One word has the owner. Each side changes it by compare-and-exchange. Each change of owner counts, so a
//! load and the change that follows from it cannot belong to different owners.
use super::heap_words::HeapWords;
use crate::Geometry;
use shm::{ByteRing, Region};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The program has posted a buffer.
const POSTED: u32 = 1;
/// The engine has taken it: bytes may lie there.
const TAKEN: u32 = 2;
/// The engine is writing.
const HELD: u32 = 4;
/// The program has asked for it back.
const WANTED: u32 = 8;
const ALL: u32 = POSTED | TAKEN | HELD | WANTED;
/// The other bits of the word count changes of owner.
const OWNER_CHANGE: u32 = ALL + 1;

/// Places of the words behind the count of landed bytes, which has eight bytes. They are the owner, the stream position
/// of the buffer's first byte, its offset in the heap, its length. And the engine's: where the stretch begins, how far
/// anything lies there, where it ended.
const WORDS: [usize; 7] = [8, 12, 16, 20, 24, 28, 32];

/// The words of a slot about its direct stretch, as either side sees them. Positions are stream positions modulo 2^32.
pub struct DirectWords {
    place: HeapWords,
}

/// Post of a buffer, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    /// The stream position of its first byte.
    pub pos: u32,
    /// The offset of that byte in the heap.
    pub at: u32,
    /// Its bytes.
    pub len: u32,
}

/// Target of bytes that the engine is about to place.
#[derive(Debug, PartialEq, Eq)]
pub enum PlacementTarget {
    /// There is no stretch.
    None,
    /// A new post, which it holds now.
    New,
    /// The stretch that it has taken before, which it holds now.
    Same,
}

/// Whether a stretch is the program's again.
#[derive(Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// Nothing is written there any more.
    Done,
    /// The engine gives it back with its next batch: ring its bell, and poll again.
    Asked,
}

impl DirectWords {
    /// Those of slot `index`; none where the region has no heap.
    #[inline]
    pub fn new(region: &Arc<Region>, geometry: &Geometry, index: u32) -> Option<DirectWords> {
        HeapWords::new(region, geometry, index, Geometry::direct_at).map(|place| DirectWords { place })
    }

    /// Those of another slot of the same region.
    pub fn of_slot(&self, index: u32) -> Option<DirectWords> {
        DirectWords::new(&self.place.region, &self.place.geometry, index)
    }

    /// The heap, as the engine writes it: an offset is a position of this ring. Nothing lies outside it.
    ///
    /// # Errors
    /// The region is not laid out so.
    pub fn heap(&self) -> io::Result<ByteRing> {
        self.place.heap()
    }

    fn word(&self, number: usize) -> &AtomicU32 {
        self.place.region.u32_at(self.place.at + WORDS[number])
    }
    fn owner(&self) -> &AtomicU32 {
        self.word(0)
    }
    fn from(&self) -> &AtomicU32 {
        self.word(4)
    }
    fn high(&self) -> &AtomicU32 {
        self.word(5)
    }
    fn end(&self) -> &AtomicU32 {
        self.word(6)
    }

    /// Changes the owner from `now`, which was just read. False where the other side was faster.
    fn change(&self, now: u32, marks: u32) -> bool {
        let next = (now & !ALL).wrapping_add(OWNER_CHANGE) | marks;
        self.owner().compare_exchange(now, next, AcqRel, Acquire).is_ok()
    }

    /// Bytes that have landed directly since the connection began.
    pub fn landed_bytes(&self) -> u64 {
        self.place.region.u64_at(self.place.at).load(Relaxed)
    }
}

/// The program's side.
impl DirectWords {
    /// A new connection is in the slot.
    pub fn begin(&self) {
        self.place.region.u64_at(self.place.at).store(0, Relaxed);
        self.owner().store(0, Release);
    }

    /// Posts a buffer. False where the engine still holds the one before.
    pub fn post(&self, Post { pos, at, len }: Post) -> bool {
        let now = self.owner().load(Acquire);
        if now & ALL != 0 {
            return false;
        }
        for (number, value) in [(1, pos), (2, at), (3, len)] {
            self.word(number).store(value, Relaxed);
        }
        // Until it is taken, nothing lies there.
        for word in [self.from(), self.high(), self.end()] {
            word.store(pos.wrapping_add(len), Relaxed);
        }
        self.change(now, POSTED)
    }

    /// What was posted last.
    pub fn posted(&self) -> Post {
        let [pos, at, len] = [1, 2, 3].map(|number| self.word(number).load(Relaxed));
        Post { pos, at, len }
    }

    /// Which of the `len` bytes from position `head` on lie in the buffer, where the program has a completion of them,
    /// or has taken the stretch back: offsets from `head`.
    pub fn landed(&self, head: u32, len: u32) -> Range<u32> {
        let over = self.owner().load(Acquire) & ALL == 0;
        let post = self.posted();
        let relative = |position: u32| position.wrapping_sub(post.pos).min(post.len);
        let from = relative(self.from().load(Relaxed));
        let to = if over { relative(self.end().load(Relaxed)) } else { post.len };
        let skipped = head.wrapping_sub(post.pos);
        let (from, to) = (from.saturating_sub(skipped).min(len), to.saturating_sub(skipped).min(len));
        if from < to { from..to } else { 0..0 }
    }

    /// Takes the stretch back from an engine whose completions were taken in up to position `tail`.
    pub fn take_back(&self, tail: u32) -> TakenBack {
        loop {
            let now = self.owner().load(Acquire);
            if now & ALL == 0 {
                return TakenBack::Done;
            }
            let high = self.high().load(Relaxed);
            let reported = now & TAKEN == 0 || high.wrapping_sub(tail) as i32 <= 0;
            if now & HELD == 0 && reported {
                if self.change(now, 0) {
                    self.end().store(high, Relaxed);
                    return TakenBack::Done;
                }
            } else if now & WANTED != 0 || self.change(now, now & ALL | WANTED) {
                return TakenBack::Asked;
            }
        }
    }

    /// The engine is gone: all that may lie there does. A stretch that was over before stays as it ended.
    pub fn abandon(&self) {
        let now = self.owner().load(Acquire);
        if now & ALL == 0 {
            return;
        }
        let Post { pos, len, .. } = self.posted();
        if now & TAKEN == 0 {
            self.from().store(pos.wrapping_add(len), Relaxed);
        }
        self.end().store(pos.wrapping_add(len), Relaxed);
        self.owner().store((now & !ALL).wrapping_add(OWNER_CHANGE), Release);
    }
}

/// The engine's side. The program may have written anything anywhere: it can only name its own heap.
impl DirectWords {
    /// Before bytes are placed: holds what there is. A new post only where `may_begin`.
    pub fn hold(&self, may_begin: bool) -> PlacementTarget {
        loop {
            let now = self.owner().load(Acquire);
            let is_new = now & TAKEN == 0;
            if now & POSTED == 0 || now & HELD != 0 || (is_new && (!may_begin || now & WANTED != 0)) {
                return PlacementTarget::None;
            }
            if self.change(now, now & ALL | HELD) {
                return if is_new { PlacementTarget::New } else { PlacementTarget::Same };
            }
        }
    }

    /// Begins the stretch of a new post, which is held, at a position: before a byte is written. Nothing where the post
    /// makes no sense.
    pub fn begin_at(&self, from: u32) -> Option<Post> {
        let post = self.posted();
        if !self.place.holds(post.at, post.len) || from.wrapping_sub(post.pos) >= post.len {
            return None;
        }
        self.from().store(from, Relaxed);
        self.high().store(from, Relaxed);
        self.owner().fetch_or(TAKEN, AcqRel);
        Some(post)
    }

    /// So many more bytes have landed.
    pub fn count(&self, landed: u32) {
        let count = self.place.region.u64_at(self.place.at);
        count.store(count.load(Relaxed).wrapping_add(landed.into()), Relaxed);
    }

    /// After a batch: the program may take the stretch back, in which something lies up to position `high`. False where
    /// it has asked for it: then [`DirectWords::give_back`] follows.
    pub fn release(&self, high: u32) -> bool {
        self.high().store(high, Relaxed);
        loop {
            let now = self.owner().load(Acquire);
            if now & WANTED != 0 {
                return false;
            }
            if self.change(now, now & (POSTED | TAKEN)) {
                return true;
            }
        }
    }

    /// The program has asked for what it has posted.
    pub fn is_wanted(&self) -> bool {
        self.owner().load(Acquire) & WANTED != 0
    }

    /// The stretch, which is held, ends at a position: what follows lies in the ring.
    pub fn give_back(&self, end: u32) {
        self.end().store(end, Relaxed);
        let now = self.owner().load(Relaxed);
        self.owner().store((now & !ALL).wrapping_add(OWNER_CHANGE), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Growing, LongPaths};

    fn words() -> DirectWords {
        let geometry = Geometry {
            slots: 4,
            long: LongPaths::NONE,
            growing: Growing::NONE,
            data_entries: 64,
            control_entries: 64,
            rx_bytes: 8192,
            tx_bytes: 8192,
            full_slots: 4,
            small_bytes: 0,
            log_bytes: 0,
            heap_bytes: 65_536,
        };
        assert!(geometry.is_valid());
        let region = Arc::new(geometry.create_region("test").unwrap());
        assert!(DirectWords::new(&region, &geometry, 4).is_none());
        assert!(DirectWords::new(&region, &Geometry { heap_bytes: 0, ..geometry }, 3).is_none());
        DirectWords::new(&region, &geometry, 3).unwrap()
    }

    const POS: u32 = u32::MAX - 100;
    const POST: Post = Post { pos: POS, at: 4000, len: 1000 };

    fn at(offset: u32) -> u32 {
        POS.wrapping_add(offset)
    }

    #[test]
    fn a_post_that_nobody_takes_is_taken_back_at_once() {
        let words = words();
        assert_eq!(words.hold(true), PlacementTarget::None);
        assert!(words.post(POST) && !words.post(POST));
        assert_eq!((words.landed(POS, 1000), words.hold(false)), (0..0, PlacementTarget::None));
        assert_eq!((words.take_back(POS), words.landed(POS, 1000)), (TakenBack::Done, 0..0));
        assert_eq!(words.hold(true), PlacementTarget::None);
    }

    #[test]
    fn between_batches_the_program_takes_it_back_by_itself() {
        let words = words();
        assert!(words.post(POST));
        assert_eq!(words.hold(true), PlacementTarget::New);
        assert_eq!(words.begin_at(at(50)), Some(POST));
        words.count(100);
        assert!(words.release(at(150)));
        assert_eq!((words.landed(POS, 120), words.landed(at(60), 30)), (50..120, 0..30));
        assert_eq!((words.hold(true), words.landed_bytes()), (PlacementTarget::Same, 100));
        words.count(50);
        assert!(words.release(at(200)));
        assert_eq!(words.take_back(at(200)), TakenBack::Done);
        assert_eq!((words.landed(POS, 300), words.landed_bytes()), (50..200, 150), "what follows is in the ring");
        assert_eq!(words.hold(true), PlacementTarget::None);
        assert!(words.post(POST), "the next one");
    }

    #[test]
    fn bytes_without_a_completion_are_given_back_by_the_engine() {
        let words = words();
        assert!(words.post(POST));
        assert_eq!(words.hold(true), PlacementTarget::New);
        assert_eq!(words.take_back(POS), TakenBack::Asked, "it is being written");
        assert_eq!(words.begin_at(POS), Some(POST));
        assert!(words.is_wanted() && !words.release(at(10)));
        assert_eq!(words.take_back(POS), TakenBack::Asked);
        words.give_back(at(10));
        assert_eq!((words.take_back(POS), words.landed(POS, 20)), (TakenBack::Done, 0..10));
        assert!(words.post(POST));
        assert_eq!(words.hold(true), PlacementTarget::New);
        assert!(words.begin_at(POS).is_some() && words.release(at(500)));
        assert_eq!(words.take_back(at(20)), TakenBack::Asked, "something lies behind a hole");
        assert!(words.is_wanted());
        assert_eq!(words.hold(true), PlacementTarget::Same);
        words.give_back(at(20));
        assert_eq!((words.take_back(at(20)), words.landed(at(5), 100)), (TakenBack::Done, 0..15));
    }

    #[test]
    fn posts_that_make_no_sense_are_not_taken() {
        let words = words();
        let posts = [Post { at: 65_000, ..POST }, Post { at: u32::MAX, ..POST }, Post { len: 0, ..POST }];
        for post in posts {
            assert!(words.post(post));
            assert_eq!((words.hold(true), words.begin_at(POS)), (PlacementTarget::New, None));
            words.give_back(POS);
        }
        assert!(words.post(POST));
        assert_eq!(
            (words.hold(true), words.begin_at(at(1000))),
            (PlacementTarget::New, None),
            "the stream is beyond it"
        );
        words.give_back(at(1000));
    }

    #[test]
    fn without_its_engine_all_that_may_lie_there_does() {
        let words = words();
        assert!(words.post(POST));
        words.abandon();
        assert_eq!(words.landed(POS, 5000), 0..0);
        assert!(words.post(POST));
        assert_eq!(words.hold(true), PlacementTarget::New);
        assert!(words.begin_at(at(7)).is_some());
        words.abandon();
        assert_eq!((words.landed(POS, 5000), words.hold(true)), (7..1000, PlacementTarget::None));
    }

    #[test]
    fn what_was_given_back_before_the_end_stays_where_it_lies() {
        let words = words();
        for end in [300, 1000] {
            assert!(words.post(POST));
            assert_eq!((words.hold(true), words.begin_at(at(7))), (PlacementTarget::New, Some(POST)));
            words.give_back(at(end));
            words.abandon();
            assert_eq!(words.landed(POS, 5000), 7..end, "the bytes from {end} on lie in the ring");
        }
    }
}
