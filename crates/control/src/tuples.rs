//! A map with four-tuples as keys. Those over IPv4, of which there are many, have the small key of their own.
use std::collections::HashMap;
use wire::{FourTuple, Ipv4Tuple};

/// A value for each connection of a host.
pub(crate) struct TupleMap<V> {
    v4: HashMap<Ipv4Tuple, V>,
    others: HashMap<FourTuple, V>,
}

impl<V> Default for TupleMap<V> {
    fn default() -> TupleMap<V> {
        TupleMap { v4: HashMap::new(), others: HashMap::new() }
    }
}

impl<V> TupleMap<V> {
    pub(crate) fn get(&self, tuple: &FourTuple) -> Option<&V> {
        match tuple.as_v4() {
            Some(tuple) => self.v4.get(&tuple),
            None => self.others.get(tuple),
        }
    }

    /// Returns what was there before.
    pub(crate) fn insert(&mut self, tuple: FourTuple, value: V) -> Option<V> {
        match tuple.as_v4() {
            Some(tuple) => self.v4.insert(tuple, value),
            None => self.others.insert(tuple, value),
        }
    }

    pub(crate) fn remove(&mut self, tuple: &FourTuple) -> Option<V> {
        match tuple.as_v4() {
            Some(tuple) => self.v4.remove(&tuple),
            None => self.others.remove(tuple),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use wire::{Endpoint, IpAddress};

    #[test]
    fn both_families_have_their_entries() {
        let v4 = FourTuple::new(Endpoint::v4(Ipv4Addr::LOCALHOST, 1), Endpoint::v4(Ipv4Addr::LOCALHOST, 2));
        let v6 = FourTuple { remote_ip: IpAddress::v6(Ipv6Addr::LOCALHOST, 0), ..v4 };
        let mut map = TupleMap::default();
        assert_eq!((map.insert(v4, 4), map.insert(v6, 6), map.insert(v6, 7)), (None, None, Some(6)));
        assert_eq!((map.get(&v4), map.get(&v6), map.len()), (Some(&4), Some(&7), 2));
        assert_eq!((map.remove(&v6), map.remove(&v6), map.get(&v4), map.len()), (Some(7), None, Some(&4), 1));
    }
}
