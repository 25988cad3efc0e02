//! Memory of a ring: in a region, or, under the model checker, memory of its own.

#[cfg(loom)]
pub(super) use modelled::RingMemory;
#[cfg(not(loom))]
pub(super) use real::RingMemory;

/// Bytes that a ring of `entries` descriptors of `W` words takes: two lines of positions, then the entries.
#[cfg(not(loom))]
pub const fn ring_bytes<const W: usize>(entries: u32) -> usize {
    2 * crate::CACHE_LINE + entries as usize * W * 8
}

/// Nothing waits in the ring at byte `at` of the region any more. Neither end may be in use: both are made anew
/// afterwards.
#[cfg(not(loom))]
pub fn empty_ring(region: &crate::Region, at: usize) {
    use std::sync::atomic::Ordering::{Acquire, Release};
    let tail = region.u32_at(at).load(Acquire);
    region.u32_at(at + crate::CACHE_LINE).store(tail, Release);
}

#[cfg(not(loom))]
mod real {
    use super::ring_bytes;
    use crate::{CACHE_LINE, Region};
    use std::ptr::NonNull;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    /// Where a ring lies: checked once, so that each access is only a masked index.
    #[derive(Clone)]
    pub(crate) struct RingMemory {
        tail: NonNull<AtomicU32>,
        head: NonNull<AtomicU32>,
        words: NonNull<AtomicU64>,
        /// Descriptors, a power of two, less one.
        mask: u32,
        /// Keeps what the pointers point to mapped.
        _region: Arc<Region>,
    }

    // SAFETY: the pointers lead to atomics in a mapping that this value keeps alive, on whatever thread.
    unsafe impl Send for RingMemory {}
    // SAFETY: as above: shared access goes through atomics.
    unsafe impl Sync for RingMemory {}

    impl RingMemory {
        pub(crate) fn new<const W: usize>(region: &Arc<Region>, at: usize, entries: u32) -> RingMemory {
            assert!(entries.is_power_of_two() && at % CACHE_LINE == 0);
            let base = NonNull::new(region.address(at, ring_bytes::<W>(entries))).expect("a mapping");
            // SAFETY: `address` checked that the whole ring is in the region: two lines, then the entries.
            let (head, words) = unsafe { (base.add(CACHE_LINE), base.add(2 * CACHE_LINE)) };
            RingMemory {
                tail: base.cast(),
                head: head.cast(),
                words: words.cast(),
                mask: entries - 1,
                _region: Arc::clone(region),
            }
        }

        #[inline]
        pub(crate) fn tail(&self) -> &AtomicU32 {
            // SAFETY: in the region, which is mapped as long as this value lives, and aligned to a line.
            unsafe { self.tail.as_ref() }
        }

        /// Asks for the line of the producer's position.
        #[inline(always)]
        pub(crate) fn prefetch_tail_to_write(&self) {
            crate::prefetch_to_write(self.tail.as_ptr().cast());
        }

        #[inline]
        pub(crate) fn head(&self) -> &AtomicU32 {
            // SAFETY: as in `tail`.
            unsafe { self.head.as_ref() }
        }

        /// The words of a descriptor.
        #[inline]
        pub(crate) fn descriptor<const W: usize>(&self, position: u32) -> &[AtomicU64; W] {
            let index = (position & self.mask) as usize;
            // SAFETY: the masked index is below the number of entries, and `new` was called with the same `W`; aligned
            // to words.
            unsafe { self.words.cast::<[AtomicU64; W]>().add(index).as_ref() }
        }

        /// Asks for a descriptor's line of the cache.
        #[inline]
        pub(crate) fn prefetch<const W: usize>(&self, position: u32) {
            crate::prefetch_line(self.descriptor::<W>(position).as_ptr().cast());
        }

        /// The same for whoever is to write it.
        #[inline]
        pub(crate) fn prefetch_to_write<const W: usize>(&self, position: u32) {
            crate::prefetch_to_write(self.descriptor::<W>(position).as_ptr().cast());
        }

        #[inline]
        pub(crate) fn entries(&self) -> u32 {
            self.mask + 1
        }
    }
}

impl RingMemory {
    /// Descriptors in a line of the cache.
    pub(super) const fn per_line<const W: usize>() -> u32 {
        (crate::CACHE_LINE / 8 / W) as u32
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use std::sync::Arc;

    struct Memory {
        tail: AtomicU32,
        head: AtomicU32,
        words: Vec<AtomicU64>,
    }

    pub struct RingMemory {
        memory: Arc<Memory>,
        entries: u32,
    }

    impl RingMemory {
        pub fn pair<const W: usize>(entries: u32, from: u32) -> (RingMemory, RingMemory) {
            let words = (0..entries as usize * W).map(|_| AtomicU64::new(0)).collect();
            let memory = Arc::new(Memory { tail: AtomicU32::new(from), head: AtomicU32::new(from), words });
            (RingMemory { memory: Arc::clone(&memory), entries }, RingMemory { memory, entries })
        }

        pub fn tail(&self) -> &AtomicU32 {
            &self.memory.tail
        }

        pub fn head(&self) -> &AtomicU32 {
            &self.memory.head
        }

        pub fn descriptor<const W: usize>(&self, position: u32) -> &[AtomicU64; W] {
            let at = (position & (self.entries - 1)) as usize * W;
            self.memory.words[at..at + W].try_into().expect("W words")
        }

        pub fn prefetch<const W: usize>(&self, _position: u32) {}

        pub fn prefetch_to_write<const W: usize>(&self, _position: u32) {}

        pub fn prefetch_tail_to_write(&self) {}

        pub fn entries(&self) -> u32 {
            self.entries
        }
    }
}
