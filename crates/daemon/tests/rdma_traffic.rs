//! RDMA between programs of two hosts of a fabric, through a real `toed`: real queues, registered memory of their own.
//! Each byte is compared.
mod common;

use common::Toed;
use common::application::until;
use common::peer::{Peer, pattern};
use common::verbs::{init, ready_to_receive, ready_to_send};
use daemon::client::open;
use daemon::protocol::{Capture, Question};
use memory::Rights;
use port::capture::Direction;
use port::capture::pcapng::{self, Block};
use serde_json::Value;
use shm::{Doorbell, Region, SETTLE};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use verbs::{ChannelMessage, CompletionOpcode, Operand, QpAttributes, QpKind, SendOpcode, Status, Wish};

const CONFIGURATION: &str = "log = \"error\"\n[[host]]\nname = \"a\"\naddress = \"10.0.0.1\"\nprefix_len = 24\n\
                             rdma = \"own\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2\"\nprefix_len = 24\nrdma = \"own\"\n";

#[test]
fn programs_of_two_hosts_send_write_and_read() {
    let toed = Toed::start(CONFIGURATION);
    const LEN: usize = 100_000;
    let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
    for (round, len) in [1, 63, 1024, 1025, 5000, LEN].into_iter().enumerate() {
        let sent = one.write_and_read(&mut other, round, len);
        // SEND, into memory that is longer.
        other.memory.fill(0, vec![0; LEN]);
        let piece = other.memory.piece(0, LEN, other.key);
        other.qp.post_receive(piece);
        assert_eq!(one.run(SendOpcode::Send, 0, len, Operand::default()), Status::Success);
        let received = other.qp.cq.next();
        assert_eq!((received.status, received.opcode), (Status::Success, CompletionOpcode::Receive));
        assert_eq!(received.bytes as usize, len);
        let bytes = other.memory.bytes();
        assert!(bytes[..len] == sent && bytes[len..].iter().all(|byte| *byte == 0), "SEND of {len} bytes");
    }
    other.memory.fill(0, 41u64.to_ne_bytes());
    let (piece, remote) = (one.memory.piece(8, 8, one.key), other.memory.remote(0, other.key));
    one.verbs.post_atomic(&mut one.qp, SendOpcode::FetchAdd, piece, remote, [1, 0]);
    assert_eq!(one.qp.cq.next().status, Status::Success);
    one.verbs.post_atomic(&mut one.qp, SendOpcode::CompareSwap, piece, remote, [42, 99]);
    assert_eq!(one.qp.cq.next().status, Status::Success);
    assert_eq!(one.memory.bytes()[8..16], 42u64.to_ne_bytes());
    assert_eq!(other.memory.bytes()[..8], 99u64.to_ne_bytes());
    let host = &toed.ask(&Question::Ls)["hosts"][0]["rdma"]["programs"][0]["qps"][0];
    assert_eq!((&host["state"], &host["peer"]), (&"RTS".into(), &"10.0.0.2".into()));
}

/// Memory of a process but for its text, with its share of what it shares, bytes.
fn memory_of(pid: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    // Not the program's text: how much of it counts for this daemon changes with those of other tests, which share it.
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    (kib("Pss_Anon:") + kib("Pss_Shmem:")) << 10
}

