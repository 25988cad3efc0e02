//! Device memory of programs of ZeroNIC hosts: another process has it (`examples/stand_in.rs`), no other one maps it.
//! Every byte is compared, also through loss; devices that are slow, fail, die or never answer hold up no other.
//! `cargo test -p daemon` builds the example; with `--test zeronic_devices` alone, build it before.
mod common;

use common::Toed;
use common::application::until;
use common::comm::{LEN, PIECE, Program, TIMEOUT, fill, meet, meet_for};
use context::comm::{Answer, Carries, Order, Outcome, Piece, Request};
use memory::DmaServer;
use shm::handover;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32};
use std::time::{Duration, Instant};

/// Where the stand-in's addresses begin, and where the memory that is registered of it does.
const FIRST: u64 = 0x7000_0000_0000_0000;
const BEGIN: usize = 12_345;
/// Bytes that one message to the stand-in has.
const WORDS: usize = 12 << 10;
/// Posts of a direction that are under way.
const WINDOW: u64 = 4;
const LOSS: &str = "loss = 0.01\nreorder = 0.01\nduplicate = 0.01\nmtu = 1500\nseed = 7";

fn configuration(transport: &str, faults: &str, timeout_ms: u32) -> String {
    let host = |name: &str, last: u8| {
        format!(
            "[[zeronic]]\nname = \"{name}\"\naddress = \"10.0.0.{last}\"\ntransport = \"{transport}\"\n\
             device_timeout_ms = {timeout_ms}\n"
        )
    };
    format!("log = \"error\"\n[[fabric]]\nname = \"f\"\n{faults}\n{}{}", host("a", 1), host("b", 2))
}

/// A process with memory that is a program's device.
struct StandIn {
    child: Child,
    socket: OwnedFd,
}

