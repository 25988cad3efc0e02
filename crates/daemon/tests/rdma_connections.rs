//! RDMA's connection management over a real fabric: connections that come, are refused and end, programs that die in
//! the middle, and requests that make no sense. The program is this test, which speaks the protocol of `crates/verbs`.
mod common;

use common::Toed;
use common::application::until;
use common::verbs::Verbs;
use daemon::protocol::Question;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;
use verbs::connections::{Answer as Managed, Event, Happened, Parameters, Request, Space, room};
use verbs::control::{Answer, Request as Control};
use verbs::{Number, QpState};

const CONFIGURATION: &str = "log = \"error\"\n[[fabric]]\nname = \"lab\"\n\
    [[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\nrdma = \"own\"\n\
    port = { kind = \"fabric\", fabric = \"lab\" }\n\
    [[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n\
    port = { kind = \"fabric\", fabric = \"lab\" }\n";

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 7174;

/// A program with an event channel.
struct Program {
    verbs: Verbs,
    channel: Number,
    pipe: OwnedFd,
}

impl Program {
    fn open(toed: &Toed, host: &str) -> Program {
        let verbs = Verbs::open(&toed.socket(), host);
        let (answer, pipe) = verbs.ask(&Control::Connections(Request::OpenChannel), &[]);
        let Answer::Number(channel) = answer else { panic!("{answer:?}") };
        Program { verbs, channel, pipe: pipe.unwrap() }
    }

    fn done(&self, request: Request) {
        self.verbs.done(&Control::Connections(request));
    }

    fn errno(&self, request: Request) -> i32 {
        self.verbs.errno(&Control::Connections(request))
    }

    fn create(&self, space: Space) -> Number {
        self.verbs.number(&Control::Connections(Request::Create { channel: self.channel, space }))
    }

    /// Listens on [`PORT`].
    fn listen(&self, space: Space, backlog: u32) -> Number {
        let id = self.create(space);
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
        let bound = self.verbs.ask(&Control::Connections(Request::Bind { id, address, shared: false }), &[]).0;
        assert_eq!(bound, Answer::Connections(Managed::Bound(address)));
        self.done(Request::Listen { id, backlog });
        id
    }

    /// An identifier with a resolved route to a port of host `a`.
    fn resolve(&self, space: Space, port: u16) -> Number {
        let (id, to) = (self.create(space), SocketAddrV4::new(A, port));
        let bound = self.verbs.ask(&Control::Connections(Request::Resolve { id, to, timeout: 2000 }), &[]).0;
        assert!(matches!(bound, Answer::Connections(Managed::Bound(local)) if local.port() != 0), "{bound:?}");
        assert_eq!(self.event(), Event { id, what: Happened::AddressResolved });
        self.done(Request::Route(id));
        assert_eq!(self.event().what, Happened::RouteResolved);
        id
    }

    fn connect(&self, port: u16, data: &[u8]) -> Number {
        let id = self.resolve(Space::Connections, port);
        self.done(Request::Connect { id, parameters: parameters(0x51, data) });
        id
    }

    /// Waits for the next event.
    fn event(&self) -> Event {
        let mut completion = [0];
        assert_eq!(rustix::io::read(&self.pipe, &mut completion), Ok(1));
        match self.verbs.ask(&Control::Connections(Request::Event(self.channel)), &[]).0 {
            Answer::Connections(Managed::Event(Some(event))) => event,
            other => panic!("{other:?}"),
        }
    }
}

fn parameters(qp: u32, data: &[u8]) -> Parameters {
    let (responder_resources, initiator_depth, retries, rnr_retries) = (4, 3, 7, 6);
    let data = data.to_vec();
    Parameters { data, responder_resources, initiator_depth, retries, rnr_retries, qp, ..Parameters::default() }
}

/// Identifiers of all programs of a host, as `opentoe ls` shows them.
fn states(toed: &Toed, host: usize) -> Vec<String> {
    let answer = toed.ask(&Question::Ls);
    let programs = answer["hosts"][host]["rdma"]["programs"].as_array().cloned().unwrap_or_default();
    let ids = programs.iter().filter_map(|program| program["ids"].as_array()).flatten();
    ids.map(|id| id["state"].as_str().unwrap_or_default().to_string()).collect()
}

