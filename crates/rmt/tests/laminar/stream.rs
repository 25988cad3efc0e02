//! A byte stream through loss, duplication and reordering, of segments and of pseudo segments, into a small buffer that
//! is reused many times. The application must read exactly what was sent, and nothing may wedge.
use super::*;
use std::collections::VecDeque;

/// Buffer of the flow, bytes; a power of two.
const RING: u32 = 2048;
const STREAM: u32 = 120_000;
const START: u32 = 0xffff_e000;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.next() % n
    }

    /// True in `percent` of cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

pub(crate) fn byte(position: u32) -> u8 {
    (position.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// How bad the network is, in per cent.
#[derive(Clone, Copy)]
struct Faults {
    loss: u32,
    duplicate: u32,
    reorder: u32,
    pseudo_loss: u32,
}

/// The peer: it has only what acknowledgements report. Positions count from 0.
struct Sender {
    acked: u32,
    edge: u32,
    next: u32,
}

/// The application's memory, and what it read.
struct Receiver {
    ring: Vec<u8>,
    readable: u32,
    read: u32,
}

impl Receiver {
    fn place(&mut self, dma: &Dma) {
        for i in dma.skip.min(dma.length as u32)..dma.length as u32 {
            self.ring[((dma.address - BASE + i) % RING) as usize] = dma.payload[i as usize];
        }
        let position = dma.position.wrapping_sub(START);
        if position.wrapping_sub(self.readable) as i32 > 0 {
            self.readable = position;
        }
    }

    /// Reads some bytes, each of which must be right.
    fn consume(&mut self, most: u32) -> u32 {
        let n = (self.readable - self.read).min(most);
        for p in self.read..self.read + n {
            assert_eq!(self.ring[(p % RING) as usize], byte(p), "byte {p} of the stream");
        }
        self.read += n;
        n
    }
}

struct World {
    m: Machine,
    random: Random,
    faults: Faults,
    wire: Vec<Seg>,
    /// The last segments sent, which the network may deliver again.
    old: VecDeque<Seg>,
    /// How often each kind of step comes in this phase.
    weights: [u32; 5],
    pseudo: Vec<Queued>,
    sender: Sender,
    receiver: Receiver,
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let mut m = with_state(START, RING, &[]);
        let key = |v: u32| EntryKey::Exact(v as u128);
        let four_tuple = [key(0x0a00_0002), key(0x0a00_0001), key(4000), key(80)];
        let args = [
            FLOW as u128,
            CONTEXT as u128,
            PORT_NET as u128,
            START.wrapping_neg() as u128,
            RING as u128 - 1,
            BASE as u128,
            2,
        ];
        m.table_add("flows", &four_tuple, 0, "rx_flow", &args).unwrap();
        World {
            m,
            random: Random(seed * 2 + 1),
            faults,
            wire: Vec::new(),
            old: VecDeque::new(),
            weights: [1; 5],
            pseudo: Vec::new(),
            sender: Sender { acked: 0, edge: RING, next: 0 },
            receiver: Receiver { ring: vec![0; RING as usize], readable: 0, read: 0 },
        }
    }

    /// Phases of different weights: bursts of sending, of delivery, of reading, and of waiting.
    fn step(&mut self) {
        if self.random.chance(2) {
            self.weights = std::array::from_fn(|_| 1 << self.random.below(5));
        }
        let mut pick = self.random.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|w| {
            let found = pick < *w;
            pick = pick.saturating_sub(*w);
            found
        });
        match kind {
            Some(0) => self.transmit(),
            Some(1) => self.deliver(),
            Some(2) => self.pseudo(),
            Some(3) => self.application(),
            _ if self.random.chance(10) => self.sender.next = self.sender.acked,
            _ => {}
        }
    }

    fn transmit(&mut self) {
        let s = &mut self.sender;
        let room = s.edge.min(STREAM).saturating_sub(s.next);
        let len = (1 + self.random.below(400)).min(room);
        if len == 0 {
            return;
        }
        let payload = (s.next..s.next + len).map(byte).collect();
        let seg = Seg { seq: START.wrapping_add(s.next), payload, ..Seg::default() };
        s.next += len;
        if self.faults.duplicate > 0 {
            self.old.push_front(seg.clone());
            self.old.truncate(24);
        }
        if !self.random.chance(self.faults.loss) {
            self.wire.push(seg);
        }
    }

    /// The next item of a queue, or any.
    fn pick(&mut self, length: usize) -> usize {
        if self.random.chance(self.faults.reorder) { self.random.below(length as u32) as usize } else { 0 }
    }

    fn deliver(&mut self) {
        let seg = if !self.old.is_empty() && self.random.chance(self.faults.duplicate) {
            let at = self.random.below(self.old.len() as u32) as usize;
            self.old[at].clone()
        } else if self.wire.is_empty() {
            return;
        } else {
            let at = self.pick(self.wire.len());
            self.wire.remove(at)
        };
        let (dma, pseudo) = delivered(receive(&mut self.m, &seg));
        if let Some(dma) = dma {
            self.receiver.place(&dma);
        }
        self.pseudo.extend(pseudo);
    }

    fn pseudo(&mut self) {
        if self.pseudo.is_empty() {
            return;
        }
        let at = self.pick(self.pseudo.len());
        let pseudo = self.pseudo.remove(at);
        if self.random.chance(self.faults.pseudo_loss) {
            return;
        }
        if let Some(ack) = acknowledge(&mut self.m, &pseudo) {
            self.acknowledged(&ack);
        }
    }

    fn acknowledged(&mut self, ack: &Seg) {
        let position = ack.ack.wrapping_sub(START);
        let s = &mut self.sender;
        assert!(position <= STREAM, "acknowledges what was never sent");
        s.acked = s.acked.max(position);
        s.next = s.next.max(s.acked);
        s.edge = s.edge.max(position + ((ack.window as u32) << 7));
    }

    fn application(&mut self) {
        let most = self.random.below(RING);
        let n = self.receiver.consume(most);
        if n > 0 {
            let sync = Dma { position: n, edge: START.wrapping_add(self.receiver.readable), ..Dma::to(2) };
            let update = from_host(&mut self.m, PORT_HOST, &sync, &[]).map(|f| Seg::parse(&f)).unwrap();
            self.acknowledged(&update);
        }
    }

    fn run(mut self) {
        for _ in 0..600_000 {
            self.step();
            if self.receiver.read == STREAM && self.sender.acked == STREAM {
                return;
            }
        }
        let (s, r) = (&self.sender, &self.receiver);
        let registers = (register(&self.m, "rx_window"), register(&self.m, "rx_ooo"));
        panic!(
            "wedged: sent {} acked {} edge {} readable {} read {} {registers:?}",
            s.next, s.acked, s.edge, r.readable, r.read
        );
    }
}

#[test]
fn a_perfect_network() {
    World::new(1, Faults { loss: 0, duplicate: 0, reorder: 0, pseudo_loss: 0 }).run();
}

#[test]
fn segments_are_lost_repeated_and_reordered() {
    for seed in 0..12 {
        World::new(seed, Faults { loss: 5, duplicate: 5, reorder: 30, pseudo_loss: 0 }).run();
    }
}

#[test]
fn pseudo_segments_are_lost_and_reordered() {
    for seed in 100..112 {
        World::new(seed, Faults { loss: 3, duplicate: 10, reorder: 50, pseudo_loss: 40 }).run();
    }
}