/// As many as SmartNS speaks of (section 3.2). All have a WRITE outstanding at the same time.
#[test]
fn two_thousand_queue_pairs_of_a_program_each_carry_a_message() {
    const PAIRS: usize = 2000;
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = Peer::pair(&toed.socket(), 8 * PAIRS);
    let mut queues = [&one, &other].map(|peer| peer.verbs.cq(PAIRS as u32, None));
    let before = memory_of(toed.id());
    let [from, to] = [&one, &other].map(|peer| {
        let cq = &queues[usize::from(std::ptr::eq(peer, &other))];
        peer.verbs.qps_of(peer.domain, cq, PAIRS)
    });
    for (own, peer, numbers, remotes) in [(&one, &other, &from, &to), (&other, &one, &to, &from)] {
        for (number, remote) in numbers.iter().zip(remotes) {
            own.verbs.connect(*number, peer.verbs.gid(), *remote);
        }
    }
    let each = memory_of(toed.id()).saturating_sub(before) / (2 * PAIRS);
    println!("{each} bytes of the daemon's memory for a queue pair");
    assert!(each < 8 << 10, "{each} bytes for a queue pair");
    one.memory.fill(0, pattern(1, 8 * PAIRS));
    for (at, qp) in from.iter().enumerate() {
        let (piece, remote) = (one.memory.piece(8 * at, 8, one.key), other.memory.remote(8 * at, other.key));
        one.verbs.post_as(*qp, 0, SendOpcode::Write, piece, remote, [0; 2]);
    }
    let mut ended: Vec<u32> = (0..PAIRS)
        .map(|_| {
            let completion = queues[0].next();
            assert_eq!((completion.status, completion.number), (Status::Success, 0));
            completion.qp
        })
        .collect();
    assert!(other.memory.bytes() == pattern(1, 8 * PAIRS));
    let mut all = from;
    ended.sort_unstable();
    all.sort_unstable();
    assert_eq!(ended, all);
}

/// A wake-up can be lost where Linux misses a processor with its barrier (`shm::Doorbell`): then the daemon's second
/// poll finds what was published about when it fell asleep. Without that poll nothing would for a second: the queue
/// pairs have no timers.
#[test]
fn bumps_at_the_daemons_sleep_are_found_without_a_ring() {
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = (Peer::open(&toed.socket(), "a", 4096), Peer::open(&toed.socket(), "b", 4096));
    for (own, peer) in [(&one, &other), (&other, &one)] {
        own.verbs.modify(own.qp.number, init());
        own.verbs.modify(own.qp.number, ready_to_receive(peer.verbs.gid(), peer.qp.number));
        own.verbs.modify(own.qp.number, QpAttributes { timeout: Some(0), ..ready_to_send() });
    }
    let remote = other.memory.remote(0, other.key);
    let region = Arc::new(Region::create("silent", 4096).unwrap());
    let mut silent = Doorbell::new(&region, 64, Doorbell::eventfd().unwrap());
    let (mut tried, mut soon) = (0, 0);
    for _ in 0..2000 {
        let begin = Instant::now();
        assert_eq!(one.run(SendOpcode::Write, 0, 8, remote), Status::Success);
        // Long enough for the daemon to fall asleep, which it did after `begin`.
        while begin.elapsed() < SETTLE / 2 {}
        std::mem::swap(&mut one.verbs.bell, &mut silent);
        let number = one.post(SendOpcode::Write, 0, 8, remote);
        std::mem::swap(&mut one.verbs.bell, &mut silent);
        let in_time = begin.elapsed() < SETTLE;
        if !in_time {
            one.verbs.bell.ring();
        }
        assert_eq!(one.qp.cq.next().number, number);
        tried += u32::from(in_time);
        soon += u32::from(in_time && begin.elapsed() < Duration::from_millis(500));
        if tried == 20 {
            break;
        }
    }
    assert!(tried == 20 && soon > 10, "of {tried} operations, {soon} were found soon");
}

/// Moves messages over a fabric that loses packets, with this configuration of each host; returns how many frames were
/// lost, and how many came too early and were thrown away.
fn moved_over_loss(recovery: [&str; 2]) -> (u64, u64) {
    moved("loss = 0.02\nseed = 5\n", recovery.map(|name| format!("rdma_recovery = \"{name}\"\n")))
}