/// Two programs with a connection: the client's identifier, the server's.
fn connected(server: &Program, client: &Program) -> (Number, Number) {
    let asked = client.connect(PORT, b"hello");
    let Event { id, what: Happened::Requested { remote, local, parameters: requested, .. } } = server.event() else {
        panic!("no request")
    };
    assert_eq!((*remote.ip(), local), (Ipv4Addr::new(10, 0, 0, 2), SocketAddrV4::new(A, PORT)));
    assert_eq!((requested.data.len(), &requested.data[..6]), (room::CONNECT, &b"hello\0"[..]));
    // What the one may have outstanding is what the other one takes.
    assert_eq!((requested.qp, requested.responder_resources, requested.initiator_depth), (0x51, 3, 4));
    server.done(Request::Accept { id, parameters: parameters(0x61, b"welcome") });
    let Happened::Replied(reply) = client.event().what else { panic!("no reply") };
    assert_eq!((reply.qp, reply.rnr_retries, &reply.data[..8]), (0x61, 6, &b"welcome\0"[..]));
    client.done(Request::Establish(asked));
    assert!(matches!(server.event(), Event { id: of, what: Happened::Established(_) } if of == id));
    (asked, id)
}

#[test]
fn a_connection_comes_and_ends() {
    let toed = Toed::start(CONFIGURATION);
    let (server, client) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    server.listen(Space::Connections, 4);
    let (asked, accepted) = connected(&server, &client);
    let attributes = |program: &Program, id, state| {
        let request = Control::Connections(Request::Attributes { id, state });
        match program.verbs.ask(&request, &[]).0 {
            Answer::Attributes(attributes) => attributes,
            other => panic!("{other:?}"),
        }
    };
    let [near, far] = [(&client, asked), (&server, accepted)].map(|(program, id)| {
        let receive = attributes(program, id, QpState::ReadyToReceive);
        (receive, attributes(program, id, QpState::ReadyToSend))
    });
    assert_eq!((near.0.remote_qp, far.0.remote_qp), (Some(0x61), Some(0x51)));
    assert_eq!((near.0.receive_psn, near.1.send_psn), (far.1.send_psn, far.0.receive_psn));
    client.done(Request::Disconnect(asked));
    assert_eq!(server.event(), Event { id: accepted, what: Happened::Disconnected });
    assert_eq!(client.event().what, Happened::Disconnected);
    assert_eq!([server.event().what, client.event().what], [Happened::TimeWaitOver, Happened::TimeWaitOver]);
    client.done(Request::Destroy(asked));
    assert_eq!(states(&toed, 1), [""; 0]);
}

// Checks IBTA: 12.6.7-a.
#[test]
fn a_refused_connection_has_its_reason() {
    let toed = Toed::start(CONFIGURATION);
    let (server, client) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    client.connect(PORT, b"");
    assert!(matches!(client.event().what, Happened::Rejected { reason: 8, .. }), "nobody listens");
    server.listen(Space::Connections, 4);
    client.connect(PORT, b"");
    let request = server.event();
    server.done(Request::Reject { id: request.id, data: b"no".to_vec() });
    let Happened::Rejected { reason, data } = client.event().what else { panic!("not rejected") };
    assert_eq!((reason, &data[..3]), (28, &b"no\0"[..]));
    let id = client.resolve(Space::Datagrams, PORT);
    client.done(Request::Connect { id, parameters: parameters(0, b"") });
    assert!(matches!(client.event().what, Happened::NotFound { status: 1, .. }), "a port of the other space");
}

/// perftest closes its listener and listens on the same port again, and its client does not wait for that.
#[test]
fn a_request_waits_for_a_listener_that_is_opened_again() {
    let toed = Toed::start(CONFIGURATION);
    let (server, client) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    for space in [Space::Connections, Space::Datagrams] {
        // Also where the port's next listener is one of datagrams.
        let listener = server.listen(Space::Connections, 4);
        server.done(Request::Destroy(listener));
        let asks = client.resolve(space, PORT);
        client.done(Request::Connect { id: asks, parameters: parameters(0x51, b"hello") });
        // The request arrives meanwhile.
        std::thread::sleep(Duration::from_millis(50));
        let again = server.listen(space, 4);
        let asked = server.event();
        assert!(matches!(asked.what, Happened::Requested { listener, .. } if listener == again), "{asked:?}");
        server.done(Request::Destroy(asked.id));
        let event = client.event();
        assert!(event.id == asks && !matches!(event.what, Happened::Rejected { reason: 8, .. }), "{event:?}");
        // There is no listener any more: the client gets an error.
        server.done(Request::Destroy(again));
        client.done(Request::Destroy(asks));
        let asks = client.resolve(space, PORT);
        client.done(Request::Connect { id: asks, parameters: parameters(0x51, b"") });
        let event = client.event().what;
        let refused = matches!(event, Happened::Rejected { reason: 8, .. } | Happened::NotFound { status: 1, .. });
        assert!(refused, "{event:?}");
        client.done(Request::Destroy(asks));
    }
}

