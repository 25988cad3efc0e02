//! A sealed memfd, mapped whole.
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A shared-memory region of fixed size. The memfd is sealed against resizing, so that no party can make
/// another's access fault by shrinking it.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the Region; access goes through atomics and raw copies.
unsafe impl Send for Region {}
// SAFETY: as above; shared access never creates a reference to plain shared bytes.
unsafe impl Sync for Region {}

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl Region {
    /// Makes a region of `len` bytes, all zero. Pages cost memory when first written.
    pub fn create(name: &str, len: usize) -> io::Result<Region> {
        let name = std::ffi::CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: memfd_create takes a C string and flags; the result is checked.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd was just returned by the kernel and is owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain system calls on an owned descriptor.
        let sealed = unsafe {
            libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) == 0
                && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) == 0
        };
        if !sealed {
            return Err(io::Error::last_os_error());
        }
        Region::map(fd, len)
    }

    /// Maps a region received from another process; refuses one that is not sealed against resizing.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Region> {
        // SAFETY: fcntl and fstat on an owned descriptor with a properly sized buffer.
        let (seals, len) = unsafe {
            let seals = libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS);
            let mut stat: libc::stat = std::mem::zeroed();
            if seals < 0 || libc::fstat(fd.as_raw_fd(), &mut stat) < 0 {
                return Err(io::Error::last_os_error());
            }
            (seals, stat.st_size as usize)
        };
        if seals & SEALS != SEALS {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the region is not sealed against resizing"));
        }
        Region::map(fd, len)
    }

    /// A descriptor that [`Region::from_fd`] takes, or nearly so. Asks only the kernel: of a file that somebody else
    /// serves, each other question may wait for its server.
    pub fn is_sealed(fd: BorrowedFd<'_>) -> bool {
        // SAFETY: fcntl on a borrowed descriptor.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        seals >= 0 && seals & SEALS == SEALS
    }

    /// Maps a file whole, which only this user can shrink.
    pub fn of_file(file: OwnedFd) -> io::Result<Region> {
        // SAFETY: fstat on an owned descriptor with a properly sized buffer.
        let len = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(file.as_raw_fd(), &mut stat) < 0 {
                return Err(io::Error::last_os_error());
            }
            stat.st_size as usize
        };
        Region::map(file, len)
    }

    /// A number that no other memory of the machine has while this one is there: where the kernel keeps it. 0 where the
    /// kernel does not report it.
    pub fn number(&self) -> u64 {
        // SAFETY: fstat on an owned descriptor with a properly sized buffer.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            match libc::fstat(self.fd.as_raw_fd(), &mut stat) {
                0 => stat.st_dev.rotate_left(40) ^ stat.st_ino,
                _ => 0,
            }
        }
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Region> {
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Region { base, len, fd })
    }

    /// Bytes of the region.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memfd, to hand over or to map a part of it again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The 32-bit word at byte `at`. Panics where `at` is not aligned or not in the region: a programming error.
    pub fn u32_at(&self, at: usize) -> &AtomicU32 {
        assert!(at % 4 == 0 && at.checked_add(4).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds and aligned (the base is page-aligned); atomics may be shared and written by anyone.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The 64-bit word at byte `at`. Panics where `at` is not aligned or not in the region: a programming error.
    pub fn u64_at(&self, at: usize) -> &AtomicU64 {
        assert!(at % 8 == 0 && at.checked_add(8).is_some_and(|end| end <= self.len));
        // SAFETY: as in `u32_at`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The address of byte `at`, with `len` bytes mapped in a row. It is for the application's side, which copies
    /// between its own buffers and its own region. Panics where the range is not in the region. Dereferencing it
    /// is the caller's responsibility; the mapping lives as long as this Region.
    pub fn address(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds of the mapping, as just checked.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Gives the memory of whole pages in `[at, at + len)` back to the system; they read as zero again.
    pub fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on an owned descriptor; the kernel checks the range.
        let done = unsafe { libc::fallocate(self.fd.as_raw_fd(), mode, at as libc::off_t, len as libc::off_t) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Drops what this process has of `[at, at + len)` in its page tables, whole pages. The bytes stay where they are,
    /// and come back with a page fault each; tables that become empty go, from Linux 6.14 on. Panics where the range is
    /// not in the region.
    pub fn drop_pages(&self, at: usize, len: usize) -> io::Result<()> {
        let base = self.address(at, len);
        // SAFETY: within the mapping, which is shared: its bytes are the memfd's, not the mapping's.
        let done = unsafe { libc::madvise(base.cast(), len, libc::MADV_DONTNEED) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this base and length and is unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn two_mappings_share_and_cannot_be_resized() {
        let a = Region::create("test", 8192).unwrap();
        let b = Region::from_fd(a.fd().try_clone_to_owned().unwrap()).unwrap();
        a.u64_at(4096).store(77, Relaxed);
        assert_eq!(b.u64_at(4096).load(Relaxed), 77);
        // SAFETY: a plain system call that must fail.
        assert_ne!(unsafe { libc::ftruncate(b.fd().as_raw_fd(), 0) }, 0);
        a.discard(4096, 4096).unwrap();
        assert_eq!(b.u64_at(4096).load(Relaxed), 0);
    }

    #[test]
    fn an_unsealed_memfd_is_refused() {
        // SAFETY: a fresh descriptor, owned at once.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC)) };
        assert!(Region::from_fd(fd).is_err());
    }
}
