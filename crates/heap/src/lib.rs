//! `libtoe_heap.so`: preloaded into a program, it has the program's large allocations lie in the heap of its context's
//! region. Bytes that the program receives there land without a copy (docs/ZERONIC.md, "Direct receives").
//!
//! Until libtoe reports where the heap is, which it does when the process attaches, all memory is the next library's.
//! So is small memory always.
use buffers::{ArenaMapping, PAGE, functions, next};
use libc::{c_int, c_void, size_t};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Memory of so many bytes is large: from there on, the C library by default maps each on its own (`M_MMAP_THRESHOLD`).
const LARGE: usize = 128 << 10;

/// Called by libtoe, by this name: the heap is `len` bytes of a sealed memfd from byte `at` on, which are mapped at
/// `base` as long as the process lives. The descriptor is this library's from now on. 0, or -1 where there is a heap
/// already.
///
/// # Safety
/// `file`, `base` and `len` are those of that mapping.
#[unsafe(no_mangle)]
unsafe extern "C" fn opentoe_heap_begin(file: RawFd, at: u64, base: *mut c_void, len: size_t) -> c_int {
    // SAFETY: the caller gives it away.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    if buffers::begin_in(ArenaMapping { file, at, base: base.expose_provenance(), len }) { 0 } else { -1 }
}

/// Called by libtoe, by this name: these bytes are sent from where they lie. Their memory is not used for anything else
/// until [`opentoe_heap_unpin`] follows, also where the program frees it meanwhile, as Linux keeps the pages of such a
/// send. 0, or -1 where they are not all in one allocation of the heap.
#[unsafe(no_mangle)]
extern "C" fn opentoe_heap_pin(address: *const c_void, len: size_t) -> c_int {
    if buffers::pin(address, len) { 0 } else { -1 }
}

/// Called by libtoe, by this name, once for each pin: the peer has the bytes.
#[unsafe(no_mangle)]
extern "C" fn opentoe_heap_unpin(address: *const c_void) {
    buffers::unpin(address);
}

/// Memory in the heap, where it is large and there is room.
#[inline]
fn large(align: usize, len: usize) -> Option<*mut c_void> {
    if len < LARGE { None } else { buffers::allocate(align, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(len: size_t) -> *mut c_void {
    large(PAGE, len).unwrap_or_else(|| next!(c"malloc", fn(size_t) -> *mut c_void, len))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: size_t, each: size_t) -> *mut c_void {
    // What comes from the heap is zero: what was given back is a hole in the file.
    let buffer = count.checked_mul(each).and_then(|len| large(PAGE, len));
    buffer.unwrap_or_else(|| next!(c"calloc", fn(size_t, size_t) -> *mut c_void, count, each))
}

/// Alignments that cannot be are the next library's to refuse.
fn aligned(align: usize, len: usize) -> Option<*mut c_void> {
    if align.is_power_of_two() { large(align, len) } else { None }
}

buffers::aligned_functions!(aligned);

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(address: *mut c_void, len: size_t) -> *mut c_void {
    // SAFETY: as the caller's.
    unsafe { if address.is_null() { malloc(len) } else { functions::realloc(address, len) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(address: *mut c_void, count: size_t, each: size_t) -> *mut c_void {
    match count.checked_mul(each) {
        // SAFETY: as the caller's.
        Some(len) if address.is_null() => unsafe { malloc(len) },
        // SAFETY: the same.
        _ => unsafe { functions::reallocarray(address, count, each) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::Region;
    use std::os::fd::IntoRawFd;
    use std::ptr::null_mut;

    #[test]
    fn large_memory_lies_in_the_heap_and_all_else_does_not() {
        let region = Box::leak(Box::new(Region::create("heap", 8 << 20).unwrap()));
        let (at, len) = (1 << 20, 4 << 20);
        let base = region.address(at, len);
        let fd = || region.fd().try_clone_to_owned().unwrap().into_raw_fd();
        let in_heap = |address: *mut c_void| address.addr().wrapping_sub(base.addr()) < len;
        // SAFETY: memory of the functions under test, used within its bounds and given back once.
        unsafe {
            let before = malloc(LARGE);
            assert_eq!(opentoe_heap_begin(fd(), at as u64, base.cast(), len), 0);
            assert_eq!(opentoe_heap_begin(fd(), at as u64, base.cast::<c_void>().wrapping_byte_add(4096), len), -1);
            let (small, one) = (malloc(LARGE - 1), malloc(LARGE));
            assert!(!in_heap(before) && !in_heap(small) && in_heap(one));
            one.cast::<u8>().write_bytes(7, LARGE);
            let offset = one.addr() - base.addr();
            assert_eq!(region.u64_at(at + offset).load(std::sync::atomic::Ordering::Relaxed), 0x0707_0707_0707_0707);
            let grown = realloc(one, 2 * LARGE).cast::<u8>();
            assert!(in_heap(grown.cast()) && (0..LARGE).all(|at| *grown.add(at) == 7));
            free(grown.cast());
            let zero = calloc(3, LARGE).cast::<u8>();
            assert!(in_heap(zero.cast()) && (0..3 * LARGE).all(|at| *zero.add(at) == 0));
            let shrunk = realloc(zero.cast(), 10);
            assert!(!in_heap(shrunk) && !in_heap(malloc(64 << 20)), "it is full");
            let mut page = null_mut();
            assert_eq!(posix_memalign(&raw mut page, 1 << 16, LARGE), 0);
            assert!(in_heap(page) && page.addr() % (1 << 16) == 0 && malloc_usable_size(page) == LARGE);
            assert_eq!(posix_memalign(&raw mut page, 3, LARGE), libc::EINVAL);
            [before, small, shrunk, reallocarray(null_mut(), 2, 8)].into_iter().for_each(|address| free(address));
        }
    }
}
