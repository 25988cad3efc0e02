//! Below TCP: addresses, routes, ARP, and building and reading packets.
mod arp;
mod packet;

pub(crate) use arp::{Arp, ArpTiming, Expiry};
pub(crate) use packet::{Body, Ip, Packet, Received, drop_reason, read_ip, read_segment};

use crate::route::Routes;
use crate::timers::{Timer, Timers};
use engine::{DropCounts, DropReason, Exception, Nanos};
use packet::Outgoing;
use port::{Frame, FramePool};
use std::net::Ipv4Addr;
use wire::{Mac, arp as arp_wire};

/// The host's place in the network, with the packets that wait to be sent.
pub(crate) struct Net {
    pub mac: Mac,
    pub address: Ipv4Addr,
    pub routes: Routes,
    pub arp: Arp,
    pub mtu: u16,
    outgoing: Vec<Outgoing>,
}

impl Net {
    pub fn new(mac: Mac, address: Ipv4Addr, mtu: u16, routes: Routes, arp: Arp) -> Net {
        Net { mac, address, routes, arp, mtu, outgoing: Vec::new() }
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
                if !self.arp.queue(next_hop, packet) {
                    drops.count(DropReason::ArpUnresolved);
                }
            }
        }
    }

    /// The hardware address of a neighbour, asking for it where it is not known or too old.
    pub fn resolve(&mut self, now: Nanos, ip: Ipv4Addr, timers: &mut Timers) -> Option<Mac> {
        if ip == self.address {
            return Some(self.mac);
        }
        let found = self.arp.look_up(now, ip);
        if let Some(due) = found.ask_until {
            timers.set(Timer::Arp(ip), due);
            self.ask(ip);
        }
        found.mac
    }

    /// A packet to `dst` would leave now; otherwise its next hop is asked for.
    pub fn reaches(&mut self, now: Nanos, dst: Ipv4Addr, timers: &mut Timers) -> bool {
        let next_hop = if dst == self.address { Some(dst) } else { self.routes.next_hop(dst) };
        next_hop.is_some_and(|next_hop| self.resolve(now, next_hop, timers).is_some())
    }

    /// The hardware address of the next hop to `dst` is known. Nothing is asked.
    pub fn knows(&self, dst: Ipv4Addr) -> bool {
        let next_hop = self.routes.next_hop(dst);
        dst == self.address || next_hop.is_some_and(|next_hop| self.arp.knows(next_hop))
    }

    /// Broadcasts an ARP request.
    pub fn ask(&mut self, target_ip: Ipv4Addr) {
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Request,
            sender_mac: self.mac,
            sender_ip: self.address,
            target_mac: Mac::default(),
            target_ip,
        };
        self.outgoing.push(Outgoing::Arp { dst: Mac::BROADCAST, packet });
    }

    /// Answers an ARP request for this host's address.
    pub fn answer(&mut self, request: &arp_wire::Packet) {
        let packet = arp_wire::Packet {
            operation: arp_wire::Operation::Reply,
            sender_mac: self.mac,
            sender_ip: self.address,
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
    pub fn flush(&mut self, pool: &mut FramePool, tx: &mut Vec<Box<Frame>>, looped: &mut Vec<(Exception, Box<Frame>)>) {
        for outgoing in self.outgoing.drain(..) {
            let to_self = outgoing.dst() == Some(self.mac);
            let frame = packet::build(self.mac, self.address, outgoing, pool);
            if to_self { looped.push((Exception::NoFlow, frame)) } else { tx.push(frame) }
        }
    }
}
