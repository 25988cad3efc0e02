//! A verbs library for tests: it uses the protocol of `crates/verbs` directly.
use context::queues::{AppQueues, daemon_bell};
use memory::{Description, Key, Registrar, Rights};
use shm::{Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use verbs::attach::{Answer as Attached, Device, Hello, Welcome};
use verbs::control::{Answer, NewQp, Request};
use verbs::{
    AddressVector, Capacities, Completion, Gid, Mtu, Notify, Number, Operand, Piece, QpAttributes, QpKind, QpNumber,
    QpState, ReceivePiece, SendElement, SendFlags, SendOpcode,
};

/// How long a completion may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A context: what a program has after `ibv_open_device`.
pub(crate) struct Verbs {
    pub socket: OwnedFd,
    pub device: Device,
    pub others: Vec<Device>,
    pub send: PipeProducer<8>,
    pub bell: Doorbell,
    pub events: OwnedFd,
}

/// A completion queue.
pub(crate) struct Cq {
    pub number: Number,
    pub notify: Notify,
    pipe: PipeConsumer<8>,
    /// Taken, but not asked for yet.
    taken: VecDeque<Completion>,
}

/// A queue pair with the completion queue that it has for itself.
pub(crate) struct Qp {
    pub number: QpNumber,
    pub receive: Option<PipeProducer<2>>,
    pub cq: Cq,
    sent: u32,
}

pub(crate) fn hello(socket: &Path, host: &str, device: Option<&str>) -> (OwnedFd, Attached, Vec<OwnedFd>) {
    let connection = handover::connect(socket).unwrap();
    let (host, device) = (Some(host.into()), device.map(String::from));
    let hello = Hello { verbs: verbs::VERSION, host, device, command: "a verbs test".into() };
    handover::send(connection.as_fd(), &serde_json::to_vec(&hello).unwrap(), &[]).unwrap();
    let (message, files) = handover::recv(connection.as_fd()).unwrap();
    (connection, serde_json::from_slice(&message).unwrap(), files)
}

impl Verbs {
    pub(crate) fn open(socket: &Path, host: &str) -> Verbs {
        Verbs::open_device(socket, host, None)
    }

    /// A device of the host, by its name.
    pub(crate) fn open_device(socket: &Path, host: &str, device: Option<&str>) -> Verbs {
        let (socket, answer, files) = hello(socket, host, device);
        let Attached::Welcome(Welcome { device, others, pipes, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(pipes, 1);
        let [region, bell, events] = <[OwnedFd; 3]>::try_from(files).unwrap();
        let region = Arc::new(Region::from_fd(region).unwrap());
        let send = AppQueues::new(&region).unwrap().send.unwrap();
        let mut bell = daemon_bell(&region, bell);
        bell.rely_on_barrier();
        Verbs { socket, device, others, send, bell, events }
    }

    /// A control request: its answer, and what came along.
    pub(crate) fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> (Answer, Option<OwnedFd>) {
        handover::send(self.socket.as_fd(), &serde_json::to_vec(request).unwrap(), files).unwrap();
        let (message, mut files) = handover::recv(self.socket.as_fd()).unwrap();
        assert!(files.len() <= 1);
        (serde_json::from_slice(&message).unwrap(), files.pop())
    }

    pub(crate) fn done(&self, request: &Request) {
        let (answer, _) = self.ask(request, &[]);
        assert_eq!(answer, Answer::Done, "{request:?}");
    }

    pub(crate) fn number(&self, request: &Request) -> Number {
        match self.ask(request, &[]).0 {
            Answer::Number(number) => number,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    /// The error number of a request that must fail.
    pub(crate) fn errno(&self, request: &Request) -> i32 {
        match self.ask(request, &[]).0 {
            Answer::Failed { errno, why } => {
                assert!(!why.is_empty());
                errno
            }
            other => panic!("{request:?}: {other:?}"),
        }
    }

    pub(crate) fn domain(&self) -> Number {
        self.number(&Request::AllocateDomain)
    }

    pub(crate) fn hand_over(&self) {
        let space = Registrar::new().address_space().unwrap();
        assert_eq!(self.ask(&Request::HandOver, &[space.as_fd()]).0, Answer::Done);
    }

    /// Registers memory of this process.
    pub(crate) fn register(&self, domain: Number, memory: &Memory, rights: Rights) -> Key {
        let prepared = Registrar::new().prepare(memory.address(), memory.len() as u64, rights).unwrap();
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        self.register_as(domain, prepared.description, &files).unwrap()
    }

    pub(crate) fn register_as(
        &self,
        domain: Number,
        description: Description,
        files: &[BorrowedFd<'_>],
    ) -> Result<Key, i32> {
        let named = description.address;
        match self.ask(&Request::Register { domain, description, named }, files).0 {
            Answer::Region(key) => Ok(key),
            Answer::Failed { errno, .. } => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn cq(&self, entries: u32, channel: Option<Number>) -> Cq {
        let (answer, region) = self.ask(&Request::CreateCq { entries, channel }, &[]);
        let Answer::Queue { number, entries: given } = answer else { panic!("{answer:?}") };
        assert!(given >= entries && given.is_power_of_two());
        let region = Arc::new(Region::from_fd(region.unwrap()).unwrap());
        let pipe = AppQueues::new(&region).unwrap().completion.unwrap();
        Cq { number, notify: Notify::new(&region), pipe, taken: VecDeque::new() }
    }

    pub(crate) fn new_qp(&self, kind: QpKind, domain: Number, cq: &Cq) -> NewQp {
        let capacities = Capacities { send: 64, receive: 64, send_pieces: 4, receive_pieces: 4, inline: 128 };
        let (send_cq, receive_cq) = (cq.number, cq.number);
        NewQp { kind, domain, send_cq, receive_cq, srq: None, capacities, signals_all: false }
    }

    pub(crate) fn qp(&self, kind: QpKind, domain: Number, channel: Option<Number>) -> Qp {
        let cq = self.cq(256, channel);
        let (answer, region) = self.ask(&Request::CreateQp(self.new_qp(kind, domain, &cq)), &[]);
        let Answer::Qp { number, pipe: 0, .. } = answer else { panic!("{answer:?}") };
        let region = Arc::new(Region::from_fd(region.unwrap()).unwrap());
        let receive = AppQueues::new(&region).unwrap().receive;
        Qp { number, receive, cq, sent: 0 }
    }

    /// Reliable queue pairs whose completions come to one queue, each with room for one receive work request.
    pub(crate) fn qps_of(&self, domain: Number, cq: &Cq, count: usize) -> Vec<QpNumber> {
        let new = self.new_qp(QpKind::Rc, domain, cq);
        let capacities = Capacities { receive: 1, receive_pieces: 1, ..new.capacities };
        let one = |_| match self.ask(&Request::CreateQp(NewQp { capacities, ..new }), &[]).0 {
            Answer::Qp { number, .. } => number,
            other => panic!("{other:?}"),
        };
        (0..count).map(one).collect()
    }

    pub(crate) fn modify(&self, qp: QpNumber, attributes: QpAttributes) {
        self.done(&Request::ModifyQp { qp, attributes });
    }

    pub(crate) fn query(&self, qp: QpNumber) -> QpAttributes {
        match self.ask(&Request::QueryQp(qp), &[]).0 {
            Answer::Attributes(attributes) => attributes,
            other => panic!("{other:?}"),
        }
    }

    /// The GID that stands for its host's IPv4 address.
    pub(crate) fn gid(&self) -> Gid {
        self.device.gids[1]
    }

    /// Takes a reliable queue pair to the state ready to send, connected to a peer's.
    pub(crate) fn connect(&self, qp: QpNumber, peer: Gid, remote: QpNumber) {
        self.modify(qp, init());
        self.modify(qp, ready_to_receive(peer, remote));
        self.modify(qp, ready_to_send());
    }

    /// Posts a send work request, signalled, and rings. Its number comes back in the completion.
    pub(crate) fn post(&mut self, qp: &mut Qp, opcode: SendOpcode, piece: Piece, remote: Operand) -> u32 {
        self.post_atomic(qp, opcode, piece, remote, [0; 2])
    }

    /// The same with the operands of an atomic: compare or add, swap.
    pub(crate) fn post_atomic(
        &mut self,
        qp: &mut Qp,
        opcode: SendOpcode,
        piece: Piece,
        remote: Operand,
        [compare, swap]: [u64; 2],
    ) -> u32 {
        let number = qp.sent;
        qp.sent = qp.sent.wrapping_add(1);
        self.post_as(qp.number, number, opcode, piece, remote, [compare, swap]);
        number
    }

    /// Posts the work request of this number of a queue pair.
    pub(crate) fn post_as(
        &mut self,
        qp: QpNumber,
        number: u32,
        opcode: SendOpcode,
        piece: Piece,
        remote: Operand,
        [compare, swap]: [u64; 2],
    ) {
        let mut element = SendElement {
            qp,
            opcode,
            flags: SendFlags::SIGNALED,
            more: 0,
            pieces: 1,
            number,
            immediate: 0,
            target: remote.address,
            key: remote.key,
            inline: 0,
            srq: 0,
            words: [0, 0, compare, swap],
        };
        element.set_piece(0, piece);
        self.push(element.encode());
    }

    /// Any words into the send pipe, in order of the queue.
    pub(crate) fn push(&mut self, words: [u64; 8]) {
        let begin = Instant::now();
        while self.send.push(words).is_err() {
            assert!(begin.elapsed() < TIMEOUT, "the send pipe stays full");
            std::thread::yield_now();
        }
        self.bell.ring();
    }
}

impl Qp {
    pub(crate) fn post_receive(&mut self, piece: Piece) {
        let element = ReceivePiece { piece, more: false };
        self.receive.as_mut().unwrap().push(element.encode()).expect("room in the receive queue");
    }
}

impl Cq {
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let popped = self.pipe.pop().map(|words| Completion::decode(&words).expect("a completion"));
        self.taken.extend(popped);
        self.taken.pop_front()
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Completion {
        let begin = Instant::now();
        loop {
            if let Some(completion) = self.poll() {
                return completion;
            }
            assert!(begin.elapsed() < TIMEOUT, "no completion comes");
            std::thread::yield_now();
        }
    }
}

/// Memory of the heap that others write while it is read.
pub(crate) struct Memory(Box<[AtomicU8]>);

impl Memory {
    pub(crate) fn new(len: usize) -> Memory {
        Memory((0..len).map(|_| AtomicU8::new(0)).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub(crate) fn fill(&self, from: usize, bytes: impl IntoIterator<Item = u8>) {
        self.0[from..].iter().zip(bytes).for_each(|(place, byte)| place.store(byte, Relaxed));
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Relaxed)).collect()
    }

    /// A part of it as a scatter-gather entry.
    pub(crate) fn piece(&self, from: usize, len: usize, key: Key) -> Piece {
        assert!(from + len <= self.len());
        Piece { address: self.address() + from as u64, len: len as u32, key: key.0 }
    }

    /// Its byte `from`, as a peer names it.
    pub(crate) fn remote(&self, from: usize, key: Key) -> Operand {
        Operand { address: self.address() + from as u64, key: key.0 }
    }
}

pub(crate) fn to(state: QpState) -> QpAttributes {
    QpAttributes { state: Some(state), ..QpAttributes::default() }
}

pub(crate) fn init() -> QpAttributes {
    let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
    QpAttributes { rights: Some(rights), partition_index: Some(0), port: Some(1), ..to(QpState::Init) }
}

pub(crate) fn ready_to_receive(peer: Gid, remote: QpNumber) -> QpAttributes {
    QpAttributes {
        path: Some(AddressVector { gid: peer, gid_index: 1, ..AddressVector::default() }),
        mtu: Some(Mtu::B1024),
        remote_qp: Some(remote),
        receive_psn: Some(0xff_fff0),
        responder_resources: Some(4),
        rnr_timer: Some(12),
        ..to(QpState::ReadyToReceive)
    }
}

pub(crate) fn ready_to_send() -> QpAttributes {
    QpAttributes {
        send_psn: Some(0xff_fff0),
        timeout: Some(14),
        retries: Some(7),
        rnr_retries: Some(7),
        initiator_depth: Some(4),
        ..to(QpState::ReadyToSend)
    }
}
