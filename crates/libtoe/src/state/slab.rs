//! Values by small index, and names that hold across a time without the lock.

/// Names a socket or set across a time without the lock: index and identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index into its slab.
    pub index: usize,
    /// Never given twice in a process.
    pub id: u64,
}

/// Values by small index; an index is used again after its value was removed.
pub(crate) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Empty.
    pub(crate) const fn new() -> Slab<T> {
        Slab { values: Vec::new(), free: Vec::new() }
    }
    /// Puts a value in and gives its index.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let index = self.free.pop().map_or_else(
            || {
                self.values.push(None);
                self.values.len() - 1
            },
            |free| free as usize,
        );
        self.values[index] = Some(value);
        index
    }
    /// Takes a value out.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let value = self.values.get_mut(index)?.take()?;
        self.free.push(index as u32);
        Some(value)
    }
    /// The value at an index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.values.get(index)?.as_ref()
    }
    /// The value at an index.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.values.get_mut(index)?.as_mut()
    }
    /// One more than the highest index that was ever in use.
    pub(crate) fn span(&self) -> usize {
        self.values.len()
    }
    /// The indices in use.
    pub(crate) fn indices(&self) -> Vec<usize> {
        (0..self.values.len()).filter(|i| self.values[*i].is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_uses_indices_again() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!(slab.remove(a), Some("a"));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.insert("c"), a);
        assert_eq!((slab.get(a), slab.get(b)), (Some(&"c"), Some(&"b")));
        assert_eq!(slab.indices(), [0, 1]);
    }
}
