//! Unreliable datagrams of `toe_comm` on ZeroNIC hosts of a real `toed`, between two programs and with sockets of the
//! kernel. Cases are datagrams of other programs, those without a place, and programs that die.
mod common;

use common::Toed;
use common::comm::{PIECE, Program, TIMEOUT, fill};
use common::zeronic::{configuration, linux_can_be, uplink};
use context::comm::{Carries, Completion, Order, Outcome, Piece};
use daemon::protocol::Question;
use port::Netns;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Instant;

fn peer(last: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port)
}

/// Opens a flow; its number.
fn open(program: &mut Program, from: u16, to: SocketAddrV4) -> u32 {
    program.post(1, 0, Order::Datagrams(from, to));
    program.expect(Outcome::Connected).connection
}

fn send(program: &mut Program, flow: u32, salt: u64, len: usize) {
    let mut bytes = vec![0; len];
    fill(0, salt, &mut bytes);
    program.memory.write(0, &bytes);
    program.post(salt, flow, Order::Send(program.piece(0, len)));
    assert_eq!(program.expect(Outcome::Sent).id, salt);
}

fn receive(program: &mut Program, flow: u32, slot: u64, len: usize) {
    program.post(slot, flow, Order::Receive(program.piece(slot, len)));
}

/// The next completion is that of a receive, with the bytes of that salt and length.
fn check(program: &mut Program, slot: u64, salt: u64, len: usize) {
    let received = program.expect(Outcome::Received);
    assert_eq!((received.id, received.value), (slot, len as u64));
    let (mut expected, mut got) = (vec![0; len], vec![0; len]);
    fill(0, salt, &mut expected);
    program.memory.read((slot * PIECE as u64) as u32, &mut got);
    assert!(expected == got, "the datagram has other bytes");
}

/// What a host has dropped for a reason.
fn dropped(toed: &Toed, host: &str, reason: &str) -> u64 {
    let drops = toed.ask(&Question::Drops);
    let all = drops["hosts"].as_array().unwrap();
    let of = all.iter().find(|of| of["name"] == host).expect("the host is listed");
    let named = of["drops"].as_array().unwrap().iter().find(|drop| drop["reason"] == reason);
    named.map_or(0, |drop| drop["count"].as_u64().unwrap())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < TIMEOUT, "{what}");
        std::thread::yield_now();
    }
}

/// Transports that can be here.
fn transports() -> impl Iterator<Item = &'static str> {
    ["flextoe", "laminar"].into_iter().chain(linux_can_be("datagrams").then_some("linux"))
}

#[test]
fn datagrams_between_two_programs() {
    for transport in transports() {
        let mut toed = Toed::start(&configuration(transport, "mtu = 1500"));
        let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
        let (here, there) = (open(&mut one, 70, peer(2, 90)), open(&mut other, 90, peer(1, 70)));
        (1..8).for_each(|slot| receive(&mut other, there, slot, PIECE));
        for (salt, len) in (1..8).zip([1, 2, 3, 700, 1471, 1472, 9]) {
            send(&mut one, here, salt, len);
            check(&mut other, salt, salt, len);
        }
        let ls = toed.ask(&Question::Ls);
        let shown = &ls["zeronics"][1]["connections"][0];
        let expected = (&json!("datagrams"), &json!("10.0.0.2:90"), &json!("10.0.0.1:70"), &json!(3658));
        assert_eq!((&shown["carries"], &shown["local"], &shown["remote"], &shown["received"]), expected, "{shown}");
        assert!(toed.end().success());
    }
}

#[test]
fn the_kernels_sockets_are_peers_over_a_tap_device() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    for transport in transports() {
        let mut toed = Toed::start(&configuration(transport, &uplink(&netns)));
        let mut one = Program::open(&toed, "a");
        let socket = netns.run(|| UdpSocket::bind("10.0.0.100:90")).unwrap().unwrap();
        socket.connect("10.0.0.1:70").unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let here = open(&mut one, 70, peer(100, 90));
        for (salt, len) in [(1, 1), (2, 1000), (3, 1400)] {
            let (mut expected, mut got) = (vec![0; len], vec![0; 2000]);
            fill(0, salt, &mut expected);
            send(&mut one, here, salt, len);
            assert_eq!(socket.recv(&mut got).unwrap(), len);
            assert!(expected == got[..len], "the kernel has other bytes");
            receive(&mut one, here, 1, 1400);
            socket.send(&expected).unwrap();
            check(&mut one, 1, salt, len);
        }
        // One without bytes takes a receive, too.
        receive(&mut one, here, 1, 10);
        socket.send(&[]).unwrap();
        check(&mut one, 1, 0, 0);
        assert!(toed.end().success());
    }
}

#[test]
fn what_has_no_place_is_dropped_by_name() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = (open(&mut one, 70, peer(2, 90)), open(&mut other, 90, peer(1, 70)));
    send(&mut one, here, 1, 8);
    until("nothing is posted", || dropped(&toed, "b", "no_place") == 1);
    receive(&mut other, there, 1, 8);
    // The daemon takes it before the next datagram comes.
    until("the receive is taken", || toed.ask(&Question::Ls)["zeronics"][1]["connections"][0]["receives"] == json!(1));
    send(&mut one, here, 2, 9);
    until("it is longer than the receive", || dropped(&toed, "b", "message_length") == 1);
    send(&mut one, here, 3, 8);
    check(&mut other, 1, 3, 8);
    let mut behind = [0; 8];
    other.memory.read(PIECE as u32 + 8, &mut behind);
    assert_eq!(behind, [0; 8], "nothing was written behind the receive");
}

