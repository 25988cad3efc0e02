//! Memory that a program and the data-path both map.
use crate::fault::Refusal;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use shm::{ByteRing, PAGE, Span};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

/// `TMPFS_MAGIC` of <linux/magic.h>.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A part of a sealed memfd, mapped. Bytes are only copied in and out: the program changes them at any moment.
pub(crate) struct Mapping {
    /// The part's first byte, in `_pages`: looked up with each access.
    first: NonNull<u8>,
    len: usize,
    _pages: Arc<Pages>,
    /// Pieces of the part that bytes are referred to by, each of [`Mapping::piece`] bytes and the last one at its end.
    pieces: Box<[Arc<ByteRing>]>,
}

/// Whole pages, mapped.
struct Pages {
    base: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the pages are mapped as long as the value lives; access goes through raw copies and atomics.
unsafe impl Send for Pages {}
// SAFETY: as above; no reference to plain shared bytes is ever made.
unsafe impl Sync for Pages {}
// SAFETY: as for `Pages`, which it keeps.
unsafe impl Send for Mapping {}
// SAFETY: likewise.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Whether the data-path may map the file: a memfd that cannot become shorter, in ordinary pages. A byte of another
    /// file may cease to exist, and touching it would end the data-path (SIGBUS). A file may be truncated. A huge page
    /// of a memfd may be given back (`FALLOC_FL_PUNCH_HOLE`) and not be had again.
    pub(crate) fn is_safe(file: BorrowedFd<'_>) -> bool {
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        sealed && fstatfs(file).is_ok_and(|at| at.f_type as u64 == TMPFS_MAGIC)
    }

    /// Maps `len` bytes from byte `offset` on, of a file that an untrusted program handed over.
    pub(crate) fn new(file: BorrowedFd<'_>, offset: u64, len: u64, write: bool) -> Result<Mapping, Refusal> {
        if !Mapping::is_safe(file) {
            return Err(Refusal::Descriptor("a file of it is no memfd that is sealed against shrinking"));
        }
        let size = fstat(file)?.st_size as u64;
        let lead = offset % PAGE as u64;
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(Refusal::Invalid("a part of it lies beyond the end of its file"));
        }
        let mapped = (lead + len) as usize;
        let protection = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that keeps at least these bytes.
        let base = unsafe {
            let at = (offset - lead) as libc::off_t;
            libc::mmap(std::ptr::null_mut(), mapped, protection, libc::MAP_SHARED, file.as_raw_fd(), at)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let base = NonNull::new(base.cast()).ok_or(io::Error::from(io::ErrorKind::InvalidData))?;
        let (pages, len) = (Arc::new(Pages { base, mapped }), len as usize);
        // SAFETY: in the mapping.
        let first = unsafe { base.add(lead as usize) };
        let size = piece(len);
        let begins = (0..len / size).map(|at| at * size).chain((len % size > 0).then_some(len - size));
        let byte_ring = |at: usize| {
            let held = Arc::clone(&pages) as Arc<dyn Send + Sync>;
            // SAFETY: in the mapping, which `held` keeps, and whose file keeps its bytes (`is_safe`). Nothing writes
            // to it: it is only referred to, by spans.
            Arc::new(unsafe { ByteRing::borrowed(first.add(at), size as u32, held) })
        };
        let pieces = begins.map(byte_ring).collect();
        Ok(Mapping { first, len, _pages: pages, pieces })
    }

    /// The address of byte `at`. Panics where it has no `len` bytes from there on.
    #[inline]
    fn address(&self, at: u64, len: usize) -> *mut u8 {
        assert!(self.holds(at, len));
        // SAFETY: in the mapping, as just checked.
        unsafe { self.first.as_ptr().add(at as usize) }
    }

    /// Bytes by reference; none where they lie in no one of the pieces that can be referred to. Panics where the range
    /// is not in it.
    pub(crate) fn refer(&self, at: u64, len: usize) -> Option<Span> {
        assert!(self.holds(at, len));
        let (at, size) = (at as usize, piece(self.len));
        let whole = at / size * size;
        let (index, begin) = match whole + size <= self.len && at + len <= whole + size {
            true => (at / size, whole),
            false => (self.pieces.len() - 1, self.len - size),
        };
        let within = begin <= at && at + len <= begin + size;
        within.then(|| Span::new(&self.pieces[index], (at - begin) as u32, len as u32))
    }