#[test]
fn a_program_that_dies_leaves_nothing_and_its_peers_get_events() {
    let toed = Toed::start(CONFIGURATION);
    let (server, client) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    server.listen(Space::Connections, 4);
    let (connected, _) = connected(&server, &client);
    let half_open = client.connect(PORT, b"");
    until("the request", || states(&toed, 0).iter().any(|state| state == "REQ-RCVD"));
    drop(server);
    until("the end of the program", || states(&toed, 0).is_empty());
    let events = [client.event(), client.event()];
    let of = |id| events.iter().find(|event| event.id == id).map(|event| event.what.clone());
    assert_eq!(of(connected), Some(Happened::Disconnected));
    assert!(matches!(of(half_open), Some(Happened::Rejected { reason: 28, .. })), "{events:?}");
    // The port is free again.
    let server = Program::open(&toed, "a");
    server.listen(Space::Connections, 4);
}

// Checks IBTA: 12.11-a.
#[test]
fn a_backlog_holds_so_many_and_datagrams_find_their_queue_pair() {
    let toed = Toed::start(CONFIGURATION);
    let (server, client) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    server.listen(Space::Connections, 2);
    let asked: Vec<Number> = (0..5).map(|_| client.connect(PORT, b"")).collect();
    until("two requests", || states(&toed, 0).iter().filter(|state| *state == "REQ-RCVD").count() == 2);
    // The others ask again, and come in as soon as the program has taken one.
    let taken: Vec<Number> = (0..5).map(|_| server.event().id).collect();
    assert_eq!((taken.len(), asked.len()), (5, 5));
    server.listen_for_datagrams();
    let id = client.resolve(Space::Datagrams, PORT);
    client.done(Request::Connect { id, parameters: parameters(0, b"who") });
    let Event { id: asker, what: Happened::Requested { parameters: request, .. } } = server.event() else {
        panic!("no lookup")
    };
    assert_eq!((request.data.len(), &request.data[..4]), (room::LOOKUP, &b"who\0"[..]));
    server.done(Request::Accept { id: asker, parameters: parameters(0x77, b"me") });
    let Happened::Found { qp, key, data } = client.event().what else { panic!("not found") };
    assert_eq!((qp, key, &data[..3]), (0x77, verbs::connections::DATAGRAM_KEY, &b"me\0"[..]));
}

impl Program {
    fn listen_for_datagrams(&self) {
        self.listen(Space::Datagrams, 0);
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let toed = Toed::start(CONFIGURATION);
    let program = Program::open(&toed, "a");
    let id = program.create(Space::Connections);
    let other = |ip| SocketAddrV4::new(ip, PORT);
    let bind = |ip| Request::Bind { id, address: other(ip), shared: false };
    assert_eq!(program.errno(bind(Ipv4Addr::new(10, 9, 9, 9))), libc::EADDRNOTAVAIL);
    for request in [
        Request::Destroy(77),
        Request::Event(77),
        Request::CloseChannel(77),
        Request::Migrate { id, channel: 77 },
        Request::Route(id),
        Request::Connect { id, parameters: parameters(1, b"") },
        Request::Accept { id, parameters: parameters(1, b"") },
        Request::Reject { id, data: Vec::new() },
        Request::Establish(id),
        Request::Disconnect(id),
        Request::Attributes { id, state: QpState::ReadyToSend },
        Request::Resolve { id, to: other(Ipv4Addr::BROADCAST), timeout: 1 },
    ] {
        assert_eq!(program.errno(request.clone()), libc::EINVAL, "{request:?}");
    }
    assert_eq!(program.errno(Request::CloseChannel(program.channel)), libc::EBUSY);
    let listener = program.listen(Space::Connections, 1);
    assert_eq!(program.errno(bind(A)), libc::EADDRINUSE);
    assert_eq!(program.errno(Request::Connect { id: listener, parameters: parameters(1, b"") }), libc::EINVAL);
    let long = vec![0; room::CONNECT + 1];
    let resolved = program.resolve(Space::Connections, PORT);
    assert_eq!(program.errno(Request::Connect { id: resolved, parameters: parameters(1, &long) }), libc::EINVAL);
    // Nobody answers there.
    let silent = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 99), PORT);
    program.verbs.ask(&Control::Connections(Request::Resolve { id, to: silent, timeout: 50 }), &[]);
    assert_eq!(program.event(), Event { id, what: Happened::AddressError(libc::ETIMEDOUT) });
}
