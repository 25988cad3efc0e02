//! Sends by reference: parts of a transmit stream that lie in the program's memory instead of the ring
//! (docs/ZERONIC.md, "Sends by reference").
//!
//! A program *posts* a buffer of the region's heap: from position `pos` of the stream on, `len` bytes lie there. They
//! stay there, unchanged, until the peer has acknowledged them. The engine looks posts up when it needs payload. Posts
//! are a ring of entries and a count; the program writes both. An entry is used again once its bytes are acknowledged,
//! so nothing is given back, and nobody waits.
use super::direct::Post;
use super::heap_words::HeapWords;
use super::layout::SEND_BYTES;
use crate::Geometry;
use shm::{ByteRing, Region};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Entries of a slot.
const ENTRIES: u32 = 64;
/// Bytes of an entry: position, offset in the heap, length.
const ENTRY_BYTES: usize = 12;
/// Where they begin.
const ENTRIES_AT: usize = SEND_BYTES - ENTRIES as usize * ENTRY_BYTES;
/// Where the counts of bytes begin, one for each [`Sent`].
const COUNTS_AT: usize = 16;

/// Posts of a slot that may be under way at once. One entry less than there are: the engine may be reading the one that
/// is written next.
pub const MOST_POSTS: usize = ENTRIES as usize - 1;

/// How bytes went that a program wanted to send by reference, or why they were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// By reference.
    Referred,
    /// Copied: they lie outside the heap.
    Outside,
    /// Copied: the buffer is short.
    Short,
    /// Copied: [`MOST_POSTS`] buffers are under way.
    Crowded,
    /// Copied: another process may have the connection, or the engine refers to nothing.
    Barred,
}

impl Sent {
    /// All, in the order of [`SendWords::counts`].
    pub const ALL: [Sent; 5] = [Sent::Referred, Sent::Outside, Sent::Short, Sent::Crowded, Sent::Barred];
}

/// What an engine has taken in of a slot's posts.
#[derive(Debug, Default)]
pub struct Taken {
    count: u32,
    last: Option<Post>,
}

/// The words of a slot about sends by reference, as either side sees them. Positions are stream positions modulo 2^32.
pub struct SendWords {
    place: HeapWords,
}

impl SendWords {
    /// Those of slot `index`; none where the region has no heap.
    #[inline]
    pub fn new(region: &Arc<Region>, geometry: &Geometry, index: u32) -> Option<SendWords> {
        HeapWords::new(region, geometry, index, Geometry::sends_at).map(|place| SendWords { place })
    }

    /// Those of another slot of the same region.
    pub fn of_slot(&self, index: u32) -> Option<SendWords> {
        SendWords::new(&self.place.region, &self.place.geometry, index)
    }

    /// The heap: an offset is a position of this ring. Nothing lies outside it.
    ///
    /// # Errors
    /// The region is not laid out so.
    pub fn heap(&self) -> io::Result<ByteRing> {
        self.place.heap()
    }

    /// The use of the slot ([`crate::Slot::mark`]) whose posts these are; 0 for none.
    fn used_by(&self) -> &AtomicU32 {
        self.place.region.u32_at(self.place.at)
    }

    /// The use of the slot whose posts the engine looks up.
    fn accepts(&self) -> &AtomicU32 {
        self.place.region.u32_at(self.place.at + 4)
    }

    fn count_word(&self) -> &AtomicU32 {
        self.place.region.u32_at(self.place.at + 8)
    }

    fn word(&self, number: u32, field: usize) -> &AtomicU32 {
        let at = ENTRIES_AT + (number % ENTRIES) as usize * ENTRY_BYTES + 4 * field;
        self.place.region.u32_at(self.place.at + at)
    }

    /// Bytes that were sent in each way, in the order of [`Sent::ALL`], as the program reports.
    pub fn counts(&self) -> [u64; 5] {
        Sent::ALL.map(|how| self.place.region.u64_at(self.place.at + COUNTS_AT + 8 * how as usize).load(Relaxed))
    }
}

/// The program's side.
impl SendWords {
    /// Another connection is in the slot.
    pub fn begin(&self) {
        self.used_by().store(0, Release);
        Sent::ALL
            .iter()
            .for_each(|how| self.place.region.u64_at(self.place.at + COUNTS_AT + 8 * *how as usize).store(0, Relaxed));
    }

    /// Whether the engine looks up posts of this use of the slot.
    pub fn may_post(&self, mark: u32) -> bool {
        self.accepts().load(Acquire) == mark
    }

    /// Adds a post, before the engine is notified of its bytes. At most [`MOST_POSTS`] may be under way, and positions
    /// only move on.
    pub fn post(&self, mark: u32, Post { pos, at, len }: Post) {
        if self.used_by().load(Relaxed) != mark {
            self.count_word().store(0, Relaxed);
            self.used_by().store(mark, Release);
        }
        let number = self.count_word().load(Relaxed);
        for (field, value) in [pos, at, len].into_iter().enumerate() {
            // Who reads one of them sees that the entries before were added.
            self.word(number, field).store(value, Release);
        }
        self.count_word().store(number.wrapping_add(1), Release);
    }

    /// The last post has so many bytes now: what follows in the stream follows in the heap as well.
    pub fn extend(&self, len: u32) {
        let last = self.count_word().load(Relaxed).wrapping_sub(1);
        self.word(last, 2).store(len, Release);
    }

    /// So many bytes went that way.
    pub fn count(&self, how: Sent, bytes: u32) {
        let count = self.place.region.u64_at(self.place.at + COUNTS_AT + 8 * how as usize);
        count.store(count.load(Relaxed).wrapping_add(bytes.into()), Relaxed);
    }
}