    /// Somebody refers to bytes of it.
    pub(crate) fn is_referred_to(&mut self) -> bool {
        self.pieces.iter_mut().any(|piece| Arc::get_mut(piece).is_none())
    }

    /// Copies bytes of a ring in: `part` of the span. Panics where the range is not in it, or the part not in the span.
    #[inline]
    pub(crate) fn write_span(&self, at: u64, span: &Span, part: Range<usize>) {
        let (mut to, mut skip, mut left) = (self.address(at, part.len()), part.start, part.len());
        assert!(part.end <= span.len());
        for (from, len) in span.pieces() {
            let count = len.saturating_sub(skip).min(left);
            if count > 0 {
                // SAFETY: the piece is valid for its length while the span lives, and `left` bytes are valid at `to`.
                unsafe {
                    shm::copy(from.add(skip), to, count);
                    to = to.add(count);
                }
            }
            (skip, left) = (skip.saturating_sub(len), left - count);
        }
    }

    /// Whether it has `len` bytes from `at` on.
    #[inline]
    fn holds(&self, at: u64, len: usize) -> bool {
        usize::try_from(at).ok().and_then(|at| at.checked_add(len)).is_some_and(|end| end <= self.len)
    }

    /// Copies out: all of `into` is written. Panics where the range is not in it: regions check bounds first.
    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [MaybeUninit<u8>]) {
        // SAFETY: the source lies in the mapping, as is checked, and cannot cease to exist (`is_safe`); the target is
        // borrowed alone, and so does not overlap.
        unsafe { shm::copy(self.address(at, into.len()), into.as_mut_ptr().cast(), into.len()) }
    }

    /// Appends `len` bytes. Panics where the range is not in it.
    #[inline]
    pub(crate) fn append(&self, at: u64, len: usize, into: &mut Vec<u8>) {
        into.reserve(len);
        // SAFETY: the source as in `read`; the target is spare capacity of the vector, which nobody else refers to, and
        // all of it that then counts is written.
        unsafe {
            shm::copy(self.address(at, len), into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
    }

    /// Copies in. Panics where the range is not in it. The mapping must have been made for writing.
    #[inline]
    pub(crate) fn write(&self, at: u64, from: &[u8]) {
        // SAFETY: as in `read`, the other way round; a region without rights to write is never written.
        unsafe { shm::copy(from.as_ptr(), self.address(at, from.len()), from.len()) }
    }

    /// Copies in as [`Mapping::write`], and the last byte shows after all others.
    #[inline]
    pub(crate) fn write_last(&self, at: u64, from: &[u8]) {
        let Some((last, others)) = from.split_last() else { return };
        self.write(at, others);
        self.show(at + others.len() as u64, *last);
    }

    /// Writes the last byte of a message, for whoever polls it: the bytes before are written when it is found.
    #[inline]
    fn show(&self, at: u64, last: u8) {
        fence(Release);
        // SAFETY: in the mapping, as is checked, which is writable as in `write`. Atomics may be shared with anyone.
        let byte = unsafe { AtomicU8::from_ptr(self.address(at, 1)) };
        byte.store(last, Release);
    }

    /// Copies in as [`Mapping::write_span`], and the last byte shows after all others.
    pub(crate) fn write_span_last(&self, at: u64, span: &Span, part: Range<usize>) {
        if part.is_empty() {
            return;
        }
        let (others, end) = (part.start..part.end - 1, at + part.len() as u64 - 1);
        let mut last = [0];
        span.slice(others.end as u32, 1).read(&mut last);
        self.write_span(at, span, others);
        self.show(end, last[0]);
    }

    /// Replaces the word at `at` by what `change` makes of it, unless that is `None`, and returns what it was. Atomic
    /// among all that touch the word, the program included. Panics where the word is not aligned or not in the mapping.
    pub(crate) fn update(&self, at: u64, change: impl Fn(u64) -> Option<u64>) -> u64 {
        assert!((self.first.addr().get() as u64 + at) % 8 == 0);
        // SAFETY: in the mapping, which is writable where a region grants atomics, and aligned: the base is a page's
        // first byte. Atomics may be shared with anyone.
        let word = unsafe { AtomicU64::from_ptr(self.address(at, 8).cast()) };
        match word.fetch_update(AcqRel, Acquire, change) {
            Ok(before) | Err(before) => before,
        }
    }
}

/// Bytes of the pieces that a mapping of so many is referred to by: a power of two, as rings have.
fn piece(len: usize) -> usize {
    1 << len.min(1 << 30).ilog2()
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `Mapping::new` with this base and length, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::{AsFd, OwnedFd};

    fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn only_what_cannot_shrink_is_mapped() {
        let open = memfd(8192, SealFlags::empty());
        assert!(matches!(Mapping::new(open.as_fd(), 0, 10, true), Err(Refusal::Descriptor(_))));
        let file = std::env::temp_dir().join(format!("toe-mapping-{}", std::process::id()));
        std::fs::write(&file, [0; 8192]).unwrap();
        let file = (std::fs::File::open(&file).unwrap(), std::fs::remove_file(&file)).0;
        assert!(matches!(Mapping::new(file.as_fd(), 0, 10, false), Err(Refusal::Descriptor(_))));
        let sealed = memfd(8192, SealFlags::SHRINK);
        assert!(matches!(Mapping::new(sealed.as_fd(), 8000, 193, true), Err(Refusal::Invalid(_))));
        assert!(matches!(Mapping::new(sealed.as_fd(), u64::MAX, 2, true), Err(Refusal::Invalid(_))));
        let fixed = memfd(8192, SealFlags::SHRINK | SealFlags::WRITE);
        assert!(matches!(Mapping::new(fixed.as_fd(), 0, 10, true), Err(Refusal::System(_))));
        assert!(Mapping::new(fixed.as_fd(), 0, 10, false).is_ok());
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        let sealed = memfd(3 * 4096, SealFlags::SHRINK);
        let (one, other) =
            (Mapping::new(sealed.as_fd(), 4000, 300, true), Mapping::new(sealed.as_fd(), 4096, 100, true));
        let (one, other) = (one.unwrap(), other.unwrap());
        one.write(96, b"hello");
        let mut copy = [MaybeUninit::new(0); 5];
        other.read(0, &mut copy);
        // SAFETY: written when it was made.
        assert_eq!(&copy.map(|byte| unsafe { byte.assume_init() }), b"hello");
        assert_eq!(other.update(8, |word| Some(word + 3)), 0);
        assert_eq!((one.update(104, |_| None), other.update(8, |_| None)), (3, 3));
    }

    #[test]
    fn bytes_are_sent_by_reference_where_the_mapping_stays() {
        let sealed = memfd(8 * 4096, SealFlags::SHRINK);
        // 7,000 bytes: the pieces are [0, 4096) and [2904, 7000).
        let mut mapping = Mapping::new(sealed.as_fd(), 4000, 7000, true).unwrap();
        let bytes: Vec<u8> = (0..7000).map(|at| (at % 251) as u8).collect();
        mapping.write(0, &bytes);
        assert!(!mapping.is_referred_to());
        for (at, len) in [(0, 4096), (100, 50), (4095, 1), (4000, 3000), (2904, 4096), (6999, 1)] {
            let span = mapping.refer(at, len).unwrap();
            assert!(mapping.is_referred_to());
            let mut got = Vec::new();
            span.append(&mut got);
            assert_eq!(got, bytes[at as usize..at as usize + len], "{len} bytes at {at}");
        }
        assert!(mapping.refer(2000, 3000).is_none() && mapping.refer(0, 7000).is_none());
        assert!(!mapping.is_referred_to());
        let span = mapping.refer(10, 20).unwrap();
        let other = Mapping::new(sealed.as_fd(), 4000, 7000, true).unwrap();
        drop(mapping);
        other.write_span(5000, &span, 5..15);
        let mut got = Vec::new();
        other.append(5000, 10, &mut got);
        assert_eq!(got, bytes[15..25]);
    }
}
