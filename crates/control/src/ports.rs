//! Local ports: which are taken, and how a free one is found. Connections to one peer go around the range ([`PortTurns`]), since
//! the peer may still be in TIME-WAIT where this side, which closed last, has forgotten everything. A few tries nearly
//! always find a port. Where most of the range is taken, maps of bits are searched, 64 ports at a time; and where all of it
//! is, the connection that has been in TIME-WAIT for longest gives its port. So what a request costs does not grow with the
//! connections that there are, and an application that has used all ports up cannot keep the host busy by asking.
use crate::plane::{Plane, Stage};
use context::Endpoint;
use engine::Nanos;
use engine::stream::FourTuple;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use tcp::Wait;

/// Tries before maps are searched: with nine of ten ports taken, four of five requests end here.
const TRIES: usize = 16;
/// Counters of [`PortTurns`]: peers that share one only see each other's rate.
const COUNTERS: usize = 256;
/// A turn is one to so many ports: the next one cannot be told exactly, and the range still lasts for thousands of connections.
const LARGEST_STEP: u64 = 4;
/// Ports of one peer that stand in a list; more stand in a map.
const FEW: usize = 64;

/// A set of ports, as a map of bits.
#[derive(Default)]
pub(crate) struct PortSet {
    /// All 65,536 bits, or none while the set has always been empty.
    words: Vec<u64>,
}

impl PortSet {
    pub fn insert(&mut self, port: u16) {
        if self.words.is_empty() {
            self.words = vec![0; 1 << 10];
        }
        self.words[usize::from(port >> 6)] |= 1 << (port & 63);
    }

    pub fn remove(&mut self, port: u16) {
        if let Some(word) = self.words.get_mut(usize::from(port >> 6)) {
            *word &= !(1 << (port & 63));
        }
    }

    pub fn contains(&self, port: u16) -> bool {
        self.word(port >> 6) >> (port & 63) & 1 == 1
    }

    /// The ports from `64 * at` on: the least bit is the first one.
    fn word(&self, at: u16) -> u64 {
        self.words.get(usize::from(at)).copied().unwrap_or(0)
    }

    fn iter(&self) -> impl Iterator<Item = u16> {
        (0..=u16::MAX).filter(|port| self.contains(*port))
    }
}

/// Whose turn it is among the ports, for connections to a peer: RFC 6056 section 3.3.4, with steps of random size as in its
/// section 3.3.5. Ports drawn at random, as they were here once, soon hit one that was in use a moment ago: its peer is in
/// TIME-WAIT, takes a SYN of the same millisecond for an old one (RFC 6191), and the connection waits a second for its next.
pub(crate) struct PortTurns(Box<[u32; COUNTERS]>);

impl PortTurns {
    /// They begin somewhere: one host's successor not where that one did, among ports that were just used.
    pub fn new(random: u64) -> PortTurns {
        PortTurns(Box::new([random as u32; COUNTERS]))
    }

    /// The next one, as a distance from the begin of the range, for the peer that `place` belongs to.
    fn next(&mut self, place: u64, random: u64) -> u64 {
        let turn = &mut self.0[place as usize % COUNTERS];
        *turn = turn.wrapping_add((1 + random % LARGEST_STEP) as u32);
        (place >> 32) + u64::from(*turn)
    }
}

/// The local ports of the connections to one remote address and port.
#[derive(Default)]
pub(crate) struct PeerPorts {
    count: usize,
    few: Vec<u16>,
    many: Option<PortSet>,
    /// Those whose connections came into TIME-WAIT, when, in this order; some of them are over.
    waits: VecDeque<(Nanos, u16)>,
}

