//! A bounded table with small numbers as keys.
use crate::free_numbers::FreeNumbers;

/// Up to a fixed number of values; the lowest free number is taken first.
pub struct Slab<T> {
    entries: Vec<Option<T>>,
    free: FreeNumbers,
    most: u32,
}

impl<T> Slab<T> {
    /// An empty table for at most so many values.
    pub fn new(most: u32) -> Slab<T> {
        Slab { entries: Vec::new(), free: Default::default(), most }
    }

    /// Values in the table.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No further value finds room.
    pub fn is_full(&self) -> bool {
        self.len() as u32 >= self.most
    }

    /// The number that the next value gets; `None` where the table is full.
    pub fn vacant(&self) -> Option<u32> {
        let next = self.free.first().unwrap_or(self.entries.len() as u32);
        (next < self.most).then_some(next)
    }

    /// Adds a value; `None` (and the value dropped) where the table is full.
    pub fn insert(&mut self, value: T) -> Option<u32> {
        let key = self.vacant()?;
        if self.free.remove(key) {
            self.entries[key as usize] = Some(value);
        } else {
            self.entries.push(Some(value));
            // It has just become twice as large, and nothing lies there yet.
            if (self.entries.len() - 1).is_power_of_two() {
                shm::prefer_huge_pages(&self.entries);
            }
        }
        Some(key)
    }

    /// Adds a value under a number of its own; `None` where that is taken or beyond the limit.
    pub fn insert_at(&mut self, key: u32, value: T) -> Option<()> {
        if key >= self.most || self.get(key).is_some() {
            return None;
        }
        while self.entries.len() <= key as usize {
            self.free.insert(self.entries.len() as u32);
            self.entries.push(None);
        }
        self.free.remove(key);
        self.entries[key as usize] = Some(value);
        Some(())
    }

    /// Takes a value out; its number is free again.
    pub fn remove(&mut self, key: u32) -> Option<T> {
        let value = self.entries.get_mut(key as usize)?.take()?;
        self.free.insert(key);
        Some(value)
    }

    /// The value of a number.
    pub fn get(&self, key: u32) -> Option<&T> {
        self.entries.get(key as usize)?.as_ref()
    }

    /// The address of a value, without reading it: for a prefetch.
    pub fn get_ahead(&self, key: u32) -> Option<&Option<T>> {
        self.entries.get(key as usize)
    }

    /// The value of a number.
    pub fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    /// All values with their numbers, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().enumerate().filter_map(|(key, value)| Some((key as u32, value.as_ref()?)))
    }

    /// Those whose keys are not below `first`.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let first = (first as usize).min(self.entries.len());
        self.entries[first..].iter().zip(first as u32..).filter_map(|(value, key)| Some((key, value.as_ref()?)))
    }

    /// All values with their numbers, in the order of these.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(key, value)| Some((key as u32, value.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_bounded() {
        let mut slab = Slab::new(2);
        assert_eq!((slab.insert('a'), slab.insert('b'), slab.insert('c')), (Some(0), Some(1), None));
        assert_eq!(slab.remove(0), Some('a'));
        assert_eq!((slab.remove(0), slab.vacant(), slab.len()), (None, Some(0), 1));
        assert_eq!((slab.insert('d'), slab.is_full()), (Some(0), true));
        assert_eq!(slab.iter_from(1).collect::<Vec<_>>(), [(1, &'b')]);
        assert_eq!((slab.iter_from(0).count(), slab.iter_from(2).count(), slab.iter_from(u32::MAX).count()), (2, 0, 0));
        let mut placed = Slab::new(4);
        assert_eq!(
            (placed.insert_at(2, 'c'), placed.insert_at(2, 'x'), placed.insert_at(4, 'x')),
            (Some(()), None, None)
        );
        assert_eq!((placed.insert('a'), placed.insert('b'), placed.insert('d')), (Some(0), Some(1), Some(3)));
    }
}
