//! Byte rings in a region, and bytes of them by reference.
mod growth;

use crate::rings::{Level, Part};
use crate::{PAGE, Region, copy};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A byte ring of a power-of-two size in a [`Region`], as one side sees it. Positions are stream positions modulo 2^32:
/// byte `pos` of the stream lies at `(pos + first) & (size - 1)`, so bytes in a row lie in at most two pieces.
///
/// It uses the region's own mapping, which it keeps alive. A mapping of its own, twice in a row, would spare the second
/// piece. But it costs four of the 65,530 areas that Linux gives a process by default (`vm.max_map_count`) for each
/// connection. 16,000 connections would be the end.
///
/// A stream may begin in a small ring, go on in a full one, and from there in a large one (docs/MEMORY.md). None of
/// them changes its place. Whoever grows copies what is in use to the next ring ([`ByteRing::grow`]). Both sides go on
/// there, each when it finds the new level ([`ByteRing::look`]). The ring before is not written again, so what still
/// refers to it finds the same bytes.
pub struct ByteRing {
    base: NonNull<u8>,
    /// Its size, a power of two, less one.
    mask: u32,
    /// Where the stream's first byte lies.
    first: u32,
    /// Where the stream may go on: the full ring, the large one.
    next: [Option<Part>; 2],
    /// The place in the region of the word with the ring of the stream.
    word: u32,
    /// Which of the stream's rings it is.
    level: Level,
    /// Bytes of the ring that the stream usually has, as a power of two.
    usual: u8,
    /// It is not the one in which the stream began.
    grown: bool,
    /// The ring that the stream has outgrown, which counts as in use for as long.
    _before: Option<Arc<ByteRing>>,
    /// Keeps the bytes mapped.
    keeper: Keeper,
}

/// What keeps a ring's bytes mapped.
enum Keeper {
    Region(Arc<Region>),
    /// Of memory that somebody else has mapped: such a ring never grows.
    Other {
        _held: Arc<dyn Send + Sync>,
    },
}

// SAFETY: the mapping lives as long as the ByteRing; bytes are only copied in and out.
unsafe impl Send for ByteRing {}
// SAFETY: as above: concurrent copies may tear bytes, which every reader must expect of shared memory.
unsafe impl Sync for ByteRing {}

impl ByteRing {
    /// The ring that is `[at, at + size)` of the region. `at` is page-aligned; `size` is a power of two, at least a
    /// page and at most 2^30 bytes.
    pub fn map(region: &Arc<Region>, at: usize, size: usize) -> io::Result<ByteRing> {
        let fits = at.checked_add(size).is_some_and(|end| end <= region.len());
        if !size.is_power_of_two() || !(PAGE..=1 << 30).contains(&size) || at % PAGE != 0 || !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        ByteRing::at(region, at, size)
    }

    fn at(region: &Arc<Region>, at: usize, size: usize) -> io::Result<ByteRing> {
        let base = NonNull::new(region.address(at, size)).ok_or(io::ErrorKind::InvalidData)?;
        let keeper = Keeper::Region(Arc::clone(region));
        Ok(ByteRing::alone(base, size as u32, keeper))
    }

    /// The only ring of a stream.
    fn alone(base: NonNull<u8>, size: u32, keeper: Keeper) -> ByteRing {
        let (mask, next, level, usual) = (size - 1, [None; 2], Level::Full, size.ilog2() as u8);
        ByteRing { base, mask, first: 0, next, word: 0, level, usual, grown: false, _before: None, keeper }
    }

    /// The `size` bytes at `base` as a ring that is only read: for references to memory that somebody else has mapped.
    /// The size is a power of two of at most 2^30. `held` keeps it mapped.
    ///
    /// # Safety
    /// The bytes are mapped for reading as long as `held` lives, and nobody makes them cease to exist. Where they are
    /// not mapped for writing, nothing writes to the ring.
    pub unsafe fn borrowed(base: NonNull<u8>, size: u32, held: Arc<dyn Send + Sync>) -> ByteRing {
        assert!(size.is_power_of_two() && size <= 1 << 30);
        let keeper = Keeper::Other { _held: held };
        ByteRing::alone(base, size, keeper)
    }

