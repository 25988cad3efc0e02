//! Sends by reference: parts of a transmit stream lie in the program's memory until they are acknowledged
//! (docs/ZERONIC.md, "Sends by reference"). What they are follows from [`context::SendWords`].
use context::{MOST_POSTS, Post, SendWords, Taken};
use port::{Piece, Source};
use shm::{ByteRing, Span};
use std::collections::VecDeque;
use std::sync::Arc;

/// A row of bytes that is shorter is copied into a frame: a frame of its own would cost more.
const LEAST_ROW: u32 = 4096;
/// Parts that are kept of a connection.
const MOST_PARTS: usize = MOST_POSTS;

/// What a connection sends by reference.
pub(super) struct Referred {
    words: SendWords,
    heap: Arc<ByteRing>,
    /// The use of the slot.
    mark: u32,
    taken: Taken,
    /// Parts of the stream that lie in the program's memory and are not acknowledged, in the order of posting.
    parts: VecDeque<Post>,
}

/// Where bytes of a stream lie that follow each other there.
pub(super) struct Row {
    /// Its bytes.
    pub(super) len: u32,
    /// Their place in the heap; none where they lie in the transmit ring.
    at: Option<u32>,
}

impl Referred {
    /// For a use of the slot whose words these are. From now on, its program may post.
    pub(super) fn new(words: SendWords, heap: Arc<ByteRing>, mark: u32) -> Referred {
        words.accept(mark);
        Referred { words, heap, mark, taken: Taken::default(), parts: VecDeque::new() }
    }

    /// Takes in what was posted, and forgets what is acknowledged: everything before position `una`.
    #[inline]
    pub(super) fn look(&mut self, una: u32) {
        let (words, parts) = (&self.words, &mut self.parts);
        words.take_in(self.mark, &mut self.taken, |post| add(parts, post));
        let is_over = |part: &Post| part.pos.wrapping_add(part.len).wrapping_sub(una) as i32 <= 0;
        while parts.front().is_some_and(is_over) {
            parts.pop_front();
        }
    }

    /// Where the byte at position `pos` lies, and how many of the `len` from there on follow it.
    #[inline]
    pub(super) fn row(&self, pos: u32, len: u32) -> Row {
        let mut before = len;
        for part in &self.parts {
            let inside = pos.wrapping_sub(part.pos);
            if inside < part.len {
                return Row { len: len.min(part.len - inside), at: Some(part.at + inside) };
            }
            let ahead = part.pos.wrapping_sub(pos);
            before = before.min(if ahead as i32 > 0 { ahead } else { u32::MAX });
        }
        Row { len: before, at: None }
    }

    /// The bytes of a row, by reference; none where they lie in the transmit ring.
    #[inline]
    pub(super) fn span(&self, row: &Row) -> Option<Span> {
        row.at.map(|at| Span::new(&self.heap, at, row.len))
    }
}

impl Referred {
    /// Copies what lies in the program's memory, of `len` bytes from position `pos` on, to its place in a ring.
    pub(super) fn copy_to(&self, ring: &ByteRing, pos: u32, len: u32) {
        let mut done = 0;
        while done < len {
            let row = self.row(pos.wrapping_add(done), len - done);
            if let Some(span) = self.span(&row) {
                ring.write_span(pos.wrapping_add(done), &span);
            }
            done += row.len;
        }
    }
}

/// Adds a post. One that goes on where the last one ends is a part with it.
fn add(parts: &mut VecDeque<Post>, post: Post) {
    let follows = |last: &&mut Post| {
        last.pos.wrapping_add(last.len) == post.pos && last.at + last.len == post.at && last.len <= u32::MAX - post.len
    };
    if let Some(last) = parts.back_mut().filter(follows) {
        last.len += post.len;
        return;
    }
    // A program that posts what it never sends loses its oldest posts.
    if parts.len() == MOST_PARTS {
        parts.pop_front();
    }
    parts.push_back(post);
}

/// The bytes of a transmit stream from position `pos` on, in rows.
pub(super) struct Rows<'a> {
    pub(super) referred: &'a Referred,
    pub(super) ring: &'a Arc<ByteRing>,
    pub(super) pos: u32,
    /// Bytes that were copied into frames.
    pub(super) copied: u64,
    /// Bytes of the program's memory that frames refer to.
    pub(super) referred_to: u64,
}

impl Rows<'_> {
    fn row(&self, at: usize, most: usize) -> Row {
        self.referred.row(self.pos.wrapping_add(at as u32), most as u32)
    }

    fn span(&self, at: usize, row: &Row) -> Span {
        let in_ring = || self.ring.span(self.pos.wrapping_add(at as u32), row.len);
        self.referred.span(row).unwrap_or_else(in_ring)
    }
}

