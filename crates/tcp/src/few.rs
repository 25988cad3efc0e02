//! A short list, which takes its memory when it is first used, and keeps it.
use std::ops::{Deref, DerefMut};

/// At most `N` values in a row. It is small where it is empty: most flows never need it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Few<T, const N: usize> {
    /// Of a type in which the compiler finds no room for a tag: the check for a flow costs less so.
    values: Option<Box<[T; N]>>,
    len: u8,
}

impl<T, const N: usize> Few<T, N> {
    pub(crate) const fn new() -> Few<T, N> {
        assert!(N <= u8::MAX as usize);
        Few { values: None, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        usize::from(self.len) == N
    }

    /// The first `len` values stay.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len as u8);
    }
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// A value before that at place `at`, or behind all; where it is full, the last one goes.
    pub(crate) fn insert(&mut self, at: usize, value: T) {
        if self.is_full() {
            self.len -= 1;
        }
        let len = usize::from(self.len);
        let values = self.values.get_or_insert_with(|| Box::new([T::default(); N]));
        values.copy_within(at..len, at + 1);
        values[at] = value;
        self.len += 1;
    }

    /// Takes `count` values from place `at` on out.
    pub(crate) fn remove(&mut self, at: usize, count: usize) {
        self.copy_within(at + count.., at);
        self.len -= count as u8;
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.values.as_ref().map_or(&[], |values| &values[..self.len.into()])
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.values.as_mut().map_or(&mut [], |values| &mut values[..self.len.into()])
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Few<T, N>) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Few<T, N> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_in_and_out_in_their_order() {
        let mut few: Few<u8, 4> = Few::new();
        assert!(few.is_empty() && few.iter().next().is_none());
        for value in 1..=4 {
            few.insert(0, value);
        }
        assert_eq!((few.is_full(), &few[..]), (true, &[4, 3, 2, 1][..]));
        few.insert(2, 9);
        assert_eq!(few[..], [4, 3, 9, 2], "the last one goes");
        few.remove(1, 2);
        assert_eq!(few[..], [4, 2]);
        few.remove(0, 2);
        assert!(few.is_empty());
        few.insert(0, 7);
        few.truncate(0);
        assert!(few.is_empty());
    }
}
