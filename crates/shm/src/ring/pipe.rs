//! Pipe: a single-producer, single-consumer ring whose elements have a valid bit each. This is the
//! notification pipe of SmartNS (section 3.4): the layout of send, receive and completion queues.
//!
//! An element is `W` words. The highest bit of the last word is its valid bit. The producer writes the other words and
//! then the last one, with the bit of this lap; the bit toggles at each wrap. So the consumer polls the element itself,
//! and no line holds a position that both sides use. Fresh memory is zero, and the bit is 1 in the first lap.
//!
//! The consumer counts what it took in a line of its own. The producer reads that line once every so many elements.
//!
//! Each end keeps its own position privately. What the other side writes can make it take garbage elements, or find the
//! ring empty or full for ever. It never leads outside the ring, and the work of a call is bounded by its arguments.
use super::Full;
use super::memory::RingMemory;
#[cfg(not(loom))]
use super::ring_bytes;
#[cfg(not(loom))]
use crate::Region;
#[cfg(not(loom))]
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The valid bit of an element, in its last word. The word's other bits are the user's.
pub const VALID: u64 = 1 << 63;

/// Bytes that a pipe of `entries` elements of `W` words takes: a reserved line, the consumer's line, the elements.
#[cfg(not(loom))]
pub const fn pipe_bytes<const W: usize>(entries: u32) -> usize {
    ring_bytes::<W>(entries)
}

/// Both ends of a pipe in the memory of the model checker. `from` is in an even lap.
#[cfg(loom)]
pub(crate) fn pipe<const W: usize>(entries: u32, from: u32, every: u32) -> (PipeProducer<W>, PipeConsumer<W>) {
    let (one, other) = RingMemory::pair::<W>(entries, from);
    (PipeProducer { place: one, tail: from, left: 0, every }, PipeConsumer { place: other, head: from })
}

/// The valid bit of the element at a position: 1 in the first lap, then 0, and so on.
#[inline]
fn valid_at(place: &RingMemory, position: u32) -> u64 {
    let odd_lap = position & place.entries() != 0;
    if odd_lap { 0 } else { VALID }
}

/// The end that adds elements of `W` 64-bit words.
pub struct PipeProducer<const W: usize> {
    place: RingMemory,
    tail: u32,
    /// Elements that may be added before the consumer's counter is read again.
    left: u32,
    every: u32,
}

impl<const W: usize> PipeProducer<W> {
    /// The producer's end of the pipe at byte `at` of the region. `from` is its position: 0 in fresh memory, otherwise
    /// that of the end that it replaces. The consumer's counter is read once every `every` elements, and before that
    /// where there was less room.
    ///
    /// # Panics
    /// Programming errors: the pipe is not in the region, `entries` is no power of two below 2^31, or `every` is 0.
    #[cfg(not(loom))]
    pub fn new(region: &Arc<Region>, at: usize, entries: u32, from: u32, every: u32) -> PipeProducer<W> {
        assert!(entries < 1 << 31 && every > 0);
        PipeProducer { place: RingMemory::new::<W>(region, at, entries), tail: from, left: 0, every }
    }

    /// Adds an element, which the consumer may take at once. The highest bit of its last word is not carried.
    ///
    /// # Errors
    /// The ring has no room, or the consumer's counter is one that cannot be.
    #[inline]
    pub fn push(&mut self, element: [u64; W]) -> Result<(), Full> {
        const { assert!(W > 0) };
        if self.left == 0 {
            self.refresh()?;
        }
        let (place, mut at) = (self.place.descriptor::<W>(self.tail), 0);
        while at < W - 1 {
            place[at].store(element[at], Relaxed);
            at += 1;
        }
        place[W - 1].store(element[W - 1] & !VALID | valid_at(&self.place, self.tail), Release);
        (self.tail, self.left) = (self.tail.wrapping_add(1), self.left - 1);
        Ok(())
    }

    /// Makes sure that so many elements can be added, for elements of which the consumer takes all or none.
    ///
    /// # Errors
    /// As [`PipeProducer::push`].
    #[inline]
    pub fn reserve(&mut self, elements: u32) -> Result<(), Full> {
        if self.left >= elements {
            return Ok(());
        }
        self.left = self.room().min(self.every.max(elements));
        if self.left >= elements { Ok(()) } else { Err(Full) }
    }

