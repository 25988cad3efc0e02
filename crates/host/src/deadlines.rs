//! Timer queue for a few things with keys of any kind. Many with small numbers have a [`crate::TimerQueue`].
use engine::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Timers of things, by key. One entry for each; setting it again replaces the earlier time, so nothing fires that was
/// cancelled.
#[derive(Debug)]
pub struct Deadlines<K> {
    due: BTreeSet<(Nanos, K)>,
    set: BTreeMap<K, Nanos>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Deadlines<K> {
        Deadlines { due: BTreeSet::new(), set: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// The thing is due at this time, and at no other.
    pub fn set(&mut self, key: K, at: Nanos) {
        if let Some(earlier) = self.set.insert(key, at) {
            self.due.remove(&(earlier, key));
        }
        self.due.insert((at, key));
    }

    /// The thing is not due any more.
    pub fn cancel(&mut self, key: K) {
        if let Some(at) = self.set.remove(&key) {
            self.due.remove(&(at, key));
        }
    }

    /// The first timer, with its time.
    #[inline]
    pub fn first(&self) -> Option<(Nanos, K)> {
        self.due.first().copied()
    }

    /// Takes what is due first, where it is due by now.
    pub fn pop(&mut self, now: Nanos) -> Option<(Nanos, K)> {
        let (at, key) = self.first().filter(|(at, _)| *at <= now)?;
        self.cancel(key);
        Some((at, key))
    }

    /// Things that are due at some time.
    pub fn len(&self) -> usize {
        self.due.len()
    }

    /// Nothing is.
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_again_replaces_and_cancelled_ones_never_fire() {
        let mut deadlines = Deadlines::default();
        deadlines.set('a', 10);
        deadlines.set('a', 30);
        deadlines.set('b', 20);
        deadlines.set('c', 5);
        deadlines.cancel('c');
        assert_eq!((deadlines.first(), deadlines.pop(19)), (Some((20, 'b')), None));
        assert_eq!((deadlines.pop(40), deadlines.pop(40), deadlines.pop(40)), (Some((20, 'b')), Some((30, 'a')), None));
        assert!(deadlines.is_empty());
    }
}
