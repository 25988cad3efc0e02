//! Datagrams between two hosts: each takes the next receive, and what has no place is dropped by name.
#[path = "support/ends.rs"]
mod ends;

use ends::{Below, Buffer, DEVICE_AT, DOMAIN, End, Habit, carry_out, device_in, end, fill};
use engine::DropReason;
use engines::EngineKind;
use memory::{DmaCopy, DmaQueue, DmaServer, Key};
use port::{Fabric, FabricConfig, FramePool};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use zeronic::{Connection, Event, NoDatagrams, Refused, Segment};

const SECOND: u64 = 1_000_000_000;
/// Bytes of a place of the buffers.
const PLACE: u64 = 4096;

struct Pair {
    ends: [End; 2],
    buffers: [Buffer; 2],
    now: u64,
}

fn peer(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, last), port)
}

impl Pair {
    fn new(kind: EngineKind, config: FabricConfig) -> Pair {
        let fabric = Fabric::new(config);
        let habit = Habit { below: Below::Engine(kind), ..Habit::default() };
        let ends = [1, 2].map(|last| end("datagrams", &fabric, last, habit, &FramePool::new(4096)).unwrap());
        let buffers = [0, 1].map(|at: usize| Buffer::register(ends[at].stack.memory()));
        Pair { ends, buffers, now: SECOND }
    }

    fn open(&mut self) -> [Connection; 2] {
        let one = self.ends[0].stack.open_datagrams(7, peer(2, 9), DOMAIN).unwrap();
        [one, self.ends[1].stack.open_datagrams(9, peer(1, 7), DOMAIN).unwrap()]
    }

    fn segment(&self, end: usize, place: u64, len: u64) -> Segment {
        Segment { key: self.buffers[end].key, offset: place * PLACE, len }
    }

    /// Both hosts work for a while; what their programs get.
    fn run(&mut self, time: u64) -> [Vec<Event>; 2] {
        let until = self.now + time;
        let mut events = [Vec::new(), Vec::new()];
        while self.now < until {
            for (end, events) in self.ends.iter_mut().zip(&mut events) {
                end.stack.poll(self.now, &mut end.port, &mut end.drops);
                events.extend(std::iter::from_fn(|| end.stack.next_event()));
            }
            self.now += 100_000;
        }
        events
    }

    fn dropped(&self, end: usize, reason: DropReason) -> u64 {
        self.ends[end].stack.drops().get(reason)
    }
}

fn received(connection: Connection, id: u64, bytes: u64) -> Event {
    Event::Received { connection, id, bytes }
}

#[test]
fn each_datagram_lands_in_the_next_receive() {
    for kind in EngineKind::TRANSPORTS {
        let mut pair = Pair::new(*kind, FabricConfig { mtu: 1500, ..FabricConfig::default() });
        let [here, there] = pair.open();
        for (place, len) in [(0, 1472), (1, 1), (2, 700)] {
            pair.buffers[0].write((place * PLACE) as usize, len, place * PLACE, 5);
            pair.ends[0].stack.post_send(here, place, pair.segment(0, place, len as u64)).unwrap();
            pair.ends[1].stack.post_receive(there, 10 + place, pair.segment(1, place, PLACE)).unwrap();
        }
        let [mine, theirs] = pair.run(SECOND);
        assert_eq!(mine, [0, 1, 2].map(|id| Event::Sent { connection: here, id }), "{kind:?}");
        assert_eq!(theirs, [received(there, 10, 1472), received(there, 11, 1), received(there, 12, 700)]);
        for (place, len) in [(0, 1472), (1, 1), (2, 700)] {
            pair.buffers[1].check((place * PLACE) as usize, len, place * PLACE, 5);
            pair.buffers[1].check_untouched((place * PLACE) as usize + len, PLACE as usize - len);
        }
        let view = pair.ends[1].stack.views(8).remove(0);
        assert_eq!((view.carries, view.received, view.receives), ("datagrams", 2173, 0));
    }
}

