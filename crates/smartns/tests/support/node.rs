//! A shard, and the program that uses it.
use engine::{DropCounts, Frame, FramePool};
use memory::{AccessPath, Description, Domain, Extent, Key, MemoryTable, Rights};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use shm::{PipeConsumer, PipeProducer, Region, pipe_bytes};
use smartns::{
    Congestion, Event, Limits, LowerLayer, NewCq, NewQp, NewSrq, Receives, Recovery, Shard, ShardConfig, TransmitPath,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use verbs::control::XrcQueue;
use verbs::{
    AddressVector, Capacities, Completion, Mtu, Notify, Piece, QpAttributes, QpKind, QpState, ReceivePiece,
    SendElement, SendFlags, SendOpcode,
};
use wire::roce::Path;

/// Bytes of a program's memory, and its first address.
pub(crate) const MEMORY: u64 = 4 << 20;
pub(crate) const ADDRESS: u64 = 0x7f00_0000_0000;
/// The number of its shared receive queue, where it has one.
pub(crate) const SRQ: u32 = 5;
const ENTRIES: u32 = 1024;
const AT: usize = 4096;

/// How a side is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub kind: QpKind,
    pub mtu: Mtu,
    pub recovery: Recovery,
    pub spray: u8,
    pub transmit_path: TransmitPath,
    pub congestion: Congestion,
    pub lower_layer: LowerLayer,
    pub window: u32,
    pub psn: u32,
    /// The code of the time-out: 4.096 us * 2^n.
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
    pub signals_all: bool,
    pub shared_receives: bool,
    pub reads: u8,
    /// Entries of the completion queue.
    pub completions: u32,
}

pub(crate) const SETTINGS: Settings = Settings {
    kind: QpKind::Rc,
    mtu: Mtu::B1024,
    recovery: Recovery::GoBackN,
    spray: 0,
    transmit_path: TransmitPath::Auto,
    congestion: Congestion::None,
    lower_layer: LowerLayer::Packets,
    window: 64,
    psn: 0xff_fff0,
    timeout: 8,
    retries: 7,
    rnr_retries: 7,
    signals_all: true,
    shared_receives: false,
    reads: 4,
    completions: ENTRIES,
};

/// A side.
pub(crate) struct Node {
    pub shard: Shard,
    pub qp: u32,
    pub settings: Settings,
    pub memory: File,
    pub key: Key,
    pub table: Arc<MemoryTable>,
    pub send: PipeProducer<8>,
    pub receive: PipeProducer<2>,
    completions_pipe: PipeConsumer<8>,
    pub notify: Notify,
    /// The program polls.
    pub takes_completions: bool,
    /// All completions so far.
    pub completions: Vec<Completion>,
    pub pool: FramePool,
    pub drops: DropCounts,
    pub events: Vec<Event>,
    pub tx: Vec<Box<Frame>>,
    posted: u32,
}

fn region(words: usize) -> Arc<Region> {
    let bytes = if words == 8 { pipe_bytes::<8>(ENTRIES) } else { pipe_bytes::<2>(ENTRIES) };
    Arc::new(Region::create("smartns", AT + bytes).unwrap())
}

