//! Sets of local ports: all of a host, and those of the connections to one peer.
use engine::Nanos;
use std::collections::VecDeque;

/// Ports of one peer that stand in a list; more stand in a map.
const FEW: usize = 64;

/// A set of ports, as a map of bits.
#[derive(Default)]
pub(crate) struct PortSet {
    /// All 65,536 bits, or none while the set has always been empty.
    words: Vec<u64>,
}

impl PortSet {
    pub(crate) fn insert(&mut self, port: u16) {
        if self.words.is_empty() {
            self.words = vec![0; 1 << 10];
        }
        self.words[usize::from(port >> 6)] |= 1 << (port & 63);
    }

    pub(crate) fn remove(&mut self, port: u16) {
        if let Some(word) = self.words.get_mut(usize::from(port >> 6)) {
            *word &= !(1 << (port & 63));
        }
    }

    pub(crate) fn contains(&self, port: u16) -> bool {
        self.word(port >> 6) >> (port & 63) & 1 == 1
    }

    /// The ports from `64 * at` on: the least bit is the first one.
    pub(crate) fn word(&self, at: u16) -> u64 {
        self.words.get(usize::from(at)).copied().unwrap_or(0)
    }

    fn iter(&self) -> impl Iterator<Item = u16> {
        (0..=u16::MAX).filter(|port| self.contains(*port))
    }
}

/// The local ports of the connections to one remote address and port.
#[derive(Default)]
pub(crate) struct PeerPorts {
    count: usize,
    few: Vec<u16>,
    many: Option<PortSet>,
    /// Those whose connections came into TIME-WAIT, when, in this order; some of them are over.
    pub time_waits: VecDeque<(Nanos, u16)>,
}

impl PeerPorts {
    /// Adds one that is not there.
    pub(crate) fn insert(&mut self, port: u16) {
        self.count += 1;
        if self.many.is_none() && self.few.len() == FEW {
            let mut all = PortSet::default();
            self.few.drain(..).for_each(|port| all.insert(port));
            self.many = Some(all);
        }
        match &mut self.many {
            Some(all) => all.insert(port),
            None => self.few.push(port),
        }
    }

    /// Takes one out that is there; true where it was the last.
    pub(crate) fn remove(&mut self, port: u16) -> bool {
        self.count -= 1;
        match &mut self.many {
            Some(all) => {
                all.remove(port);
                // Far below the limit, so that it is not made again soon.
                if self.count <= FEW / 4 {
                    self.few = all.iter().collect();
                    self.many = None;
                }
            }
            None => self.few.retain(|other| *other != port),
        }
        self.count == 0
    }

    /// A connection that came into TIME-WAIT. What is over goes out now and then: `since` is when a port's
    /// connection came there, if it is there. One may be notified of twice, so that the list is halved at least,
    /// whenever it is read.
    pub(crate) fn wait(&mut self, now: Nanos, port: u16, since: impl Fn(u16) -> Option<Nanos>) {
        if self.time_waits.len() > 4 * self.count + FEW {
            self.time_waits.retain(|(then, port)| since(*port) == Some(*then));
        }
        self.time_waits.push_back((now, port));
    }

    /// The first in TIME-WAIT is read no more.
    pub(crate) fn pop_wait(&mut self) {
        self.time_waits.pop_front();
    }

    /// Those that are taken, as [`PortSet::word`]; of a few, none: they are compared one by one.
    pub(crate) fn word(&self, at: u16) -> u64 {
        self.many.as_ref().map_or(0, |all| all.word(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ports_of_a_peer_are_a_list_or_a_map_and_always_right() {
        let (mut ports, mut known) = (PeerPorts::default(), BTreeSet::new());
        let mut numbers = (0..40_000u32).map(|at| at.wrapping_mul(0x9e37_79b9));
        let check = |ports: &PeerPorts, known: &BTreeSet<u16>| {
            let listed: BTreeSet<u16> = match &ports.many {
                Some(all) => all.iter().collect(),
                None => ports.few.iter().copied().collect(),
            };
            assert_eq!((&listed, ports.count), (known, known.len()));
        };
        for most in [10, 300, 5, 64, 65, 16, 0] {
            while known.len() < most {
                let port = (numbers.next().unwrap() >> 16) as u16;
                if known.insert(port) {
                    ports.insert(port);
                }
            }
            check(&ports, &known);
            while known.len() > most {
                let port = known.pop_first().unwrap();
                assert_eq!(ports.remove(port), known.is_empty());
            }
            check(&ports, &known);
        }
    }

    #[test]
    fn ports_of_connections_that_are_over_do_not_pile_up() {
        let mut ports = PeerPorts::default();
        ports.insert(1);
        ports.wait(7, 1, |_| None);
        for now in 8..100_000 {
            ports.wait(now, now as u16, |port| (port == 1).then_some(7));
        }
        assert!(ports.time_waits.len() <= 4 + FEW + 1);
        assert!(ports.time_waits.contains(&(7, 1)), "it is not over");
    }
}
