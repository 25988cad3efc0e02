//! A shard of the SmartNS engine, whose peer and whose program do what they like: frames with any contents, sound down
//! to their checksum or not, and any elements in its queues. Nothing outside the registered part of the memory changes.
use crate::Input;
use engine::{DropCounts, FramePool};
use memory::{AccessPath, Description, Domain, Extent, Key, MemoryTable, Rights};
use shm::{PAGE, PipeConsumer, PipeProducer, Region, pipe_bytes};
use smartns::{
    Congestion, Limits, LowerLayer, NewCq, NewQp, Path, Receives, Recovery, Shard, ShardConfig, ShardOutput,
};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use verbs::{AddressVector, Capacities, Mtu, Notify, QpAttributes, QpKind, QpState};
use wire::roce::{Bth, Extension, Headers, Opcode, Psn, finish};
use wire::{Ipv4Addr, Mac};

const QP: u32 = 0x77;
const PSN: u32 = 0xff_fff8;
const ADDRESS: u64 = 0x10_0000;
/// Pages of the memory; all but the first and the last are registered.
const PAGES: usize = 4;
const ENTRIES: u32 = 64;
/// Steps of an input that are looked at.
const MOST: usize = 2048;

/// The program's ends, and the shard.
struct Side {
    shard: Shard,
    memory: Arc<Region>,
    key: Key,
    send: PipeProducer<8>,
    receive: PipeProducer<2>,
    completions: PipeConsumer<8>,
}

fn path() -> Path {
    Path {
        local_mac: Mac([2, 0, 0, 0, 0, 1]),
        remote_mac: Mac([2, 0, 0, 0, 0, 2]),
        local: Ipv4Addr::new(10, 0, 0, 1),
        remote: Ipv4Addr::new(10, 0, 0, 2),
        hop_limit: 64,
        traffic_class: 2,
        source_port: 0xc000,
    }
}

impl Side {
    fn new(kind: QpKind, recovery: Recovery) -> Side {
        let table = Arc::new(MemoryTable::new(memory::Limits::default()).expect("random numbers"));
        let memory = Arc::new(Region::create("fuzz", PAGES * PAGE).expect("memory"));
        (0..PAGES * PAGE / 8).for_each(|word| memory.u64_at(word * 8).store(word as u64, Relaxed));
        let (offset, len) = (PAGE as u64, ((PAGES - 2) * PAGE) as u64);
        let extents = vec![Extent { len, way: AccessPath::Shared { file: 0, offset } }];
        let description = Description { address: ADDRESS, rights: Rights::ALL, extents };
        let files = [memory.fd().try_clone_to_owned().expect("a descriptor")];
        let key = table.register(Domain(1), &description, &files, None).expect("a sealed memfd");
        let region = |bytes| Arc::new(Region::create("fuzz", PAGE + bytes).expect("memory"));
        let (sends, receives) = (region(pipe_bytes::<8>(ENTRIES)), region(pipe_bytes::<2>(ENTRIES)));
        let completions = region(pipe_bytes::<8>(ENTRIES));
        let limits = Limits { window: 64, ..Limits::default() };
        let congestion = match recovery {
            Recovery::GoBackN => Congestion::None,
            Recovery::SelectiveRepeat => Congestion::Dcqcn { line_rate: 100_000_000_000 },
        };
        let config = ShardConfig {
            table,
            limits,
            recovery,
            spray: 3,
            transmit_path: Default::default(),
            congestion,
            lower_layer: LowerLayer::Packets,
            mtu: Mtu::B1024,
            raw: None,
        };
        let mut shard = Shard::new(config, PipeConsumer::new(&sends, PAGE, ENTRIES, 0));
        let pipe = PipeProducer::new(&completions, PAGE, ENTRIES, 0, 8);
        let cq = NewCq { number: 0, pipe, notify: Notify::new(&completions), has_channel: false };
        shard.add_cq(cq).expect("room");
        let capacities = Capacities { send: 32, receive: 32, send_pieces: 4, receive_pieces: 4, inline: 64 };
        let receives_of = Receives::Own(PipeConsumer::new(&receives, PAGE, ENTRIES, 0));
        let (number, domain, send_cq, receive_cq) = (QP, Domain(1), 0, 0);
        let qp =
            NewQp { number, kind, domain, send_cq, receive_cq, receives: receives_of, capacities, signals_all: true };
        shard.add_qp(qp).expect("room");
        connect(&mut shard, kind);
        Side {
            shard,
            memory,
            key,
            send: PipeProducer::new(&sends, PAGE, ENTRIES, 0, 8),
            receive: PipeProducer::new(&receives, PAGE, ENTRIES, 0, 8),
            completions: PipeConsumer::new(&completions, PAGE, ENTRIES, 0),
        }
    }
}