fn registered(table: &MemoryTable, domain: Domain) -> (File, Key) {
    let memory = memfd_create(c"smartns", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let memory = File::from(memory);
    memory.set_len(MEMORY).unwrap();
    fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
    let extents = vec![Extent { len: MEMORY, way: AccessPath::Shared { file: 0, offset: 0 } }];
    let description = Description { address: ADDRESS, rights: Rights::ALL, extents };
    let file = memory.try_clone().unwrap().into();
    let key = table.register(domain, &description, &[file], None).unwrap();
    (memory, key)
}

impl Node {
    pub(crate) fn new(settings: Settings) -> Node {
        let table = Arc::new(MemoryTable::new(memory::Limits::default()).unwrap());
        let (domain, qp) = (Domain(7), 0x1234);
        let (memory, key) = registered(&table, domain);
        let [sends, completions, receives] = [region(8), region(8), region(2)];
        let limits = Limits { window: settings.window, reads: settings.reads, ..Limits::default() };
        let config = ShardConfig {
            raw: None,
            table: table.clone(),
            limits,
            recovery: settings.recovery,
            spray: settings.spray,
            transmit_path: settings.transmit_path,
            congestion: settings.congestion,
            lower_layer: settings.lower_layer,
            mtu: settings.mtu,
        };
        let mut shard = Shard::new(config, PipeConsumer::new(&sends, AT, ENTRIES, 0));
        let pipe = PipeProducer::new(&completions, AT, settings.completions, 0, 16);
        let cq = NewCq { number: 3, pipe, notify: Notify::new(&completions), has_channel: true };
        shard.add_cq(cq).unwrap();
        let pipe = PipeConsumer::new(&receives, AT, ENTRIES, 0);
        let named = settings.kind == QpKind::XrcReceive;
        let source = if settings.shared_receives || named {
            let xrc = named.then_some(XrcQueue { domain: 2, cq: 3 });
            shard.add_srq(NewSrq { number: SRQ, domain, pipe, receives: 256, pieces: 8, xrc }).unwrap();
            if named { Receives::Named(2) } else { Receives::Shared(SRQ) }
        } else {
            Receives::Own(pipe)
        };
        let (of_qp, cq) = if named { (NewQp::NO_DOMAIN, NewQp::NO_CQ) } else { (domain, 3) };
        let capacities = Capacities { send: 256, receive: 256, send_pieces: 32, receive_pieces: 8, inline: 512 };
        let new = NewQp {
            number: qp,
            kind: settings.kind,
            domain: of_qp,
            send_cq: cq,
            receive_cq: cq,
            receives: source,
            capacities,
            signals_all: settings.signals_all,
        };
        shard.add_qp(new).unwrap();
        Node {
            shard,
            qp,
            settings,
            memory,
            key,
            table,
            send: PipeProducer::new(&sends, AT, ENTRIES, 0, 16),
            receive: PipeProducer::new(&receives, AT, ENTRIES, 0, 16),
            completions_pipe: PipeConsumer::new(&completions, AT, settings.completions, 0),
            notify: Notify::new(&completions),
            takes_completions: true,
            completions: Vec::new(),
            pool: FramePool::new(256),
            drops: DropCounts::default(),
            events: Vec::new(),
            tx: Vec::new(),
            posted: 0,
        }
    }

    /// From reset to ready to send, as a program does it. `psns`: the own, and the peer's.
    pub(crate) fn connect(&mut self, remote: u32, psns: [u32; 2], path: Path) {
        for attributes in self.attributes(remote, psns) {
            self.shard.modify_qp(self.qp, &attributes).unwrap();
        }
        self.shard.set_path(self.qp, path).unwrap();
    }

    /// What each of the three transitions sets.
    pub(crate) fn attributes(&self, remote: u32, psns: [u32; 2]) -> [QpAttributes; 3] {
        let settings = self.settings;
        let connected = settings.kind != QpKind::Ud;
        let reliable = settings.kind.is_reliable();
        let sends = reliable && settings.kind != QpKind::XrcReceive;
        let serves = reliable && settings.kind != QpKind::XrcSend;
        let init = QpAttributes {
            state: Some(QpState::Init),
            partition_index: Some(0),
            port: Some(1),
            rights: connected.then_some(Rights::ALL),
            queue_key: (!connected).then_some(0x1111),
            ..QpAttributes::default()
        };
        let receive = QpAttributes {
            state: Some(QpState::ReadyToReceive),
            path: connected.then_some(AddressVector::default()),
            mtu: connected.then_some(settings.mtu),
            remote_qp: connected.then_some(remote),
            receive_psn: connected.then_some(psns[1]),
            responder_resources: serves.then_some(settings.reads),
            rnr_timer: serves.then_some(1),
            ..QpAttributes::default()
        };
        let send = QpAttributes {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(psns[0]),
            timeout: reliable.then_some(settings.timeout),
            retries: sends.then_some(settings.retries),
            rnr_retries: sends.then_some(settings.rnr_retries),
            initiator_depth: sends.then_some(settings.reads),
            ..QpAttributes::default()
        };
        [init, receive, send]
    }

    /// Registers a part of the memory once more.
    pub(crate) fn register_part(&self, at: u64, len: u64) -> Key {
        self.register_as(at, len, Rights::ALL)
    }

    /// The same with these rights.
    pub(crate) fn register_as(&self, at: u64, len: u64, rights: Rights) -> Key {
        let extents = vec![Extent { len, way: AccessPath::Shared { file: 0, offset: at } }];
        let description = Description { address: ADDRESS + at, rights, extents };
        let file = self.memory.try_clone().unwrap().into();
        self.table.register(Domain(7), &description, &[file], None).unwrap()
    }

    /// Changes the state alone.
    pub(crate) fn go(&mut self, state: QpState) {
        self.shard.modify_qp(self.qp, &QpAttributes { state: Some(state), ..QpAttributes::default() }).unwrap();
    }

    /// A piece of the own memory.
    pub(crate) fn piece(&self, at: u64, len: u32) -> Piece {
        Piece { address: ADDRESS + at, len, key: self.key.0 }
    }

    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    /// A send work request that is not posted yet; it is signalled.
    pub(crate) fn work(&self, opcode: SendOpcode) -> SendElement {
        SendElement { flags: SendFlags::SIGNALED, ..SendElement::new(self.qp, opcode) }
    }

    /// A work request that names the peer's memory.
    pub(crate) fn remote(&self, opcode: SendOpcode, peer: &Node, at: u64) -> SendElement {
        SendElement { target: ADDRESS + at, key: peer.key.0, ..self.work(opcode) }
    }

    /// Posts a work request with these pieces; returns its number.
    pub(crate) fn post(&mut self, mut element: SendElement, pieces: &[Piece]) -> u32 {
        element.pieces = pieces.len() as u8;
        for (index, piece) in pieces.iter().enumerate().take(2) {
            element.set_piece(index, *piece);
        }
        let rest: Vec<[u64; 8]> = pieces.get(2..).unwrap_or_default().chunks(3).map(words_of).collect();
        self.push(element, &rest)
    }

    /// Posts a work request with inline data.
    pub(crate) fn post_inline(&mut self, mut element: SendElement, data: &[u8]) -> u32 {
        let words = |bytes: &[u8]| -> Vec<u64> {
            let word = |chunk: &[u8]| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            };
            bytes.chunks(8).map(word).collect()
        };
        (element.flags, element.inline) = (element.flags | SendFlags::INLINE, data.len() as u32);
        let (first, rest) = data.split_at(data.len().min(32));
        words(first).into_iter().enumerate().for_each(|(at, word)| element.words[at] = word);
        let rest: Vec<[u64; 8]> = rest
            .chunks(56)
            .map(|chunk| {
                let mut element = [0; 8];
                words(chunk).into_iter().enumerate().for_each(|(at, word)| element[at] = word);
                element
            })
            .collect();
        self.push(element, &rest)
    }

    fn push(&mut self, mut element: SendElement, rest: &[[u64; 8]]) -> u32 {
        (element.more, element.number) = (rest.len() as u8, self.posted);
        self.send.push(element.encode()).unwrap();
        rest.iter().for_each(|words| self.send.push(*words).unwrap());
        self.posted += 1;
        element.number
    }

    /// Posts a receive work request.
    pub(crate) fn post_receive(&mut self, pieces: &[Piece]) {
        let empty = [Piece::default()];
        let pieces = if pieces.is_empty() { &empty } else { pieces };
        for (index, piece) in pieces.iter().enumerate() {
            let more = index + 1 < pieces.len();
            self.receive.push(ReceivePiece { piece: *piece, more }.encode()).unwrap();
        }
    }

    /// Takes what the engine has added.
    pub(crate) fn take_completions(&mut self) {
        while self.takes_completions {
            let Some(words) = self.completions_pipe.pop() else { break };
            self.completions.push(Completion::decode(&words).expect("a completion"));
        }
    }

    /// Statuses and numbers of the completions, in their order.
    pub(crate) fn ended(&self) -> Vec<(verbs::Status, u32)> {
        self.completions.iter().map(|completion| (completion.status, completion.number)).collect()
    }
}

fn words_of(pieces: &[Piece]) -> [u64; 8] {
    let mut words = [0; 8];
    for (at, piece) in pieces.iter().enumerate() {
        words[2 * at..2 * at + 2].copy_from_slice(&piece.words());
    }
    words
}