    fn region(&self) -> Option<&Arc<Region>> {
        match &self.keeper {
            Keeper::Region(region) => Some(region),
            Keeper::Other { .. } => None,
        }
    }

    /// The same ring for a stream whose first byte lies `first` bytes in, modulo the size.
    pub fn beginning_at(self, first: u32) -> ByteRing {
        ByteRing { first, ..self }
    }

    /// The same ring in the place of all of a stream's rings, of which the usual one has so many bytes, a power of two.
    pub fn standing_for(self, bytes: u32) -> ByteRing {
        ByteRing { usual: bytes.max(1).ilog2() as u8, ..self }
    }

    /// Bytes that the ring holds.
    #[inline]
    pub fn size(&self) -> u32 {
        self.mask + 1
    }

    /// `len` bytes from stream position `pos` on, by reference; at most [`ByteRing::most`]. A writer may name more
    /// bytes than its ring holds, though it did not let the stream grow. Then the length counts, with what lies there.
    #[inline]
    pub fn span(self: &Arc<ByteRing>, pos: u32, len: u32) -> Span {
        if len > self.size() { self.later_span(pos, len) } else { Span::new(self, pos, len) }
    }

    /// Where stream position `pos` lies, from the ring's beginning.
    #[inline(always)]
    fn offset(&self, pos: u32) -> usize {
        (pos.wrapping_add(self.first) & self.mask) as usize
    }

    /// The pieces of memory in which `len` bytes from stream position `pos` lie. Panics where the ring is shorter.
    #[inline]
    fn pieces(&self, pos: u32, len: usize) -> [(*mut u8, usize); 2] {
        assert!(len <= self.size() as usize);
        let at = self.offset(pos);
        let first = len.min(self.size() as usize - at);
        // SAFETY: `at` is below `size`, and `size` bytes are mapped.
        [(unsafe { self.base.as_ptr().add(at) }, first), (self.base.as_ptr(), len - first)]
    }

    /// Where `len` bytes from stream position `pos` lie, if in one piece: nearly always. (No bytes do not always count
    /// as one.)
    #[inline(always)]
    fn piece(&self, pos: u32, len: usize) -> Option<*mut u8> {
        let at = self.offset(pos);
        // SAFETY: `at` is at most `mask`, and `mask + 1` bytes are mapped.
        (at.wrapping_add(len).wrapping_sub(1) <= self.mask as usize).then(|| unsafe { self.base.as_ptr().add(at) })
    }

    /// Copies `len` bytes of memory into the ring at stream position `pos`.
    ///
    /// # Safety
    /// `from` is valid for `len` bytes.
    #[inline]
    unsafe fn fill(&self, pos: u32, from: *const u8, len: usize) {
        match self.piece(pos, len) {
            // SAFETY: the piece has `len` bytes; they may be those of a ring, even this one.
            Some(to) => unsafe { copy(from, to, len) },
            // SAFETY: as the caller's.
            None => unsafe { self.fill_pieces(pos, from, len) },
        }
    }

    /// # Safety
    /// As [`ByteRing::fill`].
    #[cold]
    unsafe fn fill_pieces(&self, pos: u32, from: *const u8, len: usize) {
        let [(first, first_len), (second, second_len)] = self.pieces(pos, len);
        // SAFETY: `pieces` checked both; the bytes may be those of a ring, even this one.
        unsafe {
            copy(from, first, first_len);
            if second_len > 0 {
                copy(from.add(first_len), second, second_len);
            }
        }
    }

    /// Asks for the line of the cache in which stream position `pos` lies.
    #[inline(always)]
    pub fn prefetch(&self, pos: u32) {
        crate::prefetch_line(self.base.as_ptr().wrapping_add(self.offset(pos)));
    }

    /// The same of that line and the next, for whoever is to write there: a message of less than a line mostly lies in
    /// two.
    #[inline(always)]
    pub fn prefetch_to_write(&self, pos: u32) {
        crate::prefetch_two_to_write(self.base.as_ptr().wrapping_add(self.offset(pos)));
    }

    /// Copies `bytes` into the ring at stream position `pos`. At most the ring's size.
    #[inline]
    pub fn write(&self, pos: u32, bytes: &[u8]) {
        // SAFETY: a slice is valid for its length.
        unsafe { self.fill(pos, bytes.as_ptr(), bytes.len()) };
    }

