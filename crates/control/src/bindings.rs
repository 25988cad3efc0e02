//! Bindings: local addresses that applications reserved, and their listeners.
use crate::accept_queue::AcceptQueue;
use crate::contexts::Holder;
use crate::fast_open::EarlyListener;
use crate::port_set::PortSet;
use context::Endpoint;
use engine::{ContextId, FlowId, Nanos};
use port::TcpPorts;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv6Addr;
use std::sync::Arc;
use wire::IpAddress;

/// A reserved local address.
#[derive(Debug)]
pub(crate) struct Binding {
    pub local: Endpoint,
    pub uid: u32,
    pub reuse_address: bool,
    pub reuse_port: bool,
    /// Of the unspecified IPv6 address: it takes connections over IPv4, too (`IPV6_V6ONLY` is off).
    pub dual_stack: bool,
    /// A random number, the same at each daemon that the listener comes to (docs/RESTART.md).
    pub number: u64,
    pub holders: BTreeSet<Holder>,
    pub listener: Option<Listener>,
}

/// A binding that takes connections.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub backlog: u32,
    /// Most payload bytes of a segment (`TCP_MAXSEG`); 0 for what the path carries.
    pub mss: u16,
    /// It takes connections to loopback addresses: the kernel has no other listener of them.
    pub loopback: bool,
    /// Connections whose handshake is going on.
    pub half_open: u32,
    /// When a SYN was last answered with a cookie.
    pub cookie_sent: Option<Nanos>,
    /// Connections whose SYN carries data.
    pub early: EarlyListener,
    /// Open connections that no context has room for yet, oldest first: keys of half-open connections.
    pub ready: VecDeque<u32>,
    /// Connections taken back from a context that went, still run by the engine in that context's buffers.
    pub parked: VecDeque<FlowId>,
    /// The contexts that take connections.
    pub armed: BTreeMap<ContextId, AcceptQueue>,
    /// A timer is set for the offers of connections that wait.
    pub timed: bool,
    /// The context that got the last connection.
    pub last: Option<ContextId>,
}

/// All bindings of a host.
#[derive(Default)]
pub(crate) struct Bindings {
    all: BTreeMap<u32, Binding>,
    by_port: BTreeMap<u16, Vec<u32>>,
    ports: PortSet,
    last: u32,
    /// Another stack has the same addresses.
    shared: Option<Arc<TcpPorts>>,
}

impl Bindings {
    /// From now on another stack has the same addresses, and its ports are taken.
    pub(crate) fn share(&mut self, ports: Arc<TcpPorts>) {
        self.by_port.keys().for_each(|port| ports.bind(*port, true));
        self.shared = Some(ports);
    }

    /// A port is that stack's.
    pub(crate) fn is_others(&self, port: u16) -> bool {
        self.shared.as_ref().is_some_and(|ports| ports.is_second(port))
    }

    /// No application connects to this port, whose it ever is: that stack does.
    pub(crate) fn is_closed(&self, port: u16) -> bool {
        self.shared.as_ref().is_some_and(|ports| ports.is_closed(port))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Binding)> {
        self.all.iter().map(|(id, binding)| (*id, binding))
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Binding> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Binding> {
        self.all.get_mut(&id)
    }

    /// The listener of a binding.
    pub(crate) fn listener(&mut self, id: u32) -> Option<&mut Listener> {
        self.all.get_mut(&id)?.listener.as_mut()
    }

    /// Adds a binding; its number is never used for another.
    pub(crate) fn add(&mut self, binding: Binding) -> u32 {
        self.last += 1;
        self.add_at(self.last, binding);
        self.last
    }

    /// Adds a binding under the number that it had.
    pub(crate) fn add_at(&mut self, id: u32, binding: Binding) {
        self.by_port.entry(binding.local.port).or_default().push(id);
        self.ports.insert(binding.local.port);
        self.shared.iter().for_each(|ports| ports.bind(binding.local.port, true));
        self.all.insert(id, binding);
    }

    /// The last number that was given.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Numbers up to this one were given by another host.
    pub(crate) fn go_on_after(&mut self, last: u32) {
        self.last = last;
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Binding> {
        let binding = self.all.remove(&id)?;
        if let Some(ids) = self.by_port.get_mut(&binding.local.port) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_port.remove(&binding.local.port);
                self.ports.remove(binding.local.port);
                self.shared.iter().for_each(|ports| ports.bind(binding.local.port, false));
            }
        }
        Some(binding)
    }

