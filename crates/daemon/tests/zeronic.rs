//! ZeroNIC hosts of a real `toed`: programs exchange streams by posts and completions, through loss, and every byte is
//! compared; programs that ask for what is not theirs get errors, and others go on.
mod common;

use common::Toed;
use common::comm::{LEN, PIECE, Program, TIMEOUT, b, fill, meet, meet_for};
use common::exchange::{Flow, both, exchange, stream, talk};
use common::zeronic::{linux_can_be, transports, uplink};
use context::comm::{Answer, Carries, Completion, Hello, Order, Outcome, Piece, VERSION};
use daemon::protocol::Question;
use port::Netns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use shm::handover;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

fn configuration(transport: &str, faults: &str) -> String {
    let host = |name: &str, last: u8| {
        format!("[[zeronic]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\ntransport = \"{transport}\"\n")
    };
    format!(
        "log = \"error\"\n[[fabric]]\nname = \"f\"\n{faults}\n[[host]]\nname = \"h\"\naddress = \"10.0.0.9\"\n{}{}",
        host("a", 1),
        host("b", 2)
    )
}

#[test]
fn streams_both_ways_over_each_transport_through_loss() {
    for transport in transports("streams") {
        for faults in ["", "loss = 0.01\nreorder = 0.01\nduplicate = 0.01\nmtu = 1500\nseed = 5"] {
            let mut toed = Toed::start(&configuration(transport, faults));
            let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
            let (here, there) = meet(&mut one, &mut other, 80);
            std::thread::scope(|scope| {
                scope.spawn(move || exchange(&mut other, there, &mut Flow::new(7, 16), &mut Flow::new(3, 24)));
                exchange(&mut one, here, &mut Flow::new(3, 24), &mut Flow::new(7, 16));
            });
            assert!(toed.end().success());
        }
    }
}

/// Messages of these lengths, each in a receive of its own, which is longer.
#[test]
fn messages_over_each_transport_through_loss() {
    let lengths: Vec<usize> = (0..400u64).map(|at| 1 + (at * 2_654_435_761 % (PIECE as u64 - 1)) as usize).collect();
    for transport in transports("messages") {
        let faults = "loss = 0.01\nreorder = 0.01\nduplicate = 0.01\nmtu = 1500\nseed = 5";
        let mut toed = Toed::start(&configuration(transport, faults));
        let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
        let (here, there) = meet_for(Carries::Messages, &mut one, &mut other, 80);
        std::thread::scope(|scope| {
            // It stays until the sender has the completions of all.
            let (lengths, other) = (&lengths, &mut other);
            scope.spawn(move || receive_messages(other, there, lengths));
            send_messages(&mut one, here, lengths);
        });
        assert!(toed.end().success());
    }
}

/// A receive that is posted late, of a stream and of a message: no byte is lost, whatever became of the first ones.
#[test]
fn payload_waits_for_its_receive_in_three_ways() {
    for transport in transports("late receives") {
        for choice in ["defer", "buffer", "drop"] {
            let text = configuration(transport, "") + &format!("no_segment = \"{choice}\"\n");
            let mut toed = Toed::start(&text);
            let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
            for (port, carries) in [(80, Carries::Stream), (81, Carries::Messages)] {
                let (here, there) = meet_for(carries, &mut one, &mut other, port);
                let mut bytes = [0; 700];
                fill(0, port.into(), &mut bytes);
                one.memory.write(0, &bytes);
                one.post(1, here, Order::Send(one.piece(0, bytes.len())));
                std::thread::sleep(Duration::from_millis(50));
                let ls = toed.ask(&Question::Ls);
                let kept = ls["zeronics"][1]["connections"].as_array().unwrap().iter();
                let kept: u64 = kept.map(|connection| connection["kept"].as_u64().unwrap()).sum();
                // The others' window is what is posted, so the peer sends nothing yet.
                assert_eq!(kept > 0, choice == "defer", "{transport} {choice} {ls}");
                other.post(2, there, Order::Receive(other.piece(0, bytes.len())));
                assert_eq!(other.expect(Outcome::Received).value, bytes.len() as u64, "{transport} {choice}");
                one.expect(Outcome::Sent);
                let mut got = [0; 700];
                other.memory.read(0, &mut got);
                assert!(got == bytes, "{transport} {choice}: other bytes");
            }
            assert!(toed.end().success());
        }
    }
}

