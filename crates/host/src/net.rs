//! The network layer of a host: its addresses, routes, neighbours and ICMP, and the packets that wait to be sent.
use crate::budget::Budget;
use crate::deadlines::Deadlines;
use crate::link::{AddressV6, Link};
use crate::membership::Membership;
use crate::neighbours::{Expiry, Neighbours};
use crate::packet::{self, Ip, Outermost, Outgoing, Packet};
use crate::path_mtu::PathMtus;
use crate::route::Routes;
use crate::routers::Routers;
use engine::{DropCounts, DropReason, Nanos};
use port::{Frame, FramePool};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::{IpAddress, Mac, Prefix, ipv4, ipv6};

/// The addresses from which a host sends to itself over loopback.
const LOOPBACK: IpAddress = IpAddress::v4(Ipv4Addr::LOCALHOST);
const LOOPBACK_V6: IpAddress = IpAddress::v6(Ipv6Addr::LOCALHOST, 0);

/// The host's place in the network.
pub struct NetConfig {
    /// Its ports; at least one.
    pub links: Vec<Link>,
    /// A destination network, and its next hop.
    pub routes: Box<dyn Routes>,
    /// The stations on its links.
    pub neighbours: Box<dyn Neighbours>,
    /// Most ICMP messages a second, and as many answers to neighbours' questions.
    pub icmp_per_s: u32,
}

/// The network layer. All transports of a host send through it and share what it has learned.
pub struct Net {
    /// Its ports; behind them its loopback, where it has one.
    links: Vec<Link>,
    /// How many of them are ports.
    ports: usize,
    /// The addresses of all of them.
    own: Vec<IpAddress>,
    /// A destination network, and its next hop.
    pub routes: Box<dyn Routes>,
    /// Routers that advertise themselves, where the host's address came from one.
    pub(crate) routers: Option<Box<Routers>>,
    /// Path MTUs where they are less than the port's.
    pub path_mtus: PathMtus,
    neighbours: Box<dyn Neighbours>,
    pub(crate) timers: Deadlines<IpAddress>,
    /// Reports of groups, by port.
    pub(crate) memberships: Vec<Membership>,
    outgoing: Vec<Outgoing>,
    icmp: Budget,
    answers: Budget,
}

/// The fate of a received frame.
pub enum Received {
    /// The network layer processed it, or dropped and counted it.
    Done,
    /// The hardware address of a neighbour came.
    Neighbour(Neighbour),
    /// A packet for a transport.
    Packet(Ip),
    /// An error message about a packet that a transport sent.
    Unreachable(crate::unreachable::Unreachable),
}

/// A neighbour's state now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub ip: IpAddress,
    /// Its hardware address; none where it does not answer.
    pub mac: Option<Mac>,
}

/// The timer of a neighbour fired.
pub(crate) struct Expired {
    /// Its address.
    pub(crate) ip: IpAddress,
    /// When it was due.
    pub(crate) due: Nanos,
    /// It does not answer: packets wait for it in vain.
    pub(crate) unreachable: bool,
    /// Packets go through another router from now on.
    pub(crate) router: Option<Neighbour>,
}

impl Net {
    /// The network layer of a host that has sent and received nothing.
    pub fn new(config: NetConfig) -> Net {
        let NetConfig { links, routes, neighbours, icmp_per_s } = config;
        debug_assert!(!links.is_empty(), "a host has a port");
        let mut net = Net {
            ports: links.len(),
            own: addresses_of(&links),
            memberships: vec![Membership::new(); links.len()],
            links,
            routes,
            routers: None,
            path_mtus: PathMtus::default(),
            neighbours,
            timers: Deadlines::default(),
            outgoing: Vec::new(),
            icmp: Budget::new(icmp_per_s),
            answers: Budget::new(icmp_per_s),
        };
        net.join_groups();
        net
    }

    /// The host has 127.0.0.0/8 from now on, and ::1 where it has IPv6: a link to itself alone. Its hardware
    /// address is a secret of the host's. What comes from a network with a loopback address does not bear it, and is no
    /// packet of that link. (Loopback addresses do not appear outside a host: RFC 1122 section 3.2.1.3, RFC 4291
    /// section 2.5.3.)
    pub fn set_loopback(&mut self, mac: Mac, v6: bool) {
        self.links.truncate(self.ports);
        let Link { caps, .. } = self.links[0];
        let v6 = v6.then_some(AddressV6 { address: LOOPBACK_V6, prefix_len: 128 });
        self.links.push(Link { mac, address: LOOPBACK, prefix_len: 8, v6, caps });
        self.own = addresses_of(&self.links);
    }

