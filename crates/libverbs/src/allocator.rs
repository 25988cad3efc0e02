//! The C library's functions for aligned memory: once a device is open, buffers that the program asks for at the
//! beginning of a page come from [`buffers`]. All other memory is as it was.
use buffers::{PAGE, functions};
use libc::{c_int, c_void, size_t};

/// A buffer of ours, where the program asks for whole pages.
fn buffer(align: usize, len: usize) -> Option<*mut c_void> {
    if align < PAGE || !align.is_power_of_two() || len == 0 { None } else { buffers::allocate(align, len) }
}

buffers::aligned_functions!(buffer);

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(address: *mut c_void, len: size_t) -> *mut c_void {
    // SAFETY: as the caller's.
    unsafe { functions::realloc(address, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(address: *mut c_void, count: size_t, each: size_t) -> *mut c_void {
    // SAFETY: as the caller's.
    unsafe { functions::reallocarray(address, count, each) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

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
            // The compiler takes what an allocator of this name returns for memory, and leaves the check out.
            let beyond = std::hint::black_box(reallocarray(memalign(4096, 1), usize::MAX, 2));
            assert!(!buffers::holds(array) && beyond.is_null());
            assert_eq!(posix_memalign(&raw mut one, 4097, 1), libc::EINVAL);
            [grown.cast(), array, three, valloc(3), null_mut()].into_iter().for_each(|address| free(address));
        }
    }
}
