//! Programs of a ZeroNIC host (`context::comm`), as a library of theirs does it.
use super::Toed;
use super::place::Place;
use context::comm::{Answer, Carries, Completion, Hello, Order, Outcome, Piece, Post, VERSION};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::{Deref, DerefMut};
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
pub(crate) struct Program(Place);

impl Deref for Program {
    type Target = Place;
    fn deref(&self) -> &Place {
        &self.0
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Place {
        &mut self.0
    }
}

impl Program {
    pub(crate) fn open(toed: &Toed, host: &str) -> Program {
        let hello = Hello { comm: VERSION, host: Some(host.into()), command: "test".into() };
        let (place, answer) = Place::open(toed, &hello);
        assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
        Program(place)
    }

    pub(crate) fn post(&mut self, id: u64, connection: u32, order: Order) {
        self.push(Post { id, connection, order }.to_words());
    }

    pub(crate) fn piece(&self, slot: u64, len: usize) -> Piece {
        Piece { key: self.key, offset: slot * PIECE as u64, len: len as u64 }
    }

    pub(crate) fn pop(&mut self) -> Option<Completion> {
        self.pop_words().map(|words| Completion::from_words(words).unwrap())
    }

    /// The next completion, asleep until it comes.
    pub(crate) fn next(&mut self) -> Completion {
        Completion::from_words(self.next_words()).unwrap()
    }

    /// The next completion, where one comes within that time.
    pub(crate) fn next_within(&mut self, time: Duration) -> Option<Completion> {
        let begin = Instant::now();
        loop {
            match self.pop() {
                None if begin.elapsed() < time => std::thread::sleep(Duration::from_micros(200)),
                found => return found,
            }
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
