//! RDMA program: its context, queues and queue pairs, through the contract of `crates/verbs`.
use super::device::SharedDevice;
use super::memory::Memory;
use super::plan::{LinkKind, LinkPlan};
use super::raw::Lane;
use super::windows::{Bound, Window};
use super::work::Work;
use ::memory::{Domain, Rights};
use ::verbs::control::XrcQueue;
use ::verbs::{
    AddressVector, Binding, Capacities, Completion, CompletionFlags, CompletionOpcode, Datagram, Gid, INLINE_FIRST,
    INLINE_NEXT, Notify, Operand, PIECES_FIRST, PIECES_NEXT, Piece, QpAttributes, QpKind, QpNumber, QpState,
    ReceivePiece, SendElement, SendFlags, SendOpcode, Status, Wish,
};
use context::queues::{AppQueues, DaemonQueues, QueueSizes, daemon_bell};
use rdma::{Device, EventPipe, Failure, NewProgram, ProgramId, Reach, Who};
use shm::{Doorbell, PipeConsumer, PipeProducer};
use smartns::{NewCq, NewHandle, NewQp, NewSrq, Receives};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries of the send pipe, of a completion queue, of a receive queue. More than is ever outstanding.
const SENDS: u32 = 4096;
const COMPLETIONS: u32 = 16_384;
const RECEIVES: u32 = 1024;
/// Stands for a work request that is none of its works: [`Program::post_mark`].
pub(crate) const MARK: usize = usize::MAX;
/// Stands for a binding of a window.
const BIND: usize = MARK - 1;
/// Numbers of the objects that a program has one of.
const CQ: u32 = 0;
const SRQ: u32 = 0;
const XRC_DOMAIN: u32 = 5;
const HANDLE: u32 = 0;
const QUEUE_KEY: u32 = 0x1111;
/// What a receiver without a work request asks for: 0.32 ms (IBTA 1.3, table 45).
const RNR_TIMER: u8 = 10;

/// What the daemon writes into a pipe of events.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Vec<Vec<u8>>>);

impl EventPipe for Mailbox {
    fn put(&self, message: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_vec());
    }
}

impl Mailbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Receive work requests: of a queue pair, or shared.
pub(crate) struct Offers {
    pipe: PipeProducer<2>,
    next: u32,
    /// Numbers and places of those that are outstanding.
    pub(crate) out: VecDeque<(u32, usize)>,
    /// Places to receive into.
    pub(crate) free: Vec<usize>,
}

/// A queue pair.
pub(crate) struct Half {
    pub(crate) number: QpNumber,
    /// Of an extended connection: the queue pair that receives. The other one sends.
    target: Option<QpNumber>,
    /// Numbers of the outstanding send work requests, and which of its works they are.
    pub(crate) posted: VecDeque<(u32, usize)>,
    next_number: u32,
    /// The next of its works to post, and how many have ended well.
    pub(crate) next: usize,
    pub(crate) done: usize,
    /// The first of its peer's works of which it has not received a message.
    pub(crate) expected: usize,
    /// Its first error, and whether the program itself moved it to the error state.
    pub(crate) error: Option<Status>,
    pub(crate) was_moved: bool,
    /// By which its peer reaches its targets, where the link has windows.
    pub(crate) window: Option<Window>,
    /// Without a shared receive queue.
    pub(crate) offers: Option<Offers>,
}

/// A program.
pub(crate) struct Program {
    plan: LinkPlan,
    device: SharedDevice,
    id: ProgramId,
    domain: Domain,
    send: PipeProducer<8>,
    completions: PipeConsumer<8>,
    notify: Notify,
    pub(crate) channel: Arc<Mailbox>,
    pub(crate) events: Arc<Mailbox>,
    /// By the number of their queue.
    pub(crate) shared: Vec<Offers>,
    pub(crate) halves: Vec<Half>,
    has_handle: bool,
    /// The ways to its queue pairs of raw packets.
    lanes: Vec<Lane>,
}

