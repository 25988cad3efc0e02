//! Sequencing and reordering (thesis section 4.3.2): works are numbered on entry, replicated modules finish them in
//! any order, and these buffers put them back.
use std::collections::VecDeque;

/// A reorder buffer: takes numbered things in any order, gives them in order. It holds as many as are on their way.
pub(crate) struct Reorder<T> {
    next: u64,
    waiting: VecDeque<Option<T>>,
}

impl<T> Reorder<T> {
    pub(crate) fn new() -> Reorder<T> {
        Reorder { next: 0, waiting: VecDeque::new() }
    }

    pub(crate) fn put(&mut self, ticket: u64, thing: T) {
        debug_assert!(ticket >= self.next);
        let at = (ticket - self.next) as usize;
        if self.waiting.len() <= at {
            self.waiting.resize_with(at + 1, || None);
        }
        self.waiting[at] = Some(thing);
    }

    /// Gives memory back that a burst needed.
    pub(crate) fn shrink(&mut self) {
        self.waiting.shrink_to_fit();
    }

    /// The next one in order, where it is there.
    pub(crate) fn take(&mut self) -> Option<T> {
        let thing = self.waiting.front_mut()?.take()?;
        self.waiting.pop_front();
        self.next += 1;
        Some(thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_comes_back() {
        let mut buffer = Reorder::new();
        let mut got = Vec::new();
        for ticket in [2, 0, 3, 1, 6, 5, 4] {
            buffer.put(ticket, ticket);
            while let Some(thing) = buffer.take() {
                got.push(thing);
            }
        }
        assert_eq!(got, [0, 1, 2, 3, 4, 5, 6]);
    }
}
