//! A peer of connection management that sends what it likes, to a program that does so, too: whole datagrams for the
//! general services interface of a device, in any order, with the numbers that the device has sent.
use crate::Input;
use context::queues::{DaemonQueues, QueueSizes, daemon_bell};
use engine::{Frame, FramePool, Nanos};
use host::{Host, Link, NeighbourTable, NeighbourTiming, Net, NetConfig, RouteTable, Transport};
use memory::{Limits, MemoryTable};
use port::Capabilities;
use rdma::{Config, Congestion, Device, EventPipe, LIMITS, LowerLayer, NewProgram, ProgramId, Recovery, Who};
use shm::Doorbell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::QpState;
use verbs::connections::{Parameters, Request as Call, Space};
use wire::roce::cm::{
    About, ConnectionPath, GSI_KEY, Lookup, LookupReply, LookupStatus, MAD_LEN, Mad, Message, Named, Pair, PortSpace,
    PrivateData, QueuePair, Reason, Reject, Reply, Request, Service, Wait,
};
use wire::roce::{Bth, Deth, GSI_QP, Headers, Opcode, Packet, Path, Psn, finish};
use wire::{EtherType, Mac, arp, ethernet};

/// Steps of an input that are looked at.
const MOST: usize = 400;
/// Rounds in which all has to end when the program is gone: each connection sends a few messages, 16 times each.
const ENDS: usize = 40_000;
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PORTS: [u16; 3] = [4000, 4001, 4002];

/// The device, shared by its host and the program.
#[derive(Clone)]
struct Shared(Arc<Mutex<Device>>);

impl Shared {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pipe that nobody reads.
struct Nowhere;

impl EventPipe for Nowhere {
    fn put(&self, _message: &[u8]) {}
}

struct World {
    host: Host,
    device: Shared,
    program: ProgramId,
    pool: FramePool,
    now: Nanos,
    /// Numbers that the device has sent of its connections.
    sent_numbers: Vec<u32>,
}

fn host(device: &Shared) -> Host {
    let caps = Capabilities { mtu: 1500, super_segment: 0, checksum: false };
    let link = Link { mac: MAC, address: OWN.into(), prefix_len: 24, v6: None, caps };
    let timing = NeighbourTiming { reachable: 60_000_000_000, retry: 1_000_000_000, tries: 3 };
    let mut host = Host::new(Net::new(NetConfig {
        routes: Box::new(RouteTable::new(&[link], &[], &[])),
        links: vec![link],
        neighbours: Box::new(NeighbourTable::new(16, timing)),
        icmp_per_s: 100,
    }));
    host.add(Box::new(Arc::clone(&device.0))).expect("nobody else claims its port");
    host
}

impl World {
    fn new() -> World {
        let table = Arc::new(MemoryTable::with_secret(Limits { regions: 4, ..Limits::default() }, [7; 16]));
        let device = Device::new(Config {
            host: "h".into(),
            name: "toe0".into(),
            mac: MAC,
            address: OWN,
            ip_mtu: 1500,
            speed: 100,
            limits: LIMITS,
            programs: 1,
            table,
            recovery: Recovery::GoBackN,
            spray: 0,
            transmit_path: Default::default(),
            congestion: Congestion::None,
            raw_packets: true,
            lower_layer: LowerLayer::Packets,
            secret: [7; 16],
        });
        let device = Shared(Arc::new(Mutex::new(device.expect("a port with room"))));
        let sizes = QueueSizes { send: 8, ..QueueSizes::default() };
        let (region, queues) = DaemonQueues::create("fuzz", sizes).expect("sizes that can be");
        let program = NewProgram {
            who: Who { pid: 1, uid: 1, command: "fuzz".into() },
            pipe: queues.send.expect("it has one"),
            bell: daemon_bell(&region, Doorbell::eventfd().expect("a descriptor")),
            events: Arc::new(Nowhere),
        };
        let program = device.device().attach(program).expect("room");
        device.device().open_events(program, Arc::new(Nowhere), 1).expect("room");
        let host = host(&device);
        let world = World { host, device, program, pool: FramePool::new(64), now: 1, sent_numbers: vec![0] };
        // The program listens from the start on two ports.
        for (at, space) in [Space::Connections, Space::Datagrams].into_iter().enumerate() {
            // Numbers go on from the channel's.
            let id = at as u32 + 2;
            world.call(&Call::Create { channel: 1, space });
            let address = SocketAddrV4::new(OWN, PORTS[at]);
            world.call(&Call::Bind { id, address, shared: false });
            world.call(&Call::Listen { id, backlog: 4 });
        }
        world
    }

