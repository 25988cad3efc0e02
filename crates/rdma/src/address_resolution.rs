//! Ways to peers: from address vectors to the hardware addresses of next hops.
//!
//! A destination that somebody uses is resolved by the host's network layer, which asks for it where it is not known.
//! While the device sends, known ones are resolved again once a second, so that a neighbour that moved is found.
use crate::failure::Failure;
use crate::gid;
use engine::Nanos;
use host::Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use verbs::AddressVector;
use wire::roce::Path;
use wire::{IpAddress, Mac};

/// Between two checks of known destinations, while something is sent.
const CHECK_INTERVAL: Nanos = 1_000_000_000;
/// Hops, where a program leaves it to the host.
const HOP_LIMIT: u8 = 64;
/// The same for multicast: it stays in its network (RFC 1112 section 6.1).
const GROUP_HOP_LIMIT: u8 = 1;
/// UDP source ports are from here on (IBTA A17.3.1.1).
const FIRST_PORT: u16 = 0xc000;

/// What is known of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Its next hop answers.
    Known,
    /// Its next hop has been asked.
    Asked,
    /// There is no route.
    NoRoute,
}

struct Destination {
    reach: Reach,
    mac: Mac,
    users: u32,
}

/// The destinations in use.
#[derive(Default)]
pub(crate) struct AddressResolution {
    destinations: BTreeMap<Ipv4Addr, Destination>,
    /// Some are not known.
    waiting: bool,
    checked_at: Nanos,
    /// A neighbour has changed.
    changed: bool,
    /// Somebody else finds the ways: all are known, and hardware addresses mean nothing.
    elsewhere: bool,
}

impl AddressResolution {
    /// Of a device over streams: whoever carries them finds the ways.
    pub(crate) fn elsewhere() -> AddressResolution {
        AddressResolution { elsewhere: true, ..AddressResolution::default() }
    }

    /// One more uses a destination.
    pub(crate) fn add(&mut self, remote: Ipv4Addr) {
        let fresh = Destination { reach: Reach::Asked, mac: Mac::default(), users: 0 };
        let destination = self.destinations.entry(remote).or_insert(fresh);
        destination.users += 1;
        self.waiting |= destination.reach != Reach::Known;
    }

    /// One uses it no longer.
    pub(crate) fn remove(&mut self, remote: Ipv4Addr) {
        if let Some(destination) = self.destinations.get_mut(&remote) {
            destination.users -= 1;
            if destination.users == 0 {
                self.destinations.remove(&remote);
            }
        }
    }

    /// A neighbour has changed: all are checked again.
    pub(crate) fn check_again(&mut self) {
        self.changed = true;
    }

    pub(crate) fn reach(&self, remote: Ipv4Addr) -> Reach {
        match self.destinations.get(&remote) {
            _ if self.elsewhere => Reach::Known,
            known => known.map_or(Reach::Asked, |destination| destination.reach),
        }
    }

    /// The hardware address of its next hop, where it is known.
    pub(crate) fn mac(&self, remote: Ipv4Addr) -> Option<Mac> {
        if self.elsewhere {
            return Some(Mac::default());
        }
        let destination = self.destinations.get(&remote)?;
        (destination.reach == Reach::Known).then_some(destination.mac)
    }

    /// Resolves what is not known; while something is sent, checks the others from time to time. Returns those whose
    /// next hop has another hardware address than before.
    pub(crate) fn poll(&mut self, now: Nanos, sending: bool, net: &mut Net) -> Vec<Ipv4Addr> {
        let all = std::mem::take(&mut self.changed) || (sending && now >= self.checked_at + CHECK_INTERVAL);
        if !self.waiting && !all {
            return Vec::new();
        }
        if all {
            self.checked_at = now;
        }
        let mut changed = Vec::new();
        for (remote, destination) in &mut self.destinations {
            if destination.reach != Reach::Known || all {
                changed.extend(destination.resolve(now, *remote, net).then_some(*remote));
            }
        }
        // Without a route there is nothing to wait for; the next request checks again.
        self.waiting = self.destinations.values().any(|destination| destination.reach == Reach::Asked);
        changed
    }
}

