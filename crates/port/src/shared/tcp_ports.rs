//! Owners of TCP ports, where two stacks have the same addresses.
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A set of TCP ports, as a map of bits.
struct Set(Box<[AtomicU64]>);

impl Set {
    fn new() -> Set {
        Set((0..1 << 10).map(|_| AtomicU64::new(0)).collect())
    }

    fn put(&self, port: u16, is_in: bool) {
        let (word, bit) = (&self.0[usize::from(port >> 6)], 1 << (port & 63));
        if is_in {
            word.fetch_or(bit, Relaxed)
        } else {
            word.fetch_and(!bit, Relaxed)
        };
    }

    fn has(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)].load(Relaxed) >> (port & 63) & 1 == 1
    }
}

/// The TCP ports of addresses that two stacks share: the first stack's bindings, and what is the second one's. Both
/// stacks are on one thread.
pub struct TcpPorts {
    bound: Set,
    second: Set,
    /// Those of the second one that the first one may not reach.
    closed: Set,
    /// The second one takes what comes from the address that it has itself.
    meets: AtomicBool,
    range: RangeInclusive<u16>,
}

impl TcpPorts {
    /// Ports of which the second stack has this range: its connections begin there.
    pub fn new(range: RangeInclusive<u16>) -> TcpPorts {
        let ports = TcpPorts {
            bound: Set::new(),
            second: Set::new(),
            closed: Set::new(),
            meets: AtomicBool::new(false),
            range,
        };
        ports.range.clone().for_each(|port| ports.second.put(port, true));
        ports
    }

    /// The range that is the second stack's.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.range.clone()
    }

    /// The first stack has bound a port, or has no binding of it any more.
    pub fn bind(&self, port: u16, is_bound: bool) {
        self.bound.put(port, is_bound);
    }

    /// The first stack has bound a port.
    pub fn is_bound(&self, port: u16) -> bool {
        self.bound.has(port)
    }

    /// The second stack takes a port for a listener: false where the first one has bound it.
    pub fn take(&self, port: u16) -> bool {
        let free = !self.is_bound(port);
        if free {
            self.second.put(port, true);
        }
        free
    }

    /// The two stacks reach each other: the second one takes what comes from the address that it has itself.
    pub fn meet(&self) {
        self.meets.store(true, Relaxed);
    }

    /// A port of the second stack's is not for the first one: what that one sends there, it keeps. Nor does it connect
    /// to that port of others, which take what comes from this address for the second stack's.
    pub fn close(&self, port: u16) {
        self.closed.put(port, true);
    }

    /// The first stack connects to this port of nobody.
    pub fn is_closed(&self, port: u16) -> bool {
        self.closed.has(port)
    }

    /// A segment that a stack sends to its own address, to this port, is for the other stack; `second` is the sender.
    pub fn crosses(&self, port: u16, second: bool) -> bool {
        self.meets.load(Relaxed) && self.is_second(port) != second && !self.closed.has(port)
    }

    /// The second stack has no listener and no connection on a port any more.
    pub fn give_back(&self, port: u16) {
        if !self.range.contains(&port) {
            self.second.put(port, false);
        }
    }

    /// A port is the second stack's.
    pub fn is_second(&self, port: u16) -> bool {
        self.second.has(port)
    }

    /// The ports of the second stack from `64 * at` on: the least bit is the first one.
    pub fn second_word(&self, at: u16) -> u64 {
        self.second.0.get(usize::from(at)).map_or(0, |word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_owner() {
        let ports = TcpPorts::new(61_000..=65_535);
        let seconds = |all: &TcpPorts| (0..=u16::MAX).filter(|port| all.is_second(*port)).collect::<Vec<_>>();
        assert!(seconds(&ports).into_iter().eq(61_000..=65_535));
        ports.bind(80, true);
        assert!(!ports.take(80) && !ports.is_second(80), "the first stack has bound it");
        ports.bind(80, false);
        assert!(ports.take(80) && ports.is_second(80));
        assert_eq!((ports.second_word(1), ports.second_word(0)), (1 << 16, 0));
        ports.give_back(80);
        ports.give_back(61_000);
        assert!(!ports.is_second(80) && ports.is_second(61_000), "the range stays the second stack's");
        assert_eq!(ports.second_word(u16::MAX), 0);
    }

    #[test]
    fn segments_cross_to_the_stack_that_has_the_port() {
        let ports = TcpPorts::new(61_000..=65_535);
        assert!(ports.take(7000) && ports.take(4791));
        ports.close(4791);
        assert!(ports.is_closed(4791) && !ports.is_closed(7000));
        assert!([80, 7000].iter().all(|port| !ports.crosses(*port, false) && !ports.crosses(*port, true)));
        ports.meet();
        let crossing = |second| [80, 7000, 4791, 61_000].map(|port| ports.crosses(port, second));
        assert_eq!(crossing(false), [false, true, false, true]);
        assert_eq!(crossing(true), [true, false, false, false]);
        ports.give_back(7000);
        assert!(!ports.crosses(7000, false));
    }
}
