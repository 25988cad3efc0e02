//! Verbs on ZeroNIC hosts of a real `toed`: queue pairs whose messages go over TCP connections of each transport, also
//! through loss. Each byte is compared. Programs that ask for what is not theirs get the errors of verbs.
mod common;

use common::Toed;
use common::application::until;
use common::comm::{Program, b};
use common::peer::{Peer, pattern};
use common::verbs::{Cq, Verbs, init, ready_to_receive, ready_to_send};
use common::zeronic::{configuration, transports};
use context::comm::{Carries, Order, Outcome};
use daemon::client::open;
use daemon::protocol::{Capture, Question};
use memory::Rights;
use port::capture::pcapng::{self, Block};
use std::collections::BTreeSet;
use std::net::Shutdown;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use verbs::connections::{Answer as Managed, Event, Happened, Parameters, Request, Space};
use verbs::control::{Answer, Request as Control};
use verbs::{Completion, CompletionOpcode, Number, Operand, QpAttributes, QpKind, QpState, SendOpcode, Status};

const LEN: usize = 600_000;
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 7174;

/// Each operation of some lengths, one after the other.
fn exchange(one: &mut Peer, other: &mut Peer, rounds: &[usize]) {
    for (round, len) in rounds.iter().copied().enumerate() {
        let sent = one.write_and_read(other, round, len);
        // SEND, into memory that is longer.
        other.memory.fill(0, vec![0; LEN]);
        other.post_receive(0, LEN);
        assert_eq!(one.run(SendOpcode::Send, 0, len, Operand::default()), Status::Success);
        let received = other.qp.cq.next();
        assert_eq!((received.status, received.opcode), (Status::Success, CompletionOpcode::Receive));
        assert_eq!(received.bytes as usize, len);
        let bytes = other.memory.bytes();
        assert!(bytes[..len] == sent && bytes[len..].iter().all(|byte| *byte == 0), "SEND of {len} bytes");
    }
}

#[test]
fn programs_send_write_and_read_over_each_transport() {
    for transport in transports("programs_send_write_and_read_over_each_transport") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
        assert_eq!((one.verbs.device.name.as_str(), one.verbs.device.atomics), ("zeronic0", false));
        exchange(&mut one, &mut other, &[1, 63, 1400, 1449, 5000, 65_536, LEN]);
        exchange(&mut other, &mut one, &[1, 100_000]);
        let listed = toed.ask(&Question::Ls)["zeronics"][0]["rdma"].clone();
        assert_eq!(listed["device"], "zeronic0");
        let qp = &listed["programs"][0]["qps"][0];
        assert_eq!((&qp["state"], &qp["peer"]), (&"RTS".into(), &"10.0.0.2".into()), "{listed}");
    }
}

#[test]
fn messages_pass_through_loss_and_disorder() {
    let faults = "loss = 0.01\nreorder = 0.02\nduplicate = 0.01\nseed = 7";
    for transport in transports("messages_pass_through_loss_and_disorder") {
        let toed = Toed::start(&configuration(transport, faults));
        let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
        for _ in 0..5 {
            exchange(&mut one, &mut other, &[100, 5000, 100_000]);
        }
        // Many at once: each receive gets the next message.
        const COUNT: usize = 60;
        const PART: usize = 4000;
        (0..COUNT).for_each(|at| other.post_receive(at * PART, PART));
        one.memory.fill(0, pattern(0, COUNT * PART));
        for at in 0..COUNT {
            one.post(SendOpcode::Send, at * PART, at * 60 + 1, Operand::default());
        }
        for _ in 0..COUNT {
            assert_eq!(one.qp.cq.next().status, Status::Success);
        }
        let sent = pattern(0, COUNT * PART);
        for at in 0..COUNT {
            let (done, len, begin) = (other.qp.cq.next(), at * 60 + 1, at * PART);
            assert_eq!((done.status, done.bytes as usize), (Status::Success, len));
            assert!(other.memory.bytes()[begin..begin + len] == sent[begin..begin + len], "message {at}");
        }
    }
}