/// Four sends under way, from the first slots.
fn send_messages(program: &mut Program, connection: u32, lengths: &[usize]) {
    let mut done = 0;
    for (at, len) in lengths.iter().enumerate() {
        if at >= done + 4 {
            assert_eq!(program.expect(Outcome::Sent).id, done as u64);
            done += 1;
        }
        let slot = at as u64 % 4;
        let mut bytes = vec![0; *len];
        fill(0, at as u64, &mut bytes);
        program.memory.write((slot * PIECE as u64) as u32, &bytes);
        program.post(at as u64, connection, Order::Send(program.piece(slot, *len)));
    }
    program.post(0, connection, Order::End);
    (done..lengths.len()).for_each(|id| assert_eq!(program.expect(Outcome::Sent).id, id as u64));
}

fn receive_messages(program: &mut Program, connection: u32, lengths: &[usize]) {
    let post = |program: &mut Program, at: u64| {
        program.post(at, connection, Order::Receive(program.piece(at % 4, PIECE)));
    };
    (0..4).for_each(|at| post(program, at));
    for (at, len) in lengths.iter().enumerate() {
        let received = program.expect(Outcome::Received);
        assert_eq!((received.id, received.value), (at as u64, *len as u64));
        let (mut expected, mut got) = (vec![0; *len], vec![0; *len]);
        fill(0, at as u64, &mut expected);
        program.memory.read((at as u64 % 4 * PIECE as u64) as u32, &mut got);
        assert!(expected == got, "message {at} has other bytes");
        post(program, at as u64 + 4);
    }
    // No more come; a receive that was posted behind the end completes behind it.
    let last: Vec<Completion> = (0..5).map(|_| program.next()).collect();
    assert_eq!(last.iter().filter(|done| done.outcome == Outcome::Ended).count(), 1, "{last:?}");
    assert_eq!(last.iter().filter(|done| (done.outcome, done.value) == (Outcome::Received, 0)).count(), 4, "{last:?}");
}

/// Many connect at the same time: each has its connection, and a byte comes through each.
#[test]
fn a_crowd_at_one_port() {
    const CONTENTION: usize = 200;
    for transport in transports("crowd") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
        other.post(1, 0, Order::Listen(80, Carries::Stream));
        other.expect(Outcome::Listening);
        (0..CONTENTION as u64).for_each(|id| one.post(id, 0, Order::Connect(b(80), Carries::Stream)));
        let here: Vec<u32> = (0..CONTENTION).map(|_| one.expect(Outcome::Connected).connection).collect();
        let there: Vec<u32> = (0..CONTENTION).map(|_| other.expect(Outcome::Accepted).connection).collect();
        for (id, connection) in there.iter().enumerate() {
            other.post(id as u64, *connection, Order::Receive(other.piece(0, 1)));
        }
        for (id, connection) in here.iter().enumerate() {
            one.post(id as u64, *connection, Order::Send(one.piece(0, 1)));
        }
        let mut received: Vec<u64> = (0..CONTENTION).map(|_| other.expect(Outcome::Received).id).collect();
        received.sort_unstable();
        assert!(received.into_iter().eq(0..CONTENTION as u64), "over {transport}");
    }
}

/// One end carries a stream, the other messages: they do not meet.
#[test]
fn ends_that_carry_something_else_are_refused() {
    for transport in transports("something else") {
        let toed = Toed::start(&configuration(transport, ""));
        let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
        for (port, carries, wanted) in
            [(80, Carries::Stream, Carries::Messages), (81, Carries::Messages, Carries::Stream)]
        {
            other.post(1, 0, Order::Listen(port, carries));
            // A listener for streams had the last connection until its peer gave it up.
            while other.next().outcome != Outcome::Listening {}
            one.post(2, 0, Order::Connect(b(port), wanted));
            let connection = one.expect(Outcome::Connected).connection;
            assert_eq!(one.expect(Outcome::Lost).connection, connection);
        }
    }
}