    fn call(&self, request: &Call) {
        // What means nothing now is refused.
        let _ = self.device.device().connect(self.now, self.program, request);
    }

    /// A round with this frame; each datagram that comes out can be read.
    fn round(&mut self, bytes: Option<Vec<u8>>) -> usize {
        let mut rx: Vec<Box<Frame>> = Vec::new();
        if let Some(bytes) = bytes {
            let mut frame = self.pool.large();
            frame.bytes_vec().extend_from_slice(&bytes);
            rx.push(frame);
        }
        let mut tx = Vec::new();
        let done = self.host.poll(self.now, &mut rx, &mut tx, &mut self.pool);
        for frame in tx {
            if let Ok(packet) = Packet::parse(frame.bytes()) {
                let mad = Mad::parse(packet.payload).expect("what is sent can be read");
                self.learn(&mad.message);
            }
            self.pool.put(frame);
        }
        done
    }

    fn learn(&mut self, message: &Message) {
        let number = match message {
            Message::Request(request) => request.local,
            Message::Lookup(lookup) => lookup.request,
            Message::Reply(reply) => reply.pair.local,
            Message::Wait(wait) => wait.pair.local,
            Message::Reject(reject) => reject.pair.local,
            Message::Ready(pair, _) | Message::Disconnect(pair, ..) | Message::Disconnected(pair, _) => pair.local,
            Message::LookupReply(_) => 0,
        };
        if !self.sent_numbers.contains(&number) {
            self.sent_numbers.push(number);
        }
    }

    /// The program is gone: what it had ends by itself, and leaves nothing.
    fn end(mut self) {
        self.device.device().detach(self.now, self.program);
        self.round(None);
        for _ in 0..ENDS {
            let Some(due) = self.device.device().next_deadline() else { break };
            self.now = self.now.max(due);
            self.round(None);
        }
        let device = self.device.device();
        assert!(device.views(self.now, usize::MAX).is_empty(), "the program is gone");
        assert_eq!(device.next_deadline(), None, "connections end");
        assert!(!device.has_work(self.now));
    }
}

fn peer(byte: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 2 + byte % 3)
}

fn data(input: &mut Input<'_>, most: usize) -> PrivateData {
    let len = usize::from(input.byte()).min(most);
    PrivateData(input.bytes(len).to_vec())
}

/// A frame from this peer for the general services interface.
fn frame(from: Ipv4Addr, key: u32, payload: &[u8]) -> Vec<u8> {
    let path = Path {
        local_mac: Mac([2, 0, 0, 0, 0, from.octets()[3]]),
        remote_mac: MAC,
        local: from,
        remote: OWN,
        hop_limit: 64,
        traffic_class: 0,
        source_port: 0xc000,
    };
    let mut bytes = Vec::new();
    let bth = Bth::new(Opcode::UD_SEND, GSI_QP, Psn::new(0));
    let headers = Headers::NONE.with(Deth { key, source: GSI_QP }.bytes());
    path.emit(&bth, &headers, payload.len(), &mut bytes);
    bytes.extend_from_slice(payload);
    finish(&mut bytes);
    bytes
}

/// What a REQ or a SIDR_REQ of this peer asks for, mostly something that there is.
fn service(input: &mut Input<'_>, from: Ipv4Addr, space: PortSpace) -> (u64, PrivateData) {
    let choice = input.byte();
    let port = PORTS[usize::from(choice % 3)];
    let name = if choice < 250 { Service { space, port }.name() } else { input.long() };
    let source = if choice & 8 == 0 { from } else { peer(choice) };
    let named = Named { port: input.byte().into(), source, destination: OWN };
    (name, PrivateData(named.with(&data(input, 200).0)))
}

