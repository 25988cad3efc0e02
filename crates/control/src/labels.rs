//! Labels: what an application's descriptors are, for `opentoe why` and `opentoe ls`. Tens of thousands may be plain
//! connections.
use context::{Slot, Unaccelerated};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Label of a descriptor of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Label {
    pub reason: Unaccelerated,
    pub slot: Option<Slot>,
    pub binding: u32,
}

/// A slot without a connection.
const NOTHING: Slot = Slot { index: u32::MAX, generation: 0 };

/// Labels by descriptor. Connections are eight bytes each, by number; the rest, few as a rule, is in a tree.
pub(crate) struct Labels {
    connections: Vec<Slot>,
    others: BTreeMap<u32, Label>,
    /// Most labels of each sort, and the number below which connections are looked up. What an application sends must
    /// not cost more than its slots do.
    most: u32,
}

impl Labels {
    pub(crate) fn new(most: u32) -> Labels {
        Labels { connections: Vec::new(), others: BTreeMap::new(), most }
    }

    pub(crate) fn get(&self, fd: u32) -> Option<Label> {
        let slot = self.connections.get(fd as usize).copied().filter(|slot| *slot != NOTHING);
        let connection = |slot| Label { reason: Unaccelerated::No, slot: Some(slot), binding: 0 };
        slot.map(connection).or_else(|| self.others.get(&fd).copied())
    }

    /// Replaces the descriptor's label; false at the limit.
    pub(crate) fn set(&mut self, fd: u32, label: Label) -> bool {
        match label {
            Label { reason: Unaccelerated::No, slot: Some(slot), binding: 0 } if fd < self.most && slot != NOTHING => {
                if self.connections.len() <= fd as usize {
                    self.connections.resize(fd as usize + 1, NOTHING);
                }
                self.connections[fd as usize] = slot;
                self.others.remove(&fd);
            }
            _ => {
                if self.others.len() >= self.most as usize && !self.others.contains_key(&fd) {
                    return false;
                }
                if let Some(slot) = self.connections.get_mut(fd as usize) {
                    *slot = NOTHING;
                }
                self.others.insert(fd, label);
            }
        }
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Label)> {
        let numbers = 0..self.connections.len() as u32;
        let connections = numbers.filter_map(|fd| Some((fd, self.get(fd)?)));
        let beyond = self.others.range(self.connections.len() as u32..);
        connections.chain(beyond.map(|(fd, label)| (*fd, *label)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever label whichever descriptor gets: the same as with a tree alone, up to the limit.
    #[test]
    fn agrees_with_a_tree() {
        let (mut labels, mut tree, mut random) = (Labels::new(40), BTreeMap::new(), 1u32);
        for _ in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (fd, slot) = ((random >> 16) % 60, Slot { index: random >> 20, generation: random as u16 });
            let reason = if random >> 31 == 0 { Unaccelerated::No } else { Unaccelerated::NoRoute };
            let slot = (random >> 28 & 3 != 0).then_some(slot);
            let label = Label { reason, slot, binding: random >> 27 & 1 };
            let plain = label == Label { reason: Unaccelerated::No, slot, binding: 0 } && slot.is_some() && fd < 40;
            if labels.set(fd, label) {
                tree.insert(fd, label);
            } else {
                assert!(!plain && !tree.contains_key(&fd) || tree.len() >= 40, "{fd}");
            }
            assert_eq!(labels.get(fd), tree.get(&fd).copied());
        }
        assert_eq!(labels.iter().collect::<BTreeMap<_, _>>(), tree);
        assert_eq!(labels.iter().count(), tree.len());
    }

    #[test]
    fn labels_of_descriptors_are_bounded() {
        let mut labels = Labels::new(10);
        let label = Label { reason: Unaccelerated::No, slot: Some(Slot { index: 1, generation: 1 }), binding: 0 };
        let far = (0..20).filter(|i| labels.set(u32::MAX - i, label)).count();
        assert_eq!((far, labels.connections.len()), (10, 0));
        assert!((0..10).all(|fd| labels.set(fd, label)));
        assert_eq!(labels.connections.len(), 10);
        assert!(labels.set(u32::MAX, label), "one that is known may change");
    }
}