fn failed(failure: Failure) -> String {
    failure.why
}

fn broken(error: std::io::Error) -> String {
    format!("cannot make queues: {error}")
}

impl Program {
    /// Attaches; `pid` distinguishes it from all others.
    pub(crate) fn new(plan: &LinkPlan, device: &SharedDevice, pid: u32, lanes: &[Lane]) -> Result<Program, String> {
        let sizes = QueueSizes { send: SENDS, ..QueueSizes::default() };
        let (region, daemon) = DaemonQueues::create("sim", sizes).map_err(broken)?;
        let bell = daemon_bell(&region, Doorbell::eventfd().map_err(broken)?);
        let events = Arc::new(Mailbox::default());
        let new = NewProgram {
            who: Who { pid, uid: 1000, command: format!("program {pid}") },
            pipe: daemon.send.ok_or("no send pipe")?,
            bell,
            events: Arc::clone(&events) as Arc<dyn EventPipe>,
        };
        let send = AppQueues::new(&region).map_err(broken)?.send.ok_or("no send pipe")?;
        let id = device.device().attach(new).map_err(failed)?;
        let sizes = QueueSizes { completion: COMPLETIONS, ..QueueSizes::default() };
        let (region, daemon) = DaemonQueues::create("sim", sizes).map_err(broken)?;
        let (notify, channel) = (Notify::new(&region), Arc::new(Mailbox::default()));
        let pipe = daemon.completion.ok_or("no completion pipe")?;
        let cq = NewCq { number: CQ, pipe, notify: Notify::new(&region), has_channel: plan.events };
        let to = plan.events.then(|| Arc::clone(&channel) as Arc<dyn EventPipe>);
        device.device().create_cq(id, cq, to).map_err(failed)?;
        let completions = AppQueues::new(&region).map_err(broken)?.completion.ok_or("no completion pipe")?;
        let mut program = Program {
            plan: plan.clone(),
            device: device.clone(),
            id,
            domain: Domain(pid),
            send,
            completions,
            notify,
            channel,
            events,
            shared: Vec::new(),
            halves: Vec::new(),
            has_handle: false,
            lanes: lanes.to_vec(),
        };
        (0..plan.shared_queues()).try_for_each(|queue| program.make_shared(queue))?;
        for qp in 0..plan.qps {
            let half = program.fresh(qp)?;
            program.halves.push(half);
        }
        program.notify.ask(Wish::Any);
        Ok(program)
    }

    fn make_shared(&mut self, queue: usize) -> Result<(), String> {
        let (pipe, end) = receive_pipe()?;
        let (domain, count) = (self.domain, self.plan.receives + SPARE);
        let xrc = (self.plan.kind == LinkKind::Extended).then_some(XrcQueue { domain: XRC_DOMAIN, cq: CQ });
        let srq = NewSrq { number: SRQ + queue as u32, domain, pipe: end, receives: count as u32, pieces: 8, xrc };
        self.device.device().create_srq(self.id, srq).map_err(failed)?;
        let free = (queue * count..(queue + 1) * count).rev().collect();
        self.shared.push(Offers { pipe, next: 0, out: VecDeque::new(), free });
        Ok(())
    }

