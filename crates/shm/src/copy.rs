//! Copies of payload that no accident of addresses makes slow.
//!
//! The C library copies from some 2 KiB on with `rep movsb` where the processor says that this is fast. On AMD's Zen 3 and
//! Zen 4 it is 16 times slower (3.5 instead of 57 GB/s from cache to cache, measured here; glibc's bug 30994) where the
//! destination lies 1 to 15 bytes behind the source modulo 4096, and twice as slow up to 63 bytes: the processor takes
//! each load for one of the store before it. Streams come to such places by chance and stay there. Smaller pieces are
//! copied with vector loads and stores, which know no such case.

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
    let behind = (to as usize).wrapping_sub(from as usize) % PAGE;
    if len < LONG || behind.wrapping_sub(1) >= TOO_CLOSE - 1 {
        // SAFETY: the caller vouches for both.
        unsafe { std::ptr::copy(from, to, len) }
    } else {
        // SAFETY: as above.
        unsafe { in_pieces(from, to, len) }
    }
}

/// # Safety
/// As [`copy`].
#[cold]
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
            for len in [0, 1, LONG - 1, LONG, LONG + 1, 3 * PIECE + 5, 65_160] {
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