fn request(input: &mut Input<'_>, from: Ipv4Addr) -> Request {
    let (service, data) = service(input, from, PortSpace::Tcp);
    let (flags, times) = (input.byte(), input.word());
    Request {
        local: u32::from(input.byte() % 8),
        service,
        qp: QueuePair {
            number: input.word() & 0xff_ffff,
            first_psn: input.word() & 0xff_ffff,
            responder_resources: input.byte(),
            initiator_depth: input.byte(),
            rnr_retries: flags & 7,
            srq: flags & 8 != 0,
            flow_control: flags & 16 != 0,
            guid: 1,
        },
        transport: flags >> 5 & 3,
        remote_timeout: times as u8 & 31,
        local_timeout: (times >> 8) as u8 & 31,
        retries: (times >> 16) as u8 & 7,
        cm_retries: (times >> 24) as u8 & 15,
        pkey: 0xffff,
        mtu: 1 + (flags >> 7),
        way: ConnectionPath { ack_timeout: input.byte() & 31, ..ConnectionPath::default() },
        has_alternate: false,
        data,
    }
}

/// A message with numbers that mostly mean something.
fn message(input: &mut Input<'_>, from: Ipv4Addr, sent_numbers: &[u32]) -> Message {
    let kind = input.byte();
    let remote = sent_numbers[usize::from(input.byte()) % sent_numbers.len()];
    let pair = Pair { local: u32::from(input.byte() % 8), remote };
    let about = [About::Request, About::Reply, About::Other][usize::from(kind >> 4) % 3];
    match kind % 9 {
        0 => Message::Request(Box::new(request(input, from))),
        1 => Message::Wait(Wait { pair, about, timeout: input.byte() & 31, data: data(input, 8) }),
        2 => {
            let (reason, detail) = (Reason(input.byte().into()), data(input, 80).0);
            Message::Reject(Box::new(Reject { pair, about, reason, detail, data: data(input, 8) }))
        }
        3 => {
            let qp = QueuePair { number: input.word() & 0xff_ffff, first_psn: 3, ..QueuePair::default() };
            Message::Reply(Box::new(Reply { pair, qp, data: data(input, 8), ..Reply::default() }))
        }
        4 => Message::Ready(pair, data(input, 8)),
        5 => Message::Disconnect(pair, input.word() & 0xff_ffff, data(input, 8)),
        6 => Message::Disconnected(pair, data(input, 8)),
        7 => {
            let (service, data) = service(input, from, PortSpace::Udp);
            Message::Lookup(Lookup { request: pair.local, pkey: 0xffff, service, data })
        }
        _ => Message::LookupReply(Box::new(LookupReply {
            request: remote,
            status: LookupStatus(input.byte() % 5),
            qp: input.word() & 0xff_ffff,
            service: 0,
            key: input.word(),
            data: data(input, 8),
        })),
    }
}

/// Something that the program asks for.
fn call(input: &mut Input<'_>) -> Call {
    let kind = input.byte();
    let id = u32::from(input.byte() % 12);
    let parameters = |input: &mut Input<'_>| Parameters {
        data: data(input, 200).0,
        qp: input.word() & 0xff_ffff,
        responder_resources: input.byte(),
        initiator_depth: input.byte(),
        retries: input.byte(),
        rnr_retries: input.byte(),
        ..Parameters::default()
    };
    let address = |input: &mut Input<'_>| SocketAddrV4::new(peer(input.byte()), PORTS[usize::from(input.byte()) % 3]);
    let group = |input: &mut Input<'_>| SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, input.byte()), PORTS[0]);
    match kind % 16 {
        0 => Call::Create { channel: 1, space: if kind & 16 == 0 { Space::Connections } else { Space::Datagrams } },
        1 => Call::Destroy(id),
        2 => Call::Bind { id, address: SocketAddrV4::new(OWN, input.byte().into()), shared: kind & 16 == 0 },
        3 if kind & 16 != 0 => Call::Resolve { id, to: group(input), timeout: input.byte().into() },
        3 => Call::Resolve { id, to: address(input), timeout: input.byte().into() },
        4 => Call::Route(id),
        5 => Call::Listen { id, backlog: input.byte().into() },
        6 => Call::Connect { id, parameters: parameters(input) },
        7 => Call::Accept { id, parameters: parameters(input) },
        8 => Call::Join { id, group: group(input) },
        9 => Call::Reject { id, data: data(input, 200).0 },
        10 => Call::Establish(id),
        11 => Call::Disconnect(id),
        12 => {
            let states = [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend, QpState::Error];
            Call::Attributes { id, state: states[usize::from(input.byte()) % 4] }
        }
        13 => Call::Migrate { id, channel: u32::from(input.byte() % 3) },
        14 => Call::CloseChannel(u32::from(input.byte() % 3)),
        _ => Call::Event(1),
    }
}