impl StandIn {
    fn start() -> StandIn {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("toe-stand-in-{}-{number}", std::process::id()));
        let listener = handover::listen(&path).unwrap();
        let own = std::env::current_exe().unwrap();
        let program = own.parent().and_then(|deps| deps.parent()).unwrap().join("examples/stand_in");
        let mut child = Command::new(program).arg(&path).spawn().expect("examples/stand_in, which `cargo test` builds");
        let begun = Instant::now();
        let socket = loop {
            match handover::accept(listener.as_fd()) {
                Ok(socket) => break socket,
                Err(_) if begun.elapsed() < TIMEOUT && child.try_wait().unwrap().is_none() => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("the stand-in does not come: {error}"),
            }
        };
        std::fs::remove_file(&path).unwrap();
        StandIn { child, socket }
    }

    fn ask(&self, message: &[u8], file: Option<OwnedFd>) -> Vec<u8> {
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        handover::send(self.socket.as_fd(), message, &files).unwrap();
        handover::recv_bytes(self.socket.as_fd()).unwrap()
    }

    fn copies(&self) -> u64 {
        String::from_utf8(self.ask(b"copies", None)).unwrap().parse().unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program sends from and receives into: its own memory, or a device's.
enum BufferMemory {
    Memory(u32),
    Device(StandIn, u32),
}

impl BufferMemory {
    /// A device of the program's, served in this way.
    fn device(program: &Program, how: &str) -> BufferMemory {
        let stand_in = StandIn::start();
        let (number, queue) = queue_of(program);
        assert_eq!(stand_in.ask(format!("serve {how}").as_bytes(), Some(queue)), b"served");
        let key = register(program, number);
        BufferMemory::Device(stand_in, key)
    }

    fn new(program: &Program, how: Option<&str>) -> BufferMemory {
        how.map_or(BufferMemory::Memory(program.key), |how| BufferMemory::device(program, how))
    }

    fn key(&self) -> u32 {
        match self {
            BufferMemory::Memory(key) | BufferMemory::Device(_, key) => *key,
        }
    }

    fn stand_in(&self) -> &StandIn {
        match self {
            BufferMemory::Device(stand_in, _) => stand_in,
            BufferMemory::Memory(_) => panic!("it is no device"),
        }
    }

    fn piece(&self, post: u64, len: usize) -> Piece {
        Piece { key: self.key(), offset: post % WINDOW * PIECE as u64, len: len as u64 }
    }

    fn put(&self, program: &Program, offset: u64, bytes: &[u8]) {
        match self {
            BufferMemory::Memory(_) => program.memory.write(offset as u32, bytes),
            BufferMemory::Device(stand_in, _) => {
                for (at, part) in bytes.chunks(WORDS).enumerate() {
                    let mut message = format!("write {}\n", BEGIN + offset as usize + at * WORDS).into_bytes();
                    message.extend_from_slice(part);
                    assert_eq!(stand_in.ask(&message, None), b"written");
                }
            }
        }
    }

    fn get(&self, program: &Program, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self {
            BufferMemory::Memory(_) => program.memory.read(offset as u32, &mut bytes),
            BufferMemory::Device(stand_in, _) => {
                for (at, part) in bytes.chunks_mut(WORDS).enumerate() {
                    let message = format!("read {} {}", BEGIN + offset as usize + at * WORDS, part.len());
                    part.copy_from_slice(&stand_in.ask(message.as_bytes(), None));
                }
            }
        }
        bytes
    }
}

fn queue_of(program: &Program) -> (u32, OwnedFd) {
    let (answer, files) = program.ask_for_files(&Request::Device, &[]);
    let Answer::Device(number) = answer else { panic!("{answer:?}") };
    let [queue] = <[OwnedFd; 1]>::try_from(files).unwrap();
    (number, queue)
}

fn register(program: &Program, device: u32) -> u32 {
    let request = Request::RegisterDevice { device, address: FIRST + BEGIN as u64, len: LEN as u64 };
    let answer = program.ask(&request, &[]);
    let Answer::Key(key) = answer else { panic!("{answer:?}") };
    key
}

/// Sends these lengths, each from a slot of the place, whose bytes change when it is sent.
fn send(program: &mut Program, connection: u32, from: &BufferMemory, lengths: &[usize], salt: u64) {
    let (mut at, mut done) = (0, 0);
    for (post, len) in (0..).zip(lengths) {
        if post >= done + WINDOW {
            assert_eq!(program.expect(Outcome::Sent).id, done);
            done += 1;
        }
        let (piece, mut bytes) = (from.piece(post, *len), vec![0; *len]);
        fill(at, salt, &mut bytes);
        from.put(program, piece.offset, &bytes);
        program.post(post, connection, Order::Send(piece));
        at += *len as u64;
    }
    program.post(0, connection, Order::End);
    (done..lengths.len() as u64).for_each(|id| assert_eq!(program.expect(Outcome::Sent).id, id));
}

/// Receives these lengths into slots of the place, and compares each.
fn receive(
    program: &mut Program,
    connection: u32,
    into: &BufferMemory,
    lengths: &[usize],
    carries: Carries,
    salt: u64,
) {
    let asked = |post: u64| if carries == Carries::Messages { PIECE } else { lengths[post as usize] };
    let count = lengths.len() as u64;
    (0..WINDOW.min(count))
        .for_each(|post| program.post(post, connection, Order::Receive(into.piece(post, asked(post)))));
    let mut at = 0;
    for post in 0..count {
        let received = program.expect(Outcome::Received);
        let len = lengths[post as usize];
        assert_eq!((received.id, received.value), (post, len as u64));
        let mut expected = vec![0; len];
        fill(at, salt, &mut expected);
        at += len as u64;
        let got = into.get(program, into.piece(post, len).offset, len);
        let wrong = expected.iter().zip(&got).position(|(one, other)| one != other);
        assert!(wrong.is_none(), "byte {wrong:?} of {len} of post {post} is another one");
        let next = post + WINDOW;
        if next < count {
            program.post(next, connection, Order::Receive(into.piece(next, asked(next))));
        }
    }
    assert_eq!(program.expect(Outcome::Ended).connection, connection);
}

/// A stream, or messages, from a place of one program to a place of another.
fn exchange(toed: &Toed, ways: [Option<&str>; 2], carries: Carries, lengths: &[usize]) {
    // Each on a port of its own: the daemon sees the end of the programs before a moment after it.
    static LAST_PORT: AtomicU16 = AtomicU16::new(1000);
    let port = LAST_PORT.fetch_add(1, Relaxed) + 1;
    let (mut one, mut other) = (Program::open(toed, "a"), Program::open(toed, "b"));
    let (here, there) = meet_for(carries, &mut one, &mut other, port);
    let (from, into) = (BufferMemory::new(&one, ways[0]), BufferMemory::new(&other, ways[1]));
    std::thread::scope(|scope| {
        let (other, into) = (&mut other, &into);
        scope.spawn(move || receive(other, there, into, lengths, carries, 5));
        send(&mut one, here, &from, lengths, 5);
    });
    for place in [&from, &into] {
        if let BufferMemory::Device(stand_in, _) = place {
            assert!(stand_in.copies() > 0, "nothing passed through the queue");
        }
    }
}

fn lengths(count: usize) -> Vec<usize> {
    (0..count).map(|at| 1 + (at * 2_654_435_761) % (PIECE - 1)).collect()
}

#[test]
fn streams_from_and_to_devices() {
    let (prompt, shuffled, slow) = (Some("after 0"), Some("shuffled"), Some("after 300"));
    for transport in ["flextoe", "laminar"] {
        for ways in [[None, prompt], [prompt, None], [prompt, shuffled], [slow, slow]] {
            let mut toed = Toed::start(&configuration(transport, "", 60_000));
            exchange(&toed, ways, Carries::Stream, &lengths(40));
            assert!(toed.end().success());
        }
    }
}

#[test]
fn streams_and_messages_from_and_to_devices_through_loss() {
    for ways in [[None, Some("shuffled")], [Some("shuffled"), None], [Some("after 100"), Some("after 100")]] {
        for carries in [Carries::Stream, Carries::Messages] {
            let mut toed = Toed::start(&configuration("flextoe", LOSS, 60_000));
            exchange(&toed, ways, carries, &lengths(24));
            assert!(toed.end().success());
        }
    }
}

/// A device's answers are in doubt: the connection of its memory is lost, and another one of the same hosts goes on.
fn lost(how: &str, timeout_ms: u32, into_device: bool) {
    let toed = Toed::start(&configuration("flextoe", "", timeout_ms));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    let (mut third, mut fourth) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (beside, across) = meet_for(Carries::Stream, &mut third, &mut fourth, 81);
    let (from, into) = match into_device {
        true => (BufferMemory::Memory(one.key), BufferMemory::device(&other, how)),
        false => (BufferMemory::device(&one, how), BufferMemory::Memory(other.key)),
    };
    for post in 0..8 {
        other.post(post, there, Order::Receive(into.piece(post, PIECE)));
        one.post(post, here, Order::Send(from.piece(post, PIECE)));
    }
    // Meanwhile, all bytes of others come.
    let lengths = lengths(20);
    std::thread::scope(|scope| {
        let (fourth, lengths) = (&mut fourth, &lengths);
        let place = BufferMemory::Memory(fourth.key);
        scope.spawn(move || receive(fourth, across, &place, lengths, Carries::Stream, 9));
        let place = BufferMemory::Memory(third.key);
        send(&mut third, beside, &place, lengths, 9);
    });
    let program = if into_device { &mut other } else { &mut one };
    // What was copied before is reported before.
    let end = loop {
        let next = program.next();
        if !matches!(next.outcome, Outcome::Received | Outcome::Sent) {
            break next;
        }
        assert!(how.starts_with("dying"), "{next:?} although no copy was done");
    };
    assert_eq!(end.outcome, Outcome::Lost, "{end:?}");
    let key = if into_device { into.key() } else { from.key() };
    let answer = program.ask(&Request::Deregister(key), &[]);
    match how {
        "failing" => assert_eq!(answer, Answer::Done),
        _ => assert!(matches!(answer, Answer::Refused(libc::EIO, _)), "{answer:?}"),
    }
    assert!(matches!(program.ask(&Request::Deregister(key), &[]), Answer::Refused(libc::EINVAL, _)));
    // Nothing was acknowledged that is not in memory.
    if into_device {
        let next = one.next();
        assert!(next.outcome == Outcome::Lost || how.starts_with("dying"), "{next:?}");
    }
}

#[test]
fn a_device_that_never_answers_is_lost_alone() {
    lost("silent", 300, true);
    lost("silent", 300, false);
}

#[test]
fn a_device_that_dies_is_lost_alone() {
    lost("dying 1", 60_000, true);
    lost("dying 1", 60_000, false);
}

#[test]
fn a_device_that_fails_loses_the_connection() {
    lost("failing", 60_000, true);
    lost("failing", 60_000, false);
}

/// Opens flows of datagrams between two programs: each one's number of its own.
fn meet_for_datagrams(one: &mut Program, other: &mut Program) -> (u32, u32) {
    let open = |program: &mut Program, from: u16, last: u8, to: u16| {
        program.post(1, 0, Order::Datagrams(from, SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), to)));
        program.expect(Outcome::Connected).connection
    };
    (open(one, 70, 2, 90), open(other, 90, 1, 70))
}

