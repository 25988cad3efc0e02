//! Rings of payload bytes, as this process sees them.
use crate::context_side::Home;
use context::Slot;

/// A ring of payload bytes in a region: a stream's buffer, or the small ring in which the stream begins (docs/MEMORY.md).
#[derive(Clone, Copy)]
pub struct Ring {
    base: *mut u8,
    /// Bytes that it holds.
    pub size: u32,
    /// Bytes that the stream's buffer holds.
    pub full: u32,
    /// Where the stream's first byte lies.
    first: u32,
    /// The stream has outgrown its small ring.
    pub grown: bool,
}

/// One direction of a connection.
#[derive(Clone, Copy)]
pub enum Way {
    /// What is received.
    In,
    /// What is sent.
    Out,
}

impl Ring {
    /// The ring of a slot's stream: the buffer where it has `grown`, or where there are no small rings.
    pub fn new(home: &Home, slot: Slot, way: Way, grown: bool) -> Ring {
        let (g, index) = (&home.geometry, slot.index);
        let (full_at, full, small_at) = match way {
            Way::In => (g.rx_at(index), g.rx_len(index), g.small_at(index)),
            Way::Out => (g.tx_at(index), g.tx_len(index), g.small_at(index) + g.small_bytes as usize),
        };
        let small = g.has_small() && !grown;
        let (at, size) = if small { (small_at, g.small_bytes) } else { (full_at, full) };
        let grown = grown && g.has_small();
        Ring { base: home.region.address(at, size as usize), size, full, first: g.first_at(index), grown }
    }

    /// Bytes that should be under way in it at most.
    #[inline(always)]
    pub fn most(&self) -> u32 {
        if self.is_small() { shm::ease(self.size) } else { self.size }
    }

    /// It is a small one.
    pub fn is_small(&self) -> bool {
        self.size < self.full
    }

    /// The stream position of a place within, given that all positions that may lie there follow `from`, by less than the
    /// ring's size.
    pub fn position(&self, place: *const u8, from: u32) -> Option<(u32, u32)> {
        let at = (place as usize).wrapping_sub(self.base as usize);
        let inside = at < self.size as usize;
        inside.then(|| {
            (from.wrapping_add((at as u32).wrapping_sub(self.offset(from)) & (self.size - 1)), self.size - at as u32)
        })
    }

    /// Takes `len` bytes from stream position `pos` on over from another ring.
    pub fn take_over(&self, other: &Ring, pos: u32, len: u32) {
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
        pos.wrapping_add(self.first) & (self.size - 1)
    }

    /// The at most two pieces of memory that hold `len` bytes from stream position `pos`.
    #[inline]
    pub fn pieces(&self, pos: u32, len: u32) -> [(*mut u8, usize); 2] {
        let at = self.offset(pos);
        let first = len.min(self.size - at);
        // SAFETY: `at` is below the size of the mapped ring.
        [(unsafe { self.base.add(at as usize) }, first as usize), (self.base, (len - first) as usize)]
    }

    /// Where position `pos` lies, and whether `len` bytes follow there before the ring's end.
    #[inline]
    fn in_one_piece(&self, pos: u32, len: u32) -> (*mut u8, bool) {
        let at = self.offset(pos);
        // SAFETY: `at` is below the size of the mapped ring.
        (unsafe { self.base.add(at as usize) }, len <= self.size - at)
    }

    /// Where position `pos` lies, and how many bytes follow there before the ring's end.
    #[inline(always)]
    pub fn straight(&self, pos: u32) -> (*mut u8, usize) {
        let at = self.offset(pos);
        // SAFETY: `at` is below the size of the mapped ring.
        (unsafe { self.base.add(at as usize) }, (self.size - at) as usize)
    }

    /// # Safety
    /// `from` is valid for `len` bytes.
    #[inline]
    pub unsafe fn copy_in(&self, pos: u32, from: *const u8, len: u32) {
        let (at, whole) = self.in_one_piece(pos, len);
        // SAFETY: all pieces lie in the ring; a program's buffer never overlaps it.
        unsafe {
            if whole {
                return shm::copy(from, at, len as usize);
            }
            let [(a, a_len), (b, b_len)] = self.pieces(pos, len);
            shm::copy(from, a, a_len);
            shm::copy(from.add(a_len), b, b_len);
        }
    }

    /// # Safety
    /// `to` is valid for `len` bytes.
    #[inline]
    pub unsafe fn copy_out(&self, pos: u32, to: *mut u8, len: u32) {
        let (at, whole) = self.in_one_piece(pos, len);
        // SAFETY: as in `copy_in`.
        unsafe {
            if whole {
                return shm::copy(at, to, len as usize);
            }
            let [(a, a_len), (b, b_len)] = self.pieces(pos, len);
            shm::copy(a, to, a_len);
            shm::copy(b, to.add(a_len), b_len);
        }
    }
}
