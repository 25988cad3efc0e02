//! Owners of TCP ports, where two stacks have the same addresses.
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use wire::{begins_connection, local_tcp_port};

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
    /// Those of the second one that it listens on no more: the first one may bind them. Until it does, segments of
    /// connections that the second one has closed go there (TIME-WAIT, LAST-ACK: RFC 9293 section 3.6). The first one
    /// would reset them, and with them what the peer still has to read.
    left: Set,
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
            left: Set::new(),
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
        if is_bound && self.left.has(port) {
            self.left.put(port, false);
            self.second.put(port, false);
        }
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
            self.left.put(port, false);
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

    /// An IPv4 packet that a stack sends to its own address is for the other stack; `second` is the sender.
    pub fn crosses(&self, packet: &[u8], second: bool) -> bool {
        let crosses = |port| self.receives(port, packet) != second && !self.closed.has(port);
        self.meets.load(Relaxed) && local_tcp_port(packet).is_some_and(crosses)
    }

    /// The second stack has no listener and no connection of a program on a port any more.
    pub fn leave(&self, port: u16) {
        if self.second.has(port) && !self.range.contains(&port) {
            self.left.put(port, true);
        }
    }

    /// A port is the second stack's: the first one cannot bind it.
    pub fn is_second(&self, port: u16) -> bool {
        self.second.has(port) && !self.left.has(port)
    }

    /// The second stack receives something for this port: no connection of the first stack begins there by itself.
    pub fn is_in_use(&self, port: u16) -> bool {
        self.second.has(port)
    }

    /// An IPv4 packet that was received is for the second stack.
    pub fn is_for_second(&self, packet: &[u8]) -> bool {
        local_tcp_port(packet).is_some_and(|port| self.receives(port, packet))
    }

    /// The second stack receives a packet for this port. New connections to a port that it has left are the first's.
    fn receives(&self, port: u16, packet: &[u8]) -> bool {
        self.second.has(port) && !(self.left.has(port) && begins_connection(packet))
    }

    /// Those that are in use, of the ports from `64 * at` on: the least bit is the first one.
    pub fn second_word(&self, at: u16) -> u64 {
        self.second.0.get(usize::from(at)).map_or(0, |word| word.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::tcp::Flags;

    /// A packet to this port, with these flags.
    fn packet(port: u16, flags: Flags) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[9], packet[33]) = (0x45, wire::ipv4::TCP, flags.0);
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet
    }

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
        ports.leave(80);
        ports.leave(61_000);
        assert!(!ports.is_second(80) && ports.is_second(61_000), "the range stays the second stack's");
        assert_eq!(ports.second_word(1), 1 << 16, "no connection begins there by itself");
        ports.bind(80, true);
        ports.bind(80, false);
        assert_eq!((ports.second_word(1), ports.second_word(u16::MAX)), (0, 0));
        assert!(ports.take(81));
        ports.leave(81);
        assert!(ports.take(81) && ports.is_second(81), "the second stack listens again");
    }

    #[test]
    fn segments_cross_to_the_stack_that_has_the_port() {
        let ports = TcpPorts::new(61_000..=65_535);
        assert!(ports.take(7000) && ports.take(4791));
        ports.close(4791);
        assert!(ports.is_closed(4791) && !ports.is_closed(7000));
        let crosses = |port, second| ports.crosses(&packet(port, Flags::ACK), second);
        assert!([80, 7000].iter().all(|port| !crosses(*port, false) && !crosses(*port, true)));
        ports.meet();
        let crossing = |second| [80, 7000, 4791, 61_000].map(|port| crosses(port, second));
        assert_eq!(crossing(false), [false, true, false, true]);
        assert_eq!(crossing(true), [true, false, false, false]);
        ports.leave(7000);
        assert!(crosses(7000, false) && !ports.crosses(&packet(7000, Flags::SYN), false));
    }
}
