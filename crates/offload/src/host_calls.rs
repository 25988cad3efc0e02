//! `liboffload.so`: host programs in C (`include/offload.h`).
use crate::host::{For, Host};
use shm::Region;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// This process' tie.
static HOST: Mutex<Option<Host>> = Mutex::new(None);

fn result(done: io::Result<()>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(error) => {
            set_errno(&error);
            -1
        }
    }
}

fn set_errno(error: &io::Error) {
    // SAFETY: the C library's errno of this thread.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn offload_open(socket: *const c_char, port: u16) -> c_int {
    if socket.is_null() {
        return result(Err(io::Error::from_raw_os_error(libc::EINVAL)));
    }
    // SAFETY: include/offload.h: a C string.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(socket) }.to_bytes()));
    let mut host = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if host.is_some() {
        return result(Err(io::Error::from_raw_os_error(libc::EISCONN)));
    }
    result(Host::open(path, port).map(|opened| *host = Some(opened)))
}

#[unsafe(no_mangle)]
extern "C" fn offload_close() {
    *HOST.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn register(address: *const c_void, size: usize, what: For) -> c_int {
    let mut host = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(host) = &mut *host else { return result(Err(io::Error::from_raw_os_error(libc::ENOTCONN))) };
    result(host.register(address.expose_provenance() as u64, size as u64, what))
}

#[unsafe(no_mangle)]
extern "C" fn register_dma_region(address: *mut c_void, size: usize) -> c_int {
    register(address, size, For::All)
}

#[unsafe(no_mangle)]
extern "C" fn register_dma_region_readonly(address: *const c_void, size: usize) -> c_int {
    register(address, size, For::Reading)
}

#[unsafe(no_mangle)]
extern "C" fn offload_memory(size: usize) -> *mut c_void {
    let pages = size.max(1).div_ceil(shm::PAGE) * shm::PAGE;
    match Region::create("offload-memory", pages) {
        Ok(region) => {
            let at = region.address(0, pages).cast();
            // It stays until the process ends.
            std::mem::forget(region);
            at
        }
        Err(error) => {
            set_errno(&error);
            std::ptr::null_mut()
        }
    }
}
