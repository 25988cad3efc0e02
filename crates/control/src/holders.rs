//! The holders of a flow: mostly one application, and then the set takes no memory of its own.
use crate::contexts::Holder;
use std::collections::BTreeSet;

/// A set of holders.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holders {
    /// None only where there are no others either.
    one: Option<Holder>,
    #[expect(clippy::box_collection, reason = "one word instead of three where there are none")]
    others: Option<Box<BTreeSet<Holder>>>,
}

impl Holders {
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.one.is_some() as usize + self.others.as_ref().map_or(0, |others| others.len())
    }

    pub(crate) fn contains(&self, holder: &Holder) -> bool {
        self.iter().any(|found| found == holder)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.one.iter().chain(self.others.iter().flat_map(|others| others.iter()))
    }

    pub(crate) fn insert(&mut self, holder: Holder) {
        match self.one {
            None => self.one = Some(holder),
            Some(one) if one == holder => {}
            Some(_) => {
                self.others.get_or_insert_default().insert(holder);
            }
        }
    }

    /// Takes a holder out; returns whether it was one.
    pub(crate) fn remove(&mut self, holder: &Holder) -> bool {
        if self.one.as_ref() == Some(holder) {
            self.one = self.others.as_mut().and_then(|others| others.pop_first());
            return true;
        }
        self.others.as_mut().is_some_and(|others| others.remove(holder))
    }
}

impl FromIterator<Holder> for Holders {
    fn from_iter<I: IntoIterator<Item = Holder>>(all: I) -> Holders {
        let mut holders = Holders::default();
        all.into_iter().for_each(|holder| holders.insert(holder));
        holders
    }
}

impl From<Holder> for Holders {
    fn from(holder: Holder) -> Holders {
        Holders { one: Some(holder), others: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever comes and goes: the same as with an ordinary set.
    #[test]
    fn agrees_with_a_set() {
        let (mut holders, mut set, mut random) = (Holders::default(), BTreeSet::new(), 1u32);
        for _ in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let holder = Holder::Hold(u64::from(random >> 16) % 5);
            if random >> 31 == 0 {
                holders.insert(holder);
                set.insert(holder);
            } else {
                assert_eq!(holders.remove(&holder), set.remove(&holder));
            }
            assert_eq!((holders.len(), holders.is_empty()), (set.len(), set.is_empty()));
            assert_eq!(holders.iter().copied().collect::<BTreeSet<_>>(), set);
            assert_eq!(holders.contains(&Holder::Hold(0)), set.contains(&Holder::Hold(0)));
        }
    }
}
