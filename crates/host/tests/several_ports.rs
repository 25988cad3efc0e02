//! A host with two ports, on two networks: peers on both, and neither can claim addresses of the other.
mod support;

use engine::{DropReason, Nanos};
use host::{Host, Link, NeighbourTable, NeighbourTiming, Net, NetConfig, Ports, RouteTable};
use port::{Fabric, FabricConfig, Frame, FramePool, Port, PortDrops};
use std::net::Ipv4Addr;
use support::{Datagrams, Mailbox};
use wire::{EtherType, Mac, arp, ethernet};

const MS: Nanos = 1_000_000;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// The host in the middle, on each side.
const MIDDLE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1)];

struct Station {
    host: Host,
    ports: Ports,
    pool: FramePool,
    rx: Vec<Box<Frame>>,
    tx: Vec<Box<Frame>>,
}

impl Station {
    /// A host with a place in each of these fabrics.
    fn new(places: &[(&Fabric, Ipv4Addr)]) -> Station {
        let (mut ports, mut links) = (Vec::<Box<dyn Port>>::new(), Vec::new());
        for (fabric, address) in places {
            let mac = mac_of(*address);
            let port = fabric.join(&address.to_string(), mac).unwrap();
            links.push(Link { mac, address: (*address).into(), prefix_len: 24, v6: None, caps: port.capabilities() });
            ports.push(Box::new(port));
        }
        let net = Net::new(NetConfig {
            routes: Box::new(RouteTable::new(&links, &[], &[])),
            links,
            neighbours: Box::new(NeighbourTable::new(
                16,
                NeighbourTiming { reachable: 1000 * MS, retry: 100 * MS, tries: 3 },
            )),
            icmp_per_s: 100,
        });
        let ports = Ports::new(ports).unwrap();
        Station { host: Host::new(net), ports, pool: FramePool::new(64), rx: Vec::new(), tx: Vec::new() }
    }

    fn poll(&mut self, now: Nanos) -> usize {
        self.ports.receive(now, 64, &mut self.pool, &mut self.rx);
        let done = self.host.poll(now, &mut self.rx, &mut self.tx, &mut self.pool);
        self.ports.send(now, &mut self.tx, &mut self.pool);
        done
    }

    fn station_of(&self, ip: Ipv4Addr) -> Option<Mac> {
        self.host.net().neighbours().iter().find(|(of, _)| *of == ip).and_then(|(_, mac)| *mac)
    }

    /// Frames that each port has sent.
    fn sent(&self) -> Vec<u64> {
        self.ports.iter().map(|port| port.counters().tx_frames).collect()
    }
}

fn mac_of(address: Ipv4Addr) -> Mac {
    let [_, network, _, host] = address.octets();
    Mac([2, 0, 0, 0, network, host])
}

/// The fabrics, the stations (left, right, middle) and what their transports send and receive.
fn lab() -> ([Fabric; 2], [Station; 3], [Mailbox; 3]) {
    let fabrics = [Fabric::new(FabricConfig::default()), Fabric::new(FabricConfig::default())];
    let [a, b] = &fabrics;
    let places = [vec![(a, LEFT)], vec![(b, RIGHT)], vec![(a, MIDDLE[0]), (b, MIDDLE[1])]];
    let mut stations = places.map(|places| Station::new(&places));
    let mail = [Mailbox::default(), Mailbox::default(), Mailbox::default()];
    for (at, (station, mail)) in stations.iter_mut().zip(&mail).enumerate() {
        let (port, echoes) = if at == 2 { (4791, true) } else { (7000, false) };
        station.host.add(Box::new(Datagrams { port, echoes, mail: mail.clone() })).unwrap();
    }
    (fabrics, stations, mail)
}

fn settle(now: Nanos, stations: &mut [Station]) {
    for _ in 0..100 {
        if stations.iter_mut().map(|station| station.poll(now)).sum::<usize>() == 0 {
            return;
        }
    }
    panic!("the hosts do not come to rest");
}

