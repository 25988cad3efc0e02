//! The C library's functions for aligned memory: once a device is open, buffers that the program asks for at the
//! beginning of a page come from [`crate::buffers`]. All other memory is as it was.
use crate::buffers::{self, PAGE};
use crate::next::next;
use libc::{c_int, c_void, size_t};
use std::ptr::null_mut;

/// A buffer of ours, where the program asks for whole pages.
fn buffer(align: usize, len: usize) -> Option<*mut c_void> {
    if align < PAGE || !align.is_power_of_two() || len == 0 { None } else { buffers::allocate(align, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: size_t, len: size_t) -> *mut c_void {
    buffer(align, len).unwrap_or_else(|| next!(c"memalign", fn(size_t, size_t) -> *mut c_void, align, len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: size_t, len: size_t) -> *mut c_void {
    buffer(align, len).unwrap_or_else(|| next!(c"aligned_alloc", fn(size_t, size_t) -> *mut c_void, align, len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, align: size_t, len: size_t) -> c_int {
    match buffer(align, len) {
        Some(address) => {
            // SAFETY: the caller's place for a pointer.
            unsafe { into.write(address) };
            0
        }
        None => next!(c"posix_memalign", fn(*mut *mut c_void, size_t, size_t) -> c_int, into, align, len),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn valloc(len: size_t) -> *mut c_void {
    buffer(PAGE, len).unwrap_or_else(|| next!(c"valloc", fn(size_t) -> *mut c_void, len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(address: *mut c_void) {
    if buffers::holds(address) { buffers::release(address) } else { next!(c"free", fn(*mut c_void), address) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(address: *mut c_void) -> size_t {
    if buffers::holds(address) {
        return buffers::len_of(address);
    }
    next!(c"malloc_usable_size", fn(*mut c_void) -> size_t, address)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(address: *mut c_void, len: size_t) -> *mut c_void {
    if !buffers::holds(address) {
        return next!(c"realloc", fn(*mut c_void, size_t) -> *mut c_void, address, len);
    }
    if len == 0 {
        buffers::release(address);
        return null_mut();
    }
    // SAFETY: a plain allocation; its result is checked.
    let moved = unsafe { libc::malloc(len) };
    if !moved.is_null() {
        // SAFETY: the new memory and the buffer have so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), moved.cast(), len.min(buffers::len_of(address))) };
        buffers::release(address);
    }
    moved
}

/// The C library's own calls its `realloc` past this library.
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(address: *mut c_void, count: size_t, each: size_t) -> *mut c_void {
    if !buffers::holds(address) {
        return next!(c"reallocarray", fn(*mut c_void, size_t, size_t) -> *mut c_void, address, count, each);
    }
    match count.checked_mul(each) {
        // SAFETY: as the caller's.
        Some(len) => unsafe { realloc(address, len) },
        None => {
            crate::errno::set(libc::ENOMEM);
            null_mut()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_buffers_and_all_else_is_the_c_librarys() {
        buffers::begin();
        // SAFETY: memory of the functions under test, used within its bounds and given back once.
        unsafe {
            let mut one = null_mut();
            assert_eq!(posix_memalign(&raw mut one, 4096, 10_000), 0);
            let (two, three) = (memalign(8192, 5), aligned_alloc(64, 640));
            assert!(buffers::holds(one) && buffers::holds(two) && !buffers::holds(three));
            assert_eq!((malloc_usable_size(one), two.addr() % 8192), (12_288, 0));
            assert!(malloc_usable_size(three) >= 640);
            one.cast::<u8>().write_bytes(9, 10_000);
            let grown = realloc(one, 50_000).cast::<u8>();
            assert!(!buffers::holds(grown.cast()) && (0..10_000).all(|at| *grown.add(at) == 9));
            let array = reallocarray(two, 3, 5);
            // The compiler takes what an allocator of this name returns for memory, and leaves the look out.
            let beyond = std::hint::black_box(reallocarray(memalign(4096, 1), usize::MAX, 2));
            assert!(!buffers::holds(array) && beyond.is_null());
            assert_eq!(posix_memalign(&raw mut one, 4097, 1), libc::EINVAL);
            [grown.cast(), array, three, valloc(3), null_mut()].into_iter().for_each(|address| free(address));
        }
    }
}
