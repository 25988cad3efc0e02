//! Streams that outgrow their rings (docs/MEMORY.md): how a stream goes on in the next one, and how the other side
//! finds it.
use super::{ByteRing, Span};
use crate::rings::{Level, Part, Rings, ease};
use crate::{CACHE_LINE, PAGE, Region};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

impl ByteRing {
    /// The ring of a stream that may go through several: the one of its word, or the first one that there is.
    pub fn map_first(region: &Arc<Region>, rings: Rings) -> io::Result<ByteRing> {
        let Rings { small, full, large, word } = rings;
        let begin = ByteRing::map(region, full.0, full.1)?;
        let later = large.map(|(at, size)| ByteRing::map(region, at, size)).transpose()?;
        let wrong = io::ErrorKind::InvalidInput;
        let grows = later.is_none_or(|later| later.size() > begin.size());
        if !grows || word % 4 != 0 || word.checked_add(4).is_none_or(|end| end > region.len()) {
            return Err(wrong.into());
        }
        let part = |(at, size): (usize, usize)| {
            let page = u32::try_from(at / PAGE).map_err(|_| wrong)?;
            Ok::<_, io::ErrorKind>(Part { page, size: size as u32 })
        };
        let (next, word) = ([Some(part(full)?), large.map(part).transpose()?], u32::try_from(word).map_err(|_| wrong)?);
        let first = match small {
            Some((at, size)) => {
                let fits = at.checked_add(size).is_some_and(|end| end <= region.len());
                if !size.is_power_of_two() || !(CACHE_LINE..full.1).contains(&size) || at % size != 0 || !fits {
                    return Err(wrong.into());
                }
                let usual = full.1.ilog2() as u8;
                ByteRing { next, word, level: Level::Small, usual, ..ByteRing::at(region, at, size)? }
            }
            None => ByteRing { next: [next[1], None], word, ..begin },
        };
        let first = Arc::new(first);
        // Nobody else has it yet, nor one that it grew out of.
        let latest = first.grown().unwrap_or(first);
        Ok(Arc::into_inner(latest).map(|ring| ByteRing { _before: None, ..ring }).ok_or(wrong)?)
    }

    /// Bytes that the last ring holds in which the stream may go on.
    pub fn most(&self) -> u32 {
        self.next.iter().flatten().last().map_or(self.size(), |part| part.size)
    }

    /// Bytes of the ring that the stream usually has: the one after its small one. Of a larger one, that one's.
    pub fn usual(&self) -> u32 {
        1 << self.usual
    }

    /// Bytes that may lie in it before the stream outgrows it, where there is another one.
    pub fn place(&self) -> u32 {
        if self.next[0].is_some() { self.ease() } else { u32::MAX }
    }

    /// Bytes that should be under way in it at most ([`ease`]).
    pub fn ease(&self) -> u32 {
        if self.is_small() { ease(self.size()) } else { self.size() }
    }

    /// It is the small ring of a stream.
    pub fn is_small(&self) -> bool {
        self.level == Level::Small
    }

    /// Which of the stream's rings it is.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The same for descriptors: 0 for the ring in which the stream began, whichever that is.
    pub fn number(&self) -> u8 {
        if self.grown { self.level as u8 } else { 0 }
    }

    /// The stream has outgrown the ring in which it began.
    pub fn has_grown(&self) -> bool {
        self.grown
    }

    /// The stream goes on in the next ring: takes along what lies here from stream position `from` on, and publishes
    /// that to the other side. The same ring where there is none.
    pub fn grow(self: &Arc<ByteRing>, from: u32) -> Arc<ByteRing> {
        let (Some(next), Some(region)) = (self.following(), self.region()) else { return Arc::clone(self) };
        next.write_span(from, &Span::new(self, from, self.size()));
        region.u32_at(self.word as usize).store(next.level as u32, Release);
        Arc::new(next)
    }

    /// The ring for a writer that has stream positions `from` to `end` under way: a later one where they are too many
    /// for this one.
    pub fn holding(self: &Arc<ByteRing>, from: u32, end: u32) -> Arc<ByteRing> {
        let mut ring = Arc::clone(self);
        while end.wrapping_sub(from) > ring.ease() && ring.next[0].is_some() {
            ring = ring.grow(from);
        }
        ring
    }

    /// The ring in which the stream is, where the other side has grown.
    #[inline]
    pub fn grown(self: &Arc<ByteRing>) -> Option<Arc<ByteRing>> {
        self.next[0]?;
        self.later()
    }

    fn later(self: &Arc<ByteRing>) -> Option<Arc<ByteRing>> {
        let level = Level::of(self.region()?.u32_at(self.word as usize).load(Acquire));
        if level <= self.level {
            return None;
        }
        let mut ring = Arc::clone(self);
        while level > ring.level {
            let Some(next) = ring.following() else { break };
            ring = Arc::new(next);
        }
        (!Arc::ptr_eq(&ring, self)).then_some(ring)
    }

    #[cold]
    pub(super) fn later_span(self: &Arc<ByteRing>, pos: u32, len: u32) -> Span {
        Span::new(&self.holding(pos, pos.wrapping_add(len)), pos, len)
    }