    /// Elements added so far, modulo 2^32.
    pub fn position(&self) -> u32 {
        self.tail
    }

    /// The consumer has counted everything that was added.
    pub fn is_drained(&self) -> bool {
        self.place.head().load(Acquire) == self.tail
    }

    /// Reads the consumer's counter.
    #[cold]
    fn refresh(&mut self) -> Result<(), Full> {
        self.left = self.room().min(self.every);
        if self.left == 0 { Err(Full) } else { Ok(()) }
    }

    /// Free elements, by the consumer's counter.
    #[cold]
    fn room(&self) -> u32 {
        let used = self.tail.wrapping_sub(self.place.head().load(Acquire));
        self.place.entries().saturating_sub(used)
    }
}

/// The end that takes elements of `W` 64-bit words.
pub struct PipeConsumer<const W: usize> {
    place: RingMemory,
    head: u32,
}

impl<const W: usize> PipeConsumer<W> {
    /// The consumer's end of the pipe at byte `at` of the region, from a position as in [`PipeProducer::new`].
    ///
    /// # Panics
    /// As [`PipeProducer::new`].
    #[cfg(not(loom))]
    pub fn new(region: &Arc<Region>, at: usize, entries: u32, from: u32) -> PipeConsumer<W> {
        assert!(entries < 1 << 31);
        PipeConsumer { place: RingMemory::new::<W>(region, at, entries), head: from }
    }

    /// Takes the next element, copied once, its valid bit cleared.
    #[inline]
    pub fn pop(&mut self) -> Option<[u64; W]> {
        let mut element = [[0; W]];
        (self.take(&mut element) > 0).then_some(element[0])
    }

    /// Takes as many elements as there are, `elements.len()` at most, and counts them at once. Small elements are best
    /// taken by the line of the cache, as receive elements of 16 bytes are by four.
    #[inline]
    pub fn take(&mut self, elements: &mut [[u64; W]]) -> usize {
        const { assert!(W > 0) };
        let mut taken = 0;
        for element in elements {
            let place = self.place.descriptor::<W>(self.head);
            let last = place[W - 1].load(Acquire);
            if last & VALID != valid_at(&self.place, self.head) {
                break;
            }
            let mut at = 0;
            while at < W - 1 {
                element[at] = place[at].load(Relaxed);
                at += 1;
            }
            element[W - 1] = last & !VALID;
            (self.head, taken) = (self.head.wrapping_add(1), taken + 1);
        }
        if taken > 0 {
            self.place.head().store(self.head, Release);
        }
        taken
    }

