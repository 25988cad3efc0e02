//! Verbs context without libverbs: the daemon's protocol, for programs that break it.
use context::queues::{AppQueues, daemon_bell};
use memory::{Key, Registrar, Rights};
use rustix::fs::{OFlags, fcntl_setfl};
use serde_json::{from_slice, to_vec};
use shm::{Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use verbs::attach::{Answer as Attached, Device, Hello, Welcome};
use verbs::control::{Answer, NewQp, Request};
use verbs::{
    AddressVector, AsyncMessage, Capacities, Completion, Gid, Mtu, Number, Operand, Piece, QpAttributes, QpKind,
    QpNumber, QpState, ReceivePiece, SendElement, SendFlags, SendOpcode, Status,
};

/// How long an answer or a completion may take: longer than all retries of a queue pair.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Completions that a queue holds.
pub(super) const COMPLETIONS: u32 = 64;
/// First packet sequence number of both directions: it wraps soon.
pub(super) const FIRST_PSN: u32 = 0xff_fff0;

/// What a program has after `ibv_open_device`, with one protection domain.
pub(super) struct Context {
    /// The daemon's description of its device.
    pub device: Device,
    /// The send pipe, and its region.
    pub send: PipeProducer<8>,
    /// See [`Context::send`].
    pub region: Arc<Region>,
    socket: OwnedFd,
    bell: Doorbell,
    events: OwnedFd,
    domain: Number,
}

/// A queue pair, with a completion queue of its own.
pub(super) struct Qp {
    /// Its number.
    pub number: QpNumber,
    /// Regions of its receive queue and of its completion queue.
    pub regions: [Arc<Region>; 2],
    receive: PipeProducer<2>,
    completions: PipeConsumer<8>,
    sent: u32,
}

fn broken(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Context {
    /// Attaches to a host, and hands this process's memory over.
    pub(super) fn open(path: &Path, host: &str) -> Result<Context, String> {
        let socket = handover::connect(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let hello =
            Hello { verbs: verbs::VERSION, host: Some(host.into()), device: None, command: "hostile verbs".into() };
        handover::send(socket.as_fd(), &to_vec(&hello).map_err(broken)?, &[]).map_err(broken)?;
        let (message, files) = handover::recv(socket.as_fd()).map_err(broken)?;
        let device = match from_slice(&message).map_err(broken)? {
            Attached::Welcome(Welcome { device, .. }) => device,
            Attached::Refused(sentence) => return Err(sentence),
        };
        let [region, bell, events]: [OwnedFd; 3] = files.try_into().map_err(|_| "three descriptors come")?;
        fcntl_setfl(&events, OFlags::NONBLOCK).map_err(broken)?;
        let region = Arc::new(Region::from_fd(region).map_err(broken)?);
        let send = AppQueues::new(&region).map_err(broken)?.send.ok_or("the context has no send pipe")?;
        let mut bell = daemon_bell(&region, bell);
        bell.rely_on_barrier();
        let mut mine = Context { device, send, region, socket, bell, events, domain: 0 };
        let space = Registrar::new().address_space().map_err(broken)?;
        mine.done(&Request::HandOver, &[space.as_fd()])?;
        match mine.ask(&Request::AllocateDomain, &[])?.0 {
            Answer::Number(domain) => mine.domain = domain,
            other => return Err(format!("no protection domain: {other:?}")),
        }
        Ok(mine)
    }

    /// A control request: its answer, and what came along.
    pub(super) fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Result<(Answer, Option<OwnedFd>), String> {
        handover::send(self.socket.as_fd(), &to_vec(request).map_err(broken)?, files).map_err(broken)?;
        let (message, mut files) = handover::recv(self.socket.as_fd()).map_err(broken)?;
        Ok((from_slice(&message).map_err(broken)?, files.pop()))
    }

    /// A request that is to be carried out.
    pub(super) fn done(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Result<(), String> {
        match self.ask(request, files)?.0 {
            Answer::Done => Ok(()),
            other => Err(format!("{request:?}: {other:?}")),
        }
    }

    /// Registers a part of this process's memory, with all rights.
    pub(super) fn register(&self, memory: &Memory, from: usize, len: usize) -> Result<Key, String> {
        self.register_at(memory.address() + from as u64, len)
    }

    /// The same by its address.
    pub(super) fn register_at(&self, address: u64, len: usize) -> Result<Key, String> {
        let prepared = Registrar::new().prepare(address, len as u64, Rights::ALL | Rights::WINDOWS).map_err(broken)?;
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        let named = prepared.description.address;
        let request = Request::Register { domain: self.domain, description: prepared.description, named };
        match self.ask(&request, &files)?.0 {
            Answer::Region(key) => Ok(key),
            other => Err(format!("no region: {other:?}")),
        }
    }

    /// A memory window: its number.
    pub(super) fn window(&self) -> Result<Number, String> {
        match self.ask(&Request::AllocateWindow(self.domain), &[])?.0 {
            Answer::Number(number) => Ok(number),
            other => Err(format!("no memory window: {other:?}")),
        }
    }

    fn queue(&self, request: &Request) -> Result<(Answer, Arc<Region>), String> {
        let (answer, file) = self.ask(request, &[])?;
        let file = file.ok_or_else(|| format!("{request:?}: {answer:?}"))?;
        Ok((answer, Arc::new(Region::from_fd(file).map_err(broken)?)))
    }

    /// A reliable queue pair, with a completion queue of its own.
    pub(super) fn qp(&self) -> Result<Qp, String> {
        let (answer, of_cq) = self.queue(&Request::CreateCq { entries: COMPLETIONS, channel: None })?;
        let Answer::Queue { number: cq, .. } = answer else { return Err(format!("no completion queue: {answer:?}")) };
        let capacities = Capacities { send: 256, receive: 64, send_pieces: 4, receive_pieces: 1, inline: 128 };
        let (kind, domain) = (QpKind::Rc, self.domain);
        let new = NewQp { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacities, signals_all: true };
        let (answer, of_qp) = self.queue(&Request::CreateQp(new))?;
        let Answer::Qp { number, .. } = answer else { return Err(format!("no queue pair: {answer:?}")) };
        let completions = AppQueues::new(&of_cq).map_err(broken)?.completion.ok_or("it has no completion pipe")?;
        let receive = AppQueues::new(&of_qp).map_err(broken)?.receive.ok_or("it has no receive pipe")?;
        Ok(Qp { number, regions: [of_qp, of_cq], receive, completions, sent: 0 })
    }

    /// The GID that stands for its host's IPv4 address.
    pub(super) fn gid(&self) -> Gid {
        self.device.gids[1]
    }

    /// Takes a queue pair to the state ready to send, connected to a peer's.
    pub(super) fn connect(&self, qp: &Qp, peer: Gid, remote: QpNumber) -> Result<(), String> {
        for attributes in transitions(peer, remote) {
            self.done(&Request::ModifyQp { qp: qp.number, attributes }, &[])?;
        }
        Ok(())
    }

    /// Changes the state alone.
    pub(super) fn go(&self, qp: &Qp, state: QpState) -> Result<(), String> {
        self.done(&Request::ModifyQp { qp: qp.number, attributes: to(state) }, &[])
    }

    /// The state of a queue pair.
    pub(super) fn state(&self, qp: &Qp) -> Result<Option<QpState>, String> {
        match self.ask(&Request::QueryQp(qp.number), &[])?.0 {
            Answer::Attributes(attributes) => Ok(attributes.state),
            other => Err(format!("no attributes: {other:?}")),
        }
    }

    /// The next asynchronous event, where there is one.
    pub(super) fn event_now(&self) -> Option<AsyncMessage> {
        let mut bytes = [0; AsyncMessage::BYTES];
        let read = rustix::io::read(&self.events, &mut bytes).is_ok_and(|read| read == bytes.len());
        read.then(|| AsyncMessage::decode(bytes)).flatten()
    }

    /// The next asynchronous event.
    pub(super) fn event(&self) -> Result<AsyncMessage, String> {
        let begin = Instant::now();
        loop {
            match self.event_now() {
                Some(event) => return Ok(event),
                None => wait(begin, "an event")?,
            }
        }
    }

    /// Posts a work request; its number comes back with the completion.
    pub(super) fn post(&mut self, qp: &mut Qp, mut element: SendElement) -> Result<u32, String> {
        element.number = qp.sent;
        qp.sent = qp.sent.wrapping_add(1);
        let begin = Instant::now();
        while !self.push(element.encode()) {
            wait(begin, "room in the send pipe")?;
        }
        Ok(element.number)
    }

    /// Any words into the send pipe, in order of the queue; false where that is full.
    pub(super) fn push(&mut self, words: [u64; 8]) -> bool {
        let fits = self.send.push(words).is_ok();
        self.bell.ring();
        fits
    }
}

impl Qp {
    /// A signalled work request of one piece, on an operand of the peer's.
    pub(super) fn work(&self, opcode: SendOpcode, piece: Piece, remote: Operand) -> SendElement {
        let mut element = SendElement {
            flags: SendFlags::SIGNALED,
            pieces: 1,
            target: remote.address,
            key: remote.key,
            ..SendElement::new(self.number, opcode)
        };
        element.set_piece(0, piece);
        element
    }

    /// Posts a receive work request; false where the queue is full.
    pub(super) fn post_receive(&mut self, piece: Piece) -> bool {
        self.receive.push(ReceivePiece { piece, more: false }.encode()).is_ok()
    }

    /// The next completion, where there is one.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        self.completions.pop().and_then(|words| Completion::decode(&words))
    }

    /// The next completion.
    pub(super) fn next(&mut self) -> Result<Completion, String> {
        let begin = Instant::now();
        loop {
            match self.poll() {
                Some(done) => return Ok(done),
                None => wait(begin, "a completion")?,
            }
        }
    }

    /// The next completion is this one.
    pub(super) fn expect(&mut self, number: u32, status: Status) -> Result<Completion, String> {
        let done = self.next()?;
        match (done.qp, done.number, done.status) == (self.number, number, status) {
            true => Ok(done),
            false => Err(format!("instead of number {number} with {status:?}: {done:?}")),
        }
    }
}

fn wait(begin: Instant, what: &str) -> Result<(), String> {
    if begin.elapsed() > TIMEOUT {
        return Err(format!("no sign of {what} for {} s", TIMEOUT.as_secs()));
    }
    thread::yield_now();
    Ok(())
}

fn to(state: QpState) -> QpAttributes {
    QpAttributes { state: Some(state), ..QpAttributes::default() }
}

/// The GID of an IPv4 address.
pub(super) fn gid_of(address: Ipv4Addr) -> Gid {
    Gid(address.to_ipv6_mapped().octets())
}

fn transitions(peer: Gid, remote: QpNumber) -> [QpAttributes; 3] {
    let init = QpAttributes { rights: Some(Rights::ALL), partition_index: Some(0), port: Some(1), ..to(QpState::Init) };
    let receive = QpAttributes {
        path: Some(AddressVector { gid: peer, gid_index: 1, ..AddressVector::default() }),
        mtu: Some(Mtu::B1024),
        remote_qp: Some(remote),
        receive_psn: Some(FIRST_PSN),
        responder_resources: Some(4),
        rnr_timer: Some(1),
        ..to(QpState::ReadyToReceive)
    };
    let send = QpAttributes {
        send_psn: Some(FIRST_PSN),
        timeout: Some(14),
        retries: Some(7),
        rnr_retries: Some(7),
        initiator_depth: Some(4),
        ..to(QpState::ReadyToSend)
    };
    [init, receive, send]
}

/// Memory of this process that others write while it is read.
pub(super) struct Memory(Box<[AtomicU8]>);

impl Memory {
    /// So many bytes, all alike.
    pub(super) fn new(len: usize, byte: u8) -> Memory {
        Memory((0..len).map(|_| AtomicU8::new(byte)).collect())
    }

    /// Its first address.
    pub(super) fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Writes these bytes at a place.
    pub(super) fn fill(&self, from: usize, bytes: impl IntoIterator<Item = u8>) {
        self.0[from..].iter().zip(bytes).for_each(|(place, byte)| place.store(byte, Relaxed));
    }

    /// A part of it.
    pub(super) fn bytes(&self, from: usize, len: usize) -> Vec<u8> {
        self.0[from..from + len].iter().map(|byte| byte.load(Relaxed)).collect()
    }

    /// A part of it as a scatter-gather entry.
    pub(super) fn piece(&self, from: usize, len: usize, key: Key) -> Piece {
        Piece { address: self.address() + from as u64, len: len as u32, key: key.0 }
    }

    /// Its byte `from`, as a peer names it.
    pub(super) fn remote(&self, from: usize, key: Key) -> Operand {
        Operand { address: self.address() + from as u64, key: key.0 }
    }
}
