//! The network layer of a host: its address, routes, neighbours and ICMP, and the packets that wait to be sent.
use crate::arp::{Expiry, Neighbours};
use crate::budget::Budget;
use crate::deadlines::Deadlines;
use crate::icmp::{Quote, Unreachable};
use crate::packet::{self, Ip, Outermost, Outgoing, Packet};
use crate::path_mtu::PathMtus;
use crate::route::Routes;
use engine::{DropCounts, DropReason, Exception, Nanos};
use port::{Frame, FramePool};
use wire::icmpv4::{self, Message, PORT_UNREACHABLE};
use wire::{IpAddress, Mac, arp as arp_wire, ipv4};

/// Protocol number of UDP.
const UDP: u8 = 17;
/// Code of "destination unreachable" for a protocol that the host does not speak.
const PROTOCOL_UNREACHABLE: u8 = 2;

/// The host's place in the network.
pub struct NetConfig {
    /// Its hardware address.
    pub mac: Mac,
    /// Its address.
    pub address: IpAddress,
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// What is reached, and through whom.
    pub routes: Box<dyn Routes>,
    /// The stations on its link.
    pub neighbours: Box<dyn Neighbours>,
    /// Most ICMP messages a second, and as many ARP answers.
    pub icmp_per_s: u32,
}

/// The network layer. All transports of a host send through it and share what it has learned.
pub struct Net {
    /// The host's hardware address.
    pub mac: Mac,
    /// The host's address.
    pub address: IpAddress,
    /// What is reached, and through whom.
    pub routes: Box<dyn Routes>,
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// Less than that towards some destinations.
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
    Neighbour(IpAddress, Mac),
    /// A packet for a transport.
    Packet(Ip),
    /// An error message about a packet that a transport sent.
    Unreachable(Unreachable),
}

/// The timer of a neighbour fired.
pub struct Expired {
    /// Its address.
    pub ip: IpAddress,
    /// When it was due.
    pub due: Nanos,
    /// It does not answer: whoever waits for it waits in vain.
    pub unreachable: bool,
}

impl Net {
    /// The network layer of a host that has sent and received nothing.
    pub fn new(config: NetConfig) -> Net {
        let NetConfig { mac, address, mtu, routes, neighbours, icmp_per_s } = config;
        Net {
            mac,
            address,
            routes,
            mtu,
            path_mtus: PathMtus::default(),
            neighbours,
            timers: Deadlines::default(),
            outgoing: Vec::new(),
            icmp: Budget::new(icmp_per_s),
            arp_answers: Budget::new(icmp_per_s),
        }
    }

    /// Sends a packet: at once where the next hop's hardware address is known, else when it answers.
    pub fn send(&mut self, now: Nanos, packet: Packet, drops: &mut DropCounts) {
        if packet.dst == self.address {
            return self.outgoing.push(Outgoing::Ip { dst: self.mac, packet });
        }
        let Some(next_hop) = self.routes.next_hop(packet.dst) else {
            return drops.count(DropReason::NoRoute);
        };
        match self.resolve(now, next_hop) {
            Some(dst) => self.outgoing.push(Outgoing::Ip { dst, packet }),
            None => {
                if !self.neighbours.queue(next_hop, packet) {
                    drops.count(DropReason::ArpUnresolved);
                }
            }
        }
    }

    /// Sends a packet to a neighbour whose hardware address is known.
    pub fn send_to(&mut self, dst: Mac, packet: Packet) {
        self.outgoing.push(Outgoing::Ip { dst, packet });
    }

    /// Sends a frame of others on, as it is.
    pub fn forward(&mut self, frame: Box<Frame>) {
        self.outgoing.push(Outgoing::Frame(frame));
    }