#[test]
fn what_is_not_a_programs_own_is_refused_and_others_go_on() {
    let toed = Toed::start(&configuration("flextoe", "mtu = 1500"));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let mut hostile = Program::open(&toed, "a");
    let (here, there) = (open(&mut one, 70, peer(2, 90)), open(&mut other, 90, peer(1, 70)));
    let failed = |program: &mut Program, connection: u32, order: Order, errno: i32| {
        program.post(9, connection, order);
        let failed = program.expect(Outcome::Failed);
        assert_eq!((failed.id, failed.value), (9, errno as u64), "{order:?}");
    };
    failed(&mut hostile, 0, Order::Datagrams(70, peer(2, 90)), libc::EADDRINUSE);
    failed(&mut hostile, 0, Order::Datagrams(0, peer(2, 4791)), libc::EACCES);
    failed(&mut hostile, 0, Order::Datagrams(4791, peer(2, 90)), libc::EACCES);
    failed(&mut hostile, 0, Order::Datagrams(0, peer(2, 0)), libc::EINVAL);
    let (own, long) = (hostile.piece(0, 8), hostile.piece(0, 1473));
    failed(&mut hostile, here, Order::Send(own), libc::EBADF);
    let mine = open(&mut hostile, 0, peer(2, 90));
    let foreign = Piece { key: one.key, offset: 0, len: 8 };
    failed(&mut hostile, mine, Order::Send(foreign), libc::EFAULT);
    failed(&mut hostile, mine, Order::Receive(foreign), libc::EFAULT);
    failed(&mut hostile, mine, Order::End, libc::EINVAL);
    failed(&mut hostile, mine, Order::Send(long), libc::EMSGSIZE);
    // From another port than the flow's peer: no receive of the flow takes it.
    receive(&mut other, there, 1, 100);
    send(&mut hostile, mine, 5, 100);
    send(&mut one, here, 6, 50);
    check(&mut other, 1, 6, 50);
    // More flows than a program may have.
    let most = (0..300).map(|id| {
        hostile.post(id, 0, Order::Datagrams(0, peer(2, 91)));
        hostile.next()
    });
    let refused: Vec<Completion> = most.filter(|of| of.outcome == Outcome::Failed).collect();
    assert!(refused.len() == 45 && refused.iter().all(|of| of.value == libc::EMFILE as u64), "{refused:?}");
    receive(&mut other, there, 2, 100);
    send(&mut one, here, 7, 50);
    check(&mut other, 2, 7, 50);
}

/// Of programs that are gone, no memory is written; their ends are free for the next ones.
#[test]
fn a_dead_programs_flows_are_freed_and_its_peer_goes_on() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = (open(&mut one, 70, peer(2, 90)), open(&mut other, 90, peer(1, 70)));
    (1..8).for_each(|slot| receive(&mut other, there, slot, 8));
    send(&mut one, here, 1, 8);
    check(&mut other, 1, 1, 8);
    drop(other);
    until("its flow is gone", || toed.ask(&Question::Ls)["zeronics"][1]["connections"] == json!([]));
    (2..100).for_each(|salt| send(&mut one, here, salt, 8));
    let mut next = Program::open(&toed, "b");
    let there = open(&mut next, 90, peer(1, 70));
    receive(&mut next, there, 1, 8);
    until("the receive is taken", || toed.ask(&Question::Ls)["zeronics"][1]["connections"][0]["receives"] == json!(1));
    send(&mut one, here, 3, 8);
    check(&mut next, 1, 3, 8);
}

#[test]
fn a_stream_with_the_same_ends_goes_its_own_way() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    other.post(1, 0, Order::Listen(90, Carries::Stream));
    other.expect(Outcome::Listening);
    one.post(2, 0, Order::Connect(peer(2, 90), Carries::Stream));
    let stream = one.expect(Outcome::Connected).connection;
    let accepted = other.expect(Outcome::Accepted).connection;
    let ls = toed.ask(&Question::Ls);
    let local = ls["zeronics"][0]["connections"][0]["local"].as_str().unwrap();
    let port: u16 = local.rsplit(':').next().unwrap().parse().unwrap();
    let (here, there) = (open(&mut one, port, peer(2, 90)), open(&mut other, 90, peer(1, port)));
    receive(&mut other, there, 1, 100);
    receive(&mut other, accepted, 2, 30);
    send(&mut one, stream, 5, 30);
    check(&mut other, 2, 5, 30);
    send(&mut one, here, 6, 40);
    check(&mut other, 1, 6, 40);
}

/// A peer that is not there, and one without a route: what was posted is dropped, and the program has its memory back.
#[test]
fn what_has_no_next_hop_is_dropped_by_name() {
    for transport in transports() {
        let toed = Toed::start(&configuration(transport, ""));
        let mut one = Program::open(&toed, "a");
        let absent = open(&mut one, 70, peer(77, 90));
        send(&mut one, absent, 1, 8);
        assert_eq!(dropped(&toed, "a", "neighbour_unresolved"), 1, "{transport}");
        let far = open(&mut one, 71, SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 90));
        send(&mut one, far, 2, 8);
        assert_eq!(dropped(&toed, "a", "no_route"), 1, "{transport}");
    }
}

/// A shared port has one owner of UDP.
#[test]
fn a_host_that_shares_an_address_refuses_datagrams() {
    let toed = Toed::start(
        "log = \"error\"\n[[fabric]]\nname = \"f\"\n[[host]]\nname = \"h\"\naddress = \"10.0.0.1\"\n\
         [[zeronic]]\nhost = \"h\"\nname = \"a\"\n",
    );
    let mut one = Program::open(&toed, "a");
    one.post(1, 0, Order::Datagrams(0, peer(2, 90)));
    assert_eq!(one.expect(Outcome::Failed).value, libc::EOPNOTSUPP as u64);
}
