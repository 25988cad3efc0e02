//! Neighbor Discovery (RFC 4861): which station has an IPv6 address on a link.
use crate::net::{Net, Received};
use crate::packet::{ALL_NODES, Ip, Packet};
use engine::{DropCounts, DropReason, Nanos};
use std::net::Ipv6Addr;
use wire::icmpv6::{Message, NEIGHBOUR_HOPS, NEIGHBOUR_LEN};
use wire::ip::Ends;
use wire::{IpAddress, Mac, ipv6};

/// The asker, and the address that it asks for.
struct Solicitation {
    target: IpAddress,
    /// The sender's hardware address, where the question names it.
    sender: Option<Mac>,
}

/// Where a message goes: a neighbour, or a group.
struct Station {
    ip: IpAddress,
    mac: Mac,
}

/// An address that a message advertises, with its station.
struct Advertisement {
    target: IpAddress,
    mac: Option<Mac>,
    replaces: bool,
}

impl Net {
    /// A message about neighbours. One that a router forwarded is none (RFC 4861 sections 7.1.1 and 7.1.2).
    pub(crate) fn on_discovery(
        &mut self,
        now: Nanos,
        ip: &Ip,
        message: &Message,
        drops: &mut DropCounts,
    ) -> Option<Received> {
        let zone = self.zone(ip.port);
        let at = |target: Ipv6Addr| IpAddress::v6(target, zone);
        let is_near = ip.header.hop_limit == NEIGHBOUR_HOPS;
        let done = match *message {
            Message::Solicitation { target, sender } => {
                let asked = Solicitation { target: at(target), sender };
                is_near.then(|| self.on_solicitation(now, ip, &asked))
            }
            Message::Advertisement { target, mac, replaces, .. } => {
                let advertised = Advertisement { target: at(target), mac, replaces };
                is_near.then(|| self.on_advertisement(now, ip, &advertised))
            }
            _ => return None,
        };
        let done = done.flatten();
        Some(done.unwrap_or_else(|| {
            drops.count(DropReason::Icmp);
            Received::Done
        }))
    }

    /// RFC 4861 section 7.2.3. `None` where it may not be.
    // Meets RFC 4861: 7.1.1-a, 7.2.3-a, 7.2.4-a.
    fn on_solicitation(&mut self, now: Nanos, ip: &Ip, asked: &Solicitation) -> Option<Received> {
        let (from, is_probe) = (ip.header.src, ip.header.src.is_unspecified());
        // A host without an address asks a group, and names no hardware address (RFC 4861 section 7.1.1).
        if is_probe && (asked.sender.is_some() || !ip.header.dst.is_multicast()) || self.is_own(from) {
            return None;
        }
        // A group that this host is in may ask for another's address.
        if !self.is_of_port(ip.port, asked.target) {
            return Some(Received::Done);
        }
        let mac = asked.sender.unwrap_or(ip.src_mac);
        if mac.is_group() || self.is_own_mac(mac) {
            return None;
        }
        let received = if is_probe { Received::Done } else { self.learn(now, ip.port, from, mac, true) };
        if self.may_answer(now) {
            // A host that probes an address listens as a member of all (RFC 4862 section 5.4.4).
            let all = ALL_NODES.in_zone(self.zone(ip.port));
            let to = if is_probe { Station { ip: all, mac: all.group_station() } } else { Station { ip: from, mac } };
            self.advertise(ip.port, asked.target, &to, !is_probe);
        }
        Some(received)
    }

    /// RFC 4861 section 7.2.5: an answer adds no entry. `None` where it may not be.
    // Meets RFC 4861: 7.1.2-a, 7.2.5-a.
    fn on_advertisement(&mut self, now: Nanos, ip: &Ip, advertised: &Advertisement) -> Option<Received> {
        let mac = advertised.mac.unwrap_or(ip.src_mac);
        // Nobody else has this host's address, and group addresses are no stations.
        if mac.is_group() || self.is_own_mac(mac) || self.is_own(advertised.target) {
            return None;
        }
        let known = self.station(advertised.target);
        if !advertised.replaces && known.is_some_and(|known| known != mac) {
            return Some(Received::Done);
        }
        Some(self.learn(now, ip.port, advertised.target, mac, false))
    }

    /// Asks the stations of a link that may have an address (RFC 4861 section 7.2.2).
    // Meets RFC 4861: 7.2.2-a.
    pub(crate) fn ask_discovery(&mut self, port: usize, target: Ipv6Addr) {
        let link = self.link(port);
        let to = IpAddress::v6(target, self.zone(port));
        let Some(from) = link.source(to) else { return };
        let group = to.solicited_node().in_zone(self.zone(port));
        let message = Message::Solicitation { target, sender: Some(link.mac) };
        self.put_discovery(port, &message, from, &Station { ip: group, mac: group.group_station() });
    }

    fn advertise(&mut self, port: usize, target: IpAddress, to: &Station, solicited: bool) {
        let (mac, bits) = (Some(self.link(port).mac), target.to_bits());
        let message = Message::Advertisement { target: bits.into(), mac, solicited, replaces: true };
        self.put_discovery(port, &message, target, to);
    }

    fn put_discovery(&mut self, port: usize, message: &Message, from: IpAddress, to: &Station) {
        let ends = Ends { src: from, dst: to.ip };
        let packet = Packet::short(to.ip, ipv6::ICMP, NEIGHBOUR_LEN, |body| message.emit(ends, body));
        self.put_packet(port, to.mac, packet.with_source(from).with_hops(NEIGHBOUR_HOPS));
    }
}