    /// A fresh queue pair, in state reset.
    fn fresh(&self, qp: usize) -> Result<Half, String> {
        let count = self.plan.receives;
        let is_extended = self.plan.kind == LinkKind::Extended;
        let (offers, receives) = if !is_extended && !self.shared.is_empty() {
            (None, Receives::Shared(SRQ))
        } else {
            let (pipe, end) = receive_pipe()?;
            let free = (qp * count..(qp + 1) * count).rev().collect();
            let offers = Offers { pipe, next: 0, out: VecDeque::new(), free };
            // Nothing comes to the half of an extended connection that sends.
            (Some(offers).filter(|_| !is_extended), Receives::Own(end))
        };
        let new = NewQp {
            number: 0,
            kind: self.plan.kind.of_verbs(),
            domain: self.domain,
            send_cq: CQ,
            receive_cq: CQ,
            receives,
            capacities: Capacities { send: 256, receive: 128, send_pieces: 32, receive_pieces: 8, inline: 512 },
            signals_all: false,
        };
        let target = is_extended.then(target);
        let mut device = self.device.device();
        let number = device.create_qp(self.id, new).map_err(failed)?;
        let target = target.map(|target| device.create_qp(self.id, target).map_err(failed)).transpose()?;
        // The rule of a queue pair has its place as number.
        let rule = self.lanes.get(qp).map(|lane| lane.rule(number));
        rule.map_or(Ok(()), |rule| device.create_flow(self.id, qp as u32, rule).map_err(failed))?;
        let (posted, next_number, next, done, expected) = (VecDeque::new(), 0, 0, 0, 0);
        let (error, was_moved, window) = (None, false, self.window(&mut device)?);
        Ok(Half { number, target, posted, next_number, next, done, expected, error, was_moved, window, offers })
    }

    fn window(&self, device: &mut Device) -> Result<Option<Window>, String> {
        let add = |device: &mut Device| device.add_window(self.id, self.domain).map(Window::new).map_err(failed);
        (self.plan.kind == LinkKind::Windowed).then(|| add(device)).transpose()
    }

    /// A queue pair begins anew, after a reset or as another one. What was outstanding is forgotten.
    pub(crate) fn renew(&mut self, qp: usize, another: bool) -> Result<(), String> {
        if let Some(window) = self.halves[qp].window {
            // Whether its binding was carried out is unknown.
            self.device.device().remove_window(self.id, window.number).map_err(failed)?;
        }
        if another {
            if !self.lanes.is_empty() {
                self.device.device().destroy_flow(self.id, qp as u32).map_err(failed)?;
            }
            let old = self.halves[qp].numbers();
            old.into_iter().try_for_each(|old| self.device.device().destroy_qp(self.id, old).map_err(failed))?;
            let half = self.fresh(qp)?;
            let before = std::mem::replace(&mut self.halves[qp], half);
            self.halves[qp].done = before.done;
        } else {
            self.go(qp, QpState::Reset)?;
            let window = self.window(&mut self.device.device())?;
            let half = &mut self.halves[qp];
            half.window = window;
            half.posted.clear();
            (half.error, half.was_moved) = (None, false);
            if let Some(offers) = &mut half.offers {
                // The numbers of a receive queue begin again.
                offers.next = 0;
                offers.free.extend(offers.out.drain(..).map(|(_, place)| place));
            }
        }
        self.halves[qp].next = self.halves[qp].done;
        Ok(())
    }

    /// Whether the peer's host is known; asks for it.
    pub(crate) fn reaches(&self, peer: Gid) -> Result<bool, String> {
        let reach = self.device.device().reach(self.id, Some(&vector(peer))).map_err(failed)?;
        match reach {
            Reach::NoRoute => Err("a program's peer has no route".into()),
            reach => Ok(reach == Reach::Known),
        }
    }

    /// From reset to ready to send. `psns`: the own, and the peer's.
    pub(crate) fn connect(&mut self, qp: usize, peer: Gid, remote: &Ends, psns: [u32; 2]) -> Result<(), String> {
        let half = &self.halves[qp];
        let target = half.target.map(|target| (target, remote.sends));
        for (number, remote) in [(half.number, remote.receives)].into_iter().chain(target) {
            for attributes in attributes(&self.plan, peer, remote, psns) {
                self.device.device().modify_qp(self.id, number, &attributes).map_err(failed)?;
            }
        }
        if self.plan.kind.of_verbs() == QpKind::Ud && !std::mem::replace(&mut self.has_handle, true) {
            let handle = NewHandle { number: HANDLE, domain: self.domain, path: None };
            self.device.device().create_handle(self.id, handle, vector(peer)).map_err(failed)?;
        }
        Ok(())
    }