#[test]
fn what_has_no_place_is_dropped_by_name_and_the_receive_stays() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let [here, there] = pair.open();
    let send = |pair: &mut Pair, id, len| {
        let segment = pair.segment(0, 0, len);
        pair.ends[0].stack.post_send(here, id, segment).unwrap();
        pair.run(SECOND / 10)[1].clone()
    };
    pair.run(SECOND);
    assert_eq!(send(&mut pair, 1, 8), [], "nothing is posted");
    assert_eq!(pair.dropped(1, DropReason::NoPlace), 1);
    let segment = pair.segment(1, 0, 8);
    pair.ends[1].stack.post_receive(there, 2, segment).unwrap();
    assert_eq!(send(&mut pair, 2, 9), [], "it is longer than the receive");
    assert_eq!(pair.dropped(1, DropReason::MessageLength), 1);
    pair.buffers[1].check_untouched(0, 16);
    assert_eq!(send(&mut pair, 3, 7), [received(there, 2, 7)]);
    // A flow that is closed gets nothing; the peer's datagram finds no flow.
    pair.ends[1].stack.post_receive(there, 4, segment).unwrap();
    pair.ends[1].stack.close(there);
    assert_eq!(send(&mut pair, 4, 7), []);
    assert_eq!(pair.ends[1].stack.post_receive(there, 5, segment), Err(Refused::Flow));
}

#[test]
fn what_cannot_leave_is_refused_or_dropped() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig { mtu: 1500, ..FabricConfig::default() });
    let lost = pair.ends[0].stack.open_datagrams(0, peer(77, 9), DOMAIN).unwrap();
    pair.run(SECOND / 10);
    let segment = pair.segment(0, 0, 1473);
    assert_eq!(pair.ends[0].stack.post_send(lost, 1, segment), Err(Refused::Long));
    for id in [2, 3] {
        let segment = pair.segment(0, 0, 8);
        pair.ends[0].stack.post_send(lost, id, segment).unwrap();
    }
    assert_eq!(pair.run(SECOND)[0], [], "its next hop is asked for");
    let sent = pair.run(4 * SECOND)[0].clone();
    assert_eq!(sent, [2, 3].map(|id| Event::Sent { connection: lost, id }));
    assert_eq!(pair.dropped(0, DropReason::NeighbourUnresolved), 2);
    assert!(!pair.ends[0].stack.has_work());
}

#[test]
fn flows_have_ends_of_their_own() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let stack = &mut pair.ends[0].stack;
    let first = stack.open_datagrams(7, peer(2, 9), DOMAIN).unwrap();
    assert_eq!(stack.open_datagrams(7, peer(2, 9), DOMAIN), Err(NoDatagrams::InUse));
    let other = stack.open_datagrams(7, peer(2, 10), DOMAIN).unwrap();
    assert_ne!(first, other);
    let chosen = [0, 0].map(|port| stack.open_datagrams(port, peer(2, 9), DOMAIN).unwrap());
    assert_ne!(chosen[0], chosen[1]);
    for to in [peer(2, 0), SocketAddrV4::new(Ipv4Addr::BROADCAST, 9), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 9)] {
        assert_eq!(stack.open_datagrams(0, to, DOMAIN), Err(NoDatagrams::Peer));
    }
    stack.close(first);
    assert!(stack.open_datagrams(7, peer(2, 9), DOMAIN).is_ok());
}

/// One host's programs reach each other: nothing leaves.
#[test]
fn datagrams_for_the_own_address_come_in() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let stack = &mut pair.ends[0].stack;
    let one = stack.open_datagrams(7, peer(1, 9), DOMAIN).unwrap();
    let other = stack.open_datagrams(9, peer(1, 7), DOMAIN).unwrap();
    let (from, to) = (pair.segment(0, 0, 100), pair.segment(0, 1, 100));
    pair.buffers[0].write(0, 100, 0, 5);
    pair.ends[0].stack.post_receive(other, 1, to).unwrap();
    pair.ends[0].stack.post_send(one, 2, from).unwrap();
    let [events, _] = pair.run(SECOND);
    assert_eq!(events, [Event::Sent { connection: one, id: 2 }, received(other, 1, 100)]);
    pair.buffers[0].check(PLACE as usize, 100, 0, 5);
}

