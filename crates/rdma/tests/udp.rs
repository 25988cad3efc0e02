//! UDP ports of programs: bound, sent from, received at, by frames of a host. What is forged, damaged or too much.
mod support;

use engine::{DropReason, FramePool, Nanos};
use host::Host;
use port::{Checksum, Frame};
use rdma::{Config, Device, EventPipe, Failure, LowerLayer, ProgramId};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::{MAC, OWN, PEER, attach};
use verbs::control::Answer;
use verbs::udp::{self, Datagram, MOST_BYTES, Request};
use wire::checksum::Sum;
use wire::{EtherType, Mac, arp, ethernet, ipv4};

const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const PEERS: SocketAddrV4 = SocketAddrV4::new(PEER, 7000);
const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
const UDP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// Counts the bytes of a pipe.
#[derive(Default)]
struct Pipe(AtomicUsize);

impl EventPipe for Pipe {
    fn put(&self, message: &[u8]) {
        self.0.fetch_add(message.len(), Ordering::Relaxed);
    }
}

fn config(lower_layer: LowerLayer) -> Config {
    Config { lower_layer, ip_mtu: 9000, ..support::config() }
}

/// A host with a device.
struct World {
    host: Host,
    device: Arc<Mutex<Device>>,
    pool: FramePool,
    now: Nanos,
}

impl World {
    fn new() -> World {
        let (host, device) = support::host(config(LowerLayer::Packets));
        World { host, device, pool: FramePool::new(8), now: 1 }
    }

    fn attach(&self) -> ProgramId {
        attach(&mut self.device.lock().unwrap())
    }

    fn bind(&self, id: ProgramId, address: SocketAddrV4) -> Result<(u16, Arc<Pipe>), Failure> {
        let pipe = Arc::new(Pipe::default());
        let bound =
            self.device
                .lock()
                .unwrap()
                .bind_udp(id, address, Arc::clone(&pipe) as Arc<dyn EventPipe>, |port| port == 4797)?;
        let Answer::Udp(udp::Answer::Bound(local)) = bound else { panic!("{bound:?}") };
        assert_eq!(*local.ip(), OWN);
        Ok((local.port(), pipe))
    }

    fn call(&self, id: ProgramId, request: &Request) -> Result<Answer, Failure> {
        self.device.lock().unwrap().udp(id, request)
    }

    fn take(&self, id: ProgramId, port: u16) -> Option<Datagram> {
        match self.call(id, &Request::Receive(port)) {
            Ok(Answer::Udp(udp::Answer::Datagram(datagram))) => datagram,
            other => panic!("{other:?}"),
        }
    }

    /// A round with a frame, or without one; what leaves.
    fn round(&mut self, frame: Option<Box<Frame>>) -> Vec<Box<Frame>> {
        let (mut rx, mut tx) = (frame.into_iter().collect(), Vec::new());
        self.now += 1000;
        self.host.poll(self.now, &mut rx, &mut tx, &mut self.pool);
        tx
    }

    /// The peer announces its station.
    fn meet(&mut self) -> Vec<Box<Frame>> {
        let mut frame = self.pool.small();
        frame.resize(ethernet::HEADER_LEN + arp::LEN);
        let (operation, target_mac) = (arp::Operation::Request, Mac::default());
        let packet = arp::Packet { operation, sender_mac: PEER_MAC, sender_ip: PEER, target_mac, target_ip: OWN };
        ethernet::Header { dst: Mac::BROADCAST, src: PEER_MAC, ethertype: EtherType::Arp }.emit(frame.bytes_mut());
        packet.emit(&mut frame.bytes_mut()[ethernet::HEADER_LEN..]);
        self.round(Some(frame))
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.host.drops().get(reason)
    }
}

