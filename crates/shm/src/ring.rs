//! Single-producer, single-consumer rings of fixed-size descriptors in a [`Region`].
//!
//! Each end keeps its own position privately and only publishes it. What the other side writes can make it find garbage
//! descriptors, or a full or empty ring. It never leads outside the ring.
mod memory;
mod pipe;

#[cfg(not(loom))]
use crate::Region;
use memory::RingMemory;
#[cfg(not(loom))]
pub use memory::{empty_ring, ring_bytes};
#[cfg(loom)]
pub(crate) use pipe::pipe;
#[cfg(not(loom))]
pub use pipe::pipe_bytes;
pub use pipe::{PipeConsumer, PipeProducer, VALID};
#[cfg(not(loom))]
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Both ends of a ring in the memory of the model checker, from a position near the wrap.
#[cfg(loom)]
pub(crate) fn pair<const W: usize>(entries: u32, from: u32) -> (Producer<W>, Consumer<W>) {
    let (one, other) = RingMemory::pair::<W>(entries, from);
    (Producer { place: one, tail: from, head: from }, Consumer { place: other, head: from, tail: from })
}

/// Lines of the cache that a consumer asks for at most, ahead of the descriptors in them.
const AHEAD: u32 = 16;

/// The ring has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The other side published a position that cannot be: it does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupt;

/// The end that adds descriptors of `W` 64-bit words.
pub struct Producer<const W: usize> {
    place: RingMemory,
    tail: u32,
    /// The consumer's position as last seen; refreshed only when the ring seems full.
    head: u32,
}

impl<const W: usize> Producer<W> {
    /// The producer's end of the ring at byte `at` of the region, going on from what is published there.
    #[cfg(not(loom))]
    pub fn new(region: &Arc<Region>, at: usize, entries: u32) -> Producer<W> {
        let place = RingMemory::new::<W>(region, at, entries);
        let (tail, head) = (place.tail().load(Acquire), place.head().load(Acquire));
        Producer { place, tail, head }
    }

    /// Adds a descriptor and publishes it.
    #[inline(always)]
    pub fn push(&mut self, descriptor: [u64; W]) -> Result<(), Full> {
        self.add(descriptor)?;
        self.publish();
        Ok(())
    }

    /// A descriptor is going to be published soon: the consumer, which polls for it all the time, has the line of the
    /// position.
    #[inline(always)]
    pub fn expect(&self) {
        self.place.prefetch_tail_to_write();
    }

    /// Adds a descriptor that the consumer sees with the next one that is pushed, or after [`Producer::publish`].
    /// Several at once: each poll of the consumer's in between would take the position's line away.
    #[inline(always)]
    pub fn add(&mut self, descriptor: [u64; W]) -> Result<(), Full> {
        if self.free() == 0 {
            return Err(Full);
        }
        let (place, mut at) = (self.place.descriptor::<W>(self.tail), 0);
        while at < W {
            place[at].store(descriptor[at], Relaxed);
            at += 1;
        }
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Adds as many of these as fit, as [`Producer::add`] does one; returns how many.
    #[inline]
    pub fn add_all(&mut self, descriptors: &[[u64; W]]) -> usize {
        let wanted = descriptors.len().min(self.place.entries() as usize);
        let count = wanted.min(self.free_for(wanted as u32) as usize);
        for descriptor in &descriptors[..count] {
            let (place, mut at) = (self.place.descriptor::<W>(self.tail), 0);
            while at < W {
                place[at].store(descriptor[at], Relaxed);
                at += 1;
            }
            self.tail = self.tail.wrapping_add(1);
        }
        count
    }

    /// Shows the consumer all that was added.
    #[inline]
    pub fn publish(&mut self) {
        self.place.tail().store(self.tail, Release);
        // The consumer's core had the next lines when it read them.
        self.place.prefetch_to_write::<W>(self.tail.wrapping_add(2 * RingMemory::per_line::<W>()));
    }

    /// Descriptors that fit now. A consumer's position that cannot be counts as a full ring.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.free_for(1)
    }

    /// The same, of `wanted` ones: reads the consumer's position where they seem not to fit.
    #[inline]
    fn free_for(&mut self, wanted: u32) -> u32 {
        let entries = self.place.entries();
        let mut free = entries.saturating_sub(self.tail.wrapping_sub(self.head));
        if free < wanted {
            self.head = self.place.head().load(Acquire);
            free = entries.saturating_sub(self.tail.wrapping_sub(self.head));
        }
        free
    }

