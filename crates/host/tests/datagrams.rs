//! A host without TCP: a toy transport of datagrams, over the fabric.
mod support;

use engine::{DropReason, Nanos};
use host::{Claim, Host, Io, Link, NeighbourTable, NeighbourTiming, Net, NetConfig, RouteTable, Transport};
use port::{Fabric, FabricConfig, FabricPort, Frame, FramePool, Port, PortDrops};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use support::{Datagrams, Mailbox};
use wire::Mac;

const MS: Nanos = 1_000_000;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Station {
    host: Host,
    port: FabricPort,
    pool: FramePool,
    rx: Vec<Box<Frame>>,
    tx: Vec<Box<Frame>>,
}

impl Station {
    fn new(fabric: &Fabric, address: Ipv4Addr) -> Station {
        let mac = Mac([2, 0, 0, 0, 0, address.octets()[3]]);
        let port = fabric.join(&address.to_string(), mac).unwrap();
        let link = Link { mac, address: address.into(), prefix_len: 24, v6: None, caps: port.capabilities() };
        let net = Net::new(NetConfig {
            routes: Box::new(RouteTable::new(&[link], &[], &[])),
            links: vec![link],
            neighbours: Box::new(NeighbourTable::new(
                16,
                NeighbourTiming { reachable: 1000 * MS, retry: 100 * MS, tries: 3 },
            )),
            icmp_per_s: 100,
        });
        Station { host: Host::new(net), port, pool: FramePool::new(64), rx: Vec::new(), tx: Vec::new() }
    }

    fn poll(&mut self, now: Nanos) -> usize {
        self.port.receive(now, 64, &mut self.pool, &mut self.rx);
        let done = self.host.poll(now, &mut self.rx, &mut self.tx, &mut self.pool);
        self.port.send(now, &mut self.tx, &mut self.pool, &mut PortDrops::default());
        done
    }
}

fn settle(now: Nanos, stations: &mut [Station]) {
    for _ in 0..100 {
        if stations.iter_mut().map(|station| station.poll(now)).sum::<usize>() == 0 {
            return;
        }
    }
    panic!("the hosts do not come to rest");
}

/// Two hosts and their toys: an echo at port 4791, and an asker at 7000.
fn pair(config: FabricConfig) -> ([Station; 2], [Mailbox; 2]) {
    let fabric = Fabric::new(config);
    let mut stations = [SERVER, CLIENT].map(|address| Station::new(&fabric, address));
    let mail = [Mailbox::default(), Mailbox::default()];
    let echo = Datagrams { port: 4791, echoes: true, mail: mail[0].clone() };
    let asker = Datagrams { port: 7000, echoes: false, mail: mail[1].clone() };
    stations[0].host.add(Box::new(echo)).unwrap();
    stations[1].host.add(Box::new(asker)).unwrap();
    (stations, mail)
}

#[test]
fn datagrams_go_and_come_back_and_neighbours_are_found() {
    let (mut stations, [_, client]) = pair(FabricConfig::default());
    client.send(SERVER, 4791, b"first");
    settle(MS, &mut stations);
    client.send(SERVER, 4791, &[7; 1000]);
    settle(2 * MS, &mut stations);
    assert_eq!(client.take(), [(SERVER, 4791, b"first".to_vec()), (SERVER, 4791, vec![7; 1000])]);
    let known = |station: &Station| station.host.net().neighbours().iter().filter(|(_, mac)| mac.is_some()).count();
    assert_eq!((known(&stations[0]), known(&stations[1])), (1, 1));
}

/// A transport that nobody uses: it counts how often it is polled.
struct Dormant(Datagrams, Arc<AtomicUsize>);

impl Transport for Dormant {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn claims(&self) -> Vec<Claim> {
        self.0.claims()
    }
    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        self.1.fetch_add(1, Relaxed);
        self.0.poll(now, rx, io)
    }
    fn is_dormant(&self) -> bool {
        true
    }
    fn has_work(&self, now: Nanos) -> bool {
        self.0.has_work(now)
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}

#[test]
fn a_dormant_transport_costs_nothing_until_a_frame_is_for_it() {
    let fabric = Fabric::new(FabricConfig::default());
    let mut stations = [SERVER, CLIENT].map(|address| Station::new(&fabric, address));
    let (polls, client) = (Arc::new(AtomicUsize::new(0)), Mailbox::default());
    let echo = Datagrams { port: 4791, echoes: true, mail: Mailbox::default() };
    stations[0].host.add(Box::new(Dormant(echo, Arc::clone(&polls)))).unwrap();
    let asker = Datagrams { port: 7000, echoes: false, mail: client.clone() };
    stations[1].host.add(Box::new(asker)).unwrap();
    (0..100).for_each(|now| assert_eq!(stations[0].poll(now), 0));
    assert_eq!(polls.load(Relaxed), 0);
    client.send(SERVER, 4791, b"wake up");
    settle(MS, &mut stations);
    assert_eq!(client.take(), [(SERVER, 4791, b"wake up".to_vec())]);
    // Once for ARP, which is the host's own but which no transport takes, and once for the datagram.
    assert_eq!(polls.load(Relaxed), 2);
}

#[test]
fn what_nobody_claims_is_refused() {
    let (mut stations, [server, client]) = pair(FabricConfig::default());
    client.send(SERVER, 4792, b"nobody");
    settle(MS, &mut stations);
    assert!(server.take().is_empty() && client.take().is_empty());
    assert_eq!(stations[0].host.drops().get(DropReason::Protocol), 1);
}

#[test]
fn a_neighbour_that_does_not_answer_is_asked_again_and_given_up() {
    let (mut stations, [_, client]) = pair(FabricConfig::default());
    client.send(Ipv4Addr::new(10, 0, 0, 9), 4791, b"nobody is there");
    settle(MS, &mut stations);
    for _ in 0..3 {
        let due = stations[1].host.next_deadline().expect("it is asked again");
        settle(due, &mut stations);
    }
    assert_eq!(stations[1].host.next_deadline(), None);
    assert_eq!(stations[1].host.drops().get(DropReason::NeighbourUnresolved), 1);
}

#[test]
fn two_transports_cannot_claim_the_same_frames() {
    let (mut stations, _) = pair(FabricConfig::default());
    let second = Datagrams { port: 4791, echoes: false, mail: Mailbox::default() };
    let refused = stations[0].host.add(Box::new(second)).unwrap_err();
    assert_eq!(refused, "transport asker claims UDP port 4791, which echo has already");
}