#[test]
fn errors_are_those_of_verbs() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let fresh = || Peer::pair(&toed.socket(), 4096);
    let flushed = |cq: &mut Cq| assert_eq!(cq.next().status, Status::Flushed);
    // A key that is not in use, a range beyond the region, memory of another program.
    let (mut one, other) = fresh();
    let good = other.memory.remote(0, other.key);
    one.memory.fill(0, pattern(1, 4096));
    let bad = Operand { key: good.key ^ 0x100, ..good };
    one.post(SendOpcode::Write, 0, 100, bad);
    one.post(SendOpcode::Write, 0, 100, good);
    assert_eq!(one.qp.cq.next().status, Status::RemoteAccess);
    flushed(&mut one.qp.cq);
    assert!(other.memory.bytes().iter().all(|byte| *byte == 0), "nothing was written");
    assert_eq!(one.verbs.query(one.qp.number).state, Some(QpState::Error));
    let (mut one, other) = fresh();
    let beyond = other.memory.remote(4000, other.key);
    assert_eq!(one.run(SendOpcode::Write, 0, 97, beyond), Status::RemoteAccess);
    let (mut one, other) = fresh();
    assert_eq!(one.run(SendOpcode::Read, 0, 97, other.memory.remote(4000, other.key)), Status::RemoteAccess);
    // The queue pair grants nothing.
    let (mut one, other) = (Peer::open(&toed.socket(), "a", 4096), Peer::open(&toed.socket(), "b", 4096));
    one.verbs.connect(one.qp.number, other.verbs.gid(), other.qp.number);
    other.verbs.modify(other.qp.number, QpAttributes { rights: Some(Rights::NONE), ..init() });
    other.verbs.modify(other.qp.number, ready_to_receive(one.verbs.gid(), one.qp.number));
    other.verbs.modify(other.qp.number, ready_to_send());
    assert_eq!(one.run(SendOpcode::Write, 0, 10, other.memory.remote(0, other.key)), Status::RemoteAccess);
    // Longer than its receive.
    let (mut one, mut other) = fresh();
    other.post_receive(0, 10);
    assert_eq!(one.run(SendOpcode::Send, 0, 11, Operand::default()), Status::RemoteInvalidRequest);
    assert_eq!(other.qp.cq.next().status, Status::LocalLength);
    // Its own memory, which is not registered.
    let (mut one, other) = fresh();
    let piece = verbs::Piece { key: one.key.0 ^ 0x100, ..one.memory.piece(0, 8, one.key) };
    one.verbs.post(&mut one.qp, SendOpcode::Write, piece, other.memory.remote(0, other.key));
    assert_eq!(one.qp.cq.next().status, Status::LocalProtection);
    // Atomics are not there.
    let (mut one, other) = fresh();
    let piece = one.memory.piece(0, 8, one.key);
    one.verbs.post_atomic(&mut one.qp, SendOpcode::FetchAdd, piece, other.memory.remote(0, other.key), [1, 0]);
    assert_eq!(one.qp.cq.next().status, Status::LocalQpOperation);
    // Nor are packets of the own making.
    let cq = one.verbs.cq(16, None);
    let errno = one.verbs.errno(&Control::CreateQp(one.verbs.new_qp(QpKind::RawPacket, one.domain, &cq)));
    assert_eq!(errno, libc::EOPNOTSUPP);
}

/// Hosts with a line each, which a pair of theirs has already.
fn without_lines(transport: &str, faults: &str) -> (Toed, (Peer, Peer)) {
    let text = configuration(transport, faults);
    let toed = Toed::start(&text.replace("\ntransport = ", "\nplaced_connections = 1\ntransport = "));
    let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
    exchange(&mut one, &mut other, &[100]);
    (toed, (one, other))
}

/// Connections of both hosts that have found no line.
fn copied(toed: &Toed) -> [u64; 2] {
    let stats = toed.ask(&Question::Stats { host: None, flow: None });
    [0, 1].map(|host| stats["zeronics"][host]["payload"]["connections_without_line"].as_u64().expect("it is counted"))
}