/// The same over any fabric, with these keys of each host.
fn moved(network: &str, keys: [String; 2]) -> (u64, u64) {
    const LEN: usize = 100_000;
    let host = |at: usize, name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{}\"\nprefix_len = 24\nrdma = \"own\"\n{}",
            at + 1,
            keys[at]
        )
    };
    let fabric = format!("log = \"error\"\n[[fabric]]\nname = \"lossy\"\n{network}");
    let toed = Toed::start(&format!("{fabric}{}{}", host(0, "a"), host(1, "b")));
    let (mut one, mut other) = Peer::pair(&toed.socket(), LEN);
    for round in 0..20 {
        let sent = pattern(round, LEN);
        one.memory.fill(0, sent.iter().copied());
        let remote = other.memory.remote(0, other.key);
        assert_eq!(one.run(SendOpcode::Write, 0, LEN, remote), Status::Success, "{keys:?}, round {round}");
        assert!(other.memory.bytes() == sent, "{keys:?}, round {round}");
        one.memory.fill(0, vec![0; LEN]);
        let remote = one.memory.remote(0, one.key);
        let piece = other.memory.piece(0, LEN, other.key);
        let number = other.verbs.post(&mut other.qp, SendOpcode::Write, piece, remote);
        let completion = other.qp.cq.next();
        assert_eq!((completion.number, completion.status), (number, Status::Success));
        assert!(one.memory.bytes() == sent, "{keys:?}, back, round {round}");
    }
    let hosts = toed.ask(&Question::Drops)["hosts"].clone();
    let all = hosts.as_array().unwrap().iter().flat_map(|host| host["drops"].as_array().unwrap());
    let count = |reason: &str| -> u64 {
        all.clone().filter(|drop| drop["reason"] == reason).map(|drop| drop["count"].as_u64().unwrap()).sum()
    };
    (count("fabric_loss"), count("psn_ahead"))
}

/// Four paths, of which the last takes 90 us more than the first: packets come out of order, and each is in its place.
#[test]
fn packets_that_take_paths_in_turn_are_placed() {
    let keys = || "rdma_recovery = \"selective-repeat\"\nrdma_paths = 16\n".to_string();
    let network = "paths = 4\npath_skew_ns = 30_000\nrate_bps = 1_000_000_000\n";
    let (lost, early) = moved(network, [keys(), keys()]);
    assert_eq!((lost, early), (0, 0));
    let (lost, early) = moved(&format!("{network}loss = 0.02\nseed = 5\n"), [keys(), keys()]);
    assert!(lost > 20 && early == 0, "{lost} lost, {early} thrown away");
}

#[test]
fn lost_packets_are_recovered_as_configured() {
    let (lost, early) = moved_over_loss(["go-back-n", "go-back-n"]);
    assert!(lost > 20 && early > lost, "{lost} lost, {early} behind them thrown away");
    let (lost, early) = moved_over_loss(["selective-repeat", "selective-repeat"]);
    assert!(lost > 20 && early == 0, "{lost} lost, {early} behind them thrown away: they have to stay");
    // One that does it and one that does not: as with any other peer.
    let (lost, early) = moved_over_loss(["selective-repeat", "go-back-n"]);
    assert!(lost > 20 && early > lost, "{lost} lost, {early} behind them thrown away");
}

/// Two programs of one host write to two of another one, over a fabric that marks packets, until this is so of what
/// `opentoe stats` shows of both hosts. Each byte is compared.
fn until_congested(congestion: &str, is_it: impl Fn(&Value) -> bool) -> (Toed, [Peer; 4]) {
    const LEN: usize = 200_000;
    let host = |name: &str, at: usize| {
        format!("[[host]]\nname = \"{name}\"\naddress = \"10.0.0.{at}\"\nprefix_len = 24\nrdma = \"own\"\n{congestion}")
    };
    let fabric =
        "log = \"error\"\n[[fabric]]\nname = \"slow\"\nrate_bps = 1_000_000_000\necn_threshold_bytes = 10_000\n";
    let toed = Toed::start(&format!("{fabric}{}{}", host("a", 1), host("b", 2)));
    let pairs = [Peer::pair(&toed.socket(), LEN), Peer::pair(&toed.socket(), LEN)];
    let is_over = Arc::new(AtomicBool::new(false));
    let threads = pairs.map(|(mut one, other)| {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || {
            for round in 0.. {
                let sent = pattern(round, LEN);
                one.memory.fill(0, sent.iter().copied());
                let remote = other.memory.remote(0, other.key);
                assert_eq!(one.run(SendOpcode::Write, 0, LEN, remote), Status::Success, "round {round}");
                assert!(other.memory.bytes() == sent, "round {round}");
                other.memory.fill(0, vec![0; LEN]);
                if is_over.load(Relaxed) {
                    break;
                }
            }
            [one, other]
        })
    });
    until("the counters' values", || is_it(&toed.ask(&Question::Stats { host: None, flow: None })["hosts"]));
    is_over.store(true, Relaxed);
    let [[a, b], [c, d]] = threads.map(|thread| thread.join().unwrap());
    (toed, [a, b, c, d])
}

