//! Local ports: those in use, and the search for a free one. Connections to one peer go around the range
//! ([`crate::port_counters::PortCounters`]). The peer may still be in TIME-WAIT where this side, which closed last,
//! keeps nothing of the connection. A few tries nearly always find a port. Where most of the range is taken, maps of
//! bits are searched, 64 ports at a time. Where all of it is, the connection that has been in TIME-WAIT for longest
//! gives its port. So what a request costs does not grow with the number of connections. An application that has used
//! all ports up cannot keep the host busy by asking.
use crate::bindings::Bindings;
use crate::connections::{Connections, Lifecycle};
use crate::outbox::Outbox;
use crate::port_counters::PortCounters;
use crate::random::Random;
use crate::time_waits::TimeWaits;
use context::Endpoint;
use engine::Nanos;
use engine::stream::FourTuple;
use std::ops::RangeInclusive;
use tcp::TimeWait;

/// Tries before maps are searched: with nine of ten ports taken, four of five requests end here.
const TRIES: usize = 16;
/// The first of `range` that is not `taken` and that `fits`, from `start` on and around. `taken` gives 64 ports at a
/// time.
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

/// Local ports: which one the host's next connection takes.
pub(crate) struct Ports {
    counters: PortCounters,
    ephemeral: RangeInclusive<u16>,
}

/// The ports and connections in use.
pub(crate) struct InUse<'a> {
    pub bindings: &'a Bindings,
    pub connections: &'a mut Connections,
    pub time_waits: &'a TimeWaits,
}

impl Ports {
    pub(crate) fn new(ephemeral: RangeInclusive<u16>, random: u64) -> Ports {
        Ports { counters: PortCounters::new(random), ephemeral }
    }

    /// Begins elsewhere: the host goes on where another one was.
    pub(crate) fn begin_anew(&mut self, random: u64) {
        self.counters = PortCounters::new(random);
    }

    /// The port of the range so far from its begin, and around.
    fn ephemeral_at(&self, distance: u64) -> u16 {
        let range = &self.ephemeral;
        let count = u64::from(range.end() - range.start()) + 1;
        range.start() + (distance % count) as u16
    }

    /// The next port for a connection to `remote`.
    fn next_port(&mut self, random: &mut Random, remote: Endpoint) -> u16 {
        let distance = self.counters.next(random.port_place(remote), random.next());
        self.ephemeral_at(distance)
    }

    /// A port of the ephemeral range that nothing uses.
    pub(crate) fn free_port(&self, random: &mut Random, in_use: &InUse<'_>) -> Option<u16> {
        let InUse { bindings, connections, .. } = in_use;
        for _ in 0..TRIES {
            let port = self.ephemeral_at(random.next());
            if !bindings.has_port(port) && !connections.uses_port(port) {
                return Some(port);
            }
        }
        let start = self.ephemeral_at(random.next());
        let used = connections.ports();
        search(self.ephemeral.clone(), start, |at| bindings.word(at) | used.word(at), |_| true)
    }

    /// A port for a connection to `remote`: only the whole tuple must be free, or safe to use again.
    pub(crate) fn port_towards(
        &mut self,
        out: &mut Outbox<'_>,
        in_use: &mut InUse<'_>,
        remote: Endpoint,
    ) -> Option<u16> {
        for _ in 0..TRIES {
            let port = self.next_port(out.random, remote);
            if in_use.fits(out, port, remote) {
                return Some(port);
            }
        }
        let start = self.next_port(out.random, remote);
        let (bound, peer) = (in_use.bindings, in_use.connections.towards(remote));
        let taken = |at| bound.word(at) | peer.map_or(0, |peer| peer.word(at));
        let found = search(self.ephemeral.clone(), start, taken, |port| in_use.fits(out, port, remote));
        found.or_else(|| self.oldest_wait(out, in_use, remote))
    }

    /// The port of the connection to `remote` that came into TIME-WAIT first, if it may be used again now. What can
    /// never be is read once only.
    fn oldest_wait(&self, out: &Outbox<'_>, in_use: &mut InUse<'_>, remote: Endpoint) -> Option<u16> {
        loop {
            let (since, port) = *in_use.connections.towards(remote)?.time_waits.front()?;
            let wait = in_use.wait_of(&out.tuple(port, remote)).filter(|wait| wait.since == since);
            let from = wait.and_then(|wait| wait.reusable_locally_from());
            if from.is_some_and(|from| out.now < from) {
                return None;
            }
            in_use.connections.pop_wait(remote);
            if from.is_some() && self.ephemeral.contains(&port) && !in_use.bindings.has_port(port) {
                return Some(port);
            }
        }
    }
}

impl InUse<'_> {
    fn fits(&self, out: &Outbox<'_>, port: u16, remote: Endpoint) -> bool {
        let to_itself = out.net.is_own(remote.ip) && port == remote.port;
        !to_itself && !self.bindings.has_port(port) && self.is_vacant(out.now, &out.tuple(port, remote))
    }

    fn wait_of(&self, tuple: &FourTuple) -> Option<&TimeWait> {
        match self.connections.get(tuple)? {
            Lifecycle::TimeWait(key) => self.time_waits.get(key),
            _ => None,
        }
    }

    fn is_vacant(&self, now: Nanos, tuple: &FourTuple) -> bool {
        let waits = || self.wait_of(tuple).is_some_and(|wait| wait.may_be_reused_locally(now));
        self.connections.get(tuple).is_none() || waits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_set::PortSet;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    const RANGE: RangeInclusive<u16> = 32_768..=60_999;

    /// What a search reads does not grow with the ports that are taken, and it finds the last free one.
    #[test]
    fn a_search_of_a_full_range_reads_each_word_once() {
        let mut taken = PortSet::default();
        RANGE.for_each(|port| taken.insert(port));
        let (words, ports) = (Cell::new(0), Cell::new(0));
        let find = |taken: &PortSet, start| {
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
        assert_eq!((find(&taken, 40_000), words.get(), ports.get()), (None, 443, 0));
        for free in [32_768, 39_999, 40_000, 40_001, 60_999] {
            taken.remove(free);
            assert_eq!(find(&taken, 40_000), Some(free));
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
}
