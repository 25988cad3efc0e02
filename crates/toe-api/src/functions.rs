//! The functions of `include/toe.h`, as far as the program has them.
use libc::{c_int, iovec, size_t, ssize_t};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

type Give = unsafe extern "C" fn(c_int, *mut iovec, size_t, c_int) -> ssize_t;
type Count = unsafe extern "C" fn(c_int, size_t) -> c_int;

/// Those of this crate, all of which `libtoe.so` has.
pub(crate) struct Functions {
    version: unsafe extern "C" fn() -> c_int,
    splice: unsafe extern "C" fn(c_int, c_int) -> c_int,
    pub reserve: Give,
    pub peek: Give,
    pub take: Give,
    commit: unsafe extern "C" fn(c_int, size_t, c_int) -> c_int,
    release: Count,
    free: unsafe extern "C" fn(c_int, *const iovec, c_int) -> c_int,
    log_create: unsafe extern "C" fn(size_t, size_t, c_int) -> c_int,
    log_add: unsafe extern "C" fn(c_int, c_int, u64) -> c_int,
    log_read: unsafe extern "C" fn(c_int, *mut RawRecord, size_t, c_int) -> ssize_t,
    log_trim: Count,
}

/// `struct toe_log_record`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRecord {
    pub data: *const u8,
    pub index: u64,
    pub mark: u64,
    pub number: u64,
}

impl Default for RawRecord {
    fn default() -> RawRecord {
        RawRecord { data: std::ptr::null(), index: 0, mark: 0, number: 0 }
    }
}

// SAFETY: an address and numbers; each access to the address has its own reason.
unsafe impl Send for RawRecord {}
// SAFETY: as above.
unsafe impl Sync for RawRecord {}

/// What was looked up.
pub(crate) fn get() -> io::Result<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().ok_or_else(missing)
}

/// The library is not there.
pub(crate) fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "libtoe.so is not loaded: start the program with `opentoe run`")
}

/// A function of the library.
///
/// # Safety
/// `F` is the type of the function of this name in include/toe.h.
pub(crate) unsafe fn named<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
    // SAFETY: a plain call; what is found is a function of this type, as the caller guarantees.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!found.is_null()).then(|| std::mem::transmute_copy(&found))
    }
}

fn find() -> Option<Functions> {
    // SAFETY: the types are those of include/toe.h.
    unsafe {
        Some(Functions {
            version: named(c"toe_api_version")?,
            splice: named(c"toe_splice")?,
            reserve: named(c"toe_zc_reserve")?,
            peek: named(c"toe_zc_peek")?,
            take: named(c"toe_zc_take")?,
            commit: named(c"toe_zc_commit")?,
            release: named(c"toe_zc_release")?,
            free: named(c"toe_zc_free")?,
            log_create: named(c"toe_log_create")?,
            log_add: named(c"toe_log_add")?,
            log_read: named(c"toe_log_read")?,
            log_trim: named(c"toe_log_trim")?,
        })
    }
}

/// Nothing, or the error in `errno`.
pub(crate) fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Functions {
    pub(crate) fn commit(&self, fd: BorrowedFd, len: usize, flags: c_int) -> io::Result<()> {
        // SAFETY: a plain call; it checks the length.
        done(unsafe { (self.commit)(fd.as_raw_fd(), len, flags) })
    }

    pub(crate) fn release(&self, fd: BorrowedFd, len: usize) -> io::Result<()> {
        // SAFETY: as in `commit`.
        done(unsafe { (self.release)(fd.as_raw_fd(), len) })
    }

    pub(crate) fn free(&self, fd: BorrowedFd, pieces: &[iovec; 2]) -> io::Result<()> {
        // SAFETY: an array of two; it checks the places.
        done(unsafe { (self.free)(fd.as_raw_fd(), pieces.as_ptr(), 2) })
    }

    pub(crate) fn log_create(&self, record: usize, records: usize) -> io::Result<OwnedFd> {
        // SAFETY: a plain call; it checks the sizes.
        let fd = unsafe { (self.log_create)(record, records, libc::SOCK_CLOEXEC) };
        // SAFETY: a descriptor that was just made, and is nobody else's.
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
    }

    pub(crate) fn log_add(&self, log: BorrowedFd, connection: BorrowedFd, mark: u64) -> io::Result<()> {
        // SAFETY: a plain call with two descriptors.
        done(unsafe { (self.log_add)(log.as_raw_fd(), connection.as_raw_fd(), mark) })
    }

    pub(crate) fn log_read(&self, log: BorrowedFd, list: &mut [RawRecord]) -> io::Result<usize> {
        // SAFETY: an array of so many.
        let count = unsafe { (self.log_read)(log.as_raw_fd(), list.as_mut_ptr(), list.len(), 0) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    pub(crate) fn log_trim(&self, log: BorrowedFd, count: usize) -> io::Result<()> {
        // SAFETY: a plain call; it checks the number.
        done(unsafe { (self.log_trim)(log.as_raw_fd(), count) })
    }
}

/// Calls one of the functions that give two pieces.
pub(crate) fn pieces(give: Give, fd: BorrowedFd, len: usize) -> io::Result<[iovec; 2]> {
    let mut pieces = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
    // SAFETY: an array of two, as the function expects.
    let result = unsafe { give(fd.as_raw_fd(), pieces.as_mut_ptr(), len, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(pieces) }
}

/// `TOE_API_VERSION` of the library that is loaded.
///
/// # Errors
/// `Unsupported` where none is.
pub fn api_version() -> io::Result<i32> {
    // SAFETY: a plain call.
    get().map(|functions| unsafe { (functions.version)() })
}

/// Joins two connected sockets in the data-path (`toe_splice`, docs/SPLICING.md).
///
/// # Errors
/// As in include/toe.h; `Unsupported` where `libtoe.so` is not loaded.
pub fn splice(a: impl AsFd, b: impl AsFd) -> io::Result<()> {
    let functions = get()?;
    // SAFETY: a plain call with two descriptors.
    done(unsafe { (functions.splice)(a.as_fd().as_raw_fd(), b.as_fd().as_raw_fd()) })
}
