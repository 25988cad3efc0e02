//! Byte rings mapped twice in a row, so that no copy and no pointer ever splits at the wrap.
use crate::{PAGE, Region};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// A byte ring of a power-of-two size in a [`Region`], mapped twice in a row. Positions are stream positions
/// modulo 2^32: byte `pos` of the stream lies at `pos & (size - 1)`.
///
/// The mapping is independent of the region's own one and outlives it.
pub struct Mirror {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping lives as long as the Mirror; bytes are only copied in and out.
unsafe impl Send for Mirror {}
// SAFETY: as above: concurrent copies may tear bytes, which every reader must expect of shared memory.
unsafe impl Sync for Mirror {}

impl Mirror {
    /// Maps `[at, at + size)` of the region twice in a row. `at` is page-aligned; `size` is a power of two,
    /// at least a page and at most 2^30 bytes.
    pub fn map(region: &Region, at: usize, size: usize) -> io::Result<Mirror> {
        let fits = at.checked_add(size).is_some_and(|end| end <= region.len());
        if !size.is_power_of_two() || !(PAGE..=1 << 30).contains(&size) || at % PAGE != 0 || !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: reserves address space at an address of the kernel's choice; checked below.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * size,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base: NonNull<u8> = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        let mirror = Mirror { base, size };
        for half in 0..2 {
            // SAFETY: replaces one half of the reservation made above, which nobody else uses.
            let mapped = unsafe {
                libc::mmap(
                    base.as_ptr().add(half * size).cast(),
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                    region.fd().as_raw_fd(),
                    at as libc::off_t,
                )
            };
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(mirror)
    }

    /// Bytes that the ring holds.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size as u32
    }

    /// Where stream position `pos` lies; `len` more bytes are mapped in a row from there.
    #[inline]
    fn at(&self, pos: u32, len: usize) -> *mut u8 {
        assert!(len <= self.size);
        // SAFETY: the masked offset is below `size`, and 2 * size bytes are mapped.
        unsafe { self.base.as_ptr().add(pos as usize & (self.size - 1)) }
    }

    /// Copies `bytes` into the ring at stream position `pos`. At most the ring's size.
    #[inline]
    pub fn write(&self, pos: u32, bytes: &[u8]) {
        // SAFETY: `at` checked that the bytes fit; source and destination do not overlap, since no slice of a
        // ring is ever handed out.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(pos, bytes.len()), bytes.len()) };
    }

    /// Copies from stream position `pos` into `bytes`. At most the ring's size.
    #[inline]
    pub fn read(&self, pos: u32, bytes: &mut [u8]) {
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.at(pos, bytes.len()), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies a span of another ring (or of this one) into the ring at stream position `pos`.
    #[inline]
    pub fn write_span(&self, pos: u32, span: &Span) {
        self.write_part(pos, span, (0, span.len));
    }

    /// As [`Mirror::write_span`], of the part of the span that starts `skip` bytes in and has `len` bytes. Panics where
    /// that is not within.
    #[inline]
    pub fn write_part(&self, pos: u32, span: &Span, (skip, len): (u32, u32)) {
        assert!(skip.checked_add(len).is_some_and(|end| end <= span.len));
        let from = span.mirror.at(span.pos.wrapping_add(skip), len as usize);
        // SAFETY: both ranges are checked by `at`; `copy` allows overlap.
        unsafe { std::ptr::copy(from, self.at(pos, len as usize), len as usize) };
    }

    /// The address of stream position `pos`, with the ring's size of bytes mapped in a row: for the
    /// application's side, which may lend its own buffer to its own program (zero-copy API), and for `iovec`s.
    /// Dereferencing it is the caller's responsibility; the mapping lives as long as this Mirror.
    #[inline]
    pub fn address(&self, pos: u32) -> *mut u8 {
        self.at(pos, self.size)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // SAFETY: both halves were mapped by `map` and are unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), 2 * self.size) };
    }
}

/// Bytes of a ring, by reference: `len` bytes from stream position `pos`. It keeps the mapping alive; what the
/// bytes are when they are read is up to those who share the ring.
#[derive(Clone)]
pub struct Span {
    mirror: Arc<Mirror>,
    pos: u32,
    len: u32,
}

impl Span {
    /// `len` bytes from `pos` of `mirror`; at most the ring's size.
    #[inline]
    pub fn new(mirror: &Arc<Mirror>, pos: u32, len: u32) -> Span {
        assert!(len as usize <= mirror.size);
        Span { mirror: Arc::clone(mirror), pos, len }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
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
        Span { mirror: Arc::clone(&self.mirror), pos: self.pos.wrapping_add(skip), len }
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
        self.mirror.read(self.pos, into);
    }

    /// Address of the first byte, for an `iovec`: valid while the span lives.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.mirror.at(self.pos, self.len())
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
        let region = Region::create("test", 4 * PAGE).unwrap();
        let a = Arc::new(Mirror::map(&region, PAGE, PAGE).unwrap());
        let b = Arc::new(Mirror::map(&region, 2 * PAGE, PAGE).unwrap());
        let bytes: Vec<u8> = (0..PAGE).map(|i| (i % 251) as u8).collect();
        let pos = u32::MAX - 100;
        a.write(pos, &bytes);
        b.write_span(7, &Span::new(&a, pos, PAGE as u32).slice(50, 200));
        let mut back = vec![0; 200];
        b.read(7, &mut back);
        assert_eq!(back, bytes[50..250]);
    }

    #[test]
    fn a_part_that_is_not_in_the_region_is_refused() {
        let region = Region::create("test", 2 * PAGE).unwrap();
        assert!(Mirror::map(&region, PAGE, 2 * PAGE).is_err());
        assert!(Mirror::map(&region, 0, 3000).is_err());
        assert!(Mirror::map(&region, 100, PAGE).is_err());
    }
}