    /// The listener of this number at an address.
    pub(crate) fn numbered(&self, number: u64, local: Endpoint) -> Option<u32> {
        let is = |binding: &Binding| binding.number == number && binding.local == local && binding.listener.is_some();
        self.on_port(local.port).find(|(_, binding)| is(binding)).map(|(id, _)| id)
    }

    fn on_port(&self, port: u16) -> impl Iterator<Item = (u32, &Binding)> {
        self.by_port.get(&port).into_iter().flatten().filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Those on a port that have a holder that still runs. What a process that has ended left is still kept in view for
    /// a few rounds. Its address is free at once, as the kernel's is.
    fn held_on_port(&self, port: u16, runs: impl Fn(Holder) -> bool) -> impl Iterator<Item = (u32, &Binding)> {
        self.on_port(port).filter(move |(_, binding)| binding.holders.iter().any(|holder| runs(*holder)))
    }

    /// A port has a binding with a holder that still runs.
    pub(crate) fn is_held(&self, port: u16, runs: impl Fn(Holder) -> bool) -> bool {
        self.held_on_port(port, runs).next().is_some()
    }

    /// A port has a binding, or another stack's segments.
    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(port) || self.shared.as_ref().is_some_and(|ports| ports.is_in_use(port))
    }

    /// The same of the ports from `64 * at` on: the least bit is the first one.
    pub(crate) fn word(&self, at: u16) -> u64 {
        self.ports.word(at) | self.shared.as_ref().map_or(0, |ports| ports.second_word(at))
    }

    /// A new binding would collide with one that is there: the rules of Linux's `SO_REUSEADDR` and `SO_REUSEPORT`.
    pub(crate) fn conflicts(&self, new: &Binding, runs: impl Fn(Holder) -> bool) -> bool {
        self.held_on_port(new.local.port, runs).any(|(_, other)| {
            let shared_port = new.reuse_port && other.reuse_port && new.uid == other.uid;
            let shared_address = new.reuse_address && other.reuse_address && other.listener.is_none();
            overlap(new, other) && !shared_port && !shared_address
        })
    }

    /// When a SYN to a port was last answered with a cookie, by whichever listener. Of those that share it, another one
    /// may be asked when the cookie comes back, as some come and go.
    pub(crate) fn cookie_sent(&self, port: u16) -> Option<Nanos> {
        self.on_port(port).filter_map(|(_, binding)| binding.listener.as_ref()?.cookie_sent).max()
    }

    /// Another binding of an overlapping address listens, and does not share its port with this one.
    pub(crate) fn listener_conflicts(&self, id: u32, runs: impl Fn(Holder) -> bool) -> bool {
        let Some(mine) = self.all.get(&id) else { return true };
        self.held_on_port(mine.local.port, runs).any(|(other_id, other)| {
            let shared = mine.reuse_port && other.reuse_port && mine.uid == other.uid;
            other_id != id && other.listener.is_some() && overlap(mine, other) && !shared
        })
    }

    /// The listener for a connection to `local`. An exact address goes before the unspecified one, and that before the
    /// one for both families. Among those that share the port, it is the one that `spread` falls on. Only those count
    /// that have a holder that still runs. One that is kept for a child to come counts only where no process has
    /// another one: its parent may have ended before it forked.
    pub(crate) fn listener_for(
        &self,
        local: Endpoint,
        spread: impl FnOnce() -> u64,
        runs: impl Fn(Holder) -> bool,
    ) -> Option<u32> {
        let any_v6 = IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0);
        for (ip, dual_stack) in [(local.ip, false), (local.ip.any(), false), (any_v6, true)] {
            let listens = |(id, binding): (u32, &Binding)| {
                let is = binding.local.ip == ip && (binding.dual_stack || !dual_stack);
                (is && binding.listener.is_some()).then_some(id)
            };
            let in_process = |holder| matches!(holder, Holder::Context(_)) && runs(holder);
            let served = || self.held_on_port(local.port, &in_process).filter_map(listens);
            let kept = || self.held_on_port(local.port, &runs).filter_map(listens);
            match served().count() {
                0 if kept().next().is_none() => {}
                0 => return kept().nth(spread() as usize % kept().count()),
                1 => return served().next(),
                many => return served().nth(spread() as usize % many),
            }
        }
        None
    }
}