    /// Its ports. The first one's address is the host's.
    pub fn links(&self) -> &[Link] {
        &self.links[..self.ports]
    }

    /// The port that leads to a destination. For this host itself, and where there is no route, it is the first. For
    /// loopback addresses it is the link to itself.
    pub fn link_towards(&self, dst: IpAddress) -> &Link {
        &self.links[self.port_towards(dst)]
    }

    /// A port; behind the ports the link to itself.
    pub(crate) fn link(&self, port: usize) -> Link {
        self.links[port]
    }

    /// The zone of a port's link.
    pub(crate) fn zone(&self, port: usize) -> u32 {
        packet::zone_of(port)
    }

    fn port_towards(&self, dst: IpAddress) -> usize {
        if self.is_loopback(dst) {
            return self.ports;
        }
        if dst.zone() > 0 {
            return (dst.zone() as usize - 1).min(self.ports - 1);
        }
        // Most hosts have one port: then there is nothing to look up.
        if self.ports == 1 || self.is_own(dst) {
            return 0;
        }
        self.routes.hop(dst).map_or(0, |hop| hop.port.min(self.ports - 1))
    }

    /// It has loopback addresses.
    pub fn has_loopback(&self) -> bool {
        self.links.len() > self.ports
    }

    /// The address is one of this host's, all loopback addresses among them.
    #[inline]
    pub fn is_own(&self, ip: IpAddress) -> bool {
        self.own.contains(&ip) || self.is_loopback(ip)
    }

    /// The address is one of the host's on a port.
    pub(crate) fn is_of_port(&self, port: usize, ip: IpAddress) -> bool {
        self.links[port].has(ip, self.zone(port))
    }

    /// The address is one of the host's link to itself.
    #[inline]
    fn is_loopback(&self, ip: IpAddress) -> bool {
        let is_v6 = || self.links.last().is_some_and(|link| link.v6.is_some());
        ip.is_loopback() && self.has_loopback() && (ip.is_v4() || is_v6())
    }

    /// The unspecified address, of a family in which this host has an address.
    pub fn is_any(&self, ip: IpAddress) -> bool {
        let mut addresses = self.links.iter().flat_map(|link| link.addresses());
        addresses.any(|(address, _)| address.any() == ip)
    }

    /// An address of the host's own, of the same family as another one; none that is a loopback address, where there
    /// is another.
    pub fn own_address(&self, like: IpAddress) -> Option<IpAddress> {
        let mut addresses = self.links.iter().flat_map(|link| link.addresses());
        addresses.find(|(address, _)| address.any() == like.any()).map(|(address, _)| address)
    }

    /// The hardware address is one of this host's.
    pub fn is_own_mac(&self, mac: Mac) -> bool {
        self.links.iter().any(|link| link.mac == mac)
    }

    /// The address from which this host sends to a destination; the unspecified one where it has none of that family.
    pub fn source(&self, dst: IpAddress) -> IpAddress {
        let is_own = self.is_own(dst) && !dst.is_loopback();
        let source = if is_own { Some(dst) } else { self.link_towards(dst).source(dst) };
        source.unwrap_or(dst.any())
    }

    /// Sends a packet: at once where the next hop's hardware address is known, else when it answers.
    pub fn send(&mut self, now: Nanos, packet: Packet, drops: &mut DropCounts) {
        if self.is_own(packet.dst) {
            let port = self.port_towards(packet.dst);
            return self.outgoing.push(Outgoing::Ip { port, dst: self.links[port].mac, packet });
        }
        let Some(next_hop) = self.hop(packet.dst) else {
            return drops.count(DropReason::NoRoute);
        };
        let neighbour = next_hop == packet.dst;
        match if neighbour { self.station_of(now, next_hop) } else { self.resolve(now, next_hop) } {
            Some(dst) => self.send_to(dst, packet),
            None => {
                if !self.neighbours.queue(next_hop, packet) {
                    drops.count(DropReason::NeighbourUnresolved);
                }
            }
        }
    }