    /// Copies of the descriptors that the consumer has not taken: for a producer whose consumer is gone.
    pub fn untaken(&self) -> Vec<[u64; W]> {
        let head = self.place.head().load(Acquire);
        let waiting = self.tail.wrapping_sub(head);
        let waiting = if waiting > self.place.entries() { 0 } else { waiting };
        let words = |at| self.place.descriptor::<W>(head.wrapping_add(at)).each_ref().map(|word| word.load(Relaxed));
        (0..waiting).map(words).collect()
    }

    /// The consumer has taken everything.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.place.head().load(Acquire) == self.tail
    }
}

/// The end that takes descriptors of `W` 64-bit words.
pub struct Consumer<const W: usize> {
    place: RingMemory,
    head: u32,
    /// The producer's position as last seen; refreshed when the ring seems empty.
    tail: u32,
}

impl<const W: usize> Consumer<W> {
    /// The consumer's end of the ring at byte `at` of the region, going on from what is published there.
    #[cfg(not(loom))]
    pub fn new(region: &Arc<Region>, at: usize, entries: u32) -> Consumer<W> {
        let place = RingMemory::new::<W>(region, at, entries);
        let head = place.head().load(Acquire);
        Consumer { place, head, tail: head }
    }

    /// Takes the next descriptor, copied once. The slot is free for the producer at once.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<[u64; W]>, Corrupt> {
        if self.waiting()? == 0 {
            return Ok(None);
        }
        let descriptor = self.at(0);
        self.release(1);
        Ok(Some(descriptor))
    }

    /// How many descriptors wait, as far as this end has read; it reads again where there were none. Several are best
    /// read by [`Consumer::at`] and given back by one [`Consumer::release`]: it writes a line that the producer reads.
    #[inline(always)]
    pub fn waiting(&mut self) -> Result<u32, Corrupt> {
        if self.head == self.tail {
            self.refresh()?;
        }
        Ok(self.tail.wrapping_sub(self.head))
    }

    /// The descriptor with `before` others before it, copied once, of those that [`wait`](Consumer::waiting). Beyond
    /// them it is any words.
    #[inline(always)]
    pub fn at(&self, before: u32) -> [u64; W] {
        // Counted: the compiler does not inline what `map` of an array, or a loop over two, is made of.
        let (mut descriptor, mut at) = ([0; W], 0);
        let place = self.place.descriptor::<W>(self.head.wrapping_add(before));
        while at < W {
            descriptor[at] = place[at].load(Relaxed);
            at += 1;
        }
        descriptor
    }

    /// The first `count` descriptors of those that wait have been read: their slots are free for the producer.
    #[inline(always)]
    pub fn release(&mut self, count: u32) {
        debug_assert!(count <= self.tail.wrapping_sub(self.head), "they wait");
        self.head = self.head.wrapping_add(count);
        self.place.head().store(self.head, Release);
    }

    /// Copies of the descriptors that wait, at most `most`, which stay where they are. They are a hint at what
    /// [`Consumer::pop`] is going to give: the producer may still change them.
    pub fn ahead(&mut self, most: u32) -> impl Iterator<Item = [u64; W]> {
        // What is wrong with the ring is for `pop` to report.
        let _ = self.refresh();
        let (place, head) = (&self.place, self.head);
        let waiting = self.tail.wrapping_sub(head).min(most);
        (0..waiting)
            .map(move |at| place.descriptor::<W>(head.wrapping_add(at)).each_ref().map(|word| word.load(Relaxed)))
    }

    /// For a check whether something came, without this value: what others take counts as well.
    #[cfg(not(loom))]
    pub fn news(&self) -> News {
        News { place: self.place.clone(), head: self.head }
    }

    /// There is nothing to take at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.place.tail().load(Acquire) == self.head
    }

    /// The end of what waits now, for [`Consumer::has_passed`].
    pub fn mark(&self) -> Mark {
        let waiting = self.place.tail().load(Acquire).wrapping_sub(self.head);
        Mark(self.head.wrapping_add(waiting.min(self.place.entries())))
    }

    /// All that waited when the mark was made has been taken, whatever the producer did since.
    pub fn has_passed(&self, mark: Mark) -> bool {
        self.is_empty() || self.head.wrapping_sub(mark.0) as i32 >= 0
    }

    #[inline]
    fn refresh(&mut self) -> Result<(), Corrupt> {
        let tail = self.place.tail().load(Acquire);
        if tail.wrapping_sub(self.head) > self.place.entries() {
            return Err(Corrupt);
        }
        self.tail = tail;
        if tail.wrapping_sub(self.head) > RingMemory::per_line::<W>() {
            self.prefetch_ahead();
        }
        Ok(())
    }

    /// Prefetches all that waits but for the first line, for which there is no time. Lines that the producer is about
    /// to write are left out.
    #[inline(never)]
    fn prefetch_ahead(&self) {
        let (per_line, waiting) = (RingMemory::per_line::<W>(), self.tail.wrapping_sub(self.head));
        for at in (per_line..waiting.min(AHEAD * per_line)).step_by(per_line as usize) {
            self.place.prefetch::<W>(self.head.wrapping_add(at));
        }
    }
}