#[test]
fn queue_pairs_answer_marks_as_configured() {
    let count = |hosts: &Value, at: usize, key: &str| hosts[at]["rdma"][key].as_u64().unwrap();
    let answered = |hosts: &Value| count(hosts, 0, "cnps_received") >= 10 && count(hosts, 1, "cnps_sent") >= 10;
    let (toed, peers) = until_congested("rdma_congestion = \"dcqcn\"\n", answered);
    let hosts = toed.ask(&Question::Ls)["hosts"].clone();
    let all = |key: &str| -> u64 {
        let programs = hosts[0]["rdma"]["programs"].as_array().unwrap();
        programs.iter().map(|program| program["qps"][0]["congestion"][key].as_u64().unwrap()).sum()
    };
    // All go one way.
    assert!(all("cnps_received") >= 10 && all("cnps_sent") == 0, "{hosts}");
    drop(peers);
    // Those of programs that are gone count as well.
    until("no programs", || toed.ask(&Question::Ls)["hosts"][0]["rdma"]["programs"] == serde_json::json!([]));
    assert!(answered(&toed.ask(&Question::Stats { host: None, flow: None })["hosts"]));

    let moved = |hosts: &Value| hosts[0]["port"]["tx_bytes"].as_u64().unwrap() > 2_000_000;
    let (toed, _peers) = until_congested("", moved);
    let hosts = &toed.ask(&Question::Ls)["hosts"];
    assert!(hosts[0]["rdma"]["programs"][0]["qps"][0]["congestion"].is_null(), "{hosts}");
    let hosts = &toed.ask(&Question::Stats { host: None, flow: None })["hosts"];
    let none = |at: usize| count(hosts, at, "cnps_sent") + count(hosts, at, "cnps_received") == 0;
    assert!(none(0) && none(1), "{hosts}");
}

#[test]
fn a_completion_channel_gets_one_event_for_each_wish() {
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = Peer::pair(&toed.socket(), 1000);
    let channel = other.verbs.ask(&verbs::control::Request::OpenChannel, &[]);
    let (verbs::control::Answer::Number(number), Some(read)) = channel else { panic!("no channel") };
    let mut qp = other.verbs.qp(QpKind::Rc, other.domain, Some(number));
    let third = one.verbs.qp(QpKind::Rc, one.domain, None);
    one.qp = third;
    one.verbs.connect(one.qp.number, other.verbs.gid(), qp.number);
    other.verbs.connect(qp.number, one.verbs.gid(), one.qp.number);
    let mut events = std::fs::File::from(read);
    for _ in 0..3 {
        qp.post_receive(other.memory.piece(0, 100, other.key));
        qp.cq.notify.ask(Wish::Any);
        assert_eq!(one.run(SendOpcode::Send, 0, 50, Operand::default()), Status::Success);
        let mut event = [0; ChannelMessage::BYTES];
        events.read_exact(&mut event).unwrap();
        assert_eq!(ChannelMessage::decode(event), ChannelMessage(qp.cq.number));
        assert_eq!(qp.cq.next().bytes, 50);
    }
}

#[test]
fn what_a_peer_may_not_do_fails_and_touches_nothing() {
    let toed = Toed::start(CONFIGURATION);
    let socket = toed.socket();
    let attempt = |remote: &dyn Fn(&Peer) -> Operand, opcode, rights: Rights| {
        let (mut one, mut other) = Peer::pair(&socket, 10_000);
        other.key = other.verbs.register(other.domain, &other.memory, rights);
        one.memory.fill(0, pattern(1, 5000));
        let status = one.run(opcode, 0, 5000, remote(&other));
        assert!(other.memory.bytes().iter().all(|byte| *byte == 0), "{status:?}");
        status
    };
    let right = |peer: &Peer| peer.memory.remote(0, peer.key);
    let beyond = |peer: &Peer| peer.memory.remote(5001, peer.key);
    let before = |peer: &Peer| Operand { address: peer.memory.address() - 1, key: peer.key.0 };
    let forged = |peer: &Peer| Operand { key: peer.key.0 ^ 0x8000_0000, ..peer.memory.remote(0, peer.key) };
    assert_eq!(attempt(&right, SendOpcode::Write, Rights::LOCAL_WRITE), Status::RemoteAccess);
    assert_eq!(attempt(&right, SendOpcode::Read, Rights::LOCAL_WRITE), Status::RemoteAccess);
    assert_eq!(attempt(&beyond, SendOpcode::Write, Rights::ALL), Status::RemoteAccess);
    assert_eq!(attempt(&before, SendOpcode::Write, Rights::ALL), Status::RemoteAccess);
    assert_eq!(attempt(&forged, SendOpcode::Write, Rights::ALL), Status::RemoteAccess);
}

