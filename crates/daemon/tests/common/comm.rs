//! Programs of a ZeroNIC host (`context::comm`), as a library of theirs does it.
use super::Toed;
use context::comm::{Answer, Carries, Completion, Hello, Order, Outcome, Piece, Post, Request, VERSION, program_bell};
use context::queues::{AppQueues, daemon_bell};
use memory::{Description, Registrar, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shm::{ByteRing, Doorbell, Region, handover};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a program's memory, and of a post.
pub(crate) const LEN: usize = 1 << 20;
pub(crate) const PIECE: usize = LEN / 8;
/// How long something that must happen may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn b(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), port)
}

/// A program of a ZeroNIC host.
pub(crate) struct Program {
    pub socket: OwnedFd,
    pub queues: AppQueues,
    pub daemon: Doorbell,
    pub own: Doorbell,
    pub memory: Arc<ByteRing>,
    pub region: Arc<Region>,
    pub key: u32,
}

impl Program {
    pub(crate) fn open(toed: &Toed, host: &str) -> Program {
        let socket = handover::connect(&toed.socket()).unwrap();
        let hello = Hello { comm: VERSION, host: Some(host.into()), command: "test".into() };
        handover::send(socket.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
        let (answer, files) = handover::recv(socket.as_fd()).unwrap();
        let answer: Answer = serde_json::from_slice(&answer).unwrap();
        assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
        let [region, bell, own] = <[OwnedFd; 3]>::try_from(files).unwrap();
        let passed = Arc::new(Region::from_fd(region).unwrap());
        let region = Arc::new(Region::create("zeronic test", LEN).unwrap());
        let mut program = Program {
            queues: AppQueues::new(&passed).unwrap(),
            daemon: daemon_bell(&passed, bell),
            own: program_bell(&passed, own),
            memory: Arc::new(ByteRing::map(&region, 0, LEN).unwrap()),
            region,
            socket,
            key: 0,
        };
        let address = program.region.address(0, LEN) as u64;
        let prepared = Registrar::new().prepare(address, LEN as u64, Rights::LOCAL_WRITE).unwrap();
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        let Answer::Key(key) = program.ask(&Request::Register(prepared.description), &files) else { panic!("no key") };
        program.key = key;
        program
    }

    pub(crate) fn ask(&self, request: &Request<Description>, files: &[BorrowedFd<'_>]) -> Answer {
        self.ask_for_files(request, files).0
    }

    pub(crate) fn ask_for_files(
        &self,
        request: &Request<Description>,
        files: &[BorrowedFd<'_>],
    ) -> (Answer, Vec<OwnedFd>) {
        handover::send(self.socket.as_fd(), &serde_json::to_vec(request).unwrap(), files).unwrap();
        let (answer, files) = handover::recv(self.socket.as_fd()).unwrap();
        (serde_json::from_slice(&answer).unwrap(), files)
    }

    pub(crate) fn push(&mut self, words: [u64; 8]) {
        self.queues.send.as_mut().unwrap().push(words).unwrap();
        self.daemon.ring();
    }

    pub(crate) fn post(&mut self, id: u64, connection: u32, order: Order) {
        self.push(Post { id, connection, order }.to_words());
    }

    pub(crate) fn piece(&self, slot: u64, len: usize) -> Piece {
        Piece { key: self.key, offset: slot * PIECE as u64, len: len as u64 }
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.queues.completion.as_mut().unwrap().pop().map(|words| Completion::from_words(words).unwrap())
    }

    /// The next completion, asleep until it comes.
    pub(crate) fn next(&mut self) -> Completion {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.pop() {
                return completion;
            }
            self.own.prepare_to_sleep();
            let found = self.pop();
            if found.is_none() {
                let mut fds = [PollFd::from_borrowed_fd(self.own.fd(), PollFlags::IN)];
                let most = Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(&mut fds, Some(&most));
            }
            self.own.awake();
            self.own.clear();
            if let Some(completion) = found {
                return completion;
            }
            assert!(begin.elapsed() < TIMEOUT, "nothing came");
        }
    }

    pub(crate) fn expect(&mut self, outcome: Outcome) -> Completion {
        let next = self.next();
        assert_eq!(next.outcome, outcome, "{next:?}");
        next
    }
}

/// What a stream has at byte `at`.
pub(crate) fn fill(at: u64, salt: u64, into: &mut [u8]) {
    for (byte, at) in into.iter_mut().zip(at..) {
        *byte = ((at ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
}

/// Both programs listen and connect.
pub(crate) fn meet(one: &mut Program, other: &mut Program, port: u16) -> (u32, u32) {
    meet_for(Carries::Stream, one, other, port)
}

pub(crate) fn meet_for(carries: Carries, one: &mut Program, other: &mut Program, port: u16) -> (u32, u32) {
    other.post(1, 0, Order::Listen(port, carries));
    assert_eq!(other.expect(Outcome::Listening).id, 1);
    one.post(2, 0, Order::Connect(b(port), carries));
    let connected = one.expect(Outcome::Connected);
    assert_eq!(connected.id, 2);
    let accepted = other.expect(Outcome::Accepted);
    assert_eq!(accepted.value, u64::from(port));
    (connected.connection, accepted.connection)
}
