//! The network layer of a host: its address, routes, neighbours and ICMP, and the packets that wait to be sent.
use crate::arp::{Expiry, Neighbours};
use crate::budget::Budget;
use crate::deadlines::Deadlines;
use crate::icmp::{Quote, Unreachable};
use crate::link::Link;
use crate::packet::{self, Ip, Outermost, Outgoing, Packet};
use crate::path_mtu::PathMtus;
use crate::route::Routes;
use engine::{DropCounts, DropReason, Nanos};
use port::{Frame, FramePool};
use std::net::Ipv4Addr;
use wire::icmpv4::{self, Message, PORT_UNREACHABLE};
use wire::{IpAddress, Mac, arp as arp_wire, ipv4};

/// The address from which a host speaks to itself over loopback.
const LOOPBACK: IpAddress = IpAddress::v4(Ipv4Addr::LOCALHOST);
/// Code of "destination unreachable" for a protocol that the host does not speak.
const PROTOCOL_UNREACHABLE: u8 = 2;

/// The host's place in the network.
pub struct NetConfig {
    /// Its ports; at least one.
    pub links: Vec<Link>,
    /// What is reached, and through whom.
    pub routes: Box<dyn Routes>,
    /// The stations on its links.
    pub neighbours: Box<dyn Neighbours>,
    /// Most ICMP messages a second, and as many ARP answers.
    pub icmp_per_s: u32,
}

/// The network layer. All transports of a host send through it and share what it has learned.
pub struct Net {
    /// Its ports; behind them its loopback, where it has one.
    links: Vec<Link>,
    /// How many of them are ports.
    ports: usize,
    /// What is reached, and through whom.
    pub routes: Box<dyn Routes>,
    /// Path MTUs where they are less than the port's.
    pub path_mtus: PathMtus,
    neighbours: Box<dyn Neighbours>,
    timers: Deadlines<IpAddress>,
    outgoing: Vec<Outgoing>,
    icmp: Budget,
    arp_answers: Budget,
}

/// What became of a received frame.
pub enum Received {
    /// The network layer processed it, or dropped and counted it.
    Done,
    /// An ARP packet told the hardware address of a neighbour.
    Neighbour(Neighbour),
    /// A packet for a transport.
    Packet(Ip),
    /// An error message about a packet that a transport sent.
    Unreachable(Unreachable),
}

/// What is known now of a neighbour.
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
    /// It does not answer: whoever waits for it waits in vain.
    pub(crate) unreachable: bool,
}

impl Net {
    /// The network layer of a host that has sent and received nothing.
    pub fn new(config: NetConfig) -> Net {
        let NetConfig { links, routes, neighbours, icmp_per_s } = config;
        debug_assert!(!links.is_empty(), "a host has a port");
        Net {
            ports: links.len(),
            links,
            routes,
            path_mtus: PathMtus::default(),
            neighbours,
            timers: Deadlines::default(),
            outgoing: Vec::new(),
            icmp: Budget::new(icmp_per_s),
            arp_answers: Budget::new(icmp_per_s),
        }
    }

    /// The host has 127.0.0.0/8 from now on: a link to itself alone. Its hardware address is a secret of the host's:
    /// what comes from a network with a loopback address does not bear it, and is no packet of that link (RFC 1122
    /// section 3.2.1.3: loopback addresses do not appear outside a host).
    pub fn set_loopback(&mut self, mac: Mac) {
        self.links.truncate(self.ports);
        let Link { caps, .. } = self.links[0];
        self.links.push(Link { mac, address: LOOPBACK, prefix_len: 8, caps });
    }

    /// Its ports. The first one's address is the host's.
    pub fn links(&self) -> &[Link] {
        &self.links[..self.ports]
    }

    /// The port that leads to a destination; the first for this host itself, and where there is no route; for loopback
    /// addresses the link to itself.
    pub fn link_towards(&self, dst: IpAddress) -> &Link {
        &self.links[self.port_towards(dst)]
    }

