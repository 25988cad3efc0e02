//! Asking for memory ahead of its use, and in large pages.
use crate::CACHE_LINE;

/// Asks for the lines of the cache in which a value lies, for whoever is to use it soon. Nothing else changes.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    line(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// The same of a value's first `LINES` lines.
#[inline(always)]
pub fn prefetch_first<const LINES: usize, T>(value: &T) {
    line(std::ptr::from_ref(value).cast(), CACHE_LINE * LINES);
}

/// The same of `len` bytes from an address, whatever is there.
#[inline(always)]
pub(crate) fn line(from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..len).step_by(CACHE_LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, len);
}

/// Asks for the line of the cache at an address, whatever is there, for whoever is to read it soon.
#[inline(always)]
pub fn prefetch_line(at: *const u8) {
    line(at, 1);
}

/// The same for whoever is to write it: so that nobody else has it by then. A write that finds it elsewhere holds up
/// the next locked instruction for as long as the line takes.
#[inline(always)]
pub fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults, whatever the address; a processor without this one does
    // nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags))
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same of that line and the next.
#[inline(always)]
pub fn prefetch_two_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", "prefetchw [{at} + {line}]", at = in(reg) at.addr(), line = const CACHE_LINE,
            options(nomem, nostack, preserves_flags))
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Asks for huge pages for a large table, used or not: those whose first byte is written from now on. Where tens of
/// thousands of connections are looked up in no order, finding the page would otherwise cost more than the lookup.
/// Nothing else changes; a system that gives none keeps small ones.
pub fn prefer_huge_pages<T>(table: &Vec<T>) {
    let from = (table.as_ptr() as usize).next_multiple_of(HUGE);
    let end = table.as_ptr() as usize + table.capacity() * size_of::<T>();
    let Some(len) = end.checked_sub(from).filter(|len| *len >= HUGE) else { return };
    // SAFETY: advice about whole pages of the table's own memory, whose content stays as it is.
    unsafe { libc::madvise(from as *mut libc::c_void, len / HUGE * HUGE, libc::MADV_HUGEPAGE) };
}