/// A datagram of the peer's, whole and sound.
fn datagram(from: SocketAddrV4, port: u16, payload: &[u8]) -> Box<Frame> {
    let mut frame = FramePool::new(1).large();
    let len = 8 + payload.len();
    let bytes = frame.bytes_vec();
    bytes.resize(UDP_AT, 0);
    ethernet::Header { dst: MAC, src: PEER_MAC, ethertype: EtherType::Ipv4 }.emit(bytes);
    ipv4::Header::new(ipv4::UDP, (*from.ip(), OWN), len as u16).emit(&mut bytes[ethernet::HEADER_LEN..]);
    for half in [from.port(), port, len as u16, 0] {
        bytes.extend_from_slice(&half.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    let sum = sum(from, &bytes[UDP_AT..]).finish();
    bytes[UDP_AT + 6..UDP_AT + 8].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn sum(other: SocketAddrV4, datagram: &[u8]) -> Sum {
    let mut sum = Sum::pseudo_header(*other.ip(), OWN, ipv4::UDP, datagram.len() as u32);
    sum.add(datagram);
    sum
}

/// Changes a header's field and makes the header's checksum right again.
fn with_ip(mut frame: Box<Frame>, change: impl FnOnce(&mut [u8])) -> Box<Frame> {
    let header = &mut frame.bytes_mut()[ethernet::HEADER_LEN..UDP_AT];
    change(header);
    header[10..12].fill(0);
    let mut sum = Sum::new();
    sum.add(header);
    let checksum = sum.finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

fn with(mut frame: Box<Frame>, at: usize, value: u8) -> Box<Frame> {
    frame.bytes_mut()[at] = value;
    frame
}

#[test]
fn ports_have_one_owner_and_are_free_again() {
    let world = World::new();
    let (one, other) = (world.attach(), world.attach());
    let errno = |bound: Result<(u16, Arc<Pipe>), Failure>| bound.map(|(port, _)| port).unwrap_err().errno;
    assert_eq!(world.bind(one, SocketAddrV4::new(OWN, 7174)).unwrap().0, 7174);
    assert_eq!(errno(world.bind(other, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7174))), libc::EADDRINUSE);
    for claimed in [4791, 4797] {
        assert_eq!(errno(world.bind(one, SocketAddrV4::new(OWN, claimed))), libc::EADDRINUSE);
    }
    assert_eq!(errno(world.bind(one, SocketAddrV4::new(PEER, 7175))), libc::EADDRNOTAVAIL);
    let (any, _) = world.bind(other, ANY).unwrap();
    assert!(any >= 32_768);
    for port in [7174, 1] {
        let send = Request::Send { port, to: PEERS, payload: Vec::new() };
        for request in [Request::Release(port), Request::Receive(port), send] {
            assert_eq!(world.call(other, &request).unwrap_err().errno, libc::EINVAL, "{request:?}");
        }
    }
    world.call(one, &Request::Release(7174)).unwrap();
    world.bind(other, SocketAddrV4::new(OWN, 7174)).unwrap();
    let many = (0..1000).take_while(|_| world.bind(other, ANY).is_ok()).count();
    assert_eq!((many, errno(world.bind(other, ANY))), (254, libc::ENOMEM));
    world.bind(one, ANY).unwrap();
    world.device.lock().unwrap().detach(world.now, other);
    world.bind(one, SocketAddrV4::new(OWN, 7174)).unwrap();
    let views = world.device.lock().unwrap().views(world.now, usize::MAX);
    assert_eq!((views[0].id_count, views[0].ids[0].local.as_deref()), (2, Some("10.0.0.1:7174")));
}

#[test]
fn a_device_over_streams_has_no_udp() {
    let mut device = Device::new(config(LowerLayer::Stream)).unwrap();
    let id = attach(&mut device);
    let refused = device.bind_udp(id, ANY, Arc::new(Pipe::default()), |_| false).unwrap_err();
    assert_eq!(refused.errno, libc::EOPNOTSUPP);
}

#[test]
fn datagrams_wait_and_have_whether_the_way_back_is_known() {
    let mut world = World::new();
    let id = world.attach();
    let (port, pipe) = world.bind(id, SocketAddrV4::new(OWN, 7174)).unwrap();
    assert_eq!(world.take(id, port), None);
    world.round(Some(datagram(PEERS, port, b"first")));
    world.meet();
    world.round(Some(datagram(PEERS, port, b"second")));
    world.round(Some(datagram(PEERS, port, &[9; MOST_BYTES])));
    assert_eq!(pipe.0.load(Ordering::Relaxed), 3);
    let came = |payload: &[u8], reached| Some(Datagram { from: PEERS, payload: payload.to_vec(), reached });
    assert_eq!(world.take(id, port), came(b"first", false));
    assert_eq!(world.take(id, port), came(b"second", true));
    assert_eq!(world.take(id, port), came(&[9; MOST_BYTES], true));
    assert_eq!(world.take(id, port), None);
    // A port that nobody is bound to is refused, as ever.
    let refused = world.round(Some(datagram(PEERS, port + 1, b"x")));
    assert_eq!((world.drops(DropReason::Protocol), refused.len()), (1, 1));
}

#[test]
fn forged_and_damaged_datagrams_are_dropped() {
    let mut world = World::new();
    let id = world.attach();
    world.meet();
    let (port, pipe) = world.bind(id, SocketAddrV4::new(OWN, 7174)).unwrap();
    let sound = || datagram(PEERS, port, b"payload");
    let damaged = [
        with(sound(), UDP_AT + 12, b'x'),
        with(sound(), UDP_AT + 5, 7),
        with(sound(), UDP_AT + 5, 200),
        datagram(PEERS, port, &[0; MOST_BYTES + 1]),
    ];
    let count = damaged.len() as u64;
    damaged.into_iter().for_each(|frame| drop(world.round(Some(frame))));
    assert_eq!(world.drops(DropReason::MessageIncomplete), count);
    let others = [
        // Another station, another host, a fragment, senders that are no stations.
        with(sound(), 5, 9),
        with_ip(sound(), |header| header[19] = 9),
        with_ip(sound(), |header| header[6] = 0x20),
        with_ip(sound(), |header| header[7] = 1),
        datagram(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7000), port, b"x"),
        datagram(SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 5), 7000), port, b"x"),
        datagram(SocketAddrV4::new(Ipv4Addr::BROADCAST, 7000), port, b"x"),
        // Damaged headers of IPv4.
        with(sound(), ethernet::HEADER_LEN + 8, 1),
    ];
    others.into_iter().for_each(|frame| drop(world.round(Some(frame))));
    for len in 0..UDP_AT + 8 {
        let mut short = sound();
        short.resize(len);
        world.round(Some(short));
    }
    assert_eq!((world.take(id, port), pipe.0.load(Ordering::Relaxed)), (None, 0));
    // What never left the machine has no checksum yet; and a sender may leave it out.
    let mut partial = with(sound(), UDP_AT + 6, 1);
    partial.checksum = Checksum::Partial { start: UDP_AT as u16, field: UDP_AT as u16 + 6 };
    world.round(Some(partial));
    world.round(Some(with(with(sound(), UDP_AT + 6, 0), UDP_AT + 7, 0)));
    assert_eq!(pipe.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_flood_fills_one_port_and_hurts_no_other() {
    let mut world = World::new();
    let id = world.attach();
    world.meet();
    let (flooded, pipe) = world.bind(id, ANY).unwrap();
    let (other, _) = world.bind(id, ANY).unwrap();
    (0..1000).for_each(|_| drop(world.round(Some(datagram(PEERS, flooded, b"flood")))));
    assert_eq!((pipe.0.load(Ordering::Relaxed), world.drops(DropReason::NoReceive)), (256, 744));
    world.round(Some(datagram(PEERS, other, b"x")));
    assert!(world.take(id, other).is_some());
    while world.take(id, flooded).is_some() {}
    // Long ones are bounded by their bytes.
    (0..1000).for_each(|_| drop(world.round(Some(datagram(PEERS, flooded, &[1; MOST_BYTES])))));
    assert_eq!(pipe.0.load(Ordering::Relaxed), 256 + (1 << 17) / MOST_BYTES);
}

#[test]
fn what_is_sent_waits_for_its_next_hop_and_has_a_right_checksum() {
    let mut world = World::new();
    let id = world.attach();
    let (port, _) = world.bind(id, ANY).unwrap();
    let send = |to: SocketAddrV4, payload: &[u8]| Request::Send { port, to, payload: payload.to_vec() };
    world.call(id, &send(PEERS, b"early")).unwrap();
    let asked = world.round(None);
    assert_eq!((asked.len(), asked[0].bytes()[12..14].to_vec()), (1, vec![8, 6]), "ARP asks");
    let frames = world.meet();
    let frame = frames.iter().find(|frame| frame.bytes()[12..14] == [8, 0]).expect("the datagram leaves");
    let bytes = frame.bytes();
    let (header, _) = ipv4::Header::parse(&bytes[ethernet::HEADER_LEN..], bytes.len()).unwrap();
    assert_eq!((header.src, header.dst, header.protocol), (OWN, PEER, ipv4::UDP));
    assert_eq!((&bytes[..6], &bytes[UDP_AT + 8..]), (&PEER_MAC.0[..], &b"early"[..]));
    assert_eq!(bytes[UDP_AT..UDP_AT + 6], [port.to_be_bytes(), [0x1b, 0x58], [0, 13]].concat());
    assert_eq!(sum(PEERS, &bytes[UDP_AT..]).finish(), 0);
    // To itself.
    world.call(id, &send(SocketAddrV4::new(OWN, port), b"self")).unwrap();
    (0..2).for_each(|_| drop(world.round(None)));
    assert_eq!(world.take(id, port).map(|datagram| datagram.payload), Some(b"self".to_vec()));
    for (to, errno) in [
        (SocketAddrV4::new(PEER, 0), libc::EINVAL),
        (SocketAddrV4::new(Ipv4Addr::BROADCAST, 1), libc::EINVAL),
        (SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), libc::EINVAL),
    ] {
        assert_eq!(world.call(id, &send(to, b"")).unwrap_err().errno, errno);
    }
    let long = send(PEERS, &[0; MOST_BYTES + 1]);
    assert_eq!(world.call(id, &long).unwrap_err().errno, libc::EMSGSIZE);
}