impl Source for Rows<'_> {
    /// A long row is a frame of its own. Short ones are copied, up to the next long one.
    fn next(&mut self, at: usize, most: usize) -> Piece {
        let mut done = 0;
        while done < most {
            let row = self.row(at + done, most - done);
            if row.len >= LEAST_ROW || row.len as usize == most {
                if done > 0 {
                    break;
                }
                self.referred_to += row.at.map_or(0, |_| u64::from(row.len));
                return Piece::Refer(self.span(at, &row));
            }
            done += row.len as usize;
        }
        Piece::Copy(done)
    }

    fn fill(&mut self, at: usize, len: usize, into: &mut Vec<u8>) -> bool {
        let mut done = 0;
        while done < len {
            let row = self.row(at + done, len - done);
            self.span(at + done, &row).append(into);
            done += row.len as usize;
        }
        self.copied += len as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::Region;

    fn referred(parts: &[(u32, u32, u32)]) -> (Referred, Arc<ByteRing>) {
        let geometry = context::Geometry {
            slots: 1,
            long: context::LongPaths::NONE,
            growing: context::Growing::NONE,
            data_entries: 64,
            control_entries: 64,
            rx_bytes: 16_384,
            tx_bytes: 16_384,
            full_slots: 1,
            small_bytes: 0,
            log_bytes: 0,
            heap_bytes: 65_536,
        };
        let region = Arc::new(geometry.create_region("test").unwrap());
        let words = SendWords::new(&region, &geometry, 0).unwrap();
        let heap = Arc::new(words.heap().unwrap());
        heap.write(0, &vec![9; 65_536]);
        for (pos, at, len) in parts {
            words.post(1, Post { pos: *pos, at: *at, len: *len });
        }
        let ring = Arc::new(ByteRing::map(&Arc::new(Region::create("ring", 16_384).unwrap()), 0, 16_384).unwrap());
        let mut referred = Referred::new(words, heap, 1);
        referred.look(u32::MAX - 99);
        (referred, ring)
    }

    const BEGIN: u32 = u32::MAX - 99;

    fn from(offset: u32) -> u32 {
        BEGIN.wrapping_add(offset)
    }

    #[test]
    fn rows_are_of_the_heap_or_of_the_ring() {
        let (mut referred, _ring) = referred(&[(from(50), 0, 100), (from(200), 4096, 8)]);
        let rows = |referred: &Referred, pos, len| {
            let row = referred.row(from(pos), len);
            (row.len, row.at)
        };
        assert_eq!(rows(&referred, 0, 20), (20, None));
        assert_eq!(rows(&referred, 0, 80), (50, None));
        assert_eq!([rows(&referred, 50, 500), rows(&referred, 120, 10)], [(100, Some(0)), (10, Some(70))]);
        assert_eq!([rows(&referred, 150, 500), rows(&referred, 204, 9)], [(50, None), (4, Some(4100))]);
        assert_eq!(rows(&referred, 208, 9000), (9000, None));
        referred.look(from(150));
        assert_eq!((referred.parts.len(), rows(&referred, 150, 500)), (1, (50, None)));
        referred.look(from(208));
        assert!(referred.parts.is_empty(), "all of it is acknowledged");
    }

    #[test]
    fn short_rows_share_a_frame_and_long_ones_have_their_own() {
        let (referred, ring) = referred(&[(from(100), 0, 10), (from(300), 4096, 5000)]);
        let mut rows = Rows { referred: &referred, ring: &ring, pos: BEGIN, copied: 0, referred_to: 0 };
        let all = 6000;
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < all {
            let len = match rows.next(at, all - at) {
                Piece::Refer(span) => {
                    pieces.push(("refer", span.len()));
                    span.len()
                }
                Piece::Copy(len) => {
                    pieces.push(("copy", len));
                    let mut bytes = Vec::new();
                    assert!(rows.fill(at, len, &mut bytes) && bytes.len() == len);
                    let expected = |i: usize| if (100..110).contains(&(at + i)) { 9 } else { 0 };
                    assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == expected(i)));
                    len
                }
            };
            at += len;
        }
        assert_eq!(pieces, [("copy", 300), ("refer", 5000), ("refer", 700)]);
        assert_eq!((rows.copied, rows.referred_to), (300, 5000));
    }

    #[test]
    fn what_is_kept_of_a_hostile_program_is_bounded() {
        let (mut referred, _ring) = referred(&[]);
        for number in 0..10_000u32 {
            referred.words.post(1, Post { pos: number.wrapping_mul(77_777), at: number % 60_000, len: 1 });
            referred.look(BEGIN);
            assert!(referred.parts.len() <= MOST_PARTS);
        }
    }
}
