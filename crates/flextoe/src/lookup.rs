//! Flow table: from 4-tuple to flow, an open-addressing table with linear probing (thesis section 4.4.1.1, active
//! connection database). One cache line a look-up as a rule; no tombstones.
use wire::predicted::Parties;

/// The lowest three bits of both ports, as [`Parties`] has them on machines with the lowest byte first.
const NEAR_PORTS: u32 = 0x0700_0700;

/// A hash of source and destination, of which flow group and table place are taken: by multiplication, which spreads
/// them. Ports are given in a row, so eight connections between two addresses and a port share a cache line of the
/// table. Each has a place of its own: the lowest three bits are those of the ports.
#[inline(always)]
pub(crate) fn hash(parties: &Parties) -> u32 {
    let ports = u64::from(parties.ports & !NEAR_PORTS).wrapping_mul(0xa076_1d64_78bd_642f);
    let product = (parties.addresses ^ ports).wrapping_mul(0xe703_7ed1_a0b4_28db);
    // The highest bits depend on all others: they come lowest, where the table's index is.
    let line = ((product >> 32) as u32).rotate_left(16);
    (line & !7) | ((parties.ports >> 8) ^ (parties.ports >> 24)) & 7
}

/// The place to probe after a taken one: in the next cache line. So two lines of neighbours that fall on each other
/// cost each flow one probe more, and not eight. It is odd, so all places come in turn.
const STEP: usize = 9;
/// `STEP * STEPS_BACK` is 1 modulo each power of two: from a distance to the number of steps.
const STEPS_BACK: usize = 0x8e38_e38e_38e3_8e39;
const _: () = assert!(STEP.wrapping_mul(STEPS_BACK) == 1);

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    /// The flow plus one; 0 for an empty place.
    flow: u32,
}

/// Flow numbers by hash. The caller compares the tuples, which it has.
pub(crate) struct Table {
    entries: Vec<Entry>,
    mask: usize,
}

impl Table {
    /// A table for `flows` flows, at most half full.
    pub(crate) fn new(flows: u32) -> Table {
        let places = (flows.max(8) as usize * 2).next_power_of_two();
        Table { entries: vec![Entry { hash: 0, flow: 0 }; places], mask: places - 1 }
    }

    /// The first flow with this hash for which `known` returns something, and that.
    #[inline(always)]
    pub(crate) fn find<T>(&self, hash: u32, known: impl Fn(u32) -> Option<T>) -> Option<(u32, T)> {
        let mut at = hash as usize & self.mask;
        loop {
            let entry = self.entries[at];
            if entry.flow == 0 {
                return None;
            }
            if entry.hash == hash {
                if let Some(found) = known(entry.flow - 1) {
                    return Some((entry.flow - 1, found));
                }
            }
            at = (at + STEP) & self.mask;
        }
    }

    /// Prefetches the entry where the search for a hash begins.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u32) {
        shm::prefetch(&self.entries[hash as usize & self.mask]);
    }

    /// Adds a flow. The caller makes sure that there are never more than it asked for in [`Table::new`].
    pub(crate) fn insert(&mut self, hash: u32, flow: u32) {
        let mut at = hash as usize & self.mask;
        while self.entries[at].flow != 0 {
            at = (at + STEP) & self.mask;
        }
        self.entries[at] = Entry { hash, flow: flow + 1 };
    }

    /// Removes a flow and closes the gap: entries after it move up as far as their own place allows.
    pub(crate) fn remove(&mut self, hash: u32, flow: u32) {
        let mut gap = hash as usize & self.mask;
        while self.entries[gap].flow != flow + 1 {
            if self.entries[gap].flow == 0 {
                return;
            }
            gap = (gap + STEP) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + STEP) & self.mask;
            let entry = self.entries[at];
            if entry.flow == 0 {
                break;
            }
            let distance = |from: usize| at.wrapping_sub(from).wrapping_mul(STEPS_BACK) & self.mask;
            if distance(entry.hash as usize & self.mask) >= distance(gap) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = Entry { hash: 0, flow: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::net::Ipv4Addr;
    use wire::{Endpoint, FourTuple};

    /// Clients that connect one after the other have ports in a row; those of the kernel every second one.
    #[test]
    fn neighbouring_ports_share_a_line_and_no_place() {
        let address = |last| Ipv4Addr::new(10, 77, 0, last);
        let parties = |ports: (u16, u16)| {
            let (local, remote) = (Endpoint::v4(address(2), ports.1), Endpoint::v4(address(1), ports.0));
            Parties::of_received(&FourTuple::new(local, remote)).expect("one family").0
        };
        for (step, lines) in [(1, 16), (2, 32)] {
            for (first, own_end) in [(40_000, false), (40_000, true)] {
                let port = |index: u16| first + step * index;
                let ports = |index| if own_end { (80, port(index)) } else { (port(index), 80) };
                let hashes: HashSet<u32> = (0..128).map(|index| hash(&parties(ports(index)))).collect();
                let blocks: HashSet<u32> = hashes.iter().map(|hash| hash / 8).collect();
                assert_eq!((hashes.len(), blocks.len()), (128, lines));
            }
        }
    }

    #[test]
    fn agrees_with_a_set_under_collisions_and_removals() {
        let mut table = Table::new(64);
        let mut present = HashSet::new();
        let mut random = 1u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let flow = (random >> 16) % 64;
            // Few hashes, some at the table's end: long chains that wrap.
            let hash = [3, 4, 126, 127, 127 + 128][flow as usize % 5];
            if present.remove(&flow) {
                table.remove(hash, flow);
            } else {
                present.insert(flow);
                table.insert(hash, flow);
            }
            for flow in 0..64 {
                let hash = [3, 4, 126, 127, 127 + 128][flow as usize % 5];
                assert_eq!(table.find(hash, |found| (found == flow).then_some(())).is_some(), present.contains(&flow));
            }
        }
    }
}