    /// Copies from stream position `pos` into `bytes`. At most the ring's size.
    #[inline]
    pub fn read(&self, pos: u32, bytes: &mut [u8]) {
        match self.piece(pos, bytes.len()) {
            // SAFETY: the piece has as many bytes as `bytes`, and they do not overlap, as below.
            Some(from) => unsafe { copy(from, bytes.as_mut_ptr(), bytes.len()) },
            None => self.read_pieces(pos, bytes),
        }
    }

    #[cold]
    fn read_pieces(&self, pos: u32, bytes: &mut [u8]) {
        let [(first, first_len), (second, second_len)] = self.pieces(pos, bytes.len());
        // SAFETY: `pieces` checked both, which together are as long as `bytes`; they do not overlap with it, since no
        // slice of a ring is ever handed out.
        unsafe {
            copy(first, bytes.as_mut_ptr(), first_len);
            if second_len > 0 {
                copy(second, bytes.as_mut_ptr().add(first_len), second_len);
            }
        }
    }

    /// Copies a span of another ring into the ring at stream position `pos`.
    #[inline]
    pub fn write_span(&self, pos: u32, span: &Span) {
        self.write_part(pos, span, (0, span.len));
    }

    /// As [`ByteRing::write_span`], of the part of the span that starts `skip` bytes in and has `len` bytes. Panics
    /// where that is not within.
    #[inline(always)]
    pub fn write_part(&self, pos: u32, span: &Span, (skip, len): (u32, u32)) {
        assert!(skip as u64 + len as u64 <= span.len as u64);
        if let Some(from) = span.byte_ring.piece(span.pos.wrapping_add(skip), len as usize) {
            if let (Some(to), true) = (self.piece(pos, len as usize), copy::is_small(len as usize)) {
                // SAFETY: both pieces have `len` bytes.
                return unsafe { copy::small(from, to, len as usize) };
            }
            // SAFETY: a piece of a ring is valid for its length.
            return unsafe { self.fill(pos, from, len as usize) };
        }
        self.write_pieces(pos, span.byte_ring.pieces(span.pos.wrapping_add(skip), len as usize));
    }

    #[cold]
    fn write_pieces(&self, mut pos: u32, pieces: [(*mut u8, usize); 2]) {
        for (from, len) in pieces {
            // SAFETY: a piece of a ring is valid for its length.
            unsafe { self.fill(pos, from, len) };
            pos = pos.wrapping_add(len as u32);
        }
    }
}

/// Lines that [`Span::prefetch_front`] asks for.
const FRONT: usize = 16;

/// Bytes of a ring, by reference: `len` bytes from stream position `pos`. It keeps the mapping alive; what the
/// bytes are when they are read is up to the sides that share the ring.
#[derive(Clone)]
pub struct Span {
    byte_ring: Arc<ByteRing>,
    pos: u32,
    len: u32,
}

impl Span {
    /// `len` bytes from `pos` of `byte_ring`; at most the ring's size.
    #[inline]
    pub fn new(byte_ring: &Arc<ByteRing>, pos: u32, len: u32) -> Span {
        assert!(len <= byte_ring.size());
        Span { byte_ring: Arc::clone(byte_ring), pos, len }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// They are bytes of this ring.
    pub fn is_of(&self, byte_ring: &Arc<ByteRing>) -> bool {
        Arc::ptr_eq(&self.byte_ring, byte_ring)
    }

    /// There are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part that starts `skip` bytes in and has `len` bytes. Panics where it is not within.
    #[inline]
    pub fn slice(&self, skip: u32, len: u32) -> Span {
        assert!(skip.checked_add(len).is_some_and(|end| end <= self.len));
        Span { byte_ring: Arc::clone(&self.byte_ring), pos: self.pos.wrapping_add(skip), len }
    }

    /// Asks for the line of the cache in which the first byte lies.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.byte_ring.prefetch(self.pos);
    }

    /// The same of its first lines, for bytes that are copied soon: the processor goes on by itself from there.
    #[inline]
    pub fn prefetch_front(&self) {
        for line in 0..FRONT {
            self.byte_ring.prefetch(self.pos.wrapping_add((line * crate::CACHE_LINE) as u32));
        }
    }

