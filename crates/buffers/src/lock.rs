//! A lock that is held for some hundred nanoseconds: around an end of a pipe. Who finds it taken polls again and then
//! yields. It can be taken in one call and released in another, as `ibv_start_poll` and `ibv_wr_start` need.
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Looks before the first yield.
const POLLS: u32 = 64;

/// Something that one thread uses at a time.
pub struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder of the lock reaches the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Not taken.
    pub fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes it.
    #[inline]
    pub fn lock(&self) -> Held<'_, T> {
        while self.taken.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    /// The value after [`Held::keep`], until what this gives is dropped.
    ///
    /// # Safety
    /// This thread holds the lock by [`Held::keep`], and nothing else that this function gave is in use.
    #[inline]
    pub unsafe fn resume(&self) -> Held<'_, T> {
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        let mut polls = 0;
        while self.taken.load(Relaxed) {
            polls += 1;
            if polls % POLLS == 0 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// The lock is held.
pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Held<'_, T> {
    /// Goes on holding the lock beyond this value's life.
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_across_calls() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                        lock.lock().keep();
                        // SAFETY: held by the line before.
                        let mut held = unsafe { lock.resume() };
                        *held += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
    }
}