    /// The next ring of the stream.
    #[cold]
    fn following(self: &Arc<ByteRing>) -> Option<ByteRing> {
        let part = self.next[0]?;
        let ring = ByteRing::at(self.region()?, part.page as usize * PAGE, part.size as usize).ok()?;
        let level = if self.is_small() { Level::Full } else { Level::Large };
        let (next, before) = ([self.next[1], None], Some(Arc::clone(self)));
        Some(ByteRing { first: self.first, next, word: self.word, level, grown: true, _before: before, ..ring })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_grows_out_of_its_small_ring_on_both_sides() {
        let region = Arc::new(Region::create("test", 3 * PAGE).unwrap());
        let rings = Rings { small: Some((64, 64)), full: (PAGE, 2 * PAGE), large: None, word: 8 };
        let map = || ByteRing::map_first(&region, rings).unwrap().beginning_at(10);
        let (writer, reader) = (Arc::new(map()), Arc::new(map()));
        assert_eq!((writer.size(), writer.most(), writer.is_small()), (64, 2 * PAGE as u32, true));
        let (pos, bytes) = (u32::MAX - 20, *b"around the ring's end and around that of numbers");
        writer.write(pos, &bytes);
        let on_its_way = Span::new(&writer, pos, 48);
        assert!(reader.grown().is_none());
        assert!(Arc::ptr_eq(&writer.holding(pos, pos.wrapping_add(8)), &writer));
        let grown = writer.holding(pos, pos.wrapping_add(9));
        assert_eq!((writer.ease(), grown.ease()), (8, 2 * PAGE as u32));
        assert_eq!((grown.size(), grown.has_grown(), Arc::strong_count(&writer)), (2 * PAGE as u32, true, 3));
        grown.write(pos.wrapping_add(48), &[7; 500]);
        let seen = reader.grown().unwrap();
        let (mut before, mut after) = ([0; 48], [0; 500]);
        seen.read(pos, &mut before);
        seen.read(pos.wrapping_add(48), &mut after);
        assert_eq!((before, after), (bytes, [7; 500]));
        on_its_way.read(&mut before);
        assert_eq!(before, bytes, "the small ring stays as it was");
        assert!(seen.grown().is_none() && Arc::ptr_eq(&grown.grow(0), &grown), "once");
        assert!(map().has_grown() && !writer.has_grown(), "a later mapping begins with the full one");
    }

    #[test]
    fn a_late_reader_finds_the_last_of_three_rings() {
        let region = Arc::new(Region::create("test", 7 * PAGE).unwrap());
        let rings = Rings { small: Some((64, 64)), full: (PAGE, 2 * PAGE), large: Some((3 * PAGE, 4 * PAGE)), word: 8 };
        let map = || Arc::new(ByteRing::map_first(&region, rings).unwrap().beginning_at(10));
        let (writer, reader) = (map(), map());
        assert_eq!(
            (writer.size(), writer.most(), writer.level(), writer.number()),
            (64, 4 * PAGE as u32, Level::Small, 0)
        );
        let pos = u32::MAX - 5000;
        let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        let place = |at: usize| pos.wrapping_add(at as u32);
        writer.write(pos, &bytes[..8]);
        let full = writer.holding(pos, place(2 * PAGE));
        full.write(place(8), &bytes[8..2 * PAGE]);
        let before = Span::new(&full, pos, 2 * PAGE as u32);
        assert_eq!((full.level(), full.number(), full.size()), (Level::Full, 1, 2 * PAGE as u32));
        let seen = reader.grown().unwrap();
        assert_eq!((seen.level(), seen.grown().is_none()), (Level::Full, true));
        let large = full.holding(pos, place(2 * PAGE + 1));
        large.write(place(2 * PAGE), &bytes[2 * PAGE..]);
        for found in [reader.grown().unwrap(), seen.grown().unwrap(), map()] {
            assert_eq!((found.level(), found.number(), found.size()), (Level::Large, 2, 4 * PAGE as u32));
            let mut back = vec![0; 3 * PAGE];
            found.read(pos, &mut back);
            assert!(back == bytes && found.grown().is_none());
        }
        let mut back = vec![0; 2 * PAGE];
        before.read(&mut back);
        assert!(back == bytes[..2 * PAGE], "the ring before stays as it was");
        // From nothing to the last one at once; and where there is no small one, numbers begin with 0 all the same.
        let contiguous = ByteRing::map_first(&region, Rings { word: 16, ..rings }).map(Arc::new).unwrap();
        assert_eq!(contiguous.holding(pos, place(3 * PAGE)).level(), Level::Large);
        let begin = Arc::new(ByteRing::map_first(&region, Rings { small: None, word: 24, ..rings }).unwrap());
        assert_eq!((begin.level(), begin.number(), begin.grow(pos).number()), (Level::Full, 0, 2));
    }

    #[test]
    fn rings_outside_the_region_or_not_larger_are_refused() {
        let region = Arc::new(Region::create("test", 2 * PAGE).unwrap());
        let first = |small, full, large| ByteRing::map_first(&region, Rings { small, full, large, word: 0 }).is_ok();
        let small = |at, size, full| first(Some((at, size)), (full, PAGE), None);
        assert!(small(0, 64, PAGE) && !small(0, 64, 2 * PAGE) && !small(2 * PAGE, 64, PAGE));
        assert!(!small(0, 32, PAGE) && !small(32, 64, PAGE) && !small(0, PAGE, PAGE));
        let large = |at, size| first(None, (PAGE, PAGE), Some((at, size)));
        assert!(large(0, 2 * PAGE) && !large(PAGE, 2 * PAGE) && !large(0, PAGE));
    }
}