#[test]
fn peers_on_both_networks_are_reached_by_their_ports() {
    let (_fabrics, mut stations, [left, right, middle]) = lab();
    left.send(MIDDLE[0], 4791, b"from the left");
    right.send(MIDDLE[1], 4791, b"from the right");
    settle(MS, &mut stations);
    assert_eq!(left.take(), [(MIDDLE[0], 4791, b"from the left".to_vec())], "answered from the address that was asked");
    assert_eq!(right.take(), [(MIDDLE[1], 4791, b"from the right".to_vec())]);
    // Each port: an answer to ARP, and one datagram.
    assert_eq!(stations[2].sent(), [2, 2]);
    middle.send(LEFT, 7000, b"to the left");
    middle.send(RIGHT, 7000, b"to the right");
    settle(2 * MS, &mut stations);
    assert_eq!(left.take(), [(MIDDLE[0], 4791, b"to the left".to_vec())]);
    assert_eq!(right.take(), [(MIDDLE[1], 4791, b"to the right".to_vec())]);
    assert_eq!(
        (stations[2].station_of(LEFT), stations[2].station_of(RIGHT)),
        (Some(mac_of(LEFT)), Some(mac_of(RIGHT)))
    );
}

#[test]
fn a_station_cannot_speak_for_those_of_the_other_network() {
    let ([left_fabric, _], mut stations, [_, right, middle]) = lab();
    right.send(MIDDLE[1], 4791, b"before");
    settle(MS, &mut stations);
    let mut liar = left_fabric.join("liar", Mac([2, 9, 9, 9, 9, 9])).unwrap();
    let (mut pool, foreign_station) = (FramePool::new(4), Mac([2, 9, 9, 9, 9, 9]));
    for operation in [arp::Operation::Request, arp::Operation::Reply] {
        let (dst, target_mac) = (mac_of(MIDDLE[0]), mac_of(MIDDLE[0]));
        let (sender_ip, target_ip) = (RIGHT, MIDDLE[0]);
        let packet = arp::Packet { operation, sender_mac: foreign_station, sender_ip, target_mac, target_ip };
        let mut frame = pool.small();
        frame.resize(ethernet::HEADER_LEN + arp::LEN);
        ethernet::Header { dst, src: foreign_station, ethertype: EtherType::Arp }.emit(frame.bytes_mut());
        packet.emit(&mut frame.bytes_mut()[ethernet::HEADER_LEN..]);
        liar.send(MS, &mut vec![frame], &mut pool, &mut PortDrops::default());
    }
    settle(2 * MS, &mut stations);
    assert_eq!(stations[2].station_of(RIGHT), Some(mac_of(RIGHT)), "what comes by the left port is ignored");
    right.take();
    middle.send(RIGHT, 7000, b"after");
    settle(3 * MS, &mut stations);
    assert_eq!(right.take(), [(MIDDLE[1], 4791, b"after".to_vec())]);
}

#[test]
fn without_a_route_nothing_leaves_by_any_port() {
    let (_fabrics, mut stations, [_, _, middle]) = lab();
    middle.send(Ipv4Addr::new(10, 3, 0, 1), 7000, b"nowhere");
    settle(MS, &mut stations);
    assert_eq!(stations[2].sent(), [0, 0]);
    assert_eq!(stations[2].host.drops().get(DropReason::NoRoute), 1);
}

#[test]
fn ports_of_one_hardware_address_are_refused_in_a_sentence() {
    let fabrics = [Fabric::new(FabricConfig::default()), Fabric::new(FabricConfig::default())];
    let port = |fabric: &Fabric| Box::new(fabric.join("twin", mac_of(LEFT)).unwrap()) as Box<dyn Port>;
    let sentence = Ports::new(fabrics.iter().map(port).collect()).err().expect("it is refused");
    assert!(sentence.contains("one hardware address, 02:00:00:00:01:02: give one of them a `mac`"), "{sentence}");
    let sentence = Ports::new(Vec::new()).err().expect("it is refused");
    assert_eq!(sentence, "a host has 1 to 16 ports, and this one 0");
}
