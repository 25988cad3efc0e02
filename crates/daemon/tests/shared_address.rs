//! A ZeroNIC host that shares the address of a host of a real `toed` (docs/ZERONIC.md, "One address for all"): sockets,
//! `toe_comm_*`, `toe0` and `zeronic0` beside each other. Every byte is compared.
mod common;

use common::Toed;
use common::application::{attach, connect, connect_to, listen, request, until};
use common::comm::{Program, b, meet};
use common::exchange::{Flow, both, exchange, stream, talk};
use common::peer::Peer;
use common::verbs::{Verbs, hello};
use common::zeronic::transports;
use context::comm::{Carries, Order, Outcome};
use context::{Congestion, Endpoint, Reply, Request};
use daemon::protocol::Question;
use port::Netns;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use verbs::QpKind;
use verbs::attach::Answer;
use verbs::connections::{Answer as Managed, Happened, Parameters, Request as Connections, Space};
use verbs::control::{Answer as Answered, Request as Control};

const LEN: usize = 200_000;
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Hosts `a` and `b`, each with both RDMA devices.
fn configuration(transport: &str, faults: &str) -> String {
    let host = |name: &str, last: u8| {
        format!(
            "[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\nrdma = \"own\"\n\
             port_rules = [{{ first = 85, last = 85, commands = [\"nginx\"] }}]\n\
             [[zeronic]]\nhost = \"{name}\"\ntransport = \"{transport}\"\n"
        )
    };
    format!("log = \"error\"\n[[fabric]]\nname = \"f\"\n{faults}\n{}{}", host("a", 1), host("b", 2))
}

/// WRITEs and READs between two programs.
fn operations(one: &mut Peer, other: &mut Peer) {
    for (round, len) in [1, 1449, 65_536, LEN].into_iter().enumerate() {
        one.write_and_read(other, round, len);
    }
}

#[test]
fn programs_of_all_kinds_work_beside_each_other_through_loss() {
    for transport in transports("programs of all kinds") {
        for faults in ["", "loss = 0.01\nreorder = 0.01\nduplicate = 0.01\nmtu = 1500\nseed = 5"] {
            println!("over {transport}, {faults:?}");
            let mut toed = Toed::start(&configuration(transport, faults));
            let path = &toed.socket();
            std::thread::scope(|scope| {
                for device in ["toe0", "zeronic0"] {
                    scope.spawn(move || {
                        let (mut one, mut other) = Peer::pair_of(path, Some(device), LEN);
                        assert_eq!(one.verbs.device.name, device);
                        operations(&mut one, &mut other);
                        operations(&mut other, &mut one);
                    });
                }
                scope.spawn(move || (8000..8010).for_each(|port| connect(path, port)));
                let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
                let (here, there) = meet(&mut one, &mut other, 80);
                scope.spawn(move || exchange(&mut other, there, &mut Flow::new(7, 8), &mut Flow::new(3, 12)));
                exchange(&mut one, here, &mut Flow::new(3, 12), &mut Flow::new(7, 8));
            });
            assert!(toed.end().success());
        }
    }
}

#[test]
fn a_program_sees_both_devices_and_takes_the_one_that_it_names() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let first = Verbs::open(&toed.socket(), "a");
    let names = |verbs: &Verbs| {
        let others: Vec<String> = verbs.others.iter().map(|device| device.name.clone()).collect();
        (verbs.device.name.clone(), others)
    };
    assert_eq!(names(&first), ("toe0".into(), vec!["zeronic0".into()]));
    let second = Verbs::open_device(&toed.socket(), "a", Some("zeronic0"));
    assert_eq!(names(&second), ("zeronic0".into(), vec!["toe0".into()]));
    assert_eq!((first.device.mac, &first.device.gids), (second.device.mac, &second.device.gids), "one port");
    let (_, answer, _) = hello(&toed.socket(), "a", Some("mlx5_0"));
    let Answer::Refused(why) = answer else { panic!("{answer:?}") };
    assert!(why.contains("no RDMA device `mlx5_0`: it has toe0, zeronic0"), "{why}");
    let ls = toed.ask(&Question::Ls);
    assert_eq!((&ls["zeronics"][0]["name"], &ls["zeronics"][0]["host"]), (&"a-zeronic".into(), &"a".into()));
}

/// An event channel of a device, at a pipe that another device has opened where one is shown.
fn channel(verbs: &Verbs, joins: Option<(&OwnedFd, u8)>) -> (Answered, Option<OwnedFd>) {
    match joins {
        None => verbs.ask(&Control::Connections(Connections::OpenChannel), &[]),
        Some((read, token)) => verbs.ask(&Control::Connections(Connections::JoinChannel { token }), &[read.as_fd()]),
    }
}

/// An identifier of connections that listens on this port of any address.
fn listener(verbs: &Verbs, channel: u32, port: u16) -> u32 {
    let id = verbs.number(&Control::Connections(Connections::Create { channel, space: Space::Connections }));
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    verbs.ask(&Control::Connections(Connections::Bind { id, address, shared: false }), &[]);
    verbs.done(&Control::Connections(Connections::Listen { id, backlog: 4 }));
    id
}

