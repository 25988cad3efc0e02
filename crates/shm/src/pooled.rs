//! Counted values that lie side by side: like `Arc`, but tens of thousands of them do without an allocation each.
//!
//! An `Arc` of a value that begins a cache line takes two lines, and what the allocator needs to align it. A flow's
//! counters, 112 bytes, took 216. Here values lie in chunks, each in whole lines of its own, with its count
//! behind it.
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Places of a chunk: one bit each.
const ENTRIES: usize = 64;

/// A place: in lines of the cache that it shares with no other.
#[repr(C, align(64))]
struct Entry<T> {
    value: MaybeUninit<T>,
    /// Which one of its chunk it is.
    index: u32,
    /// [`Pooled`] values that lead here.
    count: AtomicU32,
}

#[repr(C)]
struct Chunk<T> {
    places: UnsafeCell<[MaybeUninit<Entry<T>>; ENTRIES]>,
    /// Places that are free, by bit.
    free: AtomicU64,
}

// SAFETY: a free place is the pool owner's, one in use belongs to its references, which are as `Arc`.
unsafe impl<T: Send + Sync> Send for Chunk<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Chunk<T> {}

/// Where values of one kind lie. What was needed at most is kept until the pool and all of its values are gone.
pub struct Pool<T> {
    chunks: Vec<Arc<Chunk<T>>>,
    /// Where a free place was found last.
    at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool { chunks: Vec::new(), at: 0 }
    }
}

impl<T> Pool<T> {
    /// Puts a value into the pool.
    pub fn put(&mut self, value: T) -> Pooled<T> {
        let count = self.chunks.len();
        // Where none is found, the next chunk has room for as many as this has tried and more.
        let found = (0..count).map(|i| (self.at + i) % count).find(|at| self.chunks[*at].free.load(Relaxed) != 0);
        self.at = found.unwrap_or_else(|| {
            self.chunks.push(Chunk::new());
            count
        });
        Chunk::put(&self.chunks[self.at], value)
    }
}

impl<T> Chunk<T> {
    fn new() -> Arc<Chunk<T>> {
        let mut chunk = Arc::<Chunk<T>>::new_uninit();
        let fresh = Arc::get_mut(&mut chunk).map(MaybeUninit::as_mut_ptr);
        // SAFETY: nobody else has the chunk yet; places need no value, so with the bits all of it is initialised.
        unsafe {
            if let Some(fresh) = fresh {
                (&raw mut (*fresh).free).write(AtomicU64::new(u64::MAX));
            }
            chunk.assume_init()
        }
    }

    /// Puts a value into a free place, of which there is one: only the pool's owner takes any.
    fn put(chunk: &Arc<Chunk<T>>, value: T) -> Pooled<T> {
        // Acquire: what the last user did there is over.
        let index = chunk.free.load(Acquire).trailing_zeros();
        assert!((index as usize) < ENTRIES, "no place is free");
        chunk.free.fetch_and(!(1 << index), Relaxed);
        // The chunk lives as long as each of its values: this count is taken back in `Pooled::end`.
        let chunk = Arc::into_raw(Arc::clone(chunk));
        // SAFETY: the chunk is alive, and the place is free: nobody refers to it. Its address comes from the whole
        // chunk's, to which `Pooled::end` goes back.
        unsafe {
            let place = (&raw const (*chunk).places).cast::<Entry<T>>().cast_mut().add(index as usize);
            place.write(Entry { value: MaybeUninit::new(value), index, count: AtomicU32::new(1) });
            Pooled { place: NonNull::new_unchecked(place) }
        }
    }
}

/// A counted reference to a value in a [`Pool`]. The value is dropped with the last one.
pub struct Pooled<T> {
    place: NonNull<Entry<T>>,
}

// SAFETY: as `Arc`: a value is shared between threads, and dropped on any of them.
unsafe impl<T: Send + Sync> Send for Pooled<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pooled<T> {}