impl Destination {
    /// Returns whether its hardware address is another one than before.
    fn resolve(&mut self, now: Nanos, remote: Ipv4Addr, net: &mut Net) -> bool {
        if remote.is_multicast() {
            let known = std::mem::replace(&mut self.reach, Reach::Known) == Reach::Known;
            self.mac = IpAddress::from(remote).group_station();
            return !known;
        }
        let remote = remote.into();
        let next_hop = if net.is_own(remote) { Some(remote) } else { net.routes.next_hop(remote) };
        let Some(next_hop) = next_hop else {
            // What was known serves until there is a route again.
            if self.reach == Reach::Asked {
                self.reach = Reach::NoRoute;
            }
            return false;
        };
        match net.resolve(now, next_hop) {
            Some(mac) => {
                let known = self.reach == Reach::Known && self.mac == mac;
                (self.reach, self.mac) = (Reach::Known, mac);
                !known
            }
            None => {
                if self.reach == Reach::NoRoute {
                    self.reach = Reach::Asked;
                }
                false
            }
        }
    }
}

/// The destination of an address vector.
///
/// # Errors
/// EINVAL: the index is that of no GID, or the two GIDs are not both IPv4 addresses: other ones are not carried.
pub(crate) fn remote_of(vector: &AddressVector, gids: usize) -> Result<Ipv4Addr, Failure> {
    if usize::from(vector.gid_index) >= gids {
        return Err(Failure::invalid(format!("sgid_index {} is none of the port's {gids} GIDs", vector.gid_index)));
    }
    let remote = gid::address_of(vector.gid).as_v4();
    match remote.filter(|remote| !remote.is_unspecified() && !remote.is_broadcast()) {
        Some(remote) if vector.gid_index != gid::LINK_LOCAL => Ok(remote),
        _ => Err(Failure::invalid(
            "only paths between IPv4 addresses are carried: use GID index 1 and the peer's IPv4-mapped GID",
        )),
    }
}

/// An end of a way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Station {
    pub(crate) mac: Mac,
    pub(crate) address: Ipv4Addr,
}

