//! ARP (RFC 826): which station has an IPv4 address on a link.
use crate::link::Link;
use crate::net::{Net, Received};
use crate::packet::Outgoing;
use engine::{DropCounts, DropReason, Nanos};
use std::net::Ipv4Addr;
use wire::arp::{Operation, Packet};
use wire::{IpAddress, Mac};

impl Net {
    /// RFC 826, with what keeps unknown peers from writing into the table. Only an answer to a question, or a question
    /// to this host, adds an entry. Anything else at most changes one that is there. What comes by one port has no
    /// bearing on the neighbours of another.
    pub(crate) fn on_arp(&mut self, now: Nanos, port: usize, packet: &Packet, drops: &mut DropCounts) -> Received {
        let sender = IpAddress::v4(packet.sender_ip);
        // Nobody else has this host's address, and group addresses are no stations.
        if self.is_own(sender) || packet.sender_mac.is_group() || self.is_own_mac(packet.sender_mac) {
            drops.count(DropReason::Ethernet);
            return Received::Done;
        }
        let for_us = self.is_own(packet.target_ip.into());
        let asks = packet.operation == Operation::Request;
        // A sender without an address probes (RFC 5227): it is answered, not learned.
        let received = match sender.is_unspecified() {
            true => Received::Done,
            false => self.learn(now, port, sender, packet.sender_mac, for_us && asks),
        };
        if for_us && asks {
            if self.may_answer(now) {
                self.answer_arp(port, packet);
            }
        } else if !for_us && !asks {
            drops.count(DropReason::Ethernet);
        }
        received
    }

    /// Asks all stations of a link which one has an address.
    pub(crate) fn ask_arp(&mut self, port: usize, target_ip: Ipv4Addr) {
        let Link { mac: sender_mac, address, .. } = self.link(port);
        let Some(sender_ip) = address.as_v4() else { return };
        let (operation, target_mac) = (Operation::Request, Mac::default());
        let packet = Packet { operation, sender_mac, sender_ip, target_mac, target_ip };
        self.put(Outgoing::Arp { port, dst: Mac::BROADCAST, packet });
    }

    /// Answers a request for one of this host's addresses, by the port that it came by.
    fn answer_arp(&mut self, port: usize, request: &Packet) {
        let packet = Packet {
            operation: Operation::Reply,
            sender_mac: self.link(port).mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.put(Outgoing::Arp { port, dst: request.sender_mac, packet });
    }
}