    /// Sends a packet to a neighbour whose hardware address is known.
    pub fn send_to(&mut self, dst: Mac, packet: Packet) {
        self.outgoing.push(Outgoing::Ip { port: self.port_towards(packet.dst), dst, packet });
    }

    /// Sends a frame of others on, as it is.
    pub fn forward(&mut self, frame: Box<Frame>) {
        self.outgoing.push(Outgoing::Frame(frame));
    }

    /// The hardware address of a neighbour, asking for it where it is not known or too old.
    pub fn resolve(&mut self, now: Nanos, ip: IpAddress) -> Option<Mac> {
        if self.is_own(ip) {
            return Some(self.link_towards(ip).mac);
        }
        self.station_of(now, ip)
    }

    /// The same of an address that is not this host's.
    fn station_of(&mut self, now: Nanos, ip: IpAddress) -> Option<Mac> {
        let found = self.neighbours.look_up(now, ip);
        if let Some(due) = found.ask_until {
            self.timers.set(ip, due);
            self.ask(ip);
        }
        found.mac
    }

    /// A packet to `dst` would leave now; otherwise its next hop is asked for.
    pub fn reaches(&mut self, now: Nanos, dst: IpAddress) -> bool {
        self.is_own(dst) || self.hop(dst).is_some_and(|next_hop| self.resolve(now, next_hop).is_some())
    }

    /// The hardware address of the next hop to `dst` is known. Nothing is asked.
    pub fn has_station(&self, dst: IpAddress) -> bool {
        self.is_own(dst) || self.hop(dst).is_some_and(|next_hop| self.station(next_hop).is_some())
    }

    /// A neighbour's hardware address may be wrong: a flow through it gets no answers.
    pub fn doubt(&mut self, now: Nanos, ip: IpAddress) {
        self.neighbours.doubt(now, ip);
    }

    /// The next hop to a destination that was reached once: itself, where there is no route any more, or it is this
    /// host.
    pub fn next_hop(&self, dst: IpAddress) -> IpAddress {
        self.hop(dst).filter(|_| !self.is_own(dst)).unwrap_or(dst)
    }

    /// The next hop to a destination. Link-local addresses are those of neighbours.
    pub fn hop(&self, dst: IpAddress) -> Option<IpAddress> {
        match dst.zone() {
            0 if dst.is_v4() => self.routes.next_hop(dst),
            0 if self.routers.as_ref().is_some_and(|routers| routers.is_invalid()) => None,
            0 => self.routes.next_hop(dst).or_else(|| self.default_router()),
            zone => self.links().get(zone as usize - 1)?.v6.map(|_| dst),
        }
    }

    /// Destinations that are reached.
    pub fn destinations(&self) -> Vec<Prefix> {
        let by_router = self.default_router().map(|router| Prefix::new(router.any(), 0));
        self.routes.list().into_iter().chain(by_router).collect()
    }

    /// Neighbours, and their hardware addresses where they are known.
    pub fn neighbours(&self) -> Vec<(IpAddress, Option<Mac>)> {
        self.neighbours.list()
    }

    /// Reads a received frame: questions of neighbours and echo requests are answered here, the rest is for a
    /// transport.
    pub fn receive(&mut self, now: Nanos, frame: &mut Frame, drops: &mut DropCounts) -> Received {
        match packet::read(frame, &self.links) {
            Ok(Outermost::Ip(ip)) if ip.header.protocol == ipv4::ICMP && ip.header.src.is_v4() => {
                frame.flatten();
                self.on_icmp(now, &ip, frame, drops)
            }
            Ok(Outermost::Ip(ip)) if ip.header.protocol == ipv6::ICMP && !ip.header.src.is_v4() => {
                frame.flatten();
                self.on_icmpv6(now, &ip, frame, drops)
            }
            Ok(Outermost::Ip(ip)) => Received::Packet(ip),
            Ok(Outermost::Foreign) => Received::Done,
            Ok(Outermost::Arp(packet)) => {
                let port = usize::from(frame.port).min(self.ports - 1);
                self.on_arp(now, port, &packet, drops)
            }
            Err(reason) => {
                drops.count(reason);
                Received::Done
            }
        }
    }