/// The engine's side. The program may have written anything anywhere: it can only name its own heap.
impl SendWords {
    /// From now on, posts of this use of the slot are looked up.
    pub fn accept(&self, mark: u32) {
        self.accepts().store(mark, Release);
    }

    /// Takes in what was posted since the last time: gives it to `add`, in order. Posts that lie elsewhere than in the
    /// heap are left out.
    pub fn take_in(&self, mark: u32, taken: &mut Taken, mut add: impl FnMut(Post)) {
        if self.used_by().load(Acquire) != mark {
            return;
        }
        let count = self.count_word().load(Acquire);
        if let Some(more) = self.extension(count, taken) {
            self.checked(more).into_iter().for_each(&mut add);
        }
        // Those before are acknowledged.
        let new = count.wrapping_sub(taken.count).min(MOST_POSTS as u32);
        for number in (0..new).map(|at| count.wrapping_sub(new - at)) {
            let [pos, at, len] = [0, 1, 2].map(|field| self.word(number, field).load(Acquire));
            taken.last = self.is_whole(number).then_some(Post { pos, at, len });
            taken.last.and_then(|post| self.checked(post)).into_iter().for_each(&mut add);
        }
        taken.count = count;
    }

    /// What the last post that was taken in has grown by.
    fn extension(&self, count: u32, taken: &mut Taken) -> Option<Post> {
        let (last, number) = (taken.last.as_mut()?, taken.count.wrapping_sub(1));
        let len = (count.wrapping_sub(number) < ENTRIES).then(|| self.word(number, 2).load(Acquire))?;
        let more = len.checked_sub(last.len).filter(|more| *more > 0 && self.is_whole(number))?;
        let Post { pos, at, len: before } = *last;
        last.len = len;
        Some(Post { pos: pos.wrapping_add(before), at: at.wrapping_add(before), len: more })
    }

    /// An entry that was just read is that of this post still: the program does not write the next one to its place.
    fn is_whole(&self, number: u32) -> bool {
        self.count_word().load(Acquire).wrapping_sub(number) < ENTRIES
    }

    fn checked(&self, post: Post) -> Option<Post> {
        (post.len > 0 && self.place.holds(post.at, post.len)).then_some(post)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Growing, LongPaths};

    const HEAP: u32 = 65_536;

    fn words() -> SendWords {
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
            heap_bytes: HEAP,
        };
        assert!(geometry.is_valid());
        let region = Arc::new(geometry.create_region("test").unwrap());
        assert!(SendWords::new(&region, &geometry, 4).is_none());
        assert!(SendWords::new(&region, &Geometry { heap_bytes: 0, ..geometry }, 3).is_none());
        SendWords::new(&region, &geometry, 3).unwrap()
    }

    fn post(pos: u32, at: u32, len: u32) -> Post {
        Post { pos, at, len }
    }

    fn new_posts(words: &SendWords, taken: &mut Taken) -> Vec<Post> {
        let mut new = Vec::new();
        words.take_in(7, taken, |post| new.push(post));
        new
    }

    #[test]
    fn posts_and_what_they_grow_by_come_once_and_in_order() {
        let (words, mut taken) = (words(), Taken::default());
        assert!(!words.may_post(7));
        words.accept(7);
        assert!(words.may_post(7) && !words.may_post(8));
        words.post(7, post(10, 100, 20));
        words.post(7, post(40, 4096, 5));
        assert_eq!(new_posts(&words, &mut taken), [post(10, 100, 20), post(40, 4096, 5)]);
        words.extend(9);
        words.post(7, post(60, 0, 1));
        assert_eq!(new_posts(&words, &mut taken), [post(45, 4101, 4), post(60, 0, 1)]);
        assert!(new_posts(&words, &mut taken).is_empty());
        words.begin();
        words.post(7, post(0, 0, 1));
        assert_eq!(new_posts(&words, &mut Taken::default()), [post(0, 0, 1)], "another connection in the slot");
    }

    #[test]
    fn an_engine_that_comes_later_has_all_that_may_be_under_way() {
        let words = words();
        for number in 0..1000 {
            words.post(7, post(number, number, 1));
        }
        let mut taken = Taken::default();
        let new = new_posts(&words, &mut taken);
        assert_eq!((new.len(), new[0], new[62]), (MOST_POSTS, post(937, 937, 1), post(999, 999, 1)));
        assert!(new_posts(&words, &mut taken).is_empty());
        assert!(new_posts(&words, &mut Taken { count: 990, last: None }).len() == 10);
    }

    #[test]
    fn posts_of_others_and_outside_the_heap_are_left_out() {
        let (words, mut taken) = (words(), Taken::default());
        words.post(8, post(0, 0, 1));
        assert!(new_posts(&words, &mut taken).is_empty(), "of another use of the slot");
        for (at, len) in [(HEAP, 1), (HEAP - 1, 2), (u32::MAX, 2), (0, u32::MAX), (5, 0)] {
            words.post(7, post(0, at, len));
        }
        words.post(7, post(0, HEAP - 1, 1));
        assert_eq!(new_posts(&words, &mut taken), [post(0, HEAP - 1, 1)]);
        words.extend(2);
        assert!(new_posts(&words, &mut taken).is_empty(), "it grows out of the heap");
    }

    #[test]
    fn bytes_are_counted_by_the_way_they_went() {
        let words = words();
        words.count(Sent::Short, 5);
        words.count(Sent::Referred, u32::MAX);
        words.count(Sent::Referred, 1);
        assert_eq!(words.counts(), [1 << 32, 0, 5, 0, 0]);
        words.begin();
        assert_eq!(words.counts(), [0; 5]);
    }
}