    /// There is nothing to take at this moment.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let last = self.place.descriptor::<W>(self.head)[W - 1].load(Acquire);
        last & VALID != valid_at(&self.place, self.head)
    }

    /// Elements taken so far, modulo 2^32.
    pub fn position(&self) -> u32 {
        self.head
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::CACHE_LINE;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const AT: usize = 4096;

    fn pair<const W: usize>(entries: u32, every: u32) -> (PipeProducer<W>, PipeConsumer<W>, Arc<Region>) {
        let region = Arc::new(Region::create("test", AT + pipe_bytes::<W>(entries)).unwrap());
        (PipeProducer::new(&region, AT, entries, 0, every), PipeConsumer::new(&region, AT, entries, 0), region)
    }

    #[test]
    fn the_valid_bit_is_that_of_smartns() {
        let (mut producer, mut consumer, region) = pair::<8>(4, 4);
        let last = |index: usize| region.u64_at(AT + 2 * CACHE_LINE + index * 64 + 56);
        for lap in 0..4u64 {
            for index in 0..4 {
                producer.push([lap; 8]).unwrap();
                let valid = if lap % 2 == 0 { VALID } else { 0 };
                assert_eq!(last(index).load(Relaxed), valid | lap);
                assert_eq!(consumer.pop(), Some([lap; 8]));
                assert!(consumer.is_empty());
            }
        }
        assert_eq!((producer.position(), consumer.position()), (16, 16));
    }

    #[test]
    fn the_counter_is_read_once_every_so_many_elements() {
        let (mut producer, mut consumer, region) = pair::<2>(64, 8);
        let counter = region.u32_at(AT + CACHE_LINE);
        for number in 0..8 {
            producer.push([number, 0]).unwrap();
            // What it has read last holds, whatever stands there now.
            counter.store(1 << 30, Relaxed);
        }
        assert_eq!(producer.push([8, 0]), Err(Full), "a counter that cannot be");
        let mut taken = [[0; 2]; 4];
        assert_eq!((consumer.take(&mut taken), taken.map(|element| element[0])), (4, [0, 1, 2, 3]));
        assert_eq!((consumer.take(&mut taken), consumer.take(&mut taken)), (4, 0));
        producer.push([8, 0]).unwrap();
        assert!(!producer.is_drained());
        consumer.pop().unwrap();
        assert!(producer.is_drained());
    }

    #[test]
    fn room_for_several_is_there_or_not() {
        let (mut producer, mut consumer, _region) = pair::<2>(8, 2);
        assert_eq!(producer.reserve(9), Err(Full));
        producer.reserve(7).unwrap();
        (0..7).for_each(|number| producer.push([number, 0]).unwrap());
        assert_eq!(producer.reserve(2), Err(Full));
        producer.push([7, 0]).unwrap();
        assert_eq!(producer.reserve(1), Err(Full));
        consumer.take(&mut [[0; 2]; 3]);
        assert_eq!((producer.reserve(4), producer.reserve(3)), (Err(Full), Ok(())));
    }

    #[test]
    fn carries_across_threads() {
        let (mut producer, mut consumer, _region) = pair::<8>(16, 5);
        let sender = std::thread::spawn(move || {
            for number in 0..100_000u64 {
                while producer.push([number; 8]).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < 100_000 {
            match consumer.pop() {
                Some(found) => {
                    assert_eq!(found, [expected; 8]);
                    expected += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        sender.join().unwrap();
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u64),
        Take(usize),
        /// The ends are made anew where they stood, as another daemon does.
        Replace,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<u64>().prop_map(Step::Push),
            2 => (0..6usize).prop_map(Step::Take),
            1 => Just(Step::Replace)
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn it_is_a_queue(entries in 0..4u32, every in 1..20u32, steps in steps()) {
            let entries = 1 << entries;
            let (mut producer, mut consumer, region) = pair::<2>(entries, every);
            let mut model = VecDeque::new();
            for step in steps {
                match step {
                    Step::Push(number) => {
                        let pushed = producer.push([number, number]);
                        prop_assert_eq!(pushed.is_ok(), model.len() < entries as usize);
                        if pushed.is_ok() {
                            model.push_back([number, number & !VALID]);
                        }
                    }
                    Step::Take(most) => {
                        let mut taken = vec![[0; 2]; most];
                        let count = consumer.take(&mut taken);
                        let expected: Vec<[u64; 2]> = model.drain(..most.min(model.len())).collect();
                        prop_assert_eq!(&taken[..count], &expected[..]);
                    }
                    Step::Replace => {
                        producer = PipeProducer::new(&region, AT, entries, producer.position(), every);
                        consumer = PipeConsumer::new(&region, AT, entries, consumer.position());
                    }
                }
            }
        }

        /// Whatever the other side writes, each end does what it was asked for, in bounds.
        #[test]
        fn a_hostile_side_hurts_nobody(
            writes in proptest::collection::vec((0..8 * 2 + 16usize, any::<u64>(), 0..3u8), 0..100),
        ) {
            let (mut producer, mut consumer, region) = pair::<2>(8, 3);
            let (mut pushed, mut taken) = (0, 0);
            for (word, value, who) in writes {
                region.u64_at(AT + word * 8).store(value, Relaxed);
                match who {
                    0 => pushed += u32::from(producer.push([value, value]).is_ok()),
                    1 => taken += consumer.take(&mut [[0; 2]; 20]) as u32,
                    _ => drop(consumer.is_empty() || producer.is_drained()),
                }
            }
            prop_assert_eq!((producer.position(), consumer.position()), (pushed, taken));
        }
    }
}