#[test]
fn the_kernels_sockets_are_peers_over_a_tap_device() {
    let Ok(netns) = Netns::create() else { return println!("SKIPPED: a namespace needs privileges") };
    for transport in transports("peers") {
        let mut toed = Toed::start(&configuration(transport, &uplink(&netns)));
        let mut one = Program::open(&toed, "a");
        let (mine, theirs) = (stream(3, 40), stream(7, 40));
        // The kernel listens, then it connects.
        let listener = netns.run(|| TcpListener::bind("10.0.0.100:90")).unwrap().unwrap();
        one.post(1, 0, Order::Connect(SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 100), 90), Carries::Stream));
        let here = one.expect(Outcome::Connected).connection;
        let accept = || listener.accept().unwrap().0;
        both(&mut one, here, || talk(&accept(), &theirs, &mine));
        one.post(2, 0, Order::Listen(91, Carries::Stream));
        one.expect(Outcome::Listening);
        let socket = netns.run(|| TcpStream::connect("10.0.0.1:91")).unwrap().unwrap();
        let here = one.expect(Outcome::Accepted).connection;
        both(&mut one, here, || talk(&socket, &theirs, &mine));
        assert!(toed.end().success());
    }
}

#[test]
fn what_is_not_a_programs_own_is_refused_and_others_go_on() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let mut hostile = Program::open(&toed, "a");
    let (here, there) = meet(&mut one, &mut other, 80);
    // Words that no library writes, connections that are not its own, another program's memory, bytes beyond its own.
    hostile.push([u64::MAX >> 1; 8]);
    hostile.push([0; 8]);
    hostile.post(10, here, Order::End);
    let failed = hostile.expect(Outcome::Failed);
    assert_eq!((failed.id, failed.value), (10, libc::EBADF as u64));
    hostile.post(11, 0, Order::Connect(b(80), Carries::Stream));
    let mine = hostile.expect(Outcome::Connected).connection;
    other.expect(Outcome::Accepted);
    let foreign = Piece { key: one.key, offset: 0, len: 8 };
    let beyond = Piece { key: hostile.key, offset: LEN as u64 - 4, len: 8 };
    let wrapped = Piece { key: hostile.key, offset: u64::MAX, len: 2 };
    for (id, piece) in [(12, foreign), (13, beyond), (14, wrapped)] {
        for order in [Order::Send(piece), Order::Receive(piece)] {
            hostile.post(id, mine, order);
            let failed = hostile.expect(Outcome::Failed);
            assert_eq!((failed.id, failed.value), (id, libc::EFAULT as u64));
        }
    }
    hostile.post(15, mine, Order::Send(Piece { key: hostile.key, offset: 0, len: 0 }));
    assert_eq!(hostile.expect(Outcome::Failed).value, libc::EINVAL as u64);
    // A program that takes none of its completions, and posts on.
    for id in 0..1000 {
        hostile.post(id, u32::MAX, Order::End);
    }
    std::thread::scope(|scope| {
        let other = &mut other;
        scope.spawn(move || exchange(other, there, &mut Flow::new(7, 8), &mut Flow::new(3, 16)));
        exchange(&mut one, here, &mut Flow::new(3, 16), &mut Flow::new(7, 8));
    });
}