#[test]
fn queue_pairs_without_lines_have_the_same_operations() {
    for transport in transports("queue_pairs_without_lines_have_the_same_operations") {
        let (toed, _held) = without_lines(transport, "loss = 0.01\nreorder = 0.02\nduplicate = 0.01\nseed = 7");
        let mut pairs: Vec<(Peer, Peer)> = (0..3).map(|_| Peer::pair(&toed.socket(), LEN)).collect();
        for (one, other) in &mut pairs {
            exchange(one, other, &[1, 63, 1449, 65_536, LEN]);
            exchange(other, one, &[1, 100_000]);
        }
        assert!(copied(&toed).iter().all(|count| *count >= 3), "over {transport}: {:?}", copied(&toed));
    }
}

#[test]
fn a_message_without_a_receive_waits_and_holds_up_nothing_else() {
    waits_for_receives(&Toed::start(&configuration("flextoe", "")));
    for transport in transports("a message without a receive, without a line") {
        let (toed, _held) = without_lines(transport, "");
        waits_for_receives(&toed);
        assert!(copied(&toed).iter().all(|count| *count >= 1));
    }
}

fn waits_for_receives(toed: &Toed) {
    let (mut one, mut other) = Peer::pair(&toed.socket(), 8192);
    one.memory.fill(0, pattern(3, 4096));
    for at in 0..3 {
        one.post(SendOpcode::Send, at * 1000, 1000, Operand::default());
    }
    // The peer's own requests are answered meanwhile, on the same connection.
    other.memory.fill(4096, pattern(9, 100));
    assert_eq!(other.run(SendOpcode::Write, 4096, 100, one.memory.remote(4096, one.key)), Status::Success);
    assert!(one.qp.cq.poll().is_none(), "no receive was there");
    (0..3).for_each(|at| other.post_receive(at * 1000, 1000));
    for at in 0..3 {
        let Completion { status, number, .. } = one.qp.cq.next();
        assert_eq!((status, number), (Status::Success, at));
        assert_eq!(other.qp.cq.next().status, Status::Success);
    }
    assert!(other.memory.bytes()[..3000] == pattern(3, 4096)[..3000]);
    assert!(one.memory.bytes()[4096..4196] == pattern(9, 100)[..]);
}

#[test]
fn a_peer_that_is_gone_is_not_waited_for() {
    for transport in transports("a_peer_that_is_gone_is_not_waited_for") {
        peer_goes(&Toed::start(&configuration(transport, "")), 0);
        let (toed, _held) = without_lines(transport, "");
        peer_goes(&toed, 1);
    }
}

/// `others` programs of each host stay.
fn peer_goes(toed: &Toed, others: usize) {
    let (mut one, other) = Peer::pair(&toed.socket(), 4096);
    let remote = other.memory.remote(0, other.key);
    assert_eq!(one.run(SendOpcode::Write, 0, 64, remote), Status::Success);
    one.post_receive(0, 64);
    drop(other.verbs);
    until("the program to be forgotten", || {
        let programs = &toed.ask(&Question::Ls)["zeronics"][1]["rdma"]["programs"];
        programs.as_array().is_some_and(|all| all.len() == others)
    });
    assert_eq!(one.run(SendOpcode::Write, 0, 64, remote), Status::RetryExceeded);
    assert_eq!(one.qp.cq.next().status, Status::Flushed, "its receive");
    // No answer ever comes: the queue pair gives up as well.
    let mut alone = Peer::open(&toed.socket(), "a", 4096);
    alone.verbs.connect(alone.qp.number, Verbs::open(&toed.socket(), "b").gid(), 0x1234);
    assert_eq!(alone.run(SendOpcode::Send, 0, 64, Operand::default()), Status::RetryExceeded);
}

