//! Below TCP: addresses, routes, ARP, and building and reading packets.
mod arp;
mod packet;
mod path_mtu;

pub(crate) use arp::{Arp, ArpTiming, Expiry, Neighbours};
pub(crate) use packet::{Body, Ip, Packet, Received, drop_reason, read_ip, read_segment};

use crate::route::Routes;
use crate::timers::{Timer, Timers};
use ::tcp::Agreed;
use engine::{DropCounts, DropReason, Exception, Nanos};
use packet::Outgoing;
use path_mtu::PathMtus;
use port::{Frame, FramePool};
use wire::{IpAddress, Mac, arp as arp_wire, ipv4, tcp};

/// The host's place in the network, with the packets that wait to be sent.
pub(crate) struct Net {
    pub mac: Mac,
    pub address: IpAddress,
    pub routes: Box<dyn Routes>,
    pub neighbours: Box<dyn Neighbours>,
    pub mtu: u16,
    pub path_mtus: PathMtus,
    outgoing: Vec<Outgoing>,
}

/// Where [`Net::flush`] puts frames.
pub(crate) struct Flushed<'a> {
    /// To others.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// To this host itself.
    pub looped: &'a mut Vec<(Exception, Box<Frame>)>,
}

/// Payload bytes of a full segment in an IP packet of so many bytes.
pub(crate) fn mss_of(mtu: u16, agreed: &Agreed) -> u16 {
    let options = if agreed.timestamps { tcp::TIMESTAMPS_LEN } else { 0 };
    mtu.saturating_sub((ipv4::HEADER_LEN + tcp::HEADER_LEN + options) as u16)
}

impl Net {
    pub fn new(
        mac: Mac,
        address: IpAddress,
        mtu: u16,
        routes: impl Routes + 'static,
        neighbours: impl Neighbours + 'static,
    ) -> Net {
        let (routes, neighbours) = (Box::new(routes), Box::new(neighbours));
        Net { mac, address, routes, neighbours, mtu, path_mtus: PathMtus::default(), outgoing: Vec::new() }
    }

    /// Payload bytes of a full segment to a destination, for a connection that begins: what both ends agreed on, less
    /// where the path is known to carry less.
    pub fn mss_towards(&self, now: Nanos, dst: IpAddress, agreed: &Agreed) -> u16 {
        let known = self.path_mtus.get(now, dst).map(|mtu| mss_of(mtu, agreed));
        known.map_or(agreed.mss, |mss| agreed.mss.min(mss))
    }

    /// Sends a packet: at once where the next hop's hardware address is known, else when it answers.
    pub fn send(&mut self, now: Nanos, packet: Packet, timers: &mut Timers, drops: &mut DropCounts) {
        if packet.dst == self.address {
            return self.outgoing.push(Outgoing::Ip { dst: self.mac, packet });
        }
        let Some(next_hop) = self.routes.next_hop(packet.dst) else {
            return drops.count(DropReason::NoRoute);
        };
        match self.resolve(now, next_hop, timers) {
            Some(dst) => self.outgoing.push(Outgoing::Ip { dst, packet }),
            None => {
                if !self.neighbours.queue(next_hop, packet) {
                    drops.count(DropReason::ArpUnresolved);
                }
            }
        }
    }

    /// The hardware address of a neighbour, asking for it where it is not known or too old.
    pub fn resolve(&mut self, now: Nanos, ip: IpAddress, timers: &mut Timers) -> Option<Mac> {
        if ip == self.address {
            return Some(self.mac);
        }
        let found = self.neighbours.look_up(now, ip);
        if let Some(due) = found.ask_until {
            timers.set(Timer::Neighbour(ip), due);
            self.ask(ip);
        }
        found.mac
    }

    /// A packet to `dst` would leave now; otherwise its next hop is asked for.
    pub fn reaches(&mut self, now: Nanos, dst: IpAddress, timers: &mut Timers) -> bool {
        let next_hop = if dst == self.address { Some(dst) } else { self.routes.next_hop(dst) };
        next_hop.is_some_and(|next_hop| self.resolve(now, next_hop, timers).is_some())
    }

    /// The next hop to a destination that was reached once: itself, where there is no route any more.
    pub fn next_hop(&self, dst: IpAddress) -> IpAddress {
        self.routes.next_hop(dst).unwrap_or(dst)
    }

    /// The hardware address of the next hop to `dst` is known. Nothing is asked.
    pub fn knows(&self, dst: IpAddress) -> bool {
        let next_hop = self.routes.next_hop(dst);
        dst == self.address || next_hop.is_some_and(|next_hop| self.neighbours.knows(next_hop))
    }

    /// Asks all stations who has an address: ARP, for IPv4.
    pub fn ask(&mut self, target: IpAddress) {
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
    pub fn answer(&mut self, request: &arp_wire::Packet) {
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

    /// Sends a packet to a neighbour whose hardware address is known.
    pub fn send_to(&mut self, dst: Mac, packet: Packet) {
        self.outgoing.push(Outgoing::Ip { dst, packet });
    }

    /// Sends a frame of others on, as it is.
    pub fn forward(&mut self, frame: Box<Frame>) {
        self.outgoing.push(Outgoing::Frame(frame));
    }

    /// Packets wait to be built.
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