#[test]
fn linux_own_figures_of_a_connection_are_shown() {
    if !linux_can_be("shown") {
        return;
    }
    let toed = Toed::start(&configuration("linux", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    one.post(3, here, Order::Send(one.piece(0, PIECE)));
    other.post(4, there, Order::Receive(other.piece(4, PIECE)));
    other.expect(Outcome::Received);
    one.expect(Outcome::Sent);
    let ls = toed.ask(&Question::Ls);
    for host in 0..2 {
        let transport = &ls["zeronics"][host]["connections"][0]["transport"];
        let named = (&transport["congestion"], &transport["state"]);
        assert_eq!(named, (&json!("cubic"), &json!("ESTABLISHED")), "{transport}");
        for figure in ["cwnd", "mss", "rto_us", "rtt_us"] {
            assert!(transport[figure].as_u64().is_some_and(|value| value > 0), "{figure}: {transport}");
        }
        assert_eq!(transport["retransmitted_segments"], 0, "{transport}");
    }
}

#[test]
fn hosts_their_programs_and_connections_are_shown() {
    // The last section is that of host b.
    let toed = Toed::start(&(configuration("flextoe", "") + "congestion = \"none\"\n"));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    one.post(3, here, Order::Send(one.piece(0, PIECE)));
    other.post(4, there, Order::Receive(other.piece(4, PIECE)));
    other.expect(Outcome::Received);
    one.expect(Outcome::Sent);
    let ls = toed.ask(&Question::Ls);
    let (a, b) = (&ls["zeronics"][0], &ls["zeronics"][1]);
    let pid = std::process::id();
    assert_eq!((&a["name"], &a["transport"], &a["listeners"]), (&json!("a"), &json!("flextoe"), &json!([])));
    assert_eq!(b["programs"], json!([{ "pid": pid, "command": "test", "connections": 1 }]));
    assert_eq!(b["listeners"], json!([80]));
    let connection = &b["connections"][0];
    assert_eq!((&connection["local"], &connection["pid"]), (&json!("10.0.0.2:80"), &json!(pid)));
    assert_eq!((&connection["placed"], &connection["connection"]), (&json!(PIECE), &json!(there)));
    let transport = &connection["transport"];
    assert_eq!((&transport["congestion"], &transport["state"]), (&json!("none"), &json!("ESTABLISHED")), "{transport}");
    for figure in ["cwnd", "timeouts", "retransmitted_segments", "fast_retransmits", "sacked", "out_of_order"] {
        assert!(transport[figure].is_u64(), "{figure}: {transport}");
    }
    let stats = toed.ask(&Question::Stats { host: Some("a".into()), flow: None });
    let payload = &stats["zeronics"][0]["payload"];
    // No byte was copied on its way out: the fabric took references.
    assert!(payload["fetched_bytes"].as_u64().unwrap() >= PIECE as u64 && payload["copied_out_bytes"] == 0, "{stats}");
    assert_eq!(stats["zeronics"].as_array().map(Vec::len), Some(1));
    let drops = toed.ask(&Question::Drops);
    let names: Vec<&str> = drops["hosts"].as_array().unwrap().iter().filter_map(|host| host["name"].as_str()).collect();
    assert_eq!(names, ["h", "a", "b"]);
}

/// Listens where another program did: the daemon may not have seen yet that it is gone.
fn listen_again(program: &mut Program, port: u16) {
    let begin = Instant::now();
    loop {
        program.post(1, 0, Order::Listen(port, Carries::Stream));
        let completion = program.next();
        if completion.outcome == Outcome::Listening {
            return;
        }
        assert_eq!((completion.outcome, completion.value), (Outcome::Failed, libc::EADDRINUSE as u64));
        assert!(begin.elapsed() < TIMEOUT, "the port stays taken");
    }
}

#[test]
fn a_dead_programs_connections_and_port_are_freed() {
    let toed = Toed::start(&configuration("flextoe", ""));
    let mut one = Program::open(&toed, "a");
    let mut other = Program::open(&toed, "b");
    let (here, _) = meet(&mut one, &mut other, 80);
    one.post(5, here, Order::Receive(one.piece(0, PIECE)));
    drop(other);
    let lost = one.expect(Outcome::Lost);
    assert_eq!((lost.connection, lost.value), (here, libc::ECONNABORTED as u64));
    let mut next = Program::open(&toed, "b");
    listen_again(&mut next, 80);
    one.post(2, 0, Order::Connect(b(80), Carries::Stream));
    one.expect(Outcome::Connected);
    next.expect(Outcome::Accepted);
}

#[test]
fn linux_refuses_as_it_does_and_outlives_killed_programs() {
    if !linux_can_be("killed programs") {
        return;
    }
    let toed = Toed::start(&configuration("linux", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    // There is no listener: the kernel resets. There is no route: the helper reports it.
    for remote in [b(81), SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80)] {
        one.post(1, 0, Order::Connect(remote, Carries::Stream));
        one.expect(Outcome::Connected);
        assert_eq!(one.expect(Outcome::Lost).value, libc::ECONNABORTED as u64);
    }
    // More connections at once than sockets wait for. A host remembers 64 handshakes, so most find no listener.
    other.post(2, 0, Order::Listen(80, Carries::Stream));
    other.expect(Outcome::Listening);
    for id in 0..100 {
        one.post(id, 0, Order::Connect(b(if id % 5 < 2 { 80 } else { 81 }), Carries::Stream));
    }
    let outcomes: Vec<Outcome> = (0..160).map(|_| one.next().outcome).collect();
    let count = |of: Outcome| outcomes.iter().filter(|outcome| **outcome == of).count();
    assert_eq!((count(Outcome::Connected), count(Outcome::Lost)), (100, 60));
    for _ in 0..40 {
        other.expect(Outcome::Accepted);
    }
    // The program dies with all of them, and another one listens at its port.
    drop(other);
    for _ in 0..40 {
        one.expect(Outcome::Lost);
    }
    let mut next = Program::open(&toed, "b");
    listen_again(&mut next, 80);
    one.post(3, 0, Order::Connect(b(80), Carries::Stream));
    let here = one.expect(Outcome::Connected).connection;
    let there = next.expect(Outcome::Accepted).connection;
    std::thread::scope(|scope| {
        scope.spawn(move || exchange(&mut next, there, &mut Flow::new(7, 8), &mut Flow::new(3, 8)));
        exchange(&mut one, here, &mut Flow::new(3, 8), &mut Flow::new(7, 8));
    });
}

/// The helper processes of a daemon.
fn helpers(toed: &Toed) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", toed.id())).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn without_its_helper_linux_goes_on_with_what_it_has() {
    if !linux_can_be("helpers") {
        return;
    }
    let mut toed = Toed::start(&configuration("linux", ""));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    let helpers = helpers(&toed);
    assert_eq!(helpers.len(), 2);
    for pid in &helpers {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).unwrap();
        assert_eq!((line("CapEff:"), line("Seccomp:"), line("NoNewPrivs:")), ("0000000000001400", "2", "1"));
        kill_process(Pid::from_raw(*pid as i32).unwrap(), Signal::KILL).unwrap();
    }
    std::thread::scope(|scope| {
        let other = &mut other;
        scope.spawn(move || exchange(other, there, &mut Flow::new(7, 8), &mut Flow::new(3, 8)));
        exchange(&mut one, here, &mut Flow::new(3, 8), &mut Flow::new(7, 8));
    });
    other.post(1, 0, Order::Listen(81, Carries::Stream));
    let failed = other.expect(Outcome::Failed);
    assert_eq!((failed.id, failed.value), (1, libc::EACCES as u64));
    assert!(toed.end().success());
}

#[test]
fn a_host_that_is_not_there_and_another_version_are_refused() {
    let toed = Toed::start(&configuration("flextoe", ""));
    for (comm, host, errno) in [(VERSION, Some("c"), libc::ENODEV), (VERSION + 1, None, libc::EPROTO)] {
        let socket = handover::connect(&toed.socket()).unwrap();
        let hello = Hello { comm, host: host.map(String::from), command: "test".into() };
        handover::send(socket.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
        let answer: Answer = serde_json::from_slice(&handover::recv(socket.as_fd()).unwrap().0).unwrap();
        assert!(matches!(answer, Answer::Refused(refused, _) if refused == errno), "{answer:?}");
    }
}

#[test]
fn prometheus_finds_zeronic_hosts() {
    // A port that was free a moment ago, of an address that nobody else uses.
    let [.., high, low] = std::process::id().to_be_bytes();
    let listen = TcpListener::bind((Ipv4Addr::new(127, 78, high, low), 0)).unwrap().local_addr().unwrap();
    let toed = Toed::start(&configuration("laminar", &format!("[metrics]\nlisten = \"{listen}\"\n")));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    one.post(3, here, Order::Send(one.piece(0, PIECE)));
    other.post(4, there, Order::Receive(other.piece(4, PIECE)));
    other.expect(Outcome::Received);
    let mut socket = TcpStream::connect(listen).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    socket.read_to_string(&mut page).unwrap();
    for line in [
        "toe_zeronic_info{host=\"a\",transport=\"laminar\"} 1",
        "toe_zeronic_open{host=\"b\"} 1",
        "toe_zeronic_programs{host=\"b\"} 1",
        &format!("toe_zeronic_placed_bytes_total{{host=\"b\"}} {PIECE}"),
    ] {
        assert!(page.lines().any(|found| found == line || found == format!("{line}.0")), "{line}: {page}");
    }
    assert!(page.contains("toe_port_frames_total{host=\"a\",port=\"fabric\",direction=\"out\"}"), "{page}");
}

#[test]
fn a_daemon_may_have_zeronic_hosts_alone() {
    let host = "[[host]]\nname = \"h\"\naddress = \"10.0.0.9\"\n";
    let alone = configuration("flextoe", "").replace(host, "");
    assert!(!alone.contains("[[host]]"));
    let toed = Toed::start(&alone);
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    one.post(3, here, Order::Send(one.piece(0, PIECE)));
    other.post(4, there, Order::Receive(other.piece(4, PIECE)));
    other.expect(Outcome::Received);
    one.expect(Outcome::Sent);
    assert_eq!(toed.ask(&Question::Ls)["hosts"], json!([]));
}