    /// The hardware address of a neighbour, asking for it where it is not known or too old.
    pub fn resolve(&mut self, now: Nanos, ip: IpAddress) -> Option<Mac> {
        if ip == self.address {
            return Some(self.mac);
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
        let next_hop = if dst == self.address { Some(dst) } else { self.routes.next_hop(dst) };
        next_hop.is_some_and(|next_hop| self.resolve(now, next_hop).is_some())
    }

    /// The hardware address of the next hop to `dst` is known. Nothing is asked.
    pub fn knows(&self, dst: IpAddress) -> bool {
        let next_hop = self.routes.next_hop(dst);
        dst == self.address || next_hop.is_some_and(|next_hop| self.neighbours.knows(next_hop))
    }

    /// A neighbour's hardware address may be wrong: a flow through it gets no answers.
    pub fn doubt(&mut self, now: Nanos, ip: IpAddress) {
        self.neighbours.doubt(now, ip);
    }

    /// The next hop to a destination that was reached once: itself, where there is no route any more.
    pub fn next_hop(&self, dst: IpAddress) -> IpAddress {
        self.routes.next_hop(dst).unwrap_or(dst)
    }

    /// Neighbours, and their hardware addresses where they are known.
    pub fn neighbours(&self) -> Vec<(IpAddress, Option<Mac>)> {
        self.neighbours.list()
    }

    /// Reads a received frame: ARP and echo requests are answered here, the rest is for a transport.
    pub fn receive(&mut self, now: Nanos, frame: &mut Frame, drops: &mut DropCounts) -> Received {
        match packet::read(frame, self.mac, self.address) {
            Ok(Outermost::Ip(ip)) if ip.header.protocol == ipv4::ICMP => {
                frame.flatten();
                self.on_icmp(now, &ip, frame, drops)
            }
            Ok(Outermost::Ip(ip)) => Received::Packet(ip),
            Ok(Outermost::Arp(packet)) => self.on_arp(now, &packet, drops),
            Err(reason) => {
                drops.count(reason);
                Received::Done
            }
        }
    }

    /// RFC 826, with what keeps strangers from writing into the table: only an answer to a question, or a question to
    /// this host, adds an entry; anything else at most changes one that is there.
    fn on_arp(&mut self, now: Nanos, packet: &arp_wire::Packet, drops: &mut DropCounts) -> Received {
        let sender = IpAddress::v4(packet.sender_ip);
        // Nobody else has this host's address, and group addresses are no stations.
        if sender == self.address || packet.sender_mac.is_group() || packet.sender_mac == self.mac {
            drops.count(DropReason::Ethernet);
            return Received::Done;
        }
        let for_us = self.address == packet.target_ip;
        let asks = packet.operation == arp_wire::Operation::Request;
        let mut received = Received::Done;
        // A sender without an address probes (RFC 5227): it is answered, not learned.
        if !sender.is_unspecified() {
            let neighbour = self.routes.next_hop(sender) == Some(sender);
            if let Some(learned) = self.neighbours.learn(now, sender, packet.sender_mac, for_us && asks && neighbour) {
                self.timers.set(sender, learned.due);
                if let Some(queued) = learned.queued {
                    self.send_to(packet.sender_mac, queued);
                }
                received = Received::Neighbour(sender, packet.sender_mac);
            }
        }
        if for_us && asks {
            if self.arp_answers.take(now) {
                self.answer(packet);
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
                let fits = ip.body_at + body.len() - ip.at <= self.mtu as usize;
                if fits && self.icmp.take(now) {
                    self.send_icmp(now, ip.header.src.into(), Message::EchoReply(id, seq), data, drops);
                }
                return Received::Done;
            }
            Ok(Message::Unreachable { code, mtu }) => {
                if let Some(quote) = Quote::parse(data).filter(|quote| self.address == quote.src) {
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
        let code = if ip.header.protocol == UDP { PORT_UNREACHABLE } else { PROTOCOL_UNREACHABLE };
        let end = (ip.body_at + 8).min(frame.bytes().len());
        let message = Message::Unreachable { code, mtu: 0 };
        self.send_icmp(now, ip.header.src.into(), message, &frame.bytes()[ip.at..end], drops);
    }

    fn send_icmp(&mut self, now: Nanos, dst: IpAddress, message: Message, data: &[u8], drops: &mut DropCounts) {
        let mut body = vec![0; icmpv4::HEADER_LEN + data.len()];
        body[icmpv4::HEADER_LEN..].copy_from_slice(data);
        message.emit(&mut body);
        self.send(now, Packet::new(dst, ipv4::ICMP, body), drops);
    }

    /// Asks all stations who has an address: ARP, for IPv4.
    fn ask(&mut self, target: IpAddress) {
        let (Some(sender_ip), Some(target_ip)) = (self.address.as_v4(), target.as_v4()) else { return };
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Request,
            sender_mac: self.mac,
            sender_ip,
            target_mac: Mac::default(),
            target_ip,
        };
        self.outgoing.push(Outgoing::Arp { dst: Mac::BROADCAST, packet });
    }

    /// Answers an ARP request for this host's address.
    fn answer(&mut self, request: &arp_wire::Packet) {
        let Some(sender_ip) = self.address.as_v4() else { return };
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Reply,
            sender_mac: self.mac,
            sender_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.outgoing.push(Outgoing::Arp { dst: request.sender_mac, packet });
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
    pub fn expire(&mut self, now: Nanos, drops: &mut DropCounts) -> Option<Expired> {
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
    pub fn flush(&mut self, pool: &mut FramePool, drops: &mut DropCounts, out: &mut Flushed<'_>) {
        for outgoing in self.outgoing.drain(..) {
            let to_self = outgoing.dst() == Some(self.mac);
            match packet::build(self.mac, self.address, outgoing, pool) {
                Ok(frame) if to_self => out.looped.push((Exception::NoFlow, frame)),
                Ok(frame) => out.tx.push(frame),
                Err(reason) => drops.count(reason),
            }
        }
    }
}

/// Where [`Net::flush`] puts frames.
pub struct Flushed<'a> {
    /// To others.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// To this host itself.
    pub looped: &'a mut Vec<(Exception, Box<Frame>)>,
}