// Checks IBTA: 10.6-a.
#[test]
fn after_deregistering_no_byte_is_written() {
    let toed = Toed::start(CONFIGURATION);
    const LEN: usize = 20_000;
    for round in 0..5 {
        let (mut one, other) = Peer::pair(&toed.socket(), LEN);
        let (remote, stop) = (other.memory.remote(0, other.key), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let writer = thread::spawn(move || {
            let mut writes = 0;
            loop {
                one.memory.fill(0, pattern(writes, LEN));
                match one.run(SendOpcode::Write, 0, LEN, remote) {
                    Status::Success => writes += 1,
                    status => return (writes, status),
                }
                assert!(!stopped.load(Relaxed), "the region can still be written");
            }
        });
        until("some writes", || other.memory.bytes()[LEN - 1] != 0);
        thread::sleep(Duration::from_millis(round));
        other.verbs.done(&verbs::control::Request::Deregister(other.key));
        let last = other.memory.bytes();
        let (writes, status) = writer.join().unwrap();
        stop.store(true, Relaxed);
        assert!(writes > 0 && status == Status::RemoteAccess, "{status:?} after {writes} writes");
        thread::sleep(Duration::from_millis(5));
        assert!(other.memory.bytes() == last, "written after it was deregistered");
    }
}

/// What the child of [`a_program_that_is_killed`] does: it is a program of its own, which is this test's binary.
#[test]
#[ignore = "a program that the test `a_program_that_is_killed` starts"]
fn child_program() {
    let socket = std::env::var("RDMA_TEST_SOCKET").unwrap();
    let peer = Peer::open(Path::new(&socket), "a", 100_000);
    let gid = std::env::var("RDMA_TEST_PEER").unwrap();
    let mut words = gid.split(' ');
    let number: u32 = words.next().unwrap().parse().unwrap();
    let gid: Vec<u8> = words.map(|word| word.parse().unwrap()).collect();
    peer.verbs.connect(peer.qp.number, verbs::Gid(gid.try_into().unwrap()), number);
    println!("\nready {} {} {}", peer.qp.number, peer.memory.address(), peer.key.0);
    std::io::stdout().flush().unwrap();
    thread::sleep(Duration::from_secs(60));
}

fn start_child(socket: &Path, peer: &Peer) -> (Child, [u64; 3]) {
    let gid: Vec<String> = peer.verbs.gid().0.iter().map(u8::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_program", "--ignored", "--nocapture"])
        .env("RDMA_TEST_SOCKET", socket)
        .env("RDMA_TEST_PEER", format!("{} {}", peer.qp.number, gid.join(" ")))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("ready ").map(String::from));
    let numbers: Vec<u64> = ready.unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
    (child, numbers.try_into().unwrap())
}

#[test]
fn a_program_that_is_killed_leaves_nothing_and_hurts_nobody() {
    let toed = Toed::start(CONFIGURATION);
    let (mut bystander, victim) = Peer::pair(&toed.socket(), 10_000);
    for _ in 0..3 {
        let mut peer = Peer::open(&toed.socket(), "b", 100_000);
        let (mut child, [number, address, key]) = start_child(&toed.socket(), &peer);
        peer.verbs.connect(peer.qp.number, bystander.verbs.gid(), number as u32);
        let remote = Operand { address, key: key as u32 };
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        // Its peer gets an error, of either kind: while its memory is gone, or once its queue pair is.
        let status = loop {
            match peer.run(SendOpcode::Write, 0, 100_000, remote) {
                Status::Success => {}
                status => break status,
            }
        };
        assert!(matches!(status, Status::RemoteAccess | Status::RetryExceeded), "{status:?}");
        killer.join().unwrap();
        for round in 0..50 {
            bystander.memory.fill(0, pattern(round, 10_000));
            let remote = victim.memory.remote(0, victim.key);
            assert_eq!(bystander.run(SendOpcode::Write, 0, 10_000, remote), Status::Success);
            assert!(victim.memory.bytes() == pattern(round, 10_000));
        }
        let pids = || -> Vec<u64> {
            let ls = toed.ask(&Question::Ls);
            let programs = ls["hosts"][0]["rdma"]["programs"].as_array().unwrap().clone();
            programs.iter().map(|program| program["pid"].as_u64().unwrap()).collect()
        };
        until("the end of what it had", || pids() == [u64::from(std::process::id())]);
    }
}

#[test]
fn a_program_that_writes_nonsense_into_its_queues_hurts_nobody() {
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = Peer::pair(&toed.socket(), 10_000);
    let mut dice = 7u64;
    let mut roll = move || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        dice >> 17 ^ dice << 40
    };
    let begin = Instant::now();
    let (mut round, mut hostile) = (0, None);
    while begin.elapsed() < Duration::from_secs(2) || round <= 3 {
        let (mut program, _peer) = hostile.take().unwrap_or_else(|| Peer::pair(&toed.socket(), 1000));
        for number in 0..200 {
            let mut words: [u64; 8] = std::array::from_fn(|_| roll());
            // Half of them name its own queue pair, and another program's.
            words[7] = match number % 4 {
                0 => words[7] & !0xff_ffff | u64::from(program.qp.number),
                1 => words[7] & !0xff_ffff | u64::from(one.qp.number),
                2 => u64::from(program.qp.number) | 1 << 48 | (roll() & 0xf) << 24,
                _ => words[7],
            };
            program.verbs.push(words);
        }
        drop(program);
        one.memory.fill(0, pattern(round, 10_000));
        assert_eq!(
            one.run(SendOpcode::Write, 0, 10_000, other.memory.remote(0, other.key)),
            Status::Success,
            "round {round}"
        );
        assert!(other.memory.bytes() == pattern(round, 10_000));
        round += 1;
    }
}