/// A place in a ring, from [`Consumer::mark`].
#[derive(Debug, Clone, Copy)]
pub struct Mark(u32);

/// A view of a ring, from [`Consumer::news`].
#[cfg(not(loom))]
pub struct News {
    place: RingMemory,
    head: u32,
}

#[cfg(not(loom))]
impl News {
    /// Something was there behind what had been taken when this value was made.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.place.tail().load(Acquire) != self.head
    }
}

#[cfg(all(test, not(loom)))]
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
    fn many_are_added_and_taken_at_once_as_far_as_they_fit() {
        let (mut p, mut c, region) = pair(8);
        let mut numbers = 0u64..;
        for count in [3usize, 8, 1, 7, 20] {
            let descriptors: Vec<[u64; 2]> = numbers.by_ref().take(count).map(|number| [number, !number]).collect();
            let added = p.add_all(&descriptors);
            assert_eq!(added, count.min(8));
            assert_eq!(c.waiting(), Ok(0), "not published");
            p.publish();
            assert_eq!((p.add_all(&[]), p.add_all(&[[7; 2]; 8]) + added), (0, 8));
            let waiting = c.waiting().unwrap();
            assert_eq!(waiting as usize, added);
            let seen: Vec<[u64; 2]> = (0..waiting).map(|before| c.at(before)).collect();
            assert_eq!(seen, descriptors[..added]);
            // Those that are read are not free before they are released, and not all need be.
            assert_eq!(p.free(), 0);
            c.release(waiting - 1);
            assert_eq!((p.free(), c.waiting()), (waiting - 1, Ok(1)));
            assert_eq!(c.pop(), Ok(Some(descriptors[added - 1])));
            p.publish();
            while c.pop().unwrap().is_some() {}
        }
        region.u32_at(64).store(1000, Relaxed);
        assert_eq!(c.waiting(), Err(Corrupt));
    }

    #[test]
    fn news_stay_news_whoever_takes_them() {
        let (mut p, mut c, _region) = pair(8);
        let before = c.news();
        assert!(!before.is_there());
        p.push([1, 2]).unwrap();
        assert!(before.is_there());
        c.pop().unwrap();
        assert!(before.is_there() && !c.news().is_there());
    }

    #[test]
    fn a_mark_is_passed_by_what_waited_only() {
        let (mut p, mut c, region) = pair(8);
        assert!(c.has_passed(c.mark()), "nothing waits");
        (0..3).for_each(|i| p.push([i, 0]).unwrap());
        let mark = c.mark();
        p.push([3, 0]).unwrap();
        for _ in 0..3 {
            assert!(!c.has_passed(mark));
            c.pop().unwrap();
        }
        assert!(c.has_passed(mark) && !c.is_empty());
        // A producer that never had so much, or takes its position back, is not waited for.
        region.u32_at(64).store(1 << 30, Relaxed);
        let mark = c.mark();
        region.u32_at(64).store(4, Relaxed);
        c.pop().unwrap();
        assert!(c.has_passed(mark));
    }

    #[test]
    fn a_position_that_cannot_be_is_noticed() {
        let (mut p, mut c, region) = pair(8);
        region.u32_at(64).store(1000, Relaxed);
        assert_eq!(c.pop(), Err(Corrupt));
        region.u32_at(64 + crate::CACHE_LINE).store(77, Relaxed);
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
