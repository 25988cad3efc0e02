//! Programs that do everything at once over a wire that loses, repeats, reorders and damages frames. The judge: every
//! byte in its place and no other, every completion once and in order, and no completion before its data.
mod support;

use smartns::{Congestion, Recovery};
use support::{Faults, MEMORY, MS, Pair, Random, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendFlags, SendOpcode, Status};

/// Work requests of each side.
const WORKS: usize = 60;
/// Each work request has a place of its own in both memories, with a byte before and after it that stays as it is.
const PLACE: u64 = 16 * 1024;
const LONGEST: u64 = PLACE - 64;
/// Where a side's places begin: as source, as target, and for what is received.
const TARGETS: u64 = MEMORY / 4;
const RECEIVES: u64 = MEMORY / 2;
/// The word of the atomics.
const COUNTER: u64 = MEMORY - 64;
const GUARD: u8 = 0xc3;

/// What a work request was, for the judge.
#[derive(Debug, Clone, Copy)]
struct Asked {
    opcode: SendOpcode,
    len: usize,
    is_signalled: bool,
    /// Of a SEND or a WRITE with immediate data: the receive work request that it takes.
    receive: Option<usize>,
}

fn data(side: usize, number: usize, len: usize) -> Vec<u8> {
    let mut random = Random::new((side * 1000 + number) as u64 + 1);
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn place(number: usize) -> u64 {
    number as u64 * PLACE + 16
}

struct Judge {
    seed: u64,
    asked: [Vec<Asked>; 2],
    /// Completions checked so far, by side.
    seen: [usize; 2],
    /// Send and receive work requests that have completed, by side.
    sends: [usize; 2],
    receives: [usize; 2],
    adds: [u64; 2],
}

fn draw(random: &mut Random, receives: &mut usize) -> Asked {
    use SendOpcode::*;
    let opcode = [Write, Write, WriteImmediate, Send, SendImmediate, Read, FetchAdd][random.below(7) as usize];
    let len = match random.below(4) {
        0 => random.below(70),
        1 => random.below(3000),
        2 => random.below(2) * 1024,
        _ => random.below(LONGEST),
    };
    let takes = matches!(opcode, Send | SendImmediate | WriteImmediate);
    let receive = takes.then(|| std::mem::replace(receives, *receives + 1));
    let len = if opcode == FetchAdd { 8 } else { len as usize };
    Asked { opcode, len, is_signalled: random.chance(600), receive }
}

/// Cuts a place into pieces.
fn cut(pair: &Pair, side: usize, at: u64, len: usize, random: &mut Random) -> Vec<verbs::Piece> {
    let count = 1 + random.below(5) as usize;
    let mut pieces = Vec::new();
    let mut done = 0;
    for left in (0..count).rev() {
        let part = if left == 0 { len - done } else { random.below((len - done) as u64 + 1) as usize };
        pieces.push(pair.nodes[side].piece(at + done as u64, part as u32));
        done += part;
    }
    pieces
}

fn post(pair: &mut Pair, side: usize, number: usize, asked: &Asked, random: &mut Random) {
    let element = pair.nodes[side].remote(asked.opcode, &pair.nodes[1 - side], TARGETS + place(number));
    let mut element = verbs::SendElement { immediate: number as u32, flags: SendFlags::default(), ..element };
    if asked.is_signalled || number + 1 == WORKS {
        element.flags = SendFlags::SIGNALED;
    }
    if random.chance(100) {
        element.flags = element.flags | SendFlags::FENCE;
    }
    let source = place(number);
    match asked.opcode {
        SendOpcode::FetchAdd => {
            let target = pair.nodes[side].remote(asked.opcode, &pair.nodes[1 - side], COUNTER);
            (element.target, element.words[2]) = (target.target, 1);
            let piece = pair.nodes[side].piece(source, 8);
            pair.nodes[side].post(element, &[piece]);
        }
        SendOpcode::Read => {
            let pieces = cut(pair, side, source, asked.len, random);
            pair.nodes[side].post(element, &pieces);
        }
        _ if asked.len <= 300 && random.chance(500) => {
            pair.nodes[side].post_inline(element, &data(side, number, asked.len));
        }
        _ => {
            pair.nodes[side].write(source, &data(side, number, asked.len));
            let pieces = cut(pair, side, source, asked.len, random);
            pair.nodes[side].post(element, &pieces);
        }
    }
}

impl Judge {
    /// Checks what has completed since the last call.
    fn check(&mut self, pair: &Pair) {
        for side in 0..2 {
            let node = &pair.nodes[side];
            for done in &node.completions[self.seen[side]..] {
                let events = pair.nodes.iter().map(|node| &node.events).collect::<Vec<_>>();
                assert_eq!(done.status, Status::Success, "seed {}, side {side}: {done:?}, {events:?}", self.seed);
                if done.is_receive() {
                    assert_eq!(done.number as usize, self.receives[side], "receive completions are in order");
                    self.received(pair, side, done);
                    self.receives[side] += 1;
                } else {
                    self.sent(pair, side, done.number as usize);
                }
            }
            self.seen[side] = node.completions.len();
        }
    }

    /// A send work request completed: it and all before it have done what they ask.
    fn sent(&mut self, pair: &Pair, side: usize, number: usize) {
        let skipped = self.asked[side][self.sends[side]..number].iter().all(|asked| !asked.is_signalled);
        assert!(number >= self.sends[side] && skipped, "completions are in order, and none is left out");
        for at in self.sends[side]..=number {
            let asked = self.asked[side][at];
            let [own, peer] = [&pair.nodes[side], &pair.nodes[1 - side]];
            match asked.opcode {
                SendOpcode::Write | SendOpcode::WriteImmediate => {
                    let expected = data(side, at, asked.len);
                    assert_eq!(peer.read(TARGETS + place(at), asked.len), expected, "a WRITE is done");
                }
                SendOpcode::Read => {
                    assert_eq!(own.read(place(at), asked.len), data(side, at, asked.len), "a READ is done");
                }
                SendOpcode::FetchAdd => {
                    let before = u64::from_ne_bytes(own.read(place(at), 8).try_into().unwrap());
                    assert_eq!(before, self.adds[side], "an atomic is executed once, in order");
                    self.adds[side] += 1;
                }
                _ => {}
            }
        }
        self.sends[side] = number + 1;
    }

    fn received(&self, pair: &Pair, side: usize, done: &verbs::Completion) {
        let number = done.number as usize;
        let sender = &self.asked[1 - side];
        let of = sender.iter().position(|asked| asked.receive == Some(number)).expect("a message was sent for it");
        let asked = sender[of];
        assert_eq!(done.bytes as usize, asked.len);
        let expected = data(1 - side, of, asked.len);
        match asked.opcode {
            SendOpcode::WriteImmediate => assert_eq!(pair.nodes[side].read(TARGETS + place(of), asked.len), expected),
            _ => assert_eq!(pair.nodes[side].read(RECEIVES + place(number), asked.len), expected),
        }
        if asked.opcode != SendOpcode::Send {
            assert_eq!(done.immediate as usize, of);
        }
    }

    /// In the end: nothing was written beside the places.
    fn guards(&self, pair: &Pair) {
        for side in 0..2 {
            let memory = pair.nodes[side].read(0, MEMORY as usize);
            let intact = |range: std::ops::Range<u64>| {
                memory[range.start as usize..range.end as usize].iter().all(|byte| *byte == GUARD)
            };
            for number in 0..WORKS {
                let peers = self.asked[1 - side][number];
                let (target, end) = (TARGETS + place(number), TARGETS + place(number + 1) - 16);
                let used = matches!(peers.opcode, SendOpcode::Write | SendOpcode::WriteImmediate | SendOpcode::Read);
                let written = if used { peers.len as u64 } else { 0 };
                assert!(intact(target - 16..target), "side {side}, before {number}");
                assert!(intact(target + written..end), "side {side}, after {number}");
                assert!(intact(RECEIVES + place(number) - 16..RECEIVES + place(number)));
            }
            let counter = u64::from_ne_bytes(memory[COUNTER as usize..][..8].try_into().unwrap());
            assert_eq!(counter, self.adds[1 - side]);
        }
    }
}

/// Runs a seed; returns how many frames were lost or damaged, and how many notifications were answered.
fn seed(seed: u64, recovery: [Recovery; 2], congestion: Congestion) -> [u64; 2] {
    let mut random = Random::new(seed);
    let most = [0, 5, 30, 80][seed as usize % 4];
    let mut fault = || random.below(most + 1);
    let faults = Faults { lost: fault(), repeated: fault(), delayed: fault(), damaged: fault(), marked: 0 };
    let marked = if congestion == Congestion::None { 0 } else { [2, 100, 1000][seed as usize / 4 % 3] };
    let faults = Faults { marked, ..faults };
    let mtu = [Mtu::B256, Mtu::B1024, Mtu::B4096][random.below(3) as usize];
    let window = [8, 64, 256][random.below(3) as usize];
    let reads = 1 + random.below(8) as u8;
    let shared_receives = random.chance(300);
    let [first, second] = recovery;
    let settings = Settings { mtu, window, reads, shared_receives, signals_all: false, congestion, ..SETTINGS };
    let settings = Settings { recovery: first, ..settings };
    let settings = [settings, Settings { psn: random.below(1 << 24) as u32, recovery: second, ..settings }];
    let mut wire = Wire::new(seed, faults);
    wire.inside = [0, 500, 1000][seed as usize % 3];
    let mut pair = Pair::connected(settings, wire);
    let asked = [0, 1].map(|_| {
        let mut receives = 0;
        (0..WORKS).map(|_| draw(&mut random, &mut receives)).collect::<Vec<_>>()
    });
    for (side, node) in pair.nodes.iter().enumerate() {
        node.write(0, &vec![GUARD; MEMORY as usize]);
        node.write(COUNTER, &[0; 8]);
        let of_peer = asked[1 - side].iter().enumerate();
        for (at, read) in of_peer.filter(|(_, asked)| asked.opcode == SendOpcode::Read) {
            node.write(TARGETS + place(at), &data(1 - side, at, read.len));
        }
    }
    let (seen, sends, receives, adds) = ([0; 2], [0; 2], [0; 2], [0; 2]);
    let mut judge = Judge { seed, asked, seen, sends, receives, adds };
    let (mut posted, mut offered) = ([0; 2], [0; 2]);
    let wanted: Vec<usize> = judge.asked.iter().map(|asked| asked.iter().filter_map(|a| a.receive).count()).collect();
    let ended = pair.run(60_000 * MS, |pair| {
        judge.check(pair);
        for side in 0..2 {
            if posted[side] < WORKS && random.chance(300) {
                let asked = judge.asked[side][posted[side]];
                post(pair, side, posted[side], &asked, &mut random);
                posted[side] += 1;
            }
            if offered[side] < wanted[1 - side] && random.chance(100) {
                let pieces = cut(pair, side, RECEIVES + place(offered[side]), LONGEST as usize, &mut random);
                pair.nodes[side].post_receive(&pieces);
                offered[side] += 1;
            }
        }
        // A poll finds what was posted meanwhile.
        (0..2).all(|side| judge.sends[side] == WORKS && judge.receives[side] == wanted[1 - side])
    });
    judge.check(&pair);
    assert!(ended, "seed {seed}: sent {:?}, received {:?} of {wanted:?}", judge.sends, judge.receives);
    pair.idle(5 * MS);
    judge.check(&pair);
    judge.guards(&pair);
    [pair.wire.harmed, pair.nodes.iter().map(|node| node.shard.cnps().received).sum()]
}

/// Runs as many seeds as `SEEDS` has.
fn seeds(recovery: [Recovery; 2], congestion: Congestion) {
    let many = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(80);
    let all: Vec<[u64; 2]> = (0..many).map(|number| seed(number, recovery, congestion)).collect();
    let harmed: u64 = all.iter().map(|[harmed, _]| harmed).sum();
    assert!(harmed > many, "the wire harmed {harmed} frames only");
    let answered: u64 = all.iter().map(|[_, answered]| answered).sum();
    assert_eq!(answered > many, congestion != Congestion::None, "{answered} notifications were answered");
}

// Checks IBTA: 9.7.5-a, 9.7.5-b, 9.7.5-c, 9.7.5-d, 9.7.5-e, 9.7.6-b.
#[test]
fn every_byte_is_in_its_place_and_every_completion_comes_once() {
    seeds([Recovery::GoBackN; 2], Congestion::None);
}

#[test]
fn it_is_so_with_selective_repeat() {
    seeds([Recovery::SelectiveRepeat; 2], Congestion::None);
}

#[test]
fn it_is_so_where_one_side_only_repeats_selectively() {
    seeds([Recovery::SelectiveRepeat, Recovery::GoBackN], Congestion::None);
}

/// The wire marks some frames, or all: senders slow down, to 10 Mbit/s at worst.
#[test]
fn it_is_so_where_senders_answer_congestion() {
    let congestion = Congestion::Dcqcn { line_rate: 10_000_000_000 };
    seeds([Recovery::GoBackN; 2], congestion);
    seeds([Recovery::SelectiveRepeat; 2], congestion);
}
