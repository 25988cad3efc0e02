//! Registered memory of a socket: buffers and tables that the data-path maps, and buffers of the program.
use crate::abi::{IbvMr, IbvPd};
use crate::errno::{self, Result};
use crate::region::{ibv_dereg_mr, ibv_reg_mr};
use libc::{c_int, c_void};
use std::ptr::null_mut;

/// `IBV_ACCESS_LOCAL_WRITE`, and with `IBV_ACCESS_REMOTE_WRITE`.
const OWN_WRITES: c_int = 0b1;
const PEER_WRITES: c_int = 0b11;
const PAGE: usize = shm::PAGE;

/// A region of memory that is the program's.
pub(super) struct Registered {
    region: *mut IbvMr,
}

impl Registered {
    /// Registers it; a peer may write where `access` is [`Access::Peer`].
    ///
    /// # Safety
    /// The domain is this process's, and stays as long as this.
    pub(super) unsafe fn new(domain: *mut IbvPd, address: *mut c_void, len: usize, access: Access) -> Result<Self> {
        let access = match access {
            Access::Own => 0,
            Access::Arrivals => OWN_WRITES,
            Access::Peer => PEER_WRITES,
        };
        // SAFETY: as the caller guarantees.
        let region = unsafe { ibv_reg_mr(domain, address, len, access) };
        if region.is_null() { Err(errno::get()) } else { Ok(Registered { region }) }
    }

    /// Its key, for own work requests and the peer's.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the region is there as long as this.
        unsafe { (*self.region).rkey }
    }

    /// First byte and length.
    pub(super) fn range(&self) -> (usize, usize) {
        // SAFETY: the region is there as long as this.
        unsafe { ((*self.region).addr.addr(), (*self.region).length) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_reg_mr`, and used no more.
        unsafe { ibv_dereg_mr(self.region) };
    }
}

/// Users of a region.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Own work requests read it.
    Own,
    /// Own receive work requests write it.
    Arrivals,
    /// The peer writes it.
    Peer,
}

/// A buffer of whole pages, zero at first.
pub(super) struct Buffer {
    registered: Option<Registered>,
    at: *mut u8,
    len: usize,
}

impl Buffer {
    /// Of at least so many bytes.
    ///
    /// # Safety
    /// As [`Registered::new`].
    pub(super) unsafe fn new(domain: *mut IbvPd, len: usize, access: Access) -> Result<Buffer> {
        let len = len.max(1).checked_next_multiple_of(PAGE).ok_or(libc::ENOMEM)?;
        let mut address = null_mut();
        // SAFETY: a place for the pointer.
        let failed = unsafe { libc::posix_memalign(&raw mut address, PAGE, len) };
        if failed != 0 {
            return Err(failed);
        }
        let mut buffer = Buffer { registered: None, at: address.cast(), len };
        // SAFETY: so many bytes were allocated just now.
        unsafe { buffer.at.write_bytes(0, len) };
        // SAFETY: as the caller guarantees.
        buffer.registered = Some(unsafe { Registered::new(domain, address, len, access)? });
        Ok(buffer)
    }

    /// Its key.
    pub(super) fn key(&self) -> u32 {
        self.registered.as_ref().map_or(0, Registered::key)
    }

    /// Where the byte at an offset is for work requests.
    pub(super) fn address(&self, offset: usize) -> u64 {
        (self.at.expose_provenance() + offset) as u64
    }

    /// Copies bytes into it.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        // SAFETY: within the buffer.
        unsafe { self.at.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of it.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.len && into.len() <= self.len - offset);
        // SAFETY: within the buffer. A peer that keeps the rules writes elsewhere meanwhile.
        unsafe { self.at.add(offset).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// A value of a table that the peer writes.
    pub(super) fn load<T: Copy + Plain>(&self, offset: usize) -> T {
        assert!(offset % align_of::<T>() == 0 && offset <= self.len && size_of::<T>() <= self.len - offset);
        // SAFETY: within the buffer, whose first byte begins a page; every value of these types is valid. The peer may
        // write it meanwhile, so it is read once.
        unsafe { self.at.add(offset).cast::<T>().read_volatile() }
    }

    /// Changes a value of such a table.
    pub(super) fn store<T: Copy + Plain>(&mut self, offset: usize, value: T) {
        assert!(offset % align_of::<T>() == 0 && offset <= self.len && size_of::<T>() <= self.len - offset);
        // SAFETY: as in `load`.
        unsafe { self.at.add(offset).cast::<T>().write_volatile(value) };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Not touched by the data-path afterwards.
        self.registered = None;
        // SAFETY: allocated by `new`, and used no more.
        unsafe { libc::free(self.at.cast()) };
    }
}

/// Types of which every bit pattern is a value.
pub(super) trait Plain {}
impl Plain for super::protocol::RemoteBuffer {}
impl Plain for super::protocol::Mapping {}
