//! Paths with delay, loss, doubling, disorder, flipped bits and marks; each may be cut.
use super::{Random, US};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Client,
    Server,
}

/// A packet that has arrived.
pub(crate) struct Delivery {
    pub to: End,
    pub bytes: Vec<u8>,
    pub marked: bool,
}

/// What a path does to packets; chances are thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Path {
    pub delay: u64,
    pub jitter: u64,
    pub loss: u64,
    pub doubled: u64,
    pub flipped: u64,
    pub marked: u64,
    /// A packet is late by a hundred delays: long after what was sent behind it.
    pub late: u64,
    pub cut: bool,
}

pub(crate) struct Network {
    pub paths: Vec<Path>,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    packets: BTreeMap<u64, Delivery>,
    sent: u64,
    /// Packets sent to the server, by path.
    pub by_path: Vec<u64>,
}

impl Network {
    pub(crate) fn new(paths: u8, seed: u64) -> Network {
        let path = Path { delay: 20 * US, ..Path::default() };
        Network {
            paths: vec![path; paths.into()],
            random: Random::new(seed),
            queue: BinaryHeap::new(),
            packets: BTreeMap::new(),
            sent: 0,
            by_path: vec![0; paths.into()],
        }
    }

    pub(crate) fn all(&mut self, change: impl Fn(&mut Path)) {
        self.paths.iter_mut().for_each(change);
    }

    pub(crate) fn send(&mut self, to: End, path: u8, bytes: &[u8], now: u64) {
        let at = usize::from(path);
        let path = self.paths[at];
        self.by_path[at] += u64::from(to == End::Server);
        let copies = 1 + u64::from(self.random.chance(path.doubled));
        for _ in 0..copies {
            if path.cut || self.random.chance(path.loss) {
                continue;
            }
            let late = if self.random.chance(path.late) { 100 } else { 1 };
            let jitter = if path.jitter > 0 { self.random.below(path.jitter) } else { 0 };
            let mut bytes = bytes.to_vec();
            if self.random.chance(path.flipped) {
                let bit = self.random.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let marked = self.random.chance(path.marked);
            self.sent += 1;
            self.packets.insert(self.sent, Delivery { to, bytes, marked });
            self.queue.push(Reverse((now + path.delay * late + jitter, self.sent)));
        }
    }

    pub(crate) fn arrived(&mut self, now: u64) -> Vec<Delivery> {
        let mut arrived = Vec::new();
        while self.deadline().is_some_and(|at| at <= now) {
            let Reverse((_, number)) = self.queue.pop().unwrap();
            arrived.push(self.packets.remove(&number).unwrap());
        }
        arrived
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }
}