    fn port_towards(&self, dst: IpAddress) -> usize {
        if self.is_loopback(dst) {
            return self.ports;
        }
        // Most hosts have one port: then nobody looks.
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
    pub fn is_own(&self, ip: IpAddress) -> bool {
        self.links.iter().any(|link| link.address == ip) || self.is_loopback(ip)
    }

    /// The address is one of the host's link to itself. It has none of IPv6.
    fn is_loopback(&self, ip: IpAddress) -> bool {
        ip.is_loopback() && self.has_loopback() && ip.as_v4().is_some()
    }

    /// The unspecified address, of a family in which this host has an address.
    pub fn is_any(&self, ip: IpAddress) -> bool {
        self.links().iter().any(|link| link.address.any() == ip)
    }

    /// The hardware address is one of this host's.
    pub fn is_own_mac(&self, mac: Mac) -> bool {
        self.links.iter().any(|link| link.mac == mac)
    }

    /// The address from which this host speaks to a destination.
    pub fn source(&self, dst: IpAddress) -> IpAddress {
        if self.is_own(dst) && !dst.is_loopback() { dst } else { self.link_towards(dst).address }
    }

    /// Sends a packet: at once where the next hop's hardware address is known, else when it answers.
    pub fn send(&mut self, now: Nanos, packet: Packet, drops: &mut DropCounts) {
        if self.is_own(packet.dst) {
            let port = self.port_towards(packet.dst);
            return self.outgoing.push(Outgoing::Ip { port, dst: self.links[port].mac, packet });
        }
        let Some(next_hop) = self.routes.next_hop(packet.dst) else {
            return drops.count(DropReason::NoRoute);
        };
        match self.resolve(now, next_hop) {
            Some(dst) => self.send_to(dst, packet),
            None => {
                if !self.neighbours.queue(next_hop, packet) {
                    drops.count(DropReason::ArpUnresolved);
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
        let found = self.neighbours.look_up(now, ip);
        if let Some(due) = found.ask_until {
            self.timers.set(ip, due);
            self.ask(ip);
        }
        found.mac
    }

    /// A packet to `dst` would leave now; otherwise its next hop is asked for.
    pub fn reaches(&mut self, now: Nanos, dst: IpAddress) -> bool {
        let next_hop = if self.is_own(dst) { Some(dst) } else { self.routes.next_hop(dst) };
        next_hop.is_some_and(|next_hop| self.resolve(now, next_hop).is_some())
    }

    /// The hardware address of the next hop to `dst` is known. Nothing is asked.
    pub fn knows(&self, dst: IpAddress) -> bool {
        let next_hop = self.routes.next_hop(dst);
        self.is_own(dst) || next_hop.is_some_and(|next_hop| self.neighbours.knows(next_hop))
    }

    /// A neighbour's hardware address may be wrong: a flow through it gets no answers.
    pub fn doubt(&mut self, now: Nanos, ip: IpAddress) {
        self.neighbours.doubt(now, ip);
    }

    /// The next hop to a destination that was reached once: itself, where there is no route any more, or it is this
    /// host.
    pub fn next_hop(&self, dst: IpAddress) -> IpAddress {
        self.routes.next_hop(dst).filter(|_| !self.is_own(dst)).unwrap_or(dst)
    }

    /// Neighbours, and their hardware addresses where they are known.
    pub fn neighbours(&self) -> Vec<(IpAddress, Option<Mac>)> {
        self.neighbours.list()
    }

    /// Reads a received frame: ARP and echo requests are answered here, the rest is for a transport.
    pub fn receive(&mut self, now: Nanos, frame: &mut Frame, drops: &mut DropCounts) -> Received {
        match packet::read(frame, &self.links) {
            Ok(Outermost::Ip(ip)) if ip.header.protocol == ipv4::ICMP => {
                frame.flatten();
                self.on_icmp(now, &ip, frame, drops)
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

    /// RFC 826, with what keeps strangers from writing into the table: only an answer to a question, or a question to
    /// this host, adds an entry; anything else at most changes one that is there. What comes by one port says nothing
    /// about the neighbours of another.
    fn on_arp(&mut self, now: Nanos, port: usize, packet: &arp_wire::Packet, drops: &mut DropCounts) -> Received {
        let sender = IpAddress::v4(packet.sender_ip);
        // Nobody else has this host's address, and group addresses are no stations.
        if self.is_own(sender) || packet.sender_mac.is_group() || self.is_own_mac(packet.sender_mac) {
            drops.count(DropReason::Ethernet);
            return Received::Done;
        }
        let for_us = self.is_own(packet.target_ip.into());
        let asks = packet.operation == arp_wire::Operation::Request;
        let mut received = Received::Done;
        // A sender without an address probes (RFC 5227): it is answered, not learned.
        if !sender.is_unspecified() && self.port_towards(sender) == port {
            let neighbour = self.routes.next_hop(sender) == Some(sender);
            if let Some(learned) = self.neighbours.learn(now, sender, packet.sender_mac, for_us && asks && neighbour) {
                self.timers.set(sender, learned.due);
                if let Some(queued) = learned.queued {
                    self.send_to(packet.sender_mac, queued);
                }
                received = Received::Neighbour(Neighbour { ip: sender, mac: Some(packet.sender_mac) });
            }
        }
        if for_us && asks {
            if self.arp_answers.take(now) {
                self.answer(port, packet);
            }
        } else if !for_us && !asks {
            drops.count(DropReason::Ethernet);
        }
        received
    }

    /// An ICMP message for this host. The frame is contiguous.
    // Meets RFC 9293: MUST-55.
    fn on_icmp(&mut self, now: Nanos, ip: &Ip, frame: &Frame, drops: &mut DropCounts) -> Received {
        let body = ip.body(frame).unwrap_or_default();
        let data = body.get(icmpv4::HEADER_LEN..).unwrap_or_default();
        match Message::parse(body) {
            Ok(Message::EchoRequest(id, seq)) if ip.unicast => {
                let mtu = self.link_towards(ip.header.src.into()).caps.mtu;
                let fits = ip.body_at + body.len() - ip.at <= mtu as usize;
                if fits && self.icmp.take(now) {
                    self.send_icmp(now, ip, Message::EchoReply(id, seq), data, drops);
                }
                return Received::Done;
            }
            Ok(Message::Unreachable { code, mtu }) => {
                if let Some(quote) = Quote::parse(data).filter(|quote| self.is_own(quote.src.into())) {
                    return Received::Unreachable(Unreachable { code, mtu, quote });
                }
            }
            _ => {}
        }
        drops.count(DropReason::Icmp);
        Received::Done
    }

    /// A packet that no transport takes: dropped, and its sender told that nobody is there (RFC 1122 sections 3.2.2.1
    /// and 3.3.8), within limits, and never about a frame that went to many.
    pub fn refuse(&mut self, now: Nanos, ip: &Ip, frame: &Frame, drops: &mut DropCounts) {
        drops.count(DropReason::Protocol);
        if !ip.unicast || !self.icmp.take(now) {
            return;
        }
        let code = if ip.header.protocol == ipv4::UDP { PORT_UNREACHABLE } else { PROTOCOL_UNREACHABLE };
        let end = (ip.body_at + 8).min(frame.bytes().len());
        let message = Message::Unreachable { code, mtu: 0 };
        self.send_icmp(now, ip, message, &frame.bytes()[ip.at..end], drops);
    }

    /// Answers a packet, from the address that it was sent to.
    fn send_icmp(&mut self, now: Nanos, to: &Ip, message: Message, data: &[u8], drops: &mut DropCounts) {
        let mut body = vec![0; icmpv4::HEADER_LEN + data.len()];
        body[icmpv4::HEADER_LEN..].copy_from_slice(data);
        message.emit(&mut body);
        let packet = Packet::new(to.header.src.into(), ipv4::ICMP, body).with_source(to.header.dst.into());
        self.send(now, packet, drops);
    }

    /// Asks all stations of its link who has an address: ARP, for IPv4.
    fn ask(&mut self, target: IpAddress) {
        let port = self.port_towards(target);
        let Link { mac: sender_mac, address, .. } = self.links[port];
        let (Some(sender_ip), Some(target_ip)) = (address.as_v4(), target.as_v4()) else { return };
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Request,
            sender_mac,
            sender_ip,
            target_mac: Mac::default(),
            target_ip,
        };
        self.outgoing.push(Outgoing::Arp { port, dst: Mac::BROADCAST, packet });
    }

    /// Answers an ARP request for one of this host's addresses, by the port that it came by.
    fn answer(&mut self, port: usize, request: &arp_wire::Packet) {
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Reply,
            sender_mac: self.links[port].mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.outgoing.push(Outgoing::Arp { port, dst: request.sender_mac, packet });
    }

    /// When the next timer of a neighbour is due.
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
        let mut unreachable = false;
        match self.neighbours.expire(now, ip) {
            Expiry::Unused => {}
            Expiry::Ask(again) => {
                self.timers.set(ip, again);
                self.ask(ip);
            }
            Expiry::Unreachable(queued) => {
                unreachable = true;
                if queued.is_some() {
                    drops.count(DropReason::ArpUnresolved);
                }
            }
        }
        Some(Expired { ip, due, unreachable })
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

/// Where [`Net::flush`] puts frames.
pub(crate) struct Flushed<'a> {
    /// To others.
    pub(crate) tx: &'a mut Vec<Box<Frame>>,
    /// To this host itself.
    pub(crate) looped: &'a mut Vec<Box<Frame>>,
}
