//! Rings of payload bytes, as this process sees them.
use crate::state::mapped_region::MappedRegion;
use crate::system::user_memory;
use context::Slot;
use shm::Level;

/// A ring of payload bytes in a region: a stream's buffer, or the small ring in which the stream begins
/// (docs/MEMORY.md).
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    base: *mut u8,
    /// Bytes that it holds, a power of two, less one.
    mask: u32,
    /// Bytes that the stream's buffer holds; of a large ring of what is sent, what that one holds.
    pub full: u32,
    /// Where the stream's first byte lies.
    first: u32,
    /// Which of the stream's rings it is ([`Ring::level`]), and times four, for bumps ([`Ring::number`]); [`LAST`]. In
    /// one byte, for what is kept of a connection is small.
    which: u8,
    /// Bytes that should be under way in it at most are its size, shifted by so many bits.
    ease: u8,
    /// Most bytes under way in the stream.
    pub limit: Limit,
}

/// The stream has no ring after this one.
const LAST: u8 = 1 << 4;

/// Bytes of a stream, rounded down, in as little room as a ring has left: what is kept of a connection is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(u16);

/// Of this, the least limit of `SO_SNDBUF` is a multiple.
const UNIT: u32 = 512;

impl Limit {
    /// None.
    pub(crate) const NONE: Limit = Limit(u16::MAX);

    /// So many bytes; none from 32 MiB on.
    pub(crate) fn of(bytes: u32) -> Limit {
        Limit(u16::try_from(bytes / UNIT).unwrap_or(u16::MAX))
    }

    #[inline(always)]
    fn bytes(self) -> u32 {
        if self.0 == u16::MAX { u32::MAX } else { u32::from(self.0) * UNIT }
    }
}

/// One direction of a connection.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    /// What is received.
    In,
    /// What is sent.
    Out,
}

impl Ring {
    /// The ring of a slot's stream at this level, or at the next one that there is.
    pub(crate) fn new(home: &MappedRegion, slot: Slot, way: Direction, level: Level) -> Ring {
        let (g, index) = (&home.geometry, slot.index);
        let begin = if g.has_small() { Level::Small } else { Level::Full };
        // Most begin in a small ring: only the place of the ring that there is now is worked out.
        let (level, is_in) = (level.max(begin), matches!(way, Direction::In));
        let last = if g.may_outgrow(index) { Level::Large } else { Level::Full };
        let large = match is_in {
            _ if level != Level::Large => None,
            true => g.rx_large_at(index),
            false => g.tx_large_at(index),
        };
        let len = if is_in { g.rx_len(index) } else { g.tx_len(index) };
        let (level, at, size, full) = match (level, large) {
            (Level::Small, _) if is_in => (Level::Small, g.small_at(index), g.small_bytes, len),
            (Level::Small, _) => (Level::Small, g.small_at(index) + g.small_bytes as usize, g.small_bytes, len),
            (_, Some(large)) if is_in => (Level::Large, large, g.large_len(index), len),
            (_, Some(large)) => (Level::Large, large, g.large_len(index), g.large_len(index)),
            _ => (Level::Full, if is_in { g.rx_at(index) } else { g.tx_at(index) }, len, len),
        };
        let ease = if level == Level::Small { size.ilog2() - shm::ease(size).ilog2() } else { 0 } as u8;
        Ring {
            base: home.region.address(at, size as usize),
            mask: size - 1,
            full,
            first: g.first_at(index),
            which: level as u8
                | if level > begin { (level as u8) << 2 } else { 0 }
                | if level == last { LAST } else { 0 },
            ease,
            limit: Limit::NONE,
        }
    }

    /// Which of the stream's rings it is.
    pub(crate) fn level(&self) -> Level {
        Level::of(u32::from(self.which & 3))
    }

    /// The same for bumps ([`shm::ByteRing::number`]).
    #[inline(always)]
    pub(crate) fn number(&self) -> u8 {
        (self.which >> 2) & 3
    }

    /// The stream has no ring after it.
    #[inline(always)]
    pub(crate) fn is_last(&self) -> bool {
        self.which & LAST != 0
    }

    /// Bytes that it holds.
    #[inline(always)]
    pub(crate) fn size(&self) -> u32 {
        self.mask + 1
    }

    /// Bytes that should be under way in it at most.
    #[inline(always)]
    pub(crate) fn most(&self) -> u32 {
        self.size() >> self.ease
    }

    /// The same with at most so much under way, rounded down to a power of two: so a write has nothing more to compute.
    pub(crate) fn eased_to(self, limit: Limit) -> Ring {
        let over = self.size().ilog2().saturating_sub(limit.bytes().max(1).ilog2());
        Ring { ease: self.ease.max(over as u8), limit, ..self }
    }

    /// Bytes of the stream that may be under way.
    #[inline(always)]
    pub(crate) fn allowed(&self) -> u32 {
        self.full.min(self.limit.bytes())
    }

    /// It is a small one.
    pub(crate) fn is_small(&self) -> bool {
        self.level() == Level::Small
    }

    /// The stream position of a place within, given that all positions that may lie there follow `from`, by less than
    /// the ring's size.
    pub(crate) fn position(&self, place: *const u8, from: u32) -> Option<(u32, u32)> {
        let at = (place as usize).wrapping_sub(self.base as usize);
        let inside = at <= self.mask as usize;
        inside.then(|| {
            (from.wrapping_add((at as u32).wrapping_sub(self.offset(from)) & self.mask), self.size() - at as u32)
        })
    }