#[test]
fn a_peer_may_end_first_as_on_hardware() {
    for transport in transports("a_peer_may_end_first_as_on_hardware") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, other) = Peer::pair(&toed.socket(), 4096);
        // More than the peer has receives for; it goes, and does not wait for them.
        one.post(SendOpcode::Send, 0, 64, Operand::default());
        other.verbs.done(&Control::DestroyQp(other.qp.number));
        let begin = Instant::now();
        assert_eq!(one.qp.cq.next().status, Status::RetryExceeded);
        // 4.096 us * 2^14, once and seven times more.
        assert!(begin.elapsed() > Duration::from_millis(500), "over {transport}: {:?}", begin.elapsed());
    }
}

/// The acknowledgement of a message that was carried out is under way, and other messages with it: both arrive although
/// queue pair, memory and program go at once.
#[test]
fn executed_requests_are_acknowledged_at_the_end() {
    let faults = "reorder = 0.4\nreorder_delay_ns = 20_000_000\nseed = 11";
    for transport in transports("executed_requests_are_acknowledged_at_the_end") {
        ends_at_once(&Toed::start(&configuration(transport, faults)), transport);
        let (toed, _held) = without_lines(transport, faults);
        ends_at_once(&toed, transport);
    }
}

fn ends_at_once(toed: &Toed, transport: &str) {
    let mut pairs: Vec<(Peer, Peer)> = (0..16).map(|_| Peer::pair(&toed.socket(), 4096)).collect();
    for (one, other) in &mut pairs {
        other.post_receive(0, 64);
        one.post(SendOpcode::Send, 0, 64, Operand::default());
    }
    for (mut one, mut other) in pairs {
        assert_eq!(other.qp.cq.next().status, Status::Success);
        for _ in 0..8 {
            other.post(SendOpcode::Send, 0, 2000, Operand::default());
        }
        drop(other);
        assert_eq!(one.qp.cq.next().status, Status::Success, "over {transport}");
    }
}

#[test]
fn a_queue_pair_that_is_reset_gets_another_connection() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
    exchange(&mut one, &mut other, &[100]);
    for peer in [&one, &other] {
        peer.verbs.modify(peer.qp.number, common::verbs::to(QpState::Reset));
    }
    let (mut next, mut last) = (Peer::open(&toed.socket(), "a", LEN), Peer::open(&toed.socket(), "b", LEN));
    last.verbs.connect(last.qp.number, next.verbs.gid(), next.qp.number);
    next.verbs.connect(next.qp.number, last.verbs.gid(), last.qp.number);
    exchange(&mut next, &mut last, &[100, 5000]);
}

#[test]
fn captures_have_whole_frames_with_what_became_of_them() {
    let faults = "loss = 0.05\nseed = 5";
    for transport in transports("captures_have_whole_frames_with_what_became_of_them") {
        let toed = Toed::start(&configuration(transport, faults));
        let (mut one, other) = Peer::pair(&toed.socket(), LEN);
        let program = vec![(6, 0, 0, 1 << 16)];
        let wish = Capture { host: Some("a".into()), program, ..Capture::default() };
        let (_, mut stream) = open(&toed.socket(), &Question::Capture(wish.clone())).unwrap();
        one.memory.fill(0, pattern(1, LEN));
        assert_eq!(one.run(SendOpcode::Write, 0, LEN, other.memory.remote(0, other.key)), Status::Success);
        stream.get_ref().shutdown(Shutdown::Write).unwrap();
        let (mut labels, mut payload) = (BTreeSet::new(), 0);
        while let Some(block) = pcapng::read(&mut stream).unwrap() {
            let Block::Packet(packet) = block else { continue };
            let is_data = packet.comment == "merge: sent" && packet.bytes.len() > 500;
            payload += if is_data { packet.bytes.len() } else { 0 };
            labels.insert(format!("{:?} {}", packet.direction.unwrap(), packet.comment));
        }
        let wanted = ["In split: accepted", "Out merge: sent", "Out merge: sent again"];
        assert!(wanted.iter().all(|wanted| labels.contains(*wanted)), "over {transport}: {labels:?}");
        assert!(payload >= LEN, "over {transport}: {payload} bytes");
        let of_flow = Question::Capture(Capture { flow: Some(1), ..wish });
        let refused = open(&toed.socket(), &of_flow).err().unwrap();
        assert!(refused.contains("have no number"), "{refused}");
    }
}