    /// Changes the state alone.
    pub(crate) fn go(&mut self, qp: usize, state: QpState) -> Result<(), String> {
        let attributes = QpAttributes { state: Some(state), ..QpAttributes::default() };
        let modify = |number| self.device.device().modify_qp(self.id, number, &attributes).map_err(failed);
        self.halves[qp].numbers().into_iter().try_for_each(modify)
    }

    /// Its own GID.
    pub(crate) fn gid(&self) -> Gid {
        self.device.device().stated().gids[1]
    }

    /// Completions or events are there.
    pub(crate) fn has_mail(&self) -> bool {
        if self.plan.events { !self.channel.is_empty() } else { !self.completions.is_empty() }
    }

    /// The next completion.
    pub(crate) fn poll(&mut self) -> Result<Option<Completion>, String> {
        let Some(words) = self.completions.pop() else { return Ok(None) };
        Completion::decode(&words).map(Some).ok_or_else(|| format!("no completion: {words:x?}"))
    }

    /// Asks for an event for the next completion.
    pub(crate) fn ask(&self) {
        self.notify.ask(Wish::Any);
    }

    /// Posts its next work request.
    pub(crate) fn post(&mut self, qp: usize, work: &Work, order: &Order) {
        let number = self.halves[qp].next_number;
        let mut element = SendElement {
            number,
            immediate: order.immediate,
            target: order.operand.address,
            key: order.operand.key,
            srq: work.srq,
            ..SendElement::new(self.halves[qp].number, work.opcode)
        };
        if work.is_signalled {
            element.flags = SendFlags::SIGNALED;
        }
        if work.is_fenced {
            element.flags = element.flags | SendFlags::FENCE;
        }
        if self.plan.kind.of_verbs() == QpKind::Ud {
            element.set_datagram(Datagram { handle: HANDLE, qp: order.remote, key: QUEUE_KEY });
        }
        match work.opcode {
            SendOpcode::FetchAdd => element.words[2] = super::work::ADDS,
            SendOpcode::CompareSwap => {
                let compare = if work.matches { work.before } else { !work.before };
                (element.words[2], element.words[3]) = (compare, work.before + super::work::SWAPS);
            }
            _ => {}
        }
        let following =
            if work.is_inline { inline(&mut element, &order.data) } else { list(&mut element, &order.pieces) };
        element.more = following.len() as u8;
        for words in std::iter::once(element.encode()).chain(following) {
            assert!(self.send.push(words).is_ok(), "the send pipe holds all that is outstanding");
        }
        let half = &mut self.halves[qp];
        half.posted.push_back((number, half.next));
        (half.next_number, half.next) = (number.wrapping_add(1), half.next + 1);
    }

    /// Posts a binding of the queue pair's window.
    pub(crate) fn post_binding(&mut self, qp: usize, binding: &Binding) {
        let mut element = SendElement::new(self.halves[qp].number, SendOpcode::BindWindow);
        element.set_binding(binding);
        self.post_other(qp, element, BIND);
    }

    /// Posts one more work request to a queue pair in the error state. Its completion means that those before it that
    /// were not signalled have ended.
    pub(crate) fn post_mark(&mut self, qp: usize) {
        self.post_other(qp, SendElement::new(self.halves[qp].number, SendOpcode::Send), MARK);
    }

    /// Posts what is none of its works, signalled.
    fn post_other(&mut self, qp: usize, element: SendElement, as_work: usize) {
        let half = &mut self.halves[qp];
        let number = half.next_number;
        let element = SendElement { number, flags: SendFlags::SIGNALED, ..element };
        assert!(self.send.push(element.encode()).is_ok(), "the send pipe holds all that is outstanding");
        half.posted.push_back((number, as_work));
        half.next_number = number.wrapping_add(1);
    }