    /// Takes `len` bytes from stream position `pos` on over from another ring.
    pub(crate) fn take_over(&self, other: &Ring, pos: u32, len: u32) {
        let [(first, first_len), (second, second_len)] = other.pieces(pos, len);
        // SAFETY: a piece of the other ring is valid for its length, and rings do not overlap.
        unsafe {
            self.copy_in(pos, first, first_len as u32);
            self.copy_in(pos.wrapping_add(first_len as u32), second, second_len as u32);
        }
    }

    /// Where position `pos` lies, from the ring's beginning.
    #[inline(always)]
    fn offset(&self, pos: u32) -> u32 {
        pos.wrapping_add(self.first) & self.mask
    }

    /// The at most two pieces of memory that hold `len` bytes from stream position `pos`.
    #[inline]
    pub(crate) fn pieces(&self, pos: u32, len: u32) -> [(*mut u8, usize); 2] {
        let at = self.offset(pos);
        let first = len.min(self.size() - at);
        // SAFETY: `at` is below the size of the mapped ring.
        [(unsafe { self.base.add(at as usize) }, first as usize), (self.base, (len - first) as usize)]
    }

    /// Whether `len` bytes from `offset` on lie before the ring's end.
    #[inline(always)]
    fn is_one_piece(&self, offset: usize, len: usize) -> bool {
        (offset + len).wrapping_sub(1) <= self.mask as usize
    }

    /// Asks for two lines of the cache, from stream position `pos` on: a message of less than a line mostly lies in
    /// two.
    #[inline(always)]
    pub(crate) fn prefetch(&self, pos: u32) {
        let at = self.base.wrapping_add(self.offset(pos) as usize);
        shm::prefetch_line(at);
        shm::prefetch_line(at.wrapping_add(shm::CACHE_LINE));
    }

    /// The same for whoever is to write there.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(&self, pos: u32) {
        shm::prefetch_two_to_write(self.base.wrapping_add(self.offset(pos) as usize));
    }

    /// Copies `len` bytes of the program's to stream position `pos`; [`user_memory::faulted`] reports where they cannot
    /// be read.
    ///
    /// # Safety
    /// The ring has as many. The program gave the address.
    #[inline(always)]
    pub(crate) unsafe fn copy_in(&self, pos: u32, from: *const u8, len: u32) {
        let (offset, len) = (self.offset(pos) as usize, len as usize);
        let at = self.base.wrapping_add(offset);
        match self.is_one_piece(offset, len) {
            // SAFETY: the piece lies in the ring; a program's buffer never overlaps it.
            true => unsafe { user_memory::copy_in(from, at, len) },
            // SAFETY: as the caller's.
            false => unsafe { copy_in_around(self.base, at, self.mask as usize + 1 - offset, from, len) },
        }
    }

    /// Copies `len` bytes from stream position `pos` to the program's memory; [`user_memory::faulted`] reports where
    /// they cannot be written.
    ///
    /// # Safety
    /// As [`Ring::copy_in`].
    #[inline(always)]
    pub(crate) unsafe fn copy_out(&self, pos: u32, to: *mut u8, len: u32) {
        let (offset, len) = (self.offset(pos) as usize, len as usize);
        let at = self.base.wrapping_add(offset);
        match self.is_one_piece(offset, len) {
            // SAFETY: as in `copy_in`.
            true => unsafe { user_memory::copy_out(at, to, len) },
            // SAFETY: as the caller's.
            false => unsafe { copy_out_around(self.base, at, self.mask as usize + 1 - offset, to, len) },
        }
    }
}

/// [`Ring::copy_in`] around the end of a ring, which has `left` bytes from `at` on and begins at `base`. With a
/// [`Ring`] as parameter, its callers would keep theirs in memory, and not in registers.
///
/// # Safety
/// As there.
#[cold]
unsafe fn copy_in_around(base: *mut u8, at: *mut u8, left: usize, from: *const u8, len: usize) {
    // No bytes at all at the ring's beginning come here, too.
    let first = left.min(len);
    // SAFETY: as there.
    unsafe {
        user_memory::copy_in(from, at, first);
        user_memory::copy_in(from.wrapping_add(first), base, len - first);
    }
}

/// [`Ring::copy_out`] likewise.
///
/// # Safety
/// As there.
#[cold]
unsafe fn copy_out_around(base: *mut u8, at: *mut u8, left: usize, to: *mut u8, len: usize) {
    let first = left.min(len);
    // SAFETY: as there.
    unsafe {
        user_memory::copy_out(at, to, first);
        user_memory::copy_out(base, to.wrapping_add(first), len - first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever they begin, and around the end: bytes go where they belong and nowhere else, also none at all.
    #[test]
    fn bytes_are_copied_in_and_out_at_every_place() {
        const SIZE: usize = 128;
        let from: Vec<u8> = (1..=SIZE as u8).collect();
        for (pos, len) in (0..SIZE).flat_map(|pos| [0, 1, 3, 4, 15, 64, 65, SIZE].map(|len| (pos, len))) {
            let (mut place, mut back) = ([0; SIZE], [0; SIZE]);
            let (mask, full) = (SIZE as u32 - 1, SIZE as u32);
            let ring = Ring { base: place.as_mut_ptr(), mask, full, first: 0, which: 0, ease: 0, limit: Limit::NONE };
            // SAFETY: the ring has `SIZE` bytes, and so have both buffers.
            unsafe {
                ring.copy_in(pos as u32, from.as_ptr(), len as u32);
                ring.copy_out(pos as u32, back.as_mut_ptr(), len as u32);
            }
            assert_eq!((&back[..len], &back[len..]), (&from[..len], &[0; SIZE][len..]));
            let mut expected = [0; SIZE];
            (0..len).for_each(|at| expected[(pos + at) % SIZE] = from[at]);
            assert_eq!(place, expected);
        }
    }
}