/// Sends datagrams of `len` bytes, each with other bytes, until so many have come whole: the numbers of these. Where
/// none is lost, each group of them is waited for.
fn datagrams(toed: &Toed, ways: [Option<&str>; 2], most: usize, len: usize, lossless: bool) -> Vec<u64> {
    let (mut one, mut other) = (Program::open(toed, "a"), Program::open(toed, "b"));
    let (here, there) = meet_for_datagrams(&mut one, &mut other);
    let (from, into) = (BufferMemory::new(&one, ways[0]), BufferMemory::new(&other, ways[1]));
    let bytes_of = |salt: u64| {
        let mut bytes = vec![0; len];
        fill(0, salt, &mut bytes);
        bytes
    };
    (0..WINDOW).for_each(|slot| other.post(slot, there, Order::Receive(into.piece(slot, PIECE))));
    let (mut came, mut slot, mut salt) = (Vec::new(), 0, 0);
    while came.len() < most {
        assert!(salt < 100 * most as u64, "hardly any datagram comes");
        for _ in 0..WINDOW {
            let piece = from.piece(salt, len);
            from.put(&one, piece.offset, &bytes_of(salt));
            one.post(salt, here, Order::Send(piece));
            salt += 1;
        }
        (salt - WINDOW..salt).for_each(|salt| assert_eq!(one.expect(Outcome::Sent).id, salt));
        for _ in 0..WINDOW {
            let wait = if lossless { TIMEOUT } else { Duration::from_millis(2) };
            let Some(received) = other.next_within(wait) else { break };
            // Receives are done in the order of their posts.
            assert_eq!((received.outcome, received.id, received.value), (Outcome::Received, slot, len as u64));
            let got = into.get(&other, into.piece(slot, len).offset, len);
            came.push((0..salt).rev().find(|salt| got == bytes_of(*salt)).expect("a whole datagram"));
            slot += 1;
            other.post(slot + WINDOW - 1, there, Order::Receive(into.piece(slot + WINDOW - 1, PIECE)));
        }
    }
    came
}

