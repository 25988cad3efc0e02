//! The C library's functions for memory that was allocated before, where it may be a buffer. All else is the next
//! library's.
use crate::{holds, len_of, next, release};
use libc::{c_void, size_t};
use std::ptr::null_mut;

/// `free`.
///
/// # Safety
/// As the C library's.
#[inline]
pub unsafe fn free(address: *mut c_void) {
    if holds(address) { release(address) } else { next!(c"free", fn(*mut c_void), address) }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As the C library's.
pub unsafe fn usable_size(address: *mut c_void) -> size_t {
    if holds(address) {
        return len_of(address);
    }
    next!(c"malloc_usable_size", fn(*mut c_void) -> size_t, address)
}

/// `realloc`. A buffer that changes its size becomes what `malloc` gives.
///
/// # Safety
/// As the C library's.
pub unsafe fn realloc(address: *mut c_void, len: size_t) -> *mut c_void {
    if !holds(address) {
        return next!(c"realloc", fn(*mut c_void, size_t) -> *mut c_void, address, len);
    }
    if len == 0 {
        release(address);
        return null_mut();
    }
    // SAFETY: a plain allocation; its result is checked.
    let moved = unsafe { libc::malloc(len) };
    if !moved.is_null() {
        // SAFETY: the new memory and the buffer have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), moved.cast(), len.min(len_of(address))) };
        release(address);
    }
    moved
}

/// `reallocarray`. The C library's own calls its `realloc` past the library that stands before it.
///
/// # Safety
/// As the C library's.
pub unsafe fn reallocarray(address: *mut c_void, count: size_t, each: size_t) -> *mut c_void {
    if !holds(address) {
        return next!(c"reallocarray", fn(*mut c_void, size_t, size_t) -> *mut c_void, address, count, each);
    }
    match count.checked_mul(each) {
        // SAFETY: as the caller's.
        Some(len) => unsafe { realloc(address, len) },
        None => {
            // SAFETY: the C library gives each thread a valid place.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            null_mut()
        }
    }
}