/// From reset to ready to send.
fn connect(shard: &mut Shard, kind: QpKind) {
    let (connected, reliable) = (kind != QpKind::Ud, kind == QpKind::Rc);
    let init = QpAttributes {
        state: Some(QpState::Init),
        partition_index: Some(0),
        port: Some(1),
        rights: connected.then_some(Rights::ALL),
        queue_key: (!connected).then_some(1),
        ..QpAttributes::default()
    };
    let receive = QpAttributes {
        state: Some(QpState::ReadyToReceive),
        path: connected.then(AddressVector::default),
        mtu: connected.then_some(Mtu::B256),
        remote_qp: connected.then_some(9),
        receive_psn: connected.then_some(PSN),
        responder_resources: reliable.then_some(2),
        rnr_timer: reliable.then_some(1),
        ..QpAttributes::default()
    };
    let send = QpAttributes {
        state: Some(QpState::ReadyToSend),
        send_psn: Some(PSN),
        timeout: reliable.then_some(3),
        retries: reliable.then_some(7),
        rnr_retries: reliable.then_some(7),
        initiator_depth: reliable.then_some(2),
        ..QpAttributes::default()
    };
    for attributes in [init, receive, send] {
        shard.modify_qp(QP, &attributes).expect("the ordinary way");
    }
    shard.set_path(QP, path()).expect("it is there");
}

/// A frame whose fields are the input's, and sound. Keys and addresses are often those of the region.
fn frame(input: &mut Input<'_>, key: Key) -> Vec<u8> {
    let (number, flags) = (input.byte(), input.byte());
    let opcode = Opcode::from_number(number).unwrap_or(Opcode::from_number(number % 21).expect("one of RC"));
    let bth = Bth {
        ack_request: flags & 1 != 0,
        extension: if flags & 2 != 0 { Extension::selective(flags >> 2) } else { Extension::NONE },
        solicited: flags & 4 != 0,
        ..Bth::new(opcode, QP, Psn::new(PSN.wrapping_add(u32::from(input.byte() % 64)).wrapping_sub(8)))
    };
    let mut extended = Headers::NONE;
    for _ in 0..opcode.extended_len() / 4 {
        let word = match input.byte() % 4 {
            0 => key.0,
            1 => 0,
            2 => ADDRESS as u32 + u32::from(input.byte()) * 64,
            _ => input.word(),
        };
        extended = extended.with(word.to_be_bytes());
    }
    let payload = input.bytes([0, 1, 4, 16, 256, 300][usize::from(flags >> 4) % 6]);
    let mut frame = Vec::new();
    let Path { local, remote, .. } = path();
    Path { local: remote, remote: local, ..path() }.emit(&bth, &extended, payload.len(), &mut frame);
    frame.extend_from_slice(payload);
    finish(&mut frame);
    frame
}

/// Frames, elements and time as the input has them.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let first = input.byte();
    let kind = [QpKind::Rc, QpKind::Rc, QpKind::Uc, QpKind::Ud][usize::from(first % 4)];
    let recovery = if first & 4 == 0 { Recovery::GoBackN } else { Recovery::SelectiveRepeat };
    let mut side = Side::new(kind, recovery);
    let (mut pool, mut drops, mut events, mut tx) = (FramePool::new(64), DropCounts::default(), vec![], vec![]);
    let (mut now, mut rx) = (1, Vec::new());
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        match input.byte() % 8 {
            0..=2 => {
                let mut received = pool.large();
                received.bytes_vec().extend_from_slice(&frame(&mut input, side.key));
                rx.push(received);
            }
            3 => {
                let mut received = pool.large();
                let len = usize::from(input.byte());
                received.bytes_vec().extend_from_slice(input.bytes(len));
                rx.push(received);
            }
            4 => {
                let _ = side.send.push(std::array::from_fn(|_| input.long()));
            }
            5 => {
                let mut words = std::array::from_fn(|_| u64::from(input.byte()));
                (words[1], words[3]) = (ADDRESS + words[1], ADDRESS + words[3]);
                (words[2], words[4]) = (words[2] << 32 | u64::from(side.key.0), words[4] << 36 | u64::from(side.key.0));
                words[7] = u64::from(QP) | (words[7] % 10) << 24 | 2 << 32 | 1 << 48;
                let _ = side.send.push(words);
            }
            6 => {
                let _ = side.receive.push([ADDRESS, u64::from(side.key.0) | u64::from(input.byte()) << 34]);
            }
            _ => now += u64::from(input.byte()) << (input.byte() % 20),
        }
        let out = &mut ShardOutput { tx: &mut tx, pool: &mut pool, drops: &mut drops, events: &mut events };
        side.shard.poll(now, &mut rx, out);
        tx.drain(..).for_each(|frame| pool.put(frame));
        while side.completions.pop().is_some() {}
    }
    for page in [0, PAGES - 1] {
        for word in page * PAGE / 8..(page + 1) * PAGE / 8 {
            assert_eq!(side.memory.u64_at(word * 8).load(Relaxed), word as u64, "a neighbour of the region changed");
        }
    }
}