#[test]
fn datagrams_from_and_to_devices() {
    for transport in ["flextoe", "laminar"] {
        for ways in [[None, Some("after 0")], [Some("after 300"), None], [Some("shuffled"), Some("shuffled")]] {
            let mut toed = Toed::start(&configuration(transport, "mtu = 1500", 60_000));
            let came = datagrams(&toed, ways, 32, 1472, true);
            assert_eq!(came, (0..32).collect::<Vec<_>>(), "{ways:?}");
            assert!(toed.end().success());
        }
    }
}

#[test]
fn datagrams_from_and_to_devices_through_loss() {
    let faults = "loss = 0.2\nreorder = 0.1\nduplicate = 0.1\ncorrupt = 0.1\nmtu = 1500\nseed = 11";
    for ways in [[None, Some("shuffled")], [Some("after 100"), None]] {
        let mut toed = Toed::start(&configuration("flextoe", faults, 60_000));
        datagrams(&toed, ways, 60, 1000, false);
        assert!(toed.end().success());
    }
}

/// The flow is lost, the program is told so, its peer and other flows go on.
fn flow_lost(how: &str, timeout_ms: u32, into_device: bool) {
    let toed = Toed::start(&configuration("flextoe", "", timeout_ms));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet_for_datagrams(&mut one, &mut other);
    let device = BufferMemory::device(&other, how);
    for post in 0..WINDOW {
        if into_device {
            other.post(post, there, Order::Receive(device.piece(post, 1000)));
            one.post(post, here, Order::Send(one.piece(post, 1000)));
            assert_eq!(one.expect(Outcome::Sent).id, post);
        } else {
            other.post(post, there, Order::Send(device.piece(post, 1000)));
        }
    }
    let lost = loop {
        let next = other.next();
        if !matches!(next.outcome, Outcome::Received | Outcome::Sent) {
            break next;
        }
        assert!(how.starts_with("dying"), "{next:?} although no copy was done");
    };
    assert_eq!((lost.outcome, lost.connection), (Outcome::Lost, there), "{lost:?}");
    // Its ends are free for the next flow, whose memory is the program's own.
    other.post(1, 0, Order::Datagrams(90, SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 70)));
    let again = loop {
        let next = other.next();
        // What was posted after the loss found no flow.
        if (next.outcome, next.connection, next.value) != (Outcome::Failed, there, libc::EBADF as u64) {
            assert_eq!(next.outcome, Outcome::Connected, "{next:?}");
            break next.connection;
        }
    };
    other.post(100, again, Order::Receive(other.piece(0, 1000)));
    other.post(101, again, Order::Send(other.piece(1, 1000)));
    assert_eq!(other.expect(Outcome::Sent).id, 101);
    one.post(102, here, Order::Send(one.piece(0, 1000)));
    assert_eq!((one.expect(Outcome::Sent).id, other.expect(Outcome::Received).id), (102, 100));
}