/// Damage is found by the checksum, and what comes is what was sent: no byte of another datagram.
#[test]
fn a_damaged_datagram_is_dropped_and_loss_is_the_networks() {
    const COUNT: u64 = 1000;
    let config = FabricConfig {
        loss: 0.1,
        reorder: 0.1,
        duplicate: 0.1,
        corrupt: 0.2,
        delay_ns: 20_000,
        seed: 4711,
        ..FabricConfig::default()
    };
    let mut pair = Pair::new(EngineKind::default(), config);
    let [here, there] = pair.open();
    let places = ends::BUFFER as u64 / PLACE;
    let (mut came, mut ids) = (0, std::collections::BTreeSet::new());
    for id in 0..COUNT {
        let place = id % places;
        // Each has other bytes, so that each is recognized.
        pair.buffers[0].write((place * PLACE) as usize, 900, id * PLACE, 5);
        pair.ends[0].stack.post_send(here, id, pair.segment(0, place, 900)).unwrap();
        pair.ends[1].stack.post_receive(there, id, pair.segment(1, place, PLACE)).unwrap();
        let [_, theirs] = pair.run(200_000);
        came += theirs.len() as u64;
        for event in theirs {
            let Event::Received { id, bytes: 900, .. } = event else { panic!("{event:?}") };
            let at = (id % places * PLACE) as usize;
            ids.insert((0..COUNT).find(|of| pair.buffers[1].has(at, 900, of * PLACE, 5)).expect("a whole datagram"));
        }
    }
    let damaged = pair.dropped(1, DropReason::TcpChecksum) + pair.dropped(1, DropReason::TcpHeader);
    assert!(damaged > 50, "{damaged}");
    assert!(came > COUNT / 2 && ids.len() as u64 > COUNT / 2 && (ids.len() as u64) < COUNT, "{came} {}", ids.len());
}

/// A device of an end's, whose copies the test makes by hand.
struct Device {
    _queue: Arc<DmaQueue>,
    server: DmaServer,
    key: Key,
    memory: Vec<u8>,
}

impl Device {
    const BYTES: usize = 64 * PLACE as usize;

    fn of(pair: &Pair, end: usize, timeout_ns: u64) -> Device {
        let (queue, server, key) = device_in(pair.ends[end].stack.memory(), DOMAIN, Device::BYTES, timeout_ns);
        Device { _queue: queue, server, key, memory: vec![0; Device::BYTES] }
    }

    fn segment(&self, place: u64, len: u64) -> Segment {
        Segment { key: self.key, offset: place * PLACE, len }
    }

    fn orders(&mut self) -> Vec<DmaCopy> {
        std::iter::from_fn(|| self.server.take()).collect()
    }

    fn make(&mut self, copy: &DmaCopy) {
        carry_out(&mut self.server, copy, &mut self.memory);
    }

    fn bytes(&self, place: u64, len: usize) -> &[u8] {
        &self.memory[(place * PLACE) as usize..][..len]
    }
}

/// The bytes of a datagram.
fn content(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(number * PLACE, 5, &mut bytes);
    bytes
}

/// Copies end in another order than the datagrams came; receives are done in the order of their posts.
#[test]
fn a_datagram_is_done_when_it_is_in_the_devices_memory() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let [here, there] = pair.open();
    let mut device = Device::of(&pair, 1, u64::MAX);
    for (place, len) in [(0, 1400), (1, 9), (2, 700)] {
        pair.buffers[0].write((place * PLACE) as usize, len, place * PLACE, 5);
        pair.ends[0].stack.post_send(here, place, pair.segment(0, place, len as u64)).unwrap();
        // The last one's memory is mapped.
        let into = if place < 2 { device.segment(place, PLACE) } else { pair.segment(1, place, PLACE) };
        pair.ends[1].stack.post_receive(there, 10 + place, into).unwrap();
    }
    assert_eq!(pair.run(SECOND)[1], [], "all wait for the first one");
    let orders = device.orders();
    let expected = [(DEVICE_AT, 1400), (DEVICE_AT + PLACE, 9)];
    assert_eq!(orders.iter().map(|copy| (copy.address, copy.len)).collect::<Vec<_>>(), expected);
    device.make(&orders[1]);
    assert_eq!(pair.run(SECOND)[1], []);
    assert_eq!(pair.ends[1].stack.views(8).remove(0).receives, 3);
    device.make(&orders[0]);
    let done = [received(there, 10, 1400), received(there, 11, 9), received(there, 12, 700)];
    assert_eq!(pair.run(SECOND)[1], done);
    assert!(device.bytes(0, 1400) == content(0, 1400) && device.bytes(1, 9) == content(1, 9));
    assert_eq!(device.bytes(0, PLACE as usize)[1400..], vec![0; PLACE as usize - 1400], "behind the datagram");
    pair.buffers[1].check(2 * PLACE as usize, 700, 2 * PLACE, 5);
}