#[test]
fn no_program_speaks_for_its_hosts_queue_pairs() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let mut program = Program::open(&toed, "a");
    for (id, carries) in [(1, Carries::Messages), (2, Carries::Stream)] {
        program.post(id, 0, Order::Connect(b(zeronic::VERBS_PORT), carries));
        let refused = program.expect(Outcome::Failed);
        assert_eq!((refused.id, refused.value as i32), (id, libc::EACCES));
    }
    program.post(3, 0, Order::Listen(zeronic::VERBS_PORT, Carries::Messages));
    assert_eq!(program.expect(Outcome::Failed).value as i32, libc::EACCES);
}

#[test]
fn programs_of_one_host_need_no_connection() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Peer::open(&toed.socket(), "a", LEN), Peer::open(&toed.socket(), "a", LEN));
    one.verbs.connect(one.qp.number, other.verbs.gid(), other.qp.number);
    other.verbs.connect(other.qp.number, one.verbs.gid(), one.qp.number);
    exchange(&mut one, &mut other, &[1, 5000, LEN]);
    other.memory.fill(0, pattern(1, 100));
    other.post(SendOpcode::Send, 0, 100, Operand::default());
    one.post_receive(0, 100);
    assert_eq!(one.qp.cq.next().status, Status::Success);
    assert_eq!(other.qp.cq.next().status, Status::Success);
    drop(other.verbs);
    until("the program to be forgotten", || {
        toed.ask(&Question::Ls)["zeronics"][0]["rdma"]["programs"].as_array().is_some_and(|left| left.len() == 1)
    });
    assert_eq!(one.run(SendOpcode::Write, 0, 8, Operand::default()), Status::RetryExceeded);
}

/// A program with an event channel of connection management.
struct Manager {
    peer: Peer,
    channel: Number,
    pipe: OwnedFd,
}

impl Manager {
    fn open(toed: &Toed, host: &str) -> Manager {
        let peer = Peer::open(&toed.socket(), host, LEN);
        let (answer, pipe) = peer.verbs.ask(&Control::Connections(Request::OpenChannel), &[]);
        let Answer::Number(channel) = answer else { panic!("{answer:?}") };
        Manager { peer, channel, pipe: pipe.unwrap() }
    }

    fn done(&self, request: Request) {
        self.peer.verbs.done(&Control::Connections(request));
    }

    fn create(&self) -> Number {
        let request = Request::Create { channel: self.channel, space: Space::Connections };
        self.peer.verbs.number(&Control::Connections(request))
    }

    fn listen(&self) -> Number {
        let (id, address) = (self.create(), SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT));
        self.peer.verbs.ask(&Control::Connections(Request::Bind { id, address, shared: false }), &[]);
        self.done(Request::Listen { id, backlog: 4 });
        id
    }

    fn connect(&self, port: u16, data: &[u8]) -> Number {
        let (id, to) = (self.create(), SocketAddrV4::new(A, port));
        self.peer.verbs.ask(&Control::Connections(Request::Resolve { id, to, timeout: 2000 }), &[]);
        assert_eq!(self.event(), Event { id, what: Happened::AddressResolved });
        self.done(Request::Route(id));
        assert_eq!(self.event().what, Happened::RouteResolved);
        self.done(Request::Connect { id, parameters: self.parameters(data) });
        id
    }

    fn parameters(&self, data: &[u8]) -> Parameters {
        let (responder_resources, initiator_depth, retries, rnr_retries) = (4, 4, 7, 7);
        let (data, qp) = (data.to_vec(), self.peer.qp.number);
        Parameters { data, responder_resources, initiator_depth, retries, rnr_retries, qp, ..Parameters::default() }
    }

    fn event(&self) -> Event {
        let mut completion = [0];
        assert_eq!(rustix::io::read(&self.pipe, &mut completion), Ok(1));
        match self.peer.verbs.ask(&Control::Connections(Request::Event(self.channel)), &[]).0 {
            Answer::Connections(Managed::Event(Some(event))) => event,
            other => panic!("{other:?}"),
        }
    }

    /// The queue pair goes through its states with the values of connection management.
    fn ready(&self, id: Number) {
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            let request = Control::Connections(Request::Attributes { id, state });
            let Answer::Attributes(mut attributes) = self.peer.verbs.ask(&request, &[]).0 else { panic!("{state:?}") };
            if state == QpState::Init {
                attributes.rights = init().rights;
            }
            self.peer.verbs.modify(self.peer.qp.number, attributes);
        }
    }
}

