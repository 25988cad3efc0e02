//! Asking for memory ahead of its use.

/// Asks for the lines of the cache in which a value lies, for whoever is to use it soon. Nothing else changes.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    line(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// The same of `len` bytes from an address, whatever is there.
#[inline(always)]
pub(crate) fn line(from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, len);
}
