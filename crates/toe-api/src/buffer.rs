//! Memory that a ZeroNIC host reads and writes in place.
use crate::comm_functions::{CommFunctions, Handle, comm_functions};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// What `toe_comm_open` gave.
pub(crate) struct Attached {
    pub functions: &'static CommFunctions,
    pub handle: *mut Handle,
}

// SAFETY: a toe_comm may be used from several threads (include/toe.h).
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

impl Attached {
    pub(crate) fn open(host: Option<&str>) -> io::Result<Arc<Attached>> {
        let functions = comm_functions()?;
        let host = host.map(CString::new).transpose()?;
        // SAFETY: null, or a string.
        let handle = unsafe { (functions.open)(host.as_ref().map_or(std::ptr::null(), |host| host.as_ptr())) };
        if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(Arc::new(Attached { functions, handle })) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: it was open, and nobody uses it any more.
        unsafe { (self.functions.close)(self.handle) };
    }
}

/// A registered mapping.
struct Memory {
    attached: Arc<Attached>,
    at: NonNull<u8>,
    len: usize,
    key: u32,
}

// SAFETY: an address and numbers; parts of it are reached by the `Buffer` that has them.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(attached: &Arc<Attached>, len: usize) -> io::Result<Memory> {
        // Sealed, so that the daemon maps it instead of reaching it through the kernel.
        // SAFETY: plain calls.
        let fd = unsafe { libc::memfd_create(c"toe-comm".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made, and is nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        // SAFETY: plain calls on that file.
        let at = unsafe {
            if libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) < 0 {
                return Err(io::Error::last_os_error());
            }
            let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), len, rights, flags, file.as_raw_fd(), 0)
        };
        let mapped = if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) };
        let at: NonNull<u8> = mapped.ok_or_else(io::Error::last_os_error)?;
        let mut key = 0;
        // SAFETY: the mapping, and a place for the key.
        if unsafe { (attached.functions.register)(attached.handle, at.as_ptr().cast(), len, &raw mut key) } < 0 {
            let error = io::Error::last_os_error();
            // SAFETY: nobody else has the mapping.
            unsafe { libc::munmap(at.as_ptr().cast(), len) };
            return Err(error);
        }
        Ok(Memory { attached: Arc::clone(attached), at, len, key })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Attached { functions, handle } = *self.attached;
        // Where that fails, the daemon is gone, and nothing shows that no byte is written any more: the mapping stays.
        // SAFETY: the key of this mapping, to which no buffer refers.
        unsafe {
            if (functions.deregister)(handle, self.key) == 0 {
                libc::munmap(self.at.as_ptr().cast(), self.len);
            }
        }
    }
}

/// A part of a program's memory that a [`crate::Comm`] sends from or receives into. It is the program's, or the
/// host's from a post to the event that gives it back: so what is under way cannot be read or changed by mistake.
/// Like a vector it has a length, which is what is sent and received, and a capacity.
pub struct Buffer {
    memory: Arc<Memory>,
    at: usize,
    len: usize,
    capacity: usize,
}

impl Buffer {
    pub(crate) fn new(attached: &Arc<Attached>, len: usize) -> io::Result<Buffer> {
        Ok(Buffer { memory: Arc::new(Memory::new(attached, len)?), at: 0, len, capacity: len })
    }

    /// Divides it: this one keeps the first `at` bytes, and the other has the rest of its capacity.
    ///
    /// # Panics
    /// It has fewer bytes.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buffer {
        let capacity = self.capacity.checked_sub(at).expect("a buffer is divided within its capacity");
        let rest = Buffer { memory: Arc::clone(&self.memory), at: self.at + at, len: capacity, capacity };
        (self.len, self.capacity) = (at, at);
        rest
    }

    /// Bytes that it may have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// It has so many bytes from now on: what lies there.
    ///
    /// # Panics
    /// They are more than its capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a buffer of {} bytes cannot have {len}", self.capacity);
        self.len = len;
    }

    /// Key and place of it in registered memory, where it is the memory of this attachment.
    pub(crate) fn place(&self, of: &Arc<Attached>) -> Option<(u32, u64)> {
        Arc::ptr_eq(&self.memory.attached, of).then_some((self.memory.key, self.at as u64))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: bytes of the mapping, which only this buffer has, and which are initialised.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(self.at), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at.as_ptr().add(self.at), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}