impl PeerPorts {
    /// Adds one that is not there.
    pub fn insert(&mut self, port: u16) {
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
    pub fn remove(&mut self, port: u16) -> bool {
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

    /// A connection that came into TIME-WAIT. What is over goes out now and then: `since` tells when a port's connection
    /// came there, if it is there. One may be told of twice, so that the list is halved at least, whenever it is looked at.
    pub fn wait(&mut self, now: Nanos, port: u16, since: impl Fn(u16) -> Option<Nanos>) {
        if self.waits.len() > 4 * self.count + FEW {
            self.waits.retain(|(then, port)| since(*port) == Some(*then));
        }
        self.waits.push_back((now, port));
    }

    /// The first in TIME-WAIT is looked at no more.
    pub fn pop_wait(&mut self) {
        self.waits.pop_front();
    }

    /// Those that are taken, as [`PortSet::word`]; of a few, none: they are looked at one by one.
    fn word(&self, at: u16) -> u64 {
        self.many.as_ref().map_or(0, |all| all.word(at))
    }
}

/// The first of `range` that is not `taken` and that `fits`, from `start` on and around. `taken` gives 64 ports at a time.
fn search(
    range: RangeInclusive<u16>,
    start: u16,
    taken: impl Fn(u16) -> u64,
    mut fits: impl FnMut(u16) -> bool,
) -> Option<u16> {
    let (first, last) = (*range.start() >> 6, *range.end() >> 6);
    let words = u32::from(last - first) + 1;
    // The word of the start comes twice: at the end for what lies before the start.
    let order = (0..=words).map(|step| first + (u32::from((start >> 6) - first) + step).rem_euclid(words) as u16);
    let mut behind = start & 63;
    for at in order {
        let mut free = !taken(at) & (u64::MAX << behind);
        behind = 0;
        while free != 0 {
            let port = at << 6 | free.trailing_zeros() as u16;
            if range.contains(&port) && fits(port) {
                return Some(port);
            }
            free &= free - 1;
        }
    }
    None
}

impl Plane {
    fn ephemeral(&self) -> RangeInclusive<u16> {
        self.config.ephemeral_first..=self.config.ephemeral_last
    }

    fn random_port(&mut self) -> u16 {
        let random = self.random.next();
        self.ephemeral_at(random)
    }

    /// The port of the range so far from its begin, and around.
    fn ephemeral_at(&self, distance: u64) -> u16 {
        let range = self.ephemeral();
        let count = u64::from(range.end() - range.start()) + 1;
        range.start() + (distance % count) as u16
    }

    /// The port whose turn it is for a connection to `remote`.
    fn next_port(&mut self, remote: Endpoint) -> u16 {
        let distance = self.port_turns.next(self.random.port_place(remote), self.random.next());
        self.ephemeral_at(distance)
    }

    /// A port of the ephemeral range that nothing uses.
    pub fn free_port(&mut self) -> Option<u16> {
        for _ in 0..TRIES {
            let port = self.random_port();
            if !self.bindings.has_port(port) && !self.connections.uses_port(port) {
                return Some(port);
            }
        }
        let start = self.random_port();
        let (bound, used) = (self.bindings.ports(), self.connections.ports());
        search(self.ephemeral(), start, |at| bound.word(at) | used.word(at), |_| true)
    }

    /// A port for a connection to `remote`: only the whole tuple must be free, or safe to use again.
    pub fn port_towards(&mut self, now: Nanos, remote: Endpoint) -> Option<u16> {
        for _ in 0..TRIES {
            let port = self.next_port(remote);
            if self.fits(now, port, remote) {
                return Some(port);
            }
        }
        let start = self.next_port(remote);
        let (bound, peer) = (self.bindings.ports(), self.connections.towards(remote));
        let taken = |at| bound.word(at) | peer.map_or(0, |peer| peer.word(at));
        let found = search(self.ephemeral(), start, taken, |port| self.fits(now, port, remote));
        found.or_else(|| self.oldest_wait(now, remote))
    }

    fn fits(&self, now: Nanos, port: u16, remote: Endpoint) -> bool {
        let to_itself = remote.ip == self.net.address && port == remote.port;
        !to_itself && !self.bindings.has_port(port) && self.is_vacant(now, &self.tuple(port, remote))
    }

    fn wait_of(&self, tuple: &FourTuple) -> Option<&Wait> {
        match self.connections.get(tuple)? {
            Stage::Wait(key) => self.waits.get(key),
            _ => None,
        }
    }

    /// A connection came into TIME-WAIT: its port is for whoever finds no other one.
    pub fn offer_port(&mut self, tuple: &FourTuple, since: Nanos) {
        let Plane { connections, waits, .. } = self;
        connections.offer_port(tuple, since, |key| waits.get(key).map(|wait| wait.since));
    }

    fn is_vacant(&self, now: Nanos, tuple: &FourTuple) -> bool {
        let waits = || self.wait_of(tuple).is_some_and(|wait| wait.may_be_reused_locally(now));
        self.connections.get(tuple).is_none() || waits()
    }

    /// The port of the connection to `remote` that came into TIME-WAIT first, if it may be used again now. What can never
    /// be is looked at once only.
    fn oldest_wait(&mut self, now: Nanos, remote: Endpoint) -> Option<u16> {
        loop {
            let (since, port) = *self.connections.towards(remote)?.waits.front()?;
            let wait = self.wait_of(&self.tuple(port, remote)).filter(|wait| wait.since == since);
            let from = wait.and_then(|wait| wait.reusable_locally_from());
            if from.is_some_and(|from| now < from) {
                return None;
            }
            self.connections.pop_wait(remote);
            if from.is_some() && self.ephemeral().contains(&port) && !self.bindings.has_port(port) {
                return Some(port);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    const RANGE: RangeInclusive<u16> = 32_768..=60_999;

    /// What a search looks at does not grow with the ports that are taken, and it finds the last free one.
    #[test]
    fn a_search_of_a_full_range_looks_at_each_word_once() {
        let mut taken = PortSet::default();
        RANGE.for_each(|port| taken.insert(port));
        let (words, ports) = (Cell::new(0), Cell::new(0));
        let look = |taken: &PortSet, start| {
            words.set(0);
            ports.set(0);
            search(
                RANGE,
                start,
                |at| {
                    words.set(words.get() + 1);
                    taken.word(at)
                },
                |_| {
                    ports.set(ports.get() + 1);
                    true
                },
            )
        };
        assert_eq!((look(&taken, 40_000), words.get(), ports.get()), (None, 443, 0));
        for free in [32_768, 39_999, 40_000, 40_001, 60_999] {
            taken.remove(free);
            assert_eq!(look(&taken, 40_000), Some(free));
            assert!(words.get() <= 443 && ports.get() == 1, "{} words, {} ports", words.get(), ports.get());
            taken.insert(free);
        }
    }

    #[test]
    fn a_search_stays_within_odd_ranges() {
        for range in [7..=7, 63..=64, 0..=65_535, 65_500..=65_535, 100..=130] {
            let none = PortSet::default();
            for start in [*range.start(), *range.end()] {
                let mut seen = BTreeSet::new();
                let found = search(
                    range.clone(),
                    start,
                    |at| none.word(at),
                    |port| {
                        seen.insert(port);
                        false
                    },
                );
                assert_eq!(found, None);
                assert!(seen.into_iter().eq(range.clone()), "each port is offered, and no other");
            }
        }
    }

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
        assert!(ports.waits.len() <= 4 + FEW + 1);
        assert!(ports.waits.contains(&(7, 1)), "it is not over");
    }
}