#[test]
fn a_flow_of_datagrams_is_lost_with_its_device() {
    for into_device in [true, false] {
        flow_lost("silent", 300, into_device);
        flow_lost("dying 1", 60_000, into_device);
        flow_lost("failing", 60_000, into_device);
    }
}

#[test]
fn deregistration_waits_for_copies_and_none_is_made_afterwards() {
    let toed = Toed::start(&configuration("flextoe", "", 60_000));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    let into = BufferMemory::device(&other, "after 20000");
    for post in 0..8 {
        other.post(post, there, Order::Receive(into.piece(post, PIECE)));
        one.post(post, here, Order::Send(BufferMemory::Memory(one.key).piece(post, PIECE)));
    }
    until("the first copy", || into.stand_in().copies() > 0);
    assert_eq!(other.ask(&Request::Deregister(into.key()), &[]), Answer::Done);
    let copies = into.stand_in().copies();
    assert!(copies > 1, "those that were under way");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(into.stand_in().copies(), copies);
}

#[test]
fn a_server_that_lies_hurts_nobody_else() {
    let toed = Toed::start(&configuration("flextoe", "", 60_000));
    let (mut one, mut other) = (Program::open(&toed, "a"), Program::open(&toed, "b"));
    let (here, there) = meet(&mut one, &mut other, 80);
    let (number, queue) = queue_of(&other);
    let key = register(&other, number);
    let mut server = DmaServer::open(queue).unwrap();
    // Orders that were never given are completed, more often than the queue has room.
    (0..2000).for_each(|number| server.done(1_000_000 + number * 77, 0));
    other.post(1, there, Order::Receive(Piece { key, offset: 0, len: PIECE as u64 }));
    one.post(1, here, Order::Send(one.piece(0, PIECE)));
    until("an order", || server.take().is_some());
    let devices = [u32::MAX, number + 1].map(|device| Request::RegisterDevice { device, address: 0, len: 8 });
    let impossible = [Request::RegisterDevice { device: number, address: u64::MAX, len: 2 }];
    for request in devices.iter().chain(&impossible) {
        assert!(matches!(other.ask(request, &[]), Answer::Refused(libc::EINVAL, _)), "{request:?}");
    }
    // It sends what the protocol has no place for, or ends: the device is lost.
    drop(server);
    assert_eq!(other.expect(Outcome::Lost).connection, there);
    let refused = (0..100).find_map(|_| match other.ask(&Request::Device, &[]) {
        Answer::Refused(errno, _) => Some(errno),
        _ => None,
    });
    assert_eq!(refused, Some(libc::EMFILE));
    drop(other);
    exchange(&toed, [None, Some("after 0")], Carries::Stream, &lengths(5));
}