#[test]
fn connections_are_asked_for_accepted_refused_and_ended() {
    for transport in transports("connections_are_asked_for_accepted_refused_and_ended") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut server, mut client) = (Manager::open(&toed, "a"), Manager::open(&toed, "b"));
        server.listen();
        // There is no listener.
        client.connect(PORT + 1, b"");
        assert!(matches!(client.event().what, Happened::Rejected { .. }));
        // Refused, with private data.
        client.connect(PORT, b"may I");
        let Event { id, what: Happened::Requested { parameters, remote, .. } } = server.event() else { panic!() };
        assert_eq!((&parameters.data[..5], remote.ip().octets()[3]), (&b"may I"[..], 2));
        server.done(Request::Reject { id, data: b"no".to_vec() });
        let Happened::Rejected { data, .. } = client.event().what else { panic!() };
        assert_eq!(&data[..2], b"no");
        // Accepted: the connection carries the queue pairs' messages.
        let asked = client.connect(PORT, b"please");
        let Event { id, what: Happened::Requested { parameters, .. } } = server.event() else { panic!() };
        assert_eq!(parameters.qp, client.peer.qp.number);
        server.ready(id);
        server.done(Request::Accept { id, parameters: server.parameters(b"welcome") });
        let Happened::Replied(reply) = client.event().what else { panic!() };
        assert_eq!((reply.qp, &reply.data[..7]), (server.peer.qp.number, &b"welcome"[..]));
        client.ready(asked);
        client.done(Request::Establish(asked));
        assert!(matches!(server.event(), Event { id: of, what: Happened::Established(_) } if of == id));
        exchange(&mut client.peer, &mut server.peer, &[1, 5000, 200_000]);
        exchange(&mut server.peer, &mut client.peer, &[1, 5000]);
        let connections = || {
            let listed = toed.ask(&Question::Ls)["zeronics"][0]["connections"].as_array().cloned();
            listed.map_or(0, |listed| listed.len())
        };
        // Those that were refused may still be ending; the queue pairs have no other one.
        until("the queue pairs' connection to be the only one", || connections() == 1);
        // Ended by one side.
        client.done(Request::Disconnect(asked));
        assert_eq!(client.event().what, Happened::Disconnected);
        assert_eq!(server.event(), Event { id, what: Happened::Disconnected });
        let gone = Control::DestroyQp(client.peer.qp.number);
        client.peer.verbs.done(&gone);
        server.peer.verbs.done(&Control::DestroyQp(server.peer.qp.number));
        until("the connection to be gone", || connections() == 0);
    }
}

#[test]
fn a_program_that_dies_ends_its_connections() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (server, client) = (Manager::open(&toed, "a"), Manager::open(&toed, "b"));
    server.listen();
    let asked = client.connect(PORT, b"");
    let Event { id, .. } = server.event();
    server.ready(id);
    server.done(Request::Accept { id, parameters: server.parameters(b"") });
    client.event();
    client.ready(asked);
    client.done(Request::Establish(asked));
    server.event();
    drop(client);
    assert_eq!(server.event(), Event { id, what: Happened::Disconnected });
}
