//! Memory that a program and the data-path both map.
use crate::fault::Refusal;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use shm::PAGE;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

/// `TMPFS_MAGIC` of <linux/magic.h>.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A part of a sealed memfd, mapped. Bytes are only copied in and out: the program changes them at any moment.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    /// Where the part begins in the first page.
    lead: usize,
    len: usize,
}

// SAFETY: the mapping lives as long as the value; access goes through raw copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; no reference to plain shared bytes is ever made.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Whether the data-path may map the file: a memfd that cannot become shorter, in ordinary pages. A byte of another
    /// file may cease to exist, and touching it would end the data-path (SIGBUS): a file may be truncated, and a huge
    /// page of a memfd may be given back (`FALLOC_FL_PUNCH_HOLE`) and not be had again.
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
        Ok(Mapping { base, mapped, lead: lead as usize, len: len as usize })
    }

    /// Whether it has `len` bytes from `at` on.
    #[inline]
    fn holds(&self, at: u64, len: usize) -> bool {
        usize::try_from(at).ok().and_then(|at| at.checked_add(len)).is_some_and(|end| end <= self.len)
    }

    /// Copies out: all of `into` is written. Panics where the range is not in it: regions check bounds first.
    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [MaybeUninit<u8>]) {
        assert!(self.holds(at, into.len()));
        // SAFETY: the source lies in the mapping, as just checked, and cannot cease to exist (`is_safe`); the target is
        // borrowed alone, and so does not overlap.
        unsafe { shm::copy(self.base.as_ptr().add(self.lead + at as usize), into.as_mut_ptr().cast(), into.len()) }
    }

    /// Appends `len` bytes. Panics where the range is not in it.
    #[inline]
    pub(crate) fn append(&self, at: u64, len: usize, into: &mut Vec<u8>) {
        assert!(self.holds(at, len));
        into.reserve(len);
        // SAFETY: the source as in `read`; the target is spare capacity of the vector, which nobody else refers to, and
        // all of it that then counts is written.
        unsafe {
            shm::copy(self.base.as_ptr().add(self.lead + at as usize), into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
    }

    /// Copies in. Panics where the range is not in it. The mapping must have been made for writing.
    #[inline]
    pub(crate) fn write(&self, at: u64, from: &[u8]) {
        assert!(self.holds(at, from.len()));
        // SAFETY: as in `read`, the other way round; a region without rights to write is never written.
        unsafe { shm::copy(from.as_ptr(), self.base.as_ptr().add(self.lead + at as usize), from.len()) }
    }

    /// Copies in as [`Mapping::write`], and the last byte shows after all others.
    #[inline]
    pub(crate) fn write_last(&self, at: u64, from: &[u8]) {
        let Some((last, others)) = from.split_last() else { return };
        self.write(at, others);
        // The bytes before are written, for whoever finds the last one.
        fence(Release);
        let end = at + others.len() as u64;
        assert!(self.holds(end, 1));
        // SAFETY: in the mapping, as just checked, which is writable as in `write`. Atomics may be shared with anyone.
        let byte = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(self.lead + end as usize)) };
        byte.store(*last, Release);
    }

    /// Replaces the word at `at` by what `change` makes of it, unless that is `None`, and returns what it was. Atomic
    /// among all that touch the word, the program included. Panics where the word is not aligned or not in the mapping.
    pub(crate) fn update(&self, at: u64, change: impl Fn(u64) -> Option<u64>) -> u64 {
        assert!(self.holds(at, 8) && (self.lead as u64 + at) % 8 == 0);
        // SAFETY: in the mapping, which is writable where a region grants atomics, and aligned: the base is a page's
        // first byte. Atomics may be shared with anyone.
        let word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(self.lead + at as usize).cast()) };
        match word.fetch_update(AcqRel, Acquire, change) {
            Ok(before) | Err(before) => before,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this base and length, and unmapped once.
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
}
