//! The functions for aligned memory that every library in front of the C library has.

/// The C library's functions for aligned memory in a library that stands in front of them: memory of
/// `$aligned(align, len)`, and where that gives none, of the next library.
#[macro_export]
macro_rules! aligned_functions {
    ($aligned:path) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memalign(align: size_t, len: size_t) -> *mut c_void {
            $aligned(align, len)
                .unwrap_or_else(|| $crate::next!(c"memalign", fn(size_t, size_t) -> *mut c_void, align, len))
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn aligned_alloc(align: size_t, len: size_t) -> *mut c_void {
            $aligned(align, len)
                .unwrap_or_else(|| $crate::next!(c"aligned_alloc", fn(size_t, size_t) -> *mut c_void, align, len))
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn posix_memalign(into: *mut *mut c_void, align: size_t, len: size_t) -> c_int {
            match $aligned(align, len) {
                Some(address) => {
                    // SAFETY: the caller's place for a pointer.
                    unsafe { into.write(address) };
                    0
                }
                None => {
                    $crate::next!(c"posix_memalign", fn(*mut *mut c_void, size_t, size_t) -> c_int, into, align, len)
                }
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn valloc(len: size_t) -> *mut c_void {
            $aligned($crate::PAGE, len).unwrap_or_else(|| $crate::next!(c"valloc", fn(size_t) -> *mut c_void, len))
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn free(address: *mut c_void) {
            // SAFETY: as the caller's.
            unsafe { $crate::functions::free(address) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn malloc_usable_size(address: *mut c_void) -> size_t {
            // SAFETY: as the caller's.
            unsafe { $crate::functions::usable_size(address) }
        }
    };
}
