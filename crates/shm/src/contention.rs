//! Contention for the core: where other programs are ready to run, a waiting thread sleeps at once instead of yielding.
//!
//! A yield is the cheapest hand-over where only threads that wait for each other share a core. Where another one
//! computes there, the scheduler gives that program a whole slice for each yield, milliseconds. A sleeping thread gets
//! the core as soon as it is woken.
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A yield of this length was another program's slice. Threads that wait for each other do not run this long.
const SLICE: Duration = Duration::from_micros(500);
/// Waits without yielding after the first such slice, before one tries again. They are twice as many after each further
/// slice, and half as many after each short slice.
const FIRST: u32 = 4;
const MOST: u32 = 4096;

/// What the yields of a process have met lately. Its threads share it without care: it is about speed only.
#[derive(Debug, Default)]
pub struct Contention {
    left: AtomicU32,
    last: AtomicU32,
}

impl Contention {
    /// Nobody so far.
    pub const fn new() -> Contention {
        Contention { left: AtomicU32::new(0), last: AtomicU32::new(0) }
    }

    /// A yield has taken this long.
    #[inline]
    pub fn yielded(&self, took: Duration) {
        if took >= SLICE {
            let waits = self.last.load(Relaxed).saturating_mul(2).clamp(FIRST, MOST);
            self.last.store(waits, Relaxed);
            self.left.store(waits, Relaxed);
        } else if self.last.load(Relaxed) != 0 {
            self.last.store(self.last.load(Relaxed) / 2, Relaxed);
        }
    }

    /// For each wait that would yield: it is better to sleep.
    #[inline]
    pub fn is_there(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        }
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeps(contention: &Contention) -> u32 {
        (0..).take_while(|_| contention.is_there()).count() as u32
    }

    #[test]
    fn a_contended_waiter_sleeps_longer_each_time() {
        let contention = Contention::new();
        contention.yielded(Duration::from_micros(20));
        assert_eq!(sleeps(&contention), 0);
        for waits in [FIRST, 2 * FIRST, 4 * FIRST] {
            contention.yielded(SLICE);
            assert_eq!(sleeps(&contention), waits);
        }
        (0..20).for_each(|_| contention.yielded(2 * SLICE));
        assert_eq!(sleeps(&contention), MOST);
        contention.yielded(Duration::from_micros(1));
        contention.yielded(SLICE);
        assert_eq!(sleeps(&contention), MOST);
        (0..20).for_each(|_| contention.yielded(Duration::from_micros(1)));
        assert_eq!(sleeps(&contention), 0);
        contention.yielded(SLICE);
        assert_eq!(sleeps(&contention), FIRST);
    }
}