#[test]
fn two_devices_report_their_events_by_one_pipe() {
    let mut toed = Toed::start(&configuration("flextoe", ""));
    let [toe, zeronic] = ["toe0", "zeronic0"].map(|device| Verbs::open_device(&toed.socket(), "a", Some(device)));
    let (Answered::Number(first), Some(pipe)) = channel(&toe, None) else { panic!("no channel") };
    let (Answered::Number(second), None) = channel(&zeronic, Some((&pipe, 2))) else { panic!("not joined") };
    // What is no channel's pipe is refused.
    let (_write, strange) = rustix::pipe::pipe().map(|(read, write)| (write, read)).unwrap();
    let (refused, _) = channel(&zeronic, Some((&strange, 3)));
    assert!(matches!(refused, Answered::Failed { errno: libc::EINVAL, .. }), "{refused:?}");
    let ids = [listener(&toe, first, 7174), listener(&zeronic, second, 7174)];
    // The client's end stays: its end would cause further events.
    let mut clients = Vec::new();
    for (place, device) in [(1, "zeronic0"), (0, "toe0"), (1, "zeronic0")] {
        let client = Verbs::open_device(&toed.socket(), "b", Some(device));
        let (Answered::Number(own), Some(read)) = channel(&client, None) else { panic!("no channel") };
        let id = client.number(&Control::Connections(Connections::Create { channel: own, space: Space::Connections }));
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 7174);
        client.ask(&Control::Connections(Connections::Resolve { id, to, timeout: 2000 }), &[]);
        assert_eq!(rustix::io::read(&read, &mut [0]), Ok(1), "resolved");
        let qp = client.qp(QpKind::Rc, client.domain(), None).number;
        let parameters = Parameters { data: b"hello".to_vec(), qp, ..Parameters::default() };
        client.done(&Control::Connections(Connections::Connect { id, parameters }));
        let mut token = [0];
        assert_eq!(rustix::io::read(&pipe, &mut token), Ok(1));
        assert_eq!(usize::from(token[0]), place + 1, "{device}");
        let (verbs, number) = [(&toe, first), (&zeronic, second)][place];
        let (Answered::Connections(Managed::Event(Some(event))), _) =
            verbs.ask(&Control::Connections(Connections::Event(number)), &[])
        else {
            panic!("no event at {device}")
        };
        let Happened::Requested { listener, parameters, .. } = event.what else { panic!("{event:?}") };
        assert_eq!((listener, &parameters.data[..5]), (ids[place], &b"hello"[..]));
        clients.push(client);
    }
    assert!(toed.end().success());
}

/// What a socket of host `b` is answered that binds a port.
fn bind(app: &mut context::AppEnd, port: u16) -> Reply {
    let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, port);
    request(app, Request::Bind { tag: 9, local, reuse_address: true, reuse_port: true, dual_stack: false })
}

#[test]
fn a_port_is_a_sockets_or_a_programs_of_toe_comm() {
    for transport in transports("a port") {
        let toed = Toed::start(&configuration(transport, ""));
        let (_one, mut sockets) = attach(&toed.socket(), "b");
        let mut program = Program::open(&toed, "b");
        let in_use = Reply::Failed { tag: 9, errno: libc::EADDRINUSE as u16 };
        // The port of verbs, and those that connections of the ZeroNIC host begin at.
        for port in [4791, 61_000, 65_535] {
            assert_eq!(bind(&mut sockets, port), in_use, "{port}");
        }
        listen(&mut sockets, 80);
        program.post(1, 0, Order::Listen(80, Carries::Stream));
        assert_eq!(program.expect(Outcome::Failed).value, libc::EADDRINUSE as u64);
        // The host's rules are for both.
        program.post(3, 0, Order::Listen(85, Carries::Stream));
        assert_eq!(program.expect(Outcome::Failed).value, libc::EACCES as u64);
        program.post(2, 0, Order::Listen(81, Carries::Stream));
        program.expect(Outcome::Listening);
        assert_eq!(bind(&mut sockets, 81), in_use);
        // Each answers on its own port.
        let (_two, mut client) = attach(&toed.socket(), "a");
        assert!(matches!(connect_to(&mut client, 80), Reply::Connected { .. }));
        assert!(matches!(connect_to(&mut client, 81), Reply::Connected { .. }));
        program.expect(Outcome::Accepted);
        // What the peer has no listener for is refused, whosever port it would be.
        for port in [82, 61_000] {
            assert!(matches!(connect_to(&mut client, port), Reply::Failed { .. }), "{port}");
        }
        // The port is free once listener and connections are gone.
        drop(program);
        until("the port to be free", || matches!(bind(&mut sockets, 81), Reply::Bound { .. }));
    }
}