/// Some address is taken by both.
fn overlap(a: &Binding, b: &Binding) -> bool {
    let (one, other) = (a.local.ip, b.local.ip);
    let same_family = one.any() == other.any();
    let any = one.is_unspecified() || other.is_unspecified();
    one == other || (same_family && any) || (a.dual_stack && other.is_v4()) || (b.dual_stack && one.is_v4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ANY: IpAddress = IpAddress::v4(Ipv4Addr::UNSPECIFIED);
    const IP: IpAddress = IpAddress::v4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddress = IpAddress::v4(Ipv4Addr::new(10, 0, 0, 9));
    const ANY_V6: IpAddress = IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0);

    fn bindings(ip: IpAddress, reuse_address: bool, reuse_port: bool, listening: bool) -> Bindings {
        let mut bindings = Bindings::default();
        let listener = listening.then(Listener::default);
        bindings.add(Binding { listener, ..binding(Endpoint { ip, port: 80 }, 1, reuse_address, reuse_port) });
        bindings
    }

    fn binding(local: Endpoint, uid: u32, reuse_address: bool, reuse_port: bool) -> Binding {
        let holders = [Holder::Context(ContextId(0))].into();
        Binding { local, uid, reuse_address, reuse_port, dual_stack: false, number: 0, holders, listener: None }
    }

    #[test]
    fn conflicts_are_those_of_linux() {
        for (have, want, conflict) in [
            ((IP, false, false, false), (IP, 1, false, false), true),
            ((ANY, false, false, false), (IP, 1, false, false), true),
            ((IP, true, false, false), (IP, 1, true, false), false),
            ((IP, true, false, true), (IP, 1, true, false), true),
            ((IP, false, true, true), (IP, 1, false, true), false),
            ((IP, false, true, true), (IP, 2, false, true), true),
            ((IP, false, true, true), (IP, 1, false, false), true),
            ((IP, false, false, true), (OTHER, 1, false, false), false),
            ((ANY_V6, false, false, true), (IP, 1, false, false), false),
        ] {
            let there = bindings(have.0, have.1, have.2, have.3);
            let new = |port| binding(Endpoint { ip: want.0, port }, want.1, want.2, want.3);
            assert_eq!(there.conflicts(&new(80), |_| true), conflict, "{have:?} {want:?}");
            assert!(!there.conflicts(&new(81), |_| true));
            assert!(!there.conflicts(&new(80), |_| false), "its holder has ended");
        }
    }

    #[test]
    fn the_unspecified_ipv6_address_may_stand_for_both_families() {
        let v6 = IpAddress::v6(Ipv6Addr::LOCALHOST, 0);
        for (dual_stack, ip, conflict) in [
            (false, IP, false),
            (false, ANY, false),
            (false, v6, true),
            (false, ANY_V6, true),
            (true, IP, true),
            (true, ANY, true),
            (true, v6, true),
            (true, ANY_V6, true),
        ] {
            let any = Endpoint { ip: ANY_V6, port: 80 };
            let any = Binding { dual_stack, listener: Some(Listener::default()), ..binding(any, 1, false, false) };
            let other = || binding(Endpoint { ip, port: 80 }, 1, false, false);
            let mut all = Bindings::default();
            let id = all.add(any);
            assert_eq!(all.conflicts(&other(), |_| true), conflict, "{dual_stack} {ip}");
            assert_eq!(all.listener_for(Endpoint { ip, port: 80 }, || 0, |_| true).is_some(), conflict);
            let mut turned = Bindings::default();
            turned.add(other());
            let any = all.remove(id).expect("it is there");
            assert_eq!(turned.conflicts(&any, |_| true), conflict, "the other way round: {dual_stack} {ip}");
        }
    }

    #[test]
    fn a_listener_of_one_family_comes_before_one_of_both() {
        let mut all = bindings(ANY, false, true, true);
        let both = binding(Endpoint { ip: ANY_V6, port: 80 }, 1, false, true);
        let both = all.add(Binding { dual_stack: true, listener: Some(Listener::default()), ..both });
        assert_eq!(all.listener_for(Endpoint { ip: IP, port: 80 }, || 0, |_| true), Some(1));
        all.remove(1);
        assert_eq!(all.listener_for(Endpoint { ip: IP, port: 80 }, || 0, |_| true), Some(both));
    }

    #[test]
    fn ports_of_another_stack_with_the_same_addresses_are_taken() {
        let mut all = bindings(IP, false, false, true);
        let ports = Arc::new(TcpPorts::new(61_000..=65_535));
        all.share(Arc::clone(&ports));
        assert!(!ports.take(80) && ports.take(81));
        assert!(all.has_port(80) && all.has_port(81) && all.has_port(61_000) && !all.has_port(82));
        assert!(all.is_others(81) && !all.is_others(80));
        assert_eq!(all.word(1), 0b11 << 16);
        let id = all.add(binding(Endpoint { ip: IP, port: 80 }, 1, false, false));
        all.remove(1);
        assert!(!ports.take(80), "one of two is left");
        all.remove(id);
        assert!(ports.take(80));
        ports.leave(81);
        assert!(!all.is_others(81) && all.has_port(81), "it may be bound, and no connection begins there by itself");
    }

    #[test]
    fn listeners_that_share_a_port_accept_each_others_cookies() {
        let mut all = bindings(ANY, false, true, true);
        assert_eq!(all.cookie_sent(80), None);
        all.listener(1).expect("it listens").cookie_sent = Some(7);
        let late = binding(Endpoint { ip: ANY, port: 80 }, 1, false, true);
        let late = all.add(Binding { listener: Some(Listener::default()), ..late });
        assert_eq!((all.cookie_sent(80), all.cookie_sent(81)), (Some(7), None));
        all.listener(late).expect("it listens").cookie_sent = Some(9);
        assert_eq!(all.cookie_sent(80), Some(9));
    }

    #[test]
    fn the_exact_address_comes_before_any_and_sharers_alternate() {
        let mut all = bindings(ANY, false, true, true);
        let holder = |id| BTreeSet::from([Holder::Context(ContextId(id))]);
        all.get_mut(1).expect("the first").holders = holder(0);
        let local = Endpoint { ip: IP, port: 80 };
        assert_eq!(all.listener_for(local, || 7, |_| true), Some(1));
        for id in 1..3 {
            let listener = Some(Listener::default());
            let (local, holders) = (Endpoint { ip: IP, port: 80 }, holder(id));
            all.add(Binding { listener, holders, ..binding(local, 1, false, true) });
        }
        assert_eq!(
            (all.listener_for(local, || 8, |_| true), all.listener_for(local, || 9, |_| true)),
            (Some(2), Some(3))
        );
        let without = |id| move |holder| holder != Holder::Context(ContextId(id));
        assert_eq!(all.listener_for(local, || 8, without(1)), Some(3), "the other one's holder has ended");
        all.remove(2);
        assert_eq!(all.listener_for(local, || 8, |_| true), Some(3));
        assert_eq!(all.listener_for(local, || 8, without(2)), Some(1), "the unspecified address is left");
        assert_eq!(all.listener_for(Endpoint { ip: IP, port: 81 }, || 0, |_| true), None);
    }

    #[test]
    fn a_listener_kept_for_a_child_comes_after_those_of_processes() {
        let mut all = bindings(IP, false, true, true);
        let kept =
            Binding { holders: [Holder::Hold(7)].into(), ..binding(Endpoint { ip: IP, port: 80 }, 0, false, true) };
        all.add(Binding { listener: Some(Listener::default()), ..kept });
        let local = Endpoint { ip: IP, port: 80 };
        assert_eq!([0, 1].map(|spread| all.listener_for(local, || spread, |_| true)), [Some(1), Some(1)]);
        let ended = |holder| matches!(holder, Holder::Hold(_));
        assert_eq!(all.listener_for(local, || 0, ended), Some(2), "no process has one: the child may come");
    }
}
