//! Programs with queues of posts and completions, as a library of theirs does it.
use super::Toed;
use super::comm::{LEN, TIMEOUT};
use context::comm::{Answer, Request, program_bell};
use context::queues::{AppQueues, daemon_bell};
use memory::{Description, Registrar, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use shm::{ByteRing, Doorbell, Region, handover};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// A program's place at the daemon, with registered memory of [`LEN`] bytes.
pub(crate) struct Place {
    pub socket: OwnedFd,
    pub queues: AppQueues,
    pub daemon: Doorbell,
    pub own: Doorbell,
    pub memory: Arc<ByteRing>,
    pub region: Arc<Region>,
    pub key: u32,
}

/// A first message, and the daemon's answer.
fn greet(toed: &Toed, hello: &impl Serialize) -> (OwnedFd, Answer, Vec<OwnedFd>) {
    let socket = handover::connect(&toed.socket()).unwrap();
    handover::send(socket.as_fd(), &serde_json::to_vec(hello).unwrap(), &[]).unwrap();
    let (answer, files) = handover::recv(socket.as_fd()).unwrap();
    (socket, serde_json::from_slice(&answer).unwrap(), files)
}

impl Place {
    /// Attaches; the daemon's answer comes along.
    pub(crate) fn open(toed: &Toed, hello: &impl Serialize) -> (Place, Answer) {
        let (socket, answer, files) = greet(toed, hello);
        assert!(!matches!(answer, Answer::Refused(..)), "{answer:?}");
        let [region, bell, own] = <[OwnedFd; 3]>::try_from(files).unwrap();
        let passed = Arc::new(Region::from_fd(region).unwrap());
        let region = Arc::new(Region::create("queues test", LEN).unwrap());
        let mut place = Place {
            queues: AppQueues::new(&passed).unwrap(),
            daemon: daemon_bell(&passed, bell),
            own: program_bell(&passed, own),
            memory: Arc::new(ByteRing::map(&region, 0, LEN).unwrap()),
            region,
            socket,
            key: 0,
        };
        let address = place.region.address(0, LEN) as u64;
        let prepared = Registrar::new().prepare(address, LEN as u64, Rights::LOCAL_WRITE).unwrap();
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        let Answer::Key(key) = place.ask(&Request::Register(prepared.description), &files) else { panic!("no key") };
        place.key = key;
        (place, answer)
    }

    /// Why such a first message is refused: an error number and a sentence.
    pub(crate) fn refused(toed: &Toed, hello: &impl Serialize) -> (i32, String) {
        match greet(toed, hello).1 {
            Answer::Refused(errno, sentence) => (errno, sentence),
            answer => panic!("{answer:?}"),
        }
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
        assert!(self.try_push(words), "the queue is full");
    }

    /// False where the queue is full.
    pub(crate) fn try_push(&mut self, words: [u64; 8]) -> bool {
        let pushed = self.queues.send.as_mut().unwrap().push(words).is_ok();
        self.daemon.ring();
        pushed
    }

    pub(crate) fn pop_words(&mut self) -> Option<[u64; 8]> {
        self.queues.completion.as_mut().unwrap().pop()
    }

    /// The next completion, asleep until it comes.
    pub(crate) fn next_words(&mut self) -> [u64; 8] {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.pop_words() {
                return completion;
            }
            self.own.prepare_to_sleep();
            let found = self.pop_words();
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
}