/// A peer sends its address, so that the program can reach it.
fn neighbour(from: Ipv4Addr) -> Vec<u8> {
    let mac = Mac([2, 0, 0, 0, 0, from.octets()[3]]);
    let mut bytes = vec![0; ethernet::HEADER_LEN + arp::LEN];
    ethernet::Header { dst: MAC, src: mac, ethertype: EtherType::Arp }.emit(&mut bytes);
    let operation = arp::Operation::Reply;
    let packet = arp::Packet { operation, sender_mac: mac, sender_ip: from, target_mac: MAC, target_ip: OWN };
    packet.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes
}

/// Datagrams, calls of the program, and time.
pub(crate) fn run(bytes: &[u8]) {
    play(bytes).end();
}

fn play(bytes: &[u8]) -> World {
    let (mut input, mut world) = (Input::new(bytes), World::new());
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        let step = input.byte();
        let from = peer(step >> 4);
        match step % 16 {
            0 => {
                let mut payload = input.bytes(MAD_LEN).to_vec();
                payload.resize(MAD_LEN, 0);
                world.round(Some(frame(from, GSI_KEY, &payload)));
            }
            1 => {
                let (key, payload) = (input.word(), data(&mut input, 255).0);
                world.round(Some(frame(from, key, &payload)));
            }
            2 => {
                let mut bytes = frame(from, GSI_KEY, &[1; MAD_LEN]);
                let (at, with) = (usize::from(input.byte()) % bytes.len(), input.byte());
                bytes[at] ^= with;
                world.round(Some(bytes));
            }
            3 => drop(world.round(Some(neighbour(from)))),
            4 => {
                world.now += 1 << (input.byte() % 38);
                world.round(None);
            }
            5..10 => world.call(&call(&mut input)),
            _ => {
                let mad =
                    Mad { transaction: input.byte().into(), message: message(&mut input, from, &world.sent_numbers) };
                world.round(Some(frame(from, GSI_KEY, &mad.bytes())));
            }
        }
    }
    world
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States of the program's identifiers after this input.
    fn states(bytes: &[u8]) -> Vec<&'static str> {
        let world = play(bytes);
        let views = world.device.device().views(world.now, usize::MAX);
        world.end();
        views[0].ids.iter().map(|id| id.state).collect()
    }

    /// What is kept in `fuzz/corpus` reaches each of these.
    #[test]
    fn inputs_can_make_connections_of_both_sides_and_end_them() {
        const QP: [u8; 4] = [0x11, 0, 0, 0];
        // REQ from port 5 for the first listener, with number 1.
        let req = [10, 1, 0, 0, 0, 0, 5, 0, 0, 18, 18, 7, 3, 1, 0x22, 0, 0, 0, 1, 0, 0, 0, 1, 1, 14];
        // The program takes the event, and accepts with the new identifier.
        let accept = [&[5, 15, 0, 5, 7, 4, 0][..], &QP, &[1, 1, 7, 7, 4, 0]].concat();
        let rtu = [10, 1, 4, 1, 1, 0];
        let dreq = [&[10, 2, 5, 1, 1][..], &QP, &[0]].concat();
        let mut input = req.to_vec();
        assert_eq!(states(&input), ["LISTEN", "LISTEN", "REQ-RCVD"]);
        input.extend_from_slice(&accept);
        assert_eq!(states(&input)[2], "REP-SENT");
        input.extend_from_slice(&rtu);
        assert_eq!(states(&input)[2], "ESTABLISHED");
        input.extend_from_slice(&dreq);
        assert_eq!(states(&input)[2], "TIME-WAIT");
        // The program asks the first peer, which answers ARP, and then with REP.
        let ask = [5, 0, 0, 5, 3, 4, 0, 0, 200, 3, 4, 0, 5, 4, 4];
        let connect = [&[5, 6, 4, 0][..], &QP, &[1, 1, 7, 7, 4, 0]].concat();
        let mut input = [&ask[..], &connect].concat();
        assert_eq!(states(&input)[2], "REQ-SENT");
        input.extend_from_slice(&[10, 1, 3, 1, 2, 9, 0, 0, 0, 0, 5, 10, 4]);
        assert_eq!(states(&input)[2], "ESTABLISHED");
        // SIDR_REQ for the second listener.
        let lookup = [10, 1, 7, 0, 3, 1, 5, 0];
        assert_eq!(states(&lookup)[2], "SIDR-REQ-RCVD");
    }
}