#[test]
fn sockets_and_programs_of_one_zeronic_host_meet() {
    for transport in transports("one host") {
        let toed = Toed::start(&configuration(transport, ""));
        let (_one, mut sockets) = attach(&toed.socket(), "b");
        let (_two, mut other) = attach(&toed.socket(), "b");
        let mut program = Program::open(&toed, "b");
        listen(&mut sockets, 80);
        program.post(1, 0, Order::Listen(81, Carries::Stream));
        program.expect(Outcome::Listening);
        let reaches = transport != "linux";
        let answer = connect_to(&mut other, 81);
        assert_eq!(matches!(answer, Reply::Connected { .. }), reaches, "{transport}: {answer:?}");
        program.post(2, 0, Order::Connect(b(80), Carries::Stream));
        if reaches {
            assert_eq!(program.expect(Outcome::Accepted).value, 81);
        }
        // The first completion has the connection's number; a refusal comes behind it.
        program.expect(Outcome::Connected);
        if !reaches {
            program.expect(Outcome::Lost);
        }
        // There is no listener.
        for port in [82, 61_000] {
            let refused = connect_to(&mut other, port);
            assert!(matches!(refused, Reply::Failed { .. }), "{transport}, {port}: {refused:?}");
        }
        // No socket speaks for the host's queue pairs, be it to its own device or to another host's.
        for last in [1, 2] {
            let remote = Endpoint::v4(Ipv4Addr::new(10, 0, 0, last), zeronic::VERBS_PORT);
            let connect = Request::Connect {
                tag: 4,
                binding: 0,
                remote,
                congestion: Congestion::DEFAULT,
                mss: 0,
                early: context::EarlyData::No,
            };
            let refused = request(&mut other, connect);
            assert!(matches!(refused, Reply::Failed { tag: 4, errno: 13 }), "{transport}, {last}: {refused:?}");
        }
    }
}

/// Host `b` on a TAP device, whose other end is the kernel of a namespace.
fn on_tap(netns: &Netns, transport: &str) -> String {
    format!(
        "log = \"error\"\n[[host]]\nname = \"b\"\naddress = \"{B}\"\nport = {{ kind = \"tap\", device = \"zero0\", \
         netns = \"{}\", kernel_address = \"10.0.0.100/24\" }}\n\
         [[zeronic]]\nhost = \"b\"\nname = \"z\"\ntransport = \"{transport}\"\n",
        netns.path()
    )
}

#[test]
fn a_tap_device_may_be_shared() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    for transport in transports("a TAP device") {
        let mut toed = Toed::start(&on_tap(&netns, transport));
        let mut program = Program::open(&toed, "b");
        let (mine, theirs) = (stream(3, 40), stream(7, 40));
        let (_socket, mut sockets) = attach(&toed.socket(), "b");
        listen(&mut sockets, 80);
        program.post(1, 0, Order::Listen(91, Carries::Stream));
        program.expect(Outcome::Listening);
        let to = |port| netns.run(move || TcpStream::connect(SocketAddrV4::new(B, port))).unwrap();
        to(80).expect("the host's socket accepts");
        assert_eq!(to(82).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        let socket = to(91).unwrap();
        let here = program.expect(Outcome::Accepted).connection;
        both(&mut program, here, || talk(&socket, &theirs, &mine));
        let listener = netns.run(|| TcpListener::bind("10.0.0.100:90")).unwrap().unwrap();
        program.post(1, 0, Order::Connect(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 90), Carries::Stream));
        let here = program.expect(Outcome::Connected).connection;
        let (socket, from) = listener.accept().unwrap();
        assert!(from.port() >= 61_000, "{from}");
        both(&mut program, here, || talk(&socket, &theirs, &mine));
        assert!(toed.end().success());
    }
}

/// A reset that comes after the peer's FIN (RFC 9293 section 3.10.7.4, CLOSE-WAIT): what was posted is lost, and the
/// program does not wait for it.
#[test]
fn a_reset_behind_the_peers_end_reaches_the_program() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    for transport in transports("a reset behind the end") {
        println!("over {transport}");
        let mut toed = Toed::start(&on_tap(&netns, transport));
        let mut program = Program::open(&toed, "b");
        program.post(1, 0, Order::Listen(91, Carries::Stream));
        program.expect(Outcome::Listening);
        // What is posted fits into the buffers of Linux' TCP, and not into those of the peer, which reads none.
        let socket = netns.run(|| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
            rustix::net::connect(&socket, &SocketAddrV4::new(B, 91)).map(|()| TcpStream::from(socket))
        });
        let socket = socket.unwrap().unwrap();
        let here = program.expect(Outcome::Accepted).connection;
        socket.shutdown(Shutdown::Write).unwrap();
        program.expect(Outcome::Ended);
        program.post(3, here, Order::Send(program.piece(0, 1000)));
        program.post(4, here, Order::Send(program.piece(0, 20_000)));
        assert_eq!(program.expect(Outcome::Sent).id, 3);
        // With unread bytes, a kernel's socket closes with a reset.
        drop(socket);
        program.expect(Outcome::Lost);
        assert!(toed.end().success());
    }
}
