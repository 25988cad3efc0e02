//! UCX' own allocator of whole pages: once a device is open, its memory comes from [`buffers`].
//!
//! UCX takes its pools and the buffers that it allocates for programs from `ucs_mmap_alloc`, registers them, and gives
//! them back by `ucs_mmap_free`. The two are called by their names, also inside UCX, so those here stand in front. (Not
//! `mmap`: UCX rewrites the first instructions of the function of that name, wherever it is.)
use buffers::PAGE;
use libc::{c_char, c_int, c_void, size_t};

/// `UCS_OK`, `UCS_ERR_NO_MEMORY`, `UCS_ERR_INVALID_PARAM` of `ucs_status_t`.
const DONE: c_int = 0;
const NO_MEMORY: c_int = -4;
const WRONG: c_int = -5;

/// The status. `len` is rounded up to pages; `address` has a wish, where `flags` (of `mmap`) have `MAP_FIXED`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ucs_mmap_alloc(
    len: *mut size_t,
    address: *mut *mut c_void,
    flags: c_int,
    _name: *const c_char,
) -> c_int {
    // SAFETY: the caller's places for a number and a pointer.
    let (len, address) = unsafe { (&mut *len, &mut *address) };
    let Some(whole) = len.checked_next_multiple_of(PAGE).filter(|whole| *whole > 0) else { return NO_MEMORY };
    let buffer = if flags == 0 { buffers::allocate(PAGE, whole) } else { None };
    let mapped = buffer.unwrap_or_else(|| {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: as the caller asks for it.
        unsafe { libc::mmap(*address, whole, rights, kind | flags, -1, 0) }
    });
    if mapped == libc::MAP_FAILED {
        return NO_MEMORY;
    }
    (*len, *address) = (whole, mapped);
    DONE
}

/// The status.
#[unsafe(no_mangle)]
unsafe extern "C" fn ucs_mmap_free(address: *mut c_void, len: size_t) -> c_int {
    if buffers::holds(address) {
        buffers::release(address);
        return DONE;
    }
    let Some(whole) = len.checked_next_multiple_of(PAGE) else { return WRONG };
    // SAFETY: memory that `ucs_mmap_alloc` gave, and that is not used any more.
    if unsafe { libc::munmap(address, whole) } == 0 { DONE } else { WRONG }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn whole_pages_are_buffers_unless_they_are_to_be_somewhere() {
        buffers::begin();
        // SAFETY: memory of the functions under test, used within its bounds and given back once.
        unsafe {
            let (mut len, mut address) = (5000, null_mut());
            assert_eq!(ucs_mmap_alloc(&raw mut len, &raw mut address, 0, c"test".as_ptr()), DONE);
            assert!(buffers::holds(address) && len == 2 * PAGE);
            address.cast::<u8>().write_bytes(7, len);
            assert_eq!(ucs_mmap_free(address, len), DONE);
            let (mut len, mut other) = (PAGE, null_mut());
            assert_eq!(ucs_mmap_alloc(&raw mut len, &raw mut other, libc::MAP_NORESERVE, c"test".as_ptr()), DONE);
            assert!(!buffers::holds(other));
            other.cast::<u8>().write_bytes(7, PAGE);
            assert_eq!(ucs_mmap_free(other, len), DONE);
            let mut none = 0;
            assert_eq!(ucs_mmap_alloc(&raw mut none, &raw mut other, 0, c"test".as_ptr()), NO_MEMORY);
            let mut most = usize::MAX;
            assert_eq!(ucs_mmap_alloc(&raw mut most, &raw mut other, 0, c"test".as_ptr()), NO_MEMORY);
        }
    }
}