    /// The receive work requests that a queue pair takes: its own, or those of a shared queue.
    pub(crate) fn offers(&mut self, qp: usize, queue: usize) -> Option<&mut Offers> {
        if self.shared.is_empty() { self.halves[qp].offers.as_mut() } else { self.shared.get_mut(queue) }
    }

    /// The program is gone, with all that it had.
    pub(crate) fn detach(&self, now: port::Nanos) {
        self.device.device().detach(now, self.id);
    }

    /// Protection domain of its memory.
    pub(crate) fn domain(pid: u32) -> Domain {
        Domain(pid)
    }
}

/// Numbers of a queue pair, or of the two halves of an extended connection.
pub(crate) struct Ends {
    pub(crate) sends: QpNumber,
    pub(crate) receives: QpNumber,
}

impl Half {
    pub(crate) fn ends(&self) -> Ends {
        Ends { sends: self.number, receives: self.target.unwrap_or(self.number) }
    }

    /// Of what is none of its works: a mark, which is always flushed, or a binding.
    pub(crate) fn other_ended(&mut self, work: usize, is_it: bool, done: &Completion) -> Result<(), String> {
        if !is_it {
            return Err("a completion of a binding is left out".into());
        }
        let is_bound = work == BIND && done.status == Status::Success && self.error.is_none();
        if let Some(window) = self.window.as_mut().filter(|_| is_bound) {
            window.bound = Bound::Yes;
            let is_right = done.opcode == CompletionOpcode::BindWindow;
            return if is_right { Ok(()) } else { Err("a binding completes as another kind".into()) };
        }
        let is_flushed = done.status == Status::Flushed;
        if is_flushed { Ok(()) } else { Err("a work request of a queue pair in error is not flushed".into()) }
    }

    /// Its own work request has ended well: perhaps one that invalidates its window.
    pub(crate) fn window_went(&mut self, opcode: SendOpcode) {
        if let Some(window) = self.window.as_mut().filter(|_| opcode == SendOpcode::LocalInvalidate) {
            window.bound = Bound::No;
        }
    }

    /// A message came that invalidates its window, or does not.
    pub(crate) fn got_window(&mut self, opcode: SendOpcode, done: &Completion) -> Result<(), String> {
        let invalidates = opcode == SendOpcode::SendInvalidate;
        if done.flags.has(CompletionFlags::INVALIDATED) != invalidates {
            return Err("a message differs from what was sent in whether it invalidates a window".into());
        }
        let Some(window) = self.window.as_mut().filter(|_| invalidates) else { return Ok(()) };
        window.bound = Bound::No;
        let is_it = done.immediate == window.key();
        if is_it { Ok(()) } else { Err(format!("the key {:#x} is invalidated, not this", window.key())) }
    }

    fn numbers(&self) -> Vec<QpNumber> {
        std::iter::once(self.number).chain(self.target).collect()
    }
}

/// Receive work requests beyond those offered at once: a queue pair that is reset forgets the shared one that it holds.
pub(crate) const SPARE: usize = 128;

/// What a work request names.
pub(crate) struct Order {
    pub(crate) operand: Operand,
    pub(crate) immediate: u32,
    pub(crate) remote: QpNumber,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) data: Vec<u8>,
}

impl Offers {
    /// Offers memory to receive into, where there is a place. Returns that.
    pub(crate) fn offer(&mut self, memory: &Memory, cut: impl FnOnce(usize) -> Vec<(usize, usize)>) -> Option<usize> {
        let place = self.free.pop()?;
        let parts = cut(memory.receive.place(place));
        for (index, (at, len)) in parts.iter().enumerate() {
            let (piece, more) = (memory.piece(&memory.receive, *at, *len), index + 1 < parts.len());
            assert!(self.pipe.push(ReceivePiece { piece, more }.encode()).is_ok(), "the receive queue has room");
        }
        self.out.push_back((self.next, place));
        self.next = self.next.wrapping_add(1);
        Some(place)
    }
}

