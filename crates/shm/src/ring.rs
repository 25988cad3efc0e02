//! Single-producer, single-consumer rings of fixed-size descriptors in a [`Region`].
//!
//! Each end keeps its own position privately and only publishes it: what the other side writes can make it
//! see garbage descriptors or a full or empty ring, never an access outside the ring.
use crate::{CACHE_LINE, Region};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes that a ring of `entries` descriptors of `W` words takes: two lines of positions, then the entries.
pub const fn ring_bytes<const W: usize>(entries: u32) -> usize {
    2 * CACHE_LINE + entries as usize * W * 8
}

/// The ring has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The other side published a position that cannot be: it does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// Where a ring lies: checked once, so that each access is only a masked index.
struct Place {
    tail: NonNull<AtomicU32>,
    head: NonNull<AtomicU32>,
    words: NonNull<AtomicU64>,
    entries: u32,
    /// Keeps what the pointers point to mapped.
    _region: Arc<Region>,
}

// SAFETY: the pointers lead to atomics in a mapping that this value keeps alive, on whatever thread.
unsafe impl Send for Place {}
// SAFETY: as above: shared access goes through atomics.
unsafe impl Sync for Place {}

impl Place {
    fn new<const W: usize>(region: &Arc<Region>, at: usize, entries: u32) -> Place {
        assert!(entries.is_power_of_two() && at % CACHE_LINE == 0);
        let base = NonNull::new(region.address(at, ring_bytes::<W>(entries))).expect("a mapping");
        // SAFETY: `address` checked that the whole ring is in the region: two lines, then the entries.
        let (head, words) = unsafe { (base.add(CACHE_LINE), base.add(2 * CACHE_LINE)) };
        Place { tail: base.cast(), head: head.cast(), words: words.cast(), entries, _region: Arc::clone(region) }
    }

    #[inline]
    fn tail(&self) -> &AtomicU32 {
        // SAFETY: in the region, which is mapped as long as this value lives, and aligned to a line.
        unsafe { self.tail.as_ref() }
    }

    #[inline]
    fn head(&self) -> &AtomicU32 {
        // SAFETY: as in `tail`.
        unsafe { self.head.as_ref() }
    }

    /// The words of a descriptor.
    #[inline]
    fn descriptor<const W: usize>(&self, position: u32) -> &[AtomicU64; W] {
        let index = (position & (self.entries - 1)) as usize;
        // SAFETY: the masked index is below `entries`, and `new` was called with the same `W`; aligned to words.
        unsafe { self.words.cast::<[AtomicU64; W]>().add(index).as_ref() }
    }
}

/// The end that adds descriptors of `W` 64-bit words.
pub struct Producer<const W: usize> {
    place: Place,
    tail: u32,
    /// The consumer's position as last seen; refreshed only when the ring looks full.
    head: u32,
}

impl<const W: usize> Producer<W> {
    /// The producer's end of the ring at byte `at` of the region, going on from what is published there.
    pub fn new(region: &Arc<Region>, at: usize, entries: u32) -> Producer<W> {
        let place = Place::new::<W>(region, at, entries);
        let (tail, head) = (place.tail().load(Acquire), place.head().load(Acquire));
        Producer { place, tail, head }
    }

    /// Adds a descriptor and publishes it.
    #[inline]
    pub fn push(&mut self, descriptor: [u64; W]) -> Result<(), Full> {
        if self.free() == 0 {
            return Err(Full);
        }
        for (place, word) in self.place.descriptor::<W>(self.tail).iter().zip(descriptor) {
            place.store(word, Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.place.tail().store(self.tail, Release);
        Ok(())
    }

    /// Descriptors that fit now. A consumer's position that cannot be counts as a full ring.
    #[inline]
    pub fn free(&mut self) -> u32 {
        let mut used = self.tail.wrapping_sub(self.head);
        if used >= self.place.entries {
            self.head = self.place.head().load(Acquire);
            used = self.tail.wrapping_sub(self.head);
        }
        self.place.entries.saturating_sub(used)
    }

    /// The consumer has taken everything.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.place.head().load(Acquire) == self.tail
    }
}

/// The end that takes descriptors of `W` 64-bit words.
pub struct Consumer<const W: usize> {
    place: Place,
    head: u32,
    /// The producer's position as last seen; refreshed when the ring looks empty.
    tail: u32,
}

impl<const W: usize> Consumer<W> {
    /// The consumer's end of the ring at byte `at` of the region, going on from what is published there.
    pub fn new(region: &Arc<Region>, at: usize, entries: u32) -> Consumer<W> {
        let place = Place::new::<W>(region, at, entries);
        let head = place.head().load(Acquire);
        Consumer { place, head, tail: head }
    }

    /// Takes the next descriptor, copied once. The slot is free for the producer at once.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<[u64; W]>, Corrupt> {
        if self.head == self.tail && !self.refresh()? {
            return Ok(None);
        }
        let descriptor = self.place.descriptor::<W>(self.head).each_ref().map(|word| word.load(Relaxed));
        self.head = self.head.wrapping_add(1);
        self.place.head().store(self.head, Release);
        Ok(Some(descriptor))
    }

    /// There is nothing to take at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.place.tail().load(Acquire) == self.head
    }

    #[inline]
    fn refresh(&mut self) -> Result<bool, Corrupt> {
        let tail = self.place.tail().load(Acquire);
        if tail.wrapping_sub(self.head) > self.place.entries {
            return Err(Corrupt);
        }
        self.tail = tail;
        Ok(tail != self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(entries: u32) -> (Producer<2>, Consumer<2>, Arc<Region>) {
        let region = Arc::new(Region::create("test", 65536).unwrap());
        (Producer::new(&region, 64, entries), Consumer::new(&region, 64, entries), region)
    }

    #[test]
    fn fills_drains_and_wraps() {
        let (mut p, mut c, _region) = pair(8);
        for round in 0..100u64 {
            for i in 0..8 {
                p.push([round, i]).unwrap();
            }
            assert_eq!(p.push([0, 0]), Err(Full));
            for i in 0..8 {
                assert_eq!(c.pop(), Ok(Some([round, i])));
            }
            assert_eq!(c.pop(), Ok(None));
            assert!(p.is_drained());
        }
    }

    #[test]
    fn a_position_that_cannot_be_is_noticed() {
        let (mut p, mut c, region) = pair(8);
        region.u32_at(64).store(1000, Relaxed);
        assert_eq!(c.pop(), Err(Corrupt));
        region.u32_at(64 + CACHE_LINE).store(77, Relaxed);
        for _ in 0..8 {
            p.push([0, 0]).unwrap();
        }
        assert_eq!(p.push([0, 0]), Err(Full));
    }

    #[test]
    fn carries_across_threads() {
        let (mut p, mut c, _region) = pair(64);
        let sender = std::thread::spawn(move || {
            for i in 0..100_000u64 {
                while p.push([i, !i]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        for i in 0..100_000u64 {
            loop {
                match c.pop().unwrap() {
                    Some(got) => break assert_eq!(got, [i, !i]),
                    None => std::thread::yield_now(),
                }
            }
        }
        sender.join().unwrap();
    }
}