/// What is sent leaves in the order of posting, whatever memory it is in.
#[test]
fn a_datagram_leaves_when_it_is_out_of_the_devices_memory() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let [here, there] = pair.open();
    let mut device = Device::of(&pair, 0, u64::MAX);
    for place in 0..3 {
        let bytes = content(place, 1000);
        device.memory[(place * PLACE) as usize..][..1000].copy_from_slice(&bytes);
        pair.buffers[0].write((place * PLACE) as usize, 1000, place * PLACE, 5);
        let from = if place == 1 { pair.segment(0, place, 1000) } else { device.segment(place, 1000) };
        pair.ends[0].stack.post_send(here, place, from).unwrap();
        pair.ends[1].stack.post_receive(there, place, pair.segment(1, place, PLACE)).unwrap();
    }
    assert_eq!(pair.run(SECOND), [[], []]);
    assert!(!pair.ends[0].stack.has_work(), "a host that waits for a device may sleep");
    let orders = device.orders();
    device.make(&orders[1]);
    assert_eq!(pair.run(SECOND), [[], []]);
    device.make(&orders[0]);
    let [mine, theirs] = pair.run(SECOND);
    assert_eq!(mine, [0, 1, 2].map(|id| Event::Sent { connection: here, id }));
    assert_eq!(theirs, [0, 1, 2].map(|id| received(there, id, 1000)));
    (0..3).for_each(|place| pair.buffers[1].check((place * PLACE) as usize, 1000, place * PLACE, 5));
}

/// A queue has room for 256 copies. What finds none is dropped on its way in, and waits on its way out.
#[test]
fn datagrams_find_a_full_queue() {
    const COUNT: u64 = 300;
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let [here, there] = pair.open();
    let mut device = Device::of(&pair, 1, u64::MAX);
    for id in 0..COUNT {
        pair.ends[1].stack.post_receive(there, id, device.segment(id % 64, 100)).unwrap();
        pair.ends[0].stack.post_send(here, id, pair.segment(0, id % 64, 100)).unwrap();
    }
    pair.run(SECOND);
    assert_eq!(pair.dropped(1, DropReason::DeviceBusy), COUNT - 256);
    let orders = device.orders();
    orders.iter().for_each(|copy| device.make(copy));
    let done = pair.run(SECOND)[1].clone();
    assert_eq!(done, (0..256).map(|id| received(there, id, 100)).collect::<Vec<_>>());
    // The other way: another flow's copies have the room, and its own wait for theirs.
    for id in 0..COUNT {
        pair.ends[1].stack.post_send(there, id, device.segment(id % 64, 100)).unwrap();
    }
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.extend(pair.run(SECOND / 100)[1].clone());
        device.orders().iter().for_each(|copy| device.make(copy));
    }
    assert_eq!(sent, (0..COUNT).map(|id| Event::Sent { connection: there, id }).collect::<Vec<_>>());
}

/// A device never answers: the flows of its memory end, each way, and others go on.
#[test]
fn a_lost_device_ends_the_flows_of_its_memory() {
    let mut pair = Pair::new(EngineKind::default(), FabricConfig::default());
    let [here, there] = pair.open();
    let out = pair.ends[1].stack.open_datagrams(20, peer(1, 21), DOMAIN).unwrap();
    let beside = pair.ends[1].stack.open_datagrams(30, peer(1, 31), DOMAIN).unwrap();
    let across = pair.ends[0].stack.open_datagrams(31, peer(2, 30), DOMAIN).unwrap();
    let device = Device::of(&pair, 1, SECOND);
    pair.run(SECOND / 10);
    pair.ends[1].stack.post_receive(there, 1, device.segment(0, 100)).unwrap();
    pair.ends[1].stack.post_send(out, 2, device.segment(1, 100)).unwrap();
    pair.ends[0].stack.post_send(here, 3, pair.segment(0, 0, 100)).unwrap();
    let events = pair.run(3 * SECOND)[1].clone();
    let mut failed: Vec<Connection> = events
        .iter()
        .map(|event| match event {
            Event::Failed { connection, .. } => *connection,
            other => panic!("{other:?}"),
        })
        .collect();
    failed.sort_unstable();
    assert_eq!(failed, [there, out]);
    let again = pair.ends[1].stack.open_datagrams(9, peer(1, 7), DOMAIN).expect("its ends are free");
    pair.ends[1].stack.post_receive(again, 4, device.segment(0, 100)).unwrap();
    pair.ends[1].stack.post_receive(beside, 5, pair.segment(1, 0, 100)).unwrap();
    pair.ends[0].stack.post_send(here, 6, pair.segment(0, 0, 100)).unwrap();
    pair.ends[0].stack.post_send(across, 7, pair.segment(0, 0, 100)).unwrap();
    let events = pair.run(SECOND)[1].clone();
    assert!(events.len() == 2 && events.contains(&received(beside, 5, 100)), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, Event::Failed { connection, .. } if *connection == again)));
}