/// The way of an address vector. `spread` chooses the UDP source port where the vector has no flow label.
// Meets IBTA: A17.3.1-b.
pub(crate) fn path(local: Station, remote: Station, vector: &AddressVector, spread: u32) -> Path {
    let label = if vector.flow_label == 0 { spread } else { vector.flow_label };
    // All bits of the label count (as Linux folds it, IBTA A17.3.1.1 leaves it open).
    let folded = (label ^ label >> 14) as u16 & !FIRST_PORT;
    Path {
        local_mac: local.mac,
        remote_mac: remote.mac,
        local: local.address,
        remote: remote.address,
        hop_limit: match vector.hop_limit {
            0 if remote.address.is_multicast() => GROUP_HOP_LIMIT,
            0 => HOP_LIMIT,
            given => given,
        },
        traffic_class: vector.traffic_class,
        source_port: FIRST_PORT | folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::DropCounts;
    use host::{Link, NeighbourTable, NeighbourTiming, NetConfig, Received, RouteTable};
    use port::{Capabilities, Frame, FramePool};
    use verbs::Gid;
    use wire::{EtherType, IpAddress, arp, ethernet};

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn net() -> Net {
        let timing = NeighbourTiming { reachable: 60 * CHECK_INTERVAL, retry: CHECK_INTERVAL, tries: 3 };
        let caps = Capabilities { mtu: 1500, super_segment: 0, checksum: false };
        let link = Link { mac: MAC, address: OWN.into(), prefix_len: 24, v6: None, caps };
        Net::new(NetConfig {
            routes: Box::new(RouteTable::new(&[link], &[], &[])),
            links: vec![link],
            neighbours: Box::new(NeighbourTable::new(16, timing)),
            icmp_per_s: 100,
        })
    }

    /// The peer announces its station.
    fn answer(net: &mut Net, mac: Mac) {
        let packet = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: mac,
            sender_ip: PEER,
            target_mac: MAC,
            target_ip: OWN,
        };
        let mut frame: Box<Frame> = FramePool::new(1).small();
        frame.resize(ethernet::HEADER_LEN + arp::LEN);
        ethernet::Header { dst: MAC, src: mac, ethertype: EtherType::Arp }.emit(frame.bytes_mut());
        packet.emit(&mut frame.bytes_mut()[ethernet::HEADER_LEN..]);
        let received = net.receive(0, &mut frame, &mut DropCounts::default());
        assert!(matches!(received, Received::Neighbour(_)));
    }

    fn vector(remote: Ipv4Addr, gid_index: u8) -> AddressVector {
        AddressVector { gid: Gid(IpAddress::v4(remote).to_bits().to_be_bytes()), gid_index, ..AddressVector::default() }
    }

    #[test]
    fn a_destination_is_asked_for_known_and_followed_when_it_moves() {
        let (mut resolution, mut net) = (AddressResolution::default(), net());
        resolution.add(PEER);
        assert!(resolution.poll(0, false, &mut net).is_empty() && resolution.reach(PEER) == Reach::Asked);
        assert_eq!(resolution.mac(PEER), None);
        answer(&mut net, Mac([2, 0, 0, 0, 0, 7]));
        assert_eq!(resolution.poll(1, false, &mut net), [PEER]);
        assert_eq!((resolution.reach(PEER), resolution.mac(PEER)), (Reach::Known, Some(Mac([2, 0, 0, 0, 0, 7]))));
        // It moves: found when the host reports it, or by itself while something is sent.
        answer(&mut net, Mac([2, 0, 0, 0, 0, 8]));
        assert!(resolution.poll(2, false, &mut net).is_empty());
        resolution.check_again();
        assert_eq!(resolution.poll(3, false, &mut net), [PEER]);
        answer(&mut net, Mac([2, 0, 0, 0, 0, 9]));
        assert_eq!(resolution.poll(4 + CHECK_INTERVAL, true, &mut net), [PEER]);
        assert!(resolution.poll(5 + CHECK_INTERVAL, true, &mut net).is_empty());
    }

    #[test]
    fn a_destination_stays_as_long_as_it_is_used() {
        let (mut resolution, mut net, far) = (AddressResolution::default(), net(), Ipv4Addr::new(10, 9, 9, 9));
        (0..2).for_each(|_| resolution.add(far));
        resolution.poll(0, false, &mut net);
        assert_eq!((resolution.reach(far), resolution.waiting), (Reach::NoRoute, false));
        resolution.remove(far);
        assert_eq!(resolution.reach(far), Reach::NoRoute);
        resolution.remove(far);
        assert!(resolution.destinations.is_empty());
        resolution.add(OWN);
        assert_eq!(resolution.poll(0, false, &mut net), [OWN]);
        assert_eq!(resolution.mac(OWN), Some(MAC), "the host itself");
    }

    #[test]
    fn only_ways_between_ipv4_addresses_are_carried() {
        assert_eq!(remote_of(&vector(PEER, 1), 2).unwrap(), PEER);
        for (remote, index) in [(PEER, 0), (PEER, 2), (Ipv4Addr::UNSPECIFIED, 1), (Ipv4Addr::BROADCAST, 1)] {
            assert_eq!(remote_of(&vector(remote, index), 2).unwrap_err().errno, libc::EINVAL);
        }
        let local = AddressVector { gid: Gid([0xfe; 16]), gid_index: 1, ..AddressVector::default() };
        assert!(remote_of(&local, 2).is_err());
    }

    // Checks IBTA: A17.3.1-b.
    #[test]
    fn ports_spread_queue_pairs_and_stay_in_their_range() {
        let station = |address| Station { mac: MAC, address };
        let port = |flow_label, spread| {
            let vector = AddressVector { flow_label, ..vector(PEER, 1) };
            path(station(OWN), station(PEER), &vector, spread).source_port
        };
        let ports: std::collections::HashSet<u16> = (0..1000).map(|spread| port(0, spread << 8)).collect();
        assert!(ports.len() > 500 && ports.iter().all(|port| *port >= FIRST_PORT), "{}", ports.len());
        assert_eq!(port(0xf_ffff, 1), port(0xf_ffff, 2));
    }
}
