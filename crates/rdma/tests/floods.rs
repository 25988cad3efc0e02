//! Connection management under floods: of a program that takes no events, and of peers that ask for ever more.
mod support;

use engine::{DropReason, FramePool, Nanos};
use host::{Host, Transport};
use rdma::{Device, Failure, ProgramId};
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};
use support::{MAC, Nowhere, OWN, PEER, attach, config, host};
use verbs::Number;
use verbs::connections::{Answer as ConnectionsAnswer, Happened, Request, Space};
use verbs::control::Answer;
use wire::Mac;
use wire::roce::cm::{GSI_KEY, MAD_LEN, Mad, Message, Named, Pair, PortSpace, PrivateData, Request as Req, Service};
use wire::roce::{Bth, Deth, GSI_QP, Headers, Opcode, Packet, Path, Psn, finish};

/// A host with a device, and programs.
struct World {
    host: Host,
    device: Arc<Mutex<Device>>,
    pool: FramePool,
    now: Nanos,
}

impl World {
    fn new() -> World {
        let (host, device) = host(config());
        World { host, device, pool: FramePool::new(8), now: 1 }
    }

    /// A program, and its event channel.
    fn attach(&self) -> (ProgramId, Number) {
        let mut device = self.device.lock().unwrap();
        let id = attach(&mut device);
        (id, device.open_events(id, Arc::new(Nowhere), 1).unwrap())
    }

    fn call(&self, id: ProgramId, request: &Request) -> Result<Answer, Failure> {
        self.device.lock().unwrap().connect(self.now, id, request)
    }

    fn create(&self, id: ProgramId, channel: Number) -> Number {
        let created = self.call(id, &Request::Create { channel, space: Space::Connections });
        let Ok(Answer::Number(number)) = created else { panic!("{created:?}") };
        number
    }

    fn listen(&self, id: ProgramId, channel: Number, port: u16, backlog: u32) {
        let number = self.create(id, channel);
        self.call(id, &Request::Bind { id: number, address: SocketAddrV4::new(OWN, port), shared: false }).unwrap();
        self.call(id, &Request::Listen { id: number, backlog }).unwrap();
    }

    /// The identifier of the next request that a program takes.
    fn requested(&self, id: ProgramId, channel: Number) -> Option<Number> {
        let Ok(Answer::Connections(ConnectionsAnswer::Event(event))) = self.call(id, &Request::Event(channel)) else {
            panic!()
        };
        event.filter(|event| matches!(event.what, Happened::Requested { .. })).map(|event| event.id)
    }

    fn ids(&self, id: ProgramId) -> usize {
        let at = usize::try_from(id.0 - 1).unwrap();
        self.device.lock().unwrap().views(self.now, usize::MAX)[at].id_count
    }

    /// A round with a datagram of the peer's, or without one; what is answered.
    fn round(&mut self, message: Option<Message>) -> Vec<Message> {
        let mut rx = Vec::new();
        if let Some(message) = message {
            let mut frame = self.pool.large();
            datagram(&Mad { transaction: 7, message }, frame.bytes_vec());
            rx.push(frame);
        }
        let mut tx = Vec::new();
        self.host.poll(self.now, &mut rx, &mut tx, &mut self.pool);
        let mut answers = Vec::new();
        for frame in tx {
            let packet = Packet::parse(frame.bytes()).ok();
            answers.extend(packet.map(|packet| Mad::parse(packet.payload).unwrap().message));
            self.pool.put(frame);
        }
        answers
    }
}

fn datagram(mad: &Mad, into: &mut Vec<u8>) {
    let path = Path {
        local_mac: Mac([2, 0, 0, 0, 0, 2]),
        remote_mac: MAC,
        local: PEER,
        remote: OWN,
        hop_limit: 64,
        traffic_class: 0,
        source_port: 0xc000,
    };
    let headers = Headers::NONE.with(Deth { key: GSI_KEY, source: GSI_QP }.bytes());
    path.emit(&Bth::new(Opcode::UD_SEND, GSI_QP, Psn::new(0)), &headers, MAD_LEN, into);
    into.extend_from_slice(&mad.bytes());
    finish(into);
}