fn receive_pipe() -> Result<(PipeProducer<2>, PipeConsumer<2>), String> {
    let sizes = QueueSizes { receive: RECEIVES, ..QueueSizes::default() };
    let (region, daemon) = DaemonQueues::create("sim", sizes).map_err(broken)?;
    let app = AppQueues::new(&region).map_err(broken)?;
    Ok((app.receive.ok_or("no receive pipe")?, daemon.receive.ok_or("no receive pipe")?))
}

/// The half of an extended connection that receives.
fn target() -> NewQp {
    NewQp {
        number: 0,
        kind: QpKind::XrcReceive,
        domain: NewQp::NO_DOMAIN,
        send_cq: NewQp::NO_CQ,
        receive_cq: NewQp::NO_CQ,
        receives: Receives::Named(XRC_DOMAIN),
        capacities: Capacities::default(),
        signals_all: false,
    }
}

fn vector(peer: Gid) -> AddressVector {
    AddressVector { gid: peer, gid_index: 1, ..AddressVector::default() }
}

fn attributes(plan: &LinkPlan, peer: Gid, remote: QpNumber, psns: [u32; 2]) -> [QpAttributes; 3] {
    let kind = plan.kind.of_verbs();
    let (connected, reliable) = (kind.is_connected(), kind.is_reliable());
    // Raw packets have neither partitions nor numbers.
    let numbered = kind != QpKind::RawPacket;
    let to = |state| QpAttributes { state: Some(state), ..QpAttributes::default() };
    let init = QpAttributes {
        partition_index: numbered.then_some(0),
        port: Some(1),
        rights: connected.then_some(Rights::ALL),
        queue_key: (kind == QpKind::Ud).then_some(QUEUE_KEY),
        ..to(QpState::Init)
    };
    let receive = QpAttributes {
        path: connected.then(|| vector(peer)),
        mtu: connected.then_some(plan.mtu()),
        remote_qp: connected.then_some(remote),
        receive_psn: connected.then_some(psns[1]),
        responder_resources: reliable.then_some(plan.reads),
        rnr_timer: reliable.then_some(RNR_TIMER),
        ..to(QpState::ReadyToReceive)
    };
    let send = QpAttributes {
        send_psn: numbered.then_some(psns[0]),
        timeout: reliable.then_some(plan.timeout),
        retries: reliable.then_some(7),
        // For ever.
        rnr_retries: reliable.then_some(7),
        initiator_depth: reliable.then_some(plan.reads),
        ..to(QpState::ReadyToSend)
    };
    [init, receive, send]
}

/// Puts scatter-gather entries into an element; returns the further ones.
fn list(element: &mut SendElement, pieces: &[Piece]) -> Vec<[u64; 8]> {
    element.pieces = pieces.len() as u8;
    let (first, remaining) = pieces.split_at(pieces.len().min(PIECES_FIRST));
    first.iter().enumerate().for_each(|(index, piece)| element.set_piece(index, *piece));
    let further = |pieces: &[Piece]| {
        let mut words = [0; 8];
        for (at, piece) in pieces.iter().enumerate() {
            words[2 * at..2 * at + 2].copy_from_slice(&piece.words());
        }
        words
    };
    remaining.chunks(PIECES_NEXT).map(further).collect()
}

/// Puts inline data into an element; returns the further ones.
fn inline(element: &mut SendElement, data: &[u8]) -> Vec<[u64; 8]> {
    (element.flags, element.inline) = (element.flags | SendFlags::INLINE, data.len() as u32);
    let fill = |words: &mut [u64], bytes: &[u8]| {
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(eight);
        }
    };
    let (first, remaining) = data.split_at(data.len().min(INLINE_FIRST));
    fill(&mut element.words, first);
    let further = |bytes: &[u8]| {
        let mut words = [0; 8];
        fill(&mut words, bytes);
        words
    };
    remaining.chunks(INLINE_NEXT).map(further).collect()
}