    /// A neighbour is at a hardware address. What comes by one port has no bearing on the neighbours of another, and a
    /// unknown peer is added only where `add` is set.
    pub(crate) fn learn(&mut self, now: Nanos, port: usize, ip: IpAddress, mac: Mac, add: bool) -> Received {
        if self.port_towards(ip) != port {
            return Received::Done;
        }
        let add = add && self.hop(ip) == Some(ip);
        let Some(learned) = self.neighbours.learn(now, ip, mac, add) else { return Received::Done };
        self.timers.set(ip, learned.due);
        if let Some(queued) = learned.queued {
            self.send_to(mac, queued);
        }
        Received::Neighbour(Neighbour { ip, mac: Some(mac) })
    }

    /// The hardware address of a neighbour, where it is known. Nothing is asked.
    pub(crate) fn station(&self, ip: IpAddress) -> Option<Mac> {
        self.neighbours.station(ip)
    }

    /// One more question of a neighbour's may be answered.
    pub(crate) fn may_answer(&mut self, now: Nanos) -> bool {
        self.answers.take(now)
    }

    /// One more ICMP message may be sent.
    pub(crate) fn may_send_icmp(&mut self, now: Nanos) -> bool {
        self.icmp.take(now)
    }

    /// Asks the stations of its link which one has an address.
    fn ask(&mut self, target: IpAddress) {
        let port = self.port_towards(target);
        match target.ip() {
            IpAddr::V4(target) => self.ask_arp(port, target),
            IpAddr::V6(target) => self.ask_discovery(port, target),
        }
    }

    /// Something leaves.
    pub(crate) fn put(&mut self, outgoing: Outgoing) {
        self.outgoing.push(outgoing);
    }

    /// A packet leaves by a port.
    pub(crate) fn put_packet(&mut self, port: usize, dst: Mac, packet: Packet) {
        self.outgoing.push(Outgoing::Ip { port, dst, packet });
    }

    /// The time at which the next timer of a neighbour is due.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| at)
    }

    /// Timers that are set.
    pub fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// Takes the next timer that is due: asks the neighbour again, forgets it, or gives it up.
    pub(crate) fn expire(&mut self, now: Nanos, drops: &mut DropCounts) -> Option<Expired> {
        let (due, ip) = self.timers.pop(now)?;
        let (mut unreachable, mut router) = (false, None);
        if self.membership_due(now, ip) {
            return Some(Expired { ip, due, unreachable, router });
        }
        if let Some(router) = self.routers_due(now, ip) {
            return Some(Expired { ip, due, unreachable, router });
        }
        match self.neighbours.expire(now, ip) {
            Expiry::Unused => {}
            Expiry::Ask(again) => {
                self.timers.set(ip, again);
                self.ask(ip);
            }
            Expiry::Unreachable(queued) => {
                unreachable = true;
                router = self.pass_over_router(now, ip);
                if queued.is_some() {
                    drops.count(DropReason::NeighbourUnresolved);
                }
            }
        }
        Some(Expired { ip, due, unreachable, router })
    }

    /// Packets wait to be built.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Builds frames of all that is to be sent: to others, and to this host itself.
    pub(crate) fn flush(&mut self, pool: &mut FramePool, drops: &mut DropCounts, out: &mut Flushed<'_>) {
        let links = &self.links;
        for outgoing in self.outgoing.drain(..) {
            let to_self = outgoing.dst().is_some_and(|dst| links.iter().any(|link| link.mac == dst));
            match packet::build(links, outgoing, pool) {
                Ok(frame) if to_self => out.looped.push(frame),
                Ok(frame) => out.tx.push(frame),
                Err(reason) => drops.count(reason),
            }
        }
    }
}

/// All addresses of a host's links; link-local ones are in the zones of these.
fn addresses_of(links: &[Link]) -> Vec<IpAddress> {
    links.iter().zip(1..).flat_map(|(link, zone)| link.all_addresses(zone)).collect()
}

/// Where [`Net::flush`] puts frames.
pub(crate) struct Flushed<'a> {
    /// To others.
    pub(crate) tx: &'a mut Vec<Box<Frame>>,
    /// To this host itself.
    pub(crate) looped: &'a mut Vec<Box<Frame>>,
}
