//! Copies of payload that no accident of addresses makes slow.
//!
//! The C library copies from some 2 KiB on with `rep movsb` where the processor reports that this is fast. On AMD's Zen
//! 3 and Zen 4 some distances make it slow (glibc's bug 30994). Where the destination lies 1 to 15 bytes behind the
//! source modulo 4096, it has 3.5 instead of 57 GB/s from cache to cache. Up to 63 bytes behind, it is twice as slow.
//! The processor takes each load for one of the store before it. Streams come to such places by chance and stay there.
//! Smaller pieces are copied with vector loads and stores, which have no such case.

/// Up to here a copy is a few loads and stores, which cost less than the call of a function that chooses among more.
const SMALL: usize = 64;
/// Shorter copies are made without `rep movsb` in any case.
const LONG: usize = 2048;
/// Bytes of a piece: below the C library's threshold, whatever the processor.
const PIECE: usize = 1024;
const PAGE: usize = 4096;
/// Distances below this, modulo a page, are those to avoid.
const TOO_CLOSE: usize = 64;

/// Copies `len` bytes; as [`std::ptr::copy`], but bytes that overlap may come out wrong.
///
/// # Safety
/// `from` is valid for reading and `to` for writing `len` bytes.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len.wrapping_sub(4) <= SMALL - 4 {
        // SAFETY: the caller vouches for both.
        return unsafe { small(from, to, len) };
    }
    if std::ptr::eq(from, to) {
        // The bytes of a ring to which a blank payload refers (docs/ZERONIC.md, "Socket programs").
        return;
    }
    let behind = (to as usize).wrapping_sub(from as usize) % PAGE;
    if len < LONG || behind.wrapping_sub(1) >= TOO_CLOSE - 1 {
        // SAFETY: the caller vouches for both.
        unsafe { std::ptr::copy(from, to, len) }
    } else {
        // SAFETY: as above.
        unsafe { in_pieces(from, to, len) }
    }
}

/// Whether [`small`] does it, and without the shortest ones' cases.
#[inline(always)]
pub(crate) fn is_small(len: usize) -> bool {
    (16..=SMALL).contains(&len)
}

/// 4 to 64 bytes: the first and the last ones, which may be the same. All are loaded before any is stored.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub(crate) unsafe fn small(from: *const u8, to: *mut u8, len: usize) {
    if len < 16 {
        // SAFETY: as the caller's.
        return unsafe { tiny(from, to, len) };
    }
    // SAFETY: each block lies within `len` bytes, of which there are at least 16, and more than 32 in the first case.
    unsafe {
        let load = |at: usize| from.add(at).cast::<u128>().read_unaligned();
        let store = |at: usize, block: u128| to.add(at).cast::<u128>().write_unaligned(block);
        if len > 32 {
            let (first, second, third, last) = (load(0), load(16), load(len - 32), load(len - 16));
            store(0, first);
            store(16, second);
            store(len - 32, third);
            store(len - 16, last);
        } else {
            let (first, last) = (load(0), load(len - 16));
            store(0, first);
            store(len - 16, last);
        }
    }
}

/// 4 to 15 bytes, in the same way.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn tiny(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: each half lies within `len` bytes, of which there are at least 8 in the first case and 4 in the other.
    unsafe {
        if len >= 8 {
            let (first, last) = (from.cast::<u64>().read_unaligned(), from.add(len - 8).cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(first);
            to.add(len - 8).cast::<u64>().write_unaligned(last);
        } else {
            let (first, last) = (from.cast::<u32>().read_unaligned(), from.add(len - 4).cast::<u32>().read_unaligned());
            to.cast::<u32>().write_unaligned(first);
            to.add(len - 4).cast::<u32>().write_unaligned(last);
        }
    }
}

/// # Safety
/// As [`copy`].
#[cold]
#[inline(never)]
unsafe fn in_pieces(from: *const u8, to: *mut u8, len: usize) {
    for at in (0..len).step_by(PIECE) {
        // SAFETY: within what the caller vouches for.
        unsafe { std::ptr::copy(from.add(at), to.add(at), PIECE.min(len - at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_at_every_distance() {
        let from: Vec<u8> = (0..70_000u32).map(|at| (at % 251) as u8).collect();
        let mut to = vec![0u8; 70_000 + 2 * PAGE];
        let level = (from.as_ptr() as usize).wrapping_sub(to.as_ptr() as usize) % PAGE;
        for behind in [0, 1, 7, 15, 16, 63, 64, 65, PAGE - 1] {
            for len in [
                0,
                1,
                3,
                4,
                5,
                7,
                8,
                9,
                15,
                16,
                17,
                31,
                32,
                33,
                47,
                63,
                64,
                65,
                LONG - 1,
                LONG,
                LONG + 1,
                3 * PIECE + 5,
                65_160,
            ] {
                to.fill(0);
                let at = level + behind;
                // SAFETY: both are long enough: `level + behind` is less than two pages.
                unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(at), len) };
                assert!(to[at..at + len] == from[..len], "{behind} {len}");
                assert!(to[..at].iter().chain(&to[at + len..]).all(|byte| *byte == 0), "{behind} {len}");
            }
        }
    }
}