    /// Drops the first `skip` bytes and all after the next `len`. Panics where that is not within.
    pub fn trim(&mut self, skip: u32, len: u32) {
        assert!(skip.checked_add(len).is_some_and(|end| end <= self.len));
        self.pos = self.pos.wrapping_add(skip);
        self.len = len;
    }

    /// Copies the bytes out, once. `into` has exactly [`Span::len`] bytes.
    #[inline]
    pub fn read(&self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len());
        self.byte_ring.read(self.pos, into);
    }

    /// Appends the bytes to `into`, copied out once.
    #[inline]
    pub fn append(&self, into: &mut Vec<u8>) {
        into.reserve(self.len());
        for (from, len) in self.pieces() {
            // SAFETY: a piece of the ring is valid for its length; there is room behind what `into` has, and so many of
            // those bytes are written now.
            unsafe {
                copy(from, into.as_mut_ptr().add(into.len()), len);
                into.set_len(into.len() + len);
            }
        }
    }

    /// Address and length of the at most two pieces of memory in which the bytes lie, for `iovec`s: valid while the
    /// span lives.
    #[inline]
    pub fn pieces(&self) -> [(*const u8, usize); 2] {
        self.byte_ring.pieces(self.pos, self.len()).map(|(base, len)| (base.cast_const(), len))
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Span({}+{})", self.pos, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_run_across_the_wrap() {
        let region = Arc::new(Region::create("test", 4 * PAGE).unwrap());
        let a = Arc::new(ByteRing::map(&region, PAGE, PAGE).unwrap());
        let b = Arc::new(ByteRing::map(&region, 2 * PAGE, PAGE).unwrap());
        let bytes: Vec<u8> = (0..PAGE).map(|i| (i % 251) as u8).collect();
        let pos = u32::MAX - 100;
        a.write(pos, &bytes);
        // The wrap of one, of the other, of both at different bytes.
        for to in [7, PAGE as u32 - 20, PAGE as u32 - 150, PAGE as u32 - 51] {
            let span = Span::new(&a, pos, PAGE as u32).slice(50, 200);
            let pieces = span.pieces();
            assert_eq!((pieces[0].1, pieces[1].1), (51, 149));
            b.write_span(to, &span);
            let mut back = vec![0; 200];
            b.read(to, &mut back);
            assert_eq!(back, bytes[50..250]);
            let mut appended = vec![9; 3];
            span.append(&mut appended);
            assert_eq!((&appended[..3], &appended[3..]), (&[9; 3][..], &bytes[50..250]));
            b.write(0, &[0; PAGE]);
        }
    }

    #[test]
    fn a_stream_may_begin_anywhere_in_its_ring() {
        let region = Arc::new(Region::create("test", PAGE).unwrap());
        let whole = ByteRing::map(&region, 0, PAGE).unwrap();
        let ring = ByteRing::map(&region, 0, PAGE).unwrap().beginning_at(3 * PAGE as u32 + PAGE as u32 - 2);
        ring.write(0, b"hello");
        let (mut end, mut begin, mut back) = ([0; 2], [0; 3], [0; 5]);
        whole.read(PAGE as u32 - 2, &mut end);
        whole.read(0, &mut begin);
        ring.read(0, &mut back);
        assert_eq!((&end, &begin, &back), (b"he", b"llo", b"hello"));
    }

    #[test]
    fn a_ring_outlives_the_mapping_of_the_region() {
        let region = Arc::new(Region::create("test", PAGE).unwrap());
        let ring = ByteRing::map(&region, 0, PAGE).unwrap();
        drop(region);
        ring.write(5, b"still");
        let mut back = [0; 5];
        ring.read(5, &mut back);
        assert_eq!(&back, b"still");
    }

    #[test]
    fn a_part_that_is_not_in_the_region_is_refused() {
        let region = Arc::new(Region::create("test", 2 * PAGE).unwrap());
        assert!(ByteRing::map(&region, PAGE, 2 * PAGE).is_err());
        assert!(ByteRing::map(&region, 0, 3000).is_err());
        assert!(ByteRing::map(&region, 100, PAGE).is_err());
    }
}
