//! A ZeroNIC host that shares the address of a host of a real `toed` (docs/ZERONIC.md, "One address for all"): sockets,
//! `toe_comm_*`, `toe0` and `zeronic0` beside each other. Every byte is compared.
mod common;

use common::Toed;
use common::application::{attach, connect, connect_to, listen, request, until};
use common::comm::{Program, meet};
use common::exchange::{Flow, both, exchange, stream, talk};
use common::peer::Peer;
use common::verbs::{Verbs, hello};
use common::zeronic::transports;
use context::comm::{Carries, Order, Outcome};
use context::{Endpoint, Reply, Request};
use daemon::protocol::Question;
use port::Netns;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use verbs::attach::Answer;

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
fn a_tap_device_may_be_shared() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    for transport in transports("a TAP device") {
        let mut toed = Toed::start(&format!(
            "log = \"error\"\n[[host]]\nname = \"b\"\naddress = \"{B}\"\nport = {{ kind = \"tap\", device = \"zero0\", \
             netns = \"{}\", kernel_address = \"10.0.0.100/24\" }}\n\
             [[zeronic]]\nhost = \"b\"\nname = \"z\"\ntransport = \"{transport}\"\n",
            netns.path()
        ));
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