/// REQ for a port, with the peer's number for the connection.
fn req(number: u32, port: u16) -> Message {
    let service = Service { space: PortSpace::Tcp, port }.name();
    let named = Named { port: 5, source: PEER, destination: OWN };
    let data = PrivateData(named.with(&[]));
    Message::Request(Box::new(Req { local: number, service, mtu: 1, data, ..Req::default() }))
}

#[test]
fn a_program_that_takes_no_events_gets_no_more_of_them() {
    let mut world = World::new();
    let (id, channel) = world.attach();
    let number = world.create(id, channel);
    world.call(id, &Request::Resolve { id: number, to: SocketAddrV4::new(OWN, 4000), timeout: 1000 }).unwrap();
    world.round(None);
    // The address is resolved, and the route may be asked for again and again.
    let asked = (0..100_000).take_while(|_| world.call(id, &Request::Route(number)).is_ok()).count();
    assert!((10_000..20_000).contains(&asked), "{asked} events wait");
    assert_eq!(world.call(id, &Request::Route(number)).unwrap_err().errno, libc::ENOMEM);
    let mut taken = 0;
    while let Ok(Answer::Connections(ConnectionsAnswer::Event(Some(_)))) = world.call(id, &Request::Event(channel)) {
        taken += 1;
    }
    assert_eq!(taken, asked + 1, "none is lost");
    world.call(id, &Request::Route(number)).unwrap();
}

#[test]
fn a_flood_of_requests_fills_one_backlog_only() {
    const FLOOD: u32 = 20_000;
    let mut world = World::new();
    let (flooded, channel) = world.attach();
    let (other, others) = world.attach();
    world.listen(flooded, channel, 4000, 8);
    world.listen(other, others, 4001, 8);
    let answers: usize = (1..=FLOOD).map(|number| world.round(Some(req(number, 4000))).len()).sum();
    // What waits for the program, and the listener itself; each gets one report that it takes longer.
    assert_eq!((world.ids(flooded), answers), (9, 8));
    assert_eq!(world.host.drops().get(DropReason::Backlog), u64::from(FLOOD) - 8);
    // The other one is asked as ever.
    world.round(Some(req(FLOOD + 1, 4001)));
    assert!(world.requested(other, others).is_some());
    // An answer makes room again.
    let asked = world.requested(flooded, channel).unwrap();
    world.call(flooded, &Request::Reject { id: asked, data: Vec::new() }).unwrap();
    world.call(flooded, &Request::Destroy(asked)).unwrap();
    world.round(Some(req(FLOOD + 2, 4000)));
    assert_eq!(world.ids(flooded), 9);
    // Programs go: nothing is left once the last connection has been given up.
    for program in [flooded, other] {
        world.device.lock().unwrap().detach(world.now, program);
    }
    for _ in 0..1000 {
        let Some(due) = world.device.lock().unwrap().next_deadline() else { break };
        world.now = due.max(world.now);
        world.round(None);
    }
    assert_eq!(world.device.lock().unwrap().next_deadline(), None);
}

#[test]
fn unknown_peers_get_a_thousand_answers_a_second() {
    let mut world = World::new();
    let pair = |number| Pair { local: number, remote: number + 1 };
    for (at, flood) in [
        |number| req(number, 4999),
        |number| Message::Disconnect(Pair { local: number, remote: number + 1 }, 1, PrivateData::default()),
    ]
    .iter()
    .enumerate()
    {
        world.now += 10_000_000_000;
        let answers: usize = (1..5000).map(|number| world.round(Some(flood(number))).len()).sum();
        assert!((500..=2000).contains(&answers), "{answers} answers to flood {at}");
    }
    // What is about nothing is not answered at all.
    world.now += 10_000_000_000;
    for number in 1..100 {
        assert!(world.round(Some(Message::Ready(pair(number), PrivateData::default()))).is_empty());
        assert!(world.round(Some(Message::Disconnected(pair(number), PrivateData::default()))).is_empty());
    }
    assert!(world.host.drops().get(DropReason::MadUnknown) >= 198);
}