#[test]
fn captures_have_the_frames_with_what_became_of_them() {
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = Peer::pair(&toed.socket(), 1000);
    let everything = Question::Capture(Capture {
        host: Some("a".into()),
        flow: None,
        dropped: false,
        direction: None,
        count: None,
        snaplen: 1000,
        filter: "a test's".into(),
        program: vec![(6, 0, 0, 2000)],
    });
    let (_, mut stream) = open(&toed.socket(), &everything).unwrap();
    assert_eq!(one.run(SendOpcode::Write, 0, 500, other.memory.remote(0, other.key)), Status::Success);
    stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = pcapng::read(&mut stream).unwrap() {
        let Block::Packet(packet) = block else { continue };
        // RoCEv2: UDP to port 4791.
        if packet.bytes[12..14] == [8, 0] && packet.bytes[23] == 17 && packet.bytes[36..38] == [0x12, 0xb7] {
            seen.push((packet.direction, packet.comment));
        }
    }
    assert!(seen.iter().any(|(direction, _)| *direction == Some(Direction::Out)), "{seen:?}");
    assert!(seen.iter().any(|(direction, _)| *direction == Some(Direction::In)), "{seen:?}");
    assert!(seen.iter().all(|(_, comment)| comment.contains("rdma")), "{seen:?}");
}

#[test]
fn a_daemon_sleeps_beside_idle_programs_and_wakes() {
    let toed = Toed::start(CONFIGURATION);
    let (mut one, other) = Peer::pair(&toed.socket(), 10_000);
    for round in 0..3 {
        one.memory.fill(0, pattern(round, 10_000));
        let remote = other.memory.remote(0, other.key);
        assert_eq!(one.run(SendOpcode::Write, 0, 10_000, remote), Status::Success);
        assert!(other.memory.bytes() == pattern(round, 10_000));
        toed.comes_to_rest();
    }
}