impl<T> Pooled<T> {
    /// A value in a pool of its own: for one alone.
    pub fn new(value: T) -> Pooled<T> {
        Pool::default().put(value)
    }

    #[inline]
    fn place(&self) -> &Entry<T> {
        // SAFETY: the count of this reference keeps the place in use and its chunk alive; only its count changes.
        unsafe { self.place.as_ref() }
    }

    /// Nobody refers to the value any more.
    #[cold]
    fn end(&mut self) {
        let (place, index) = (self.place.as_ptr(), self.place().index);
        // SAFETY: this was the last reference, so the value is dropped once and its place is free afterwards. Places
        // are the first field of the chunk, and the address was made from the chunk's, whose count `Chunk::put` took.
        unsafe {
            (*place).value.assume_init_drop();
            let chunk = Arc::from_raw(place.sub(index as usize).cast::<Chunk<T>>());
            chunk.free.fetch_or(1 << index, Release);
        }
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it was written before the first reference was made, and is dropped after the last one.
        unsafe { self.place().value.assume_init_ref() }
    }
}

impl<T> Clone for Pooled<T> {
    #[inline]
    fn clone(&self) -> Pooled<T> {
        // Relaxed: whoever clones has a reference, so it cannot be the last that is dropped meanwhile.
        let before = self.place().count.fetch_add(1, Relaxed);
        assert!(before < u32::MAX / 2, "too many references to one value");
        Pooled { place: self.place }
    }
}

impl<T> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        // As in `Arc`: what others did with the value comes before its end.
        if self.place().count.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            self.end();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Default for Pooled<T> {
    fn default() -> Pooled<T> {
        Pooled::new(T::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that records its drop.
    struct Counted(Arc<AtomicU32>, u32);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }

    fn counted(alive: &Arc<AtomicU32>, number: u32) -> Counted {
        alive.fetch_add(1, Relaxed);
        Counted(Arc::clone(alive), number)
    }

    /// Whatever comes and goes: each value is itself, none is dropped early or twice, and places are used again.
    #[test]
    fn places_are_used_again_and_values_dropped_once() {
        let (alive, mut pool, mut held, mut random) = (Arc::new(AtomicU32::new(0)), Pool::default(), Vec::new(), 1u32);
        for number in 0..4000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            held.push((pool.put(counted(&alive, number)), number));
            let at = (random >> 16) as usize % held.len();
            if held.len() > 150 {
                let (value, number) = held.swap_remove(at);
                let other = value.clone();
                drop(value);
                assert_eq!(other.1, number);
            }
            assert_eq!(alive.load(Relaxed) as usize, held.len());
        }
        assert!(held.iter().all(|(value, number)| value.1 == *number));
        assert_eq!(pool.chunks.len(), 3, "151 values at most");
        drop(pool);
        assert!(held.iter().all(|(value, number)| value.1 == *number), "values outlive the pool");
        held.clear();
        assert_eq!(alive.load(Relaxed), 0);
    }

    #[test]
    fn values_begin_lines_and_take_whole_ones() {
        let mut pool = Pool::default();
        let values: Vec<_> = (0..100u64).map(|i| pool.put([i; 14])).collect();
        let addresses: Vec<usize> = values.iter().map(|value| (&raw const **value) as usize).collect();
        assert!(addresses.iter().all(|address| address % 64 == 0));
        assert_eq!(addresses[1] - addresses[0], 128);
    }

    #[test]
    fn the_last_reference_may_go_on_any_thread() {
        let (alive, mut pool) = (Arc::new(AtomicU32::new(0)), Pool::default());
        for round in 0..200 {
            let value = pool.put(counted(&alive, round));
            let others = [value.clone(), value.clone()];
            std::thread::scope(|scope| {
                others.into_iter().for_each(|other| {
                    scope.spawn(move || assert_eq!(other.1, round));
                });
                drop(value);
            });
            assert_eq!(alive.load(Relaxed), 0);
        }
        assert_eq!(pool.chunks.len(), 1);
    }
}
