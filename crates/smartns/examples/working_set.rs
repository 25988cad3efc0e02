//! WRITEs of 8 KiB through a working set of receive buffers (SmartNS section 5.4, figure 13). The engines of both ends
//! run, with all payload copied into a frame, as a card writes it into a receive buffer, and from there to its place.
//! The difference is which frames are used again. *Recent* uses those that came back last, as pools of frames do.
//! *Round-robin* uses those that came back first, as the receive queue of a card does.
//!
//! `working_set ORDER MIB time MILLISECONDS` prints the rate, Gbit/s of payload.
//! `working_set ORDER MIB count` is for callgrind: `path_receive` has one lap of all frames, and at least 32 MiB. It
//! prints how many bytes of payload that are.
#[path = "../tests/support/mod.rs"]
mod support;

use engine::{Frame, FramePool};
use smartns::{ShardOutput, TransmitPath};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use support::{Node, Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendFlags, SendOpcode, Status};

const BYTES: u32 = 8192;
/// Messages that are posted together; each is one frame of two packets.
const BATCH: usize = 16;
/// Of a working set.
const MOST_MIB: usize = 1024;
/// Messages that are counted at least.
const LEAST: usize = 4096;

/// Which frames are used again.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Recent,
    RoundRobin,
}

/// The two engines, and the receive buffers.
struct Receiver {
    pair: Pair,
    pool: FramePool,
    frames: [Vec<Box<Frame>>; 2],
    /// Those that came back last are at the end.
    buffers: VecDeque<Box<Frame>>,
}

impl Receiver {
    fn new(buffers: usize) -> Receiver {
        let transmit_path = TransmitPath::Staged;
        let settings = Settings { mtu: Mtu::B4096, window: 256, signals_all: false, transmit_path, ..SETTINGS };
        let pair = Pair::connected([settings; 2], Wire::perfect());
        let mut pool = FramePool::new(256);
        let buffers = (0..buffers).map(|_| pool.large()).collect();
        Receiver { pair, pool, frames: Default::default(), buffers }
    }

    /// A batch of messages, from work requests to their completion.
    #[inline(always)]
    fn batch(&mut self, order: Order) {
        for _ in 0..BATCH {
            let next = if order == Order::Recent { self.buffers.pop_back() } else { self.buffers.pop_front() };
            next.into_iter().for_each(|buffer| self.pool.put(buffer));
        }
        let [one, other] = &mut self.pair.nodes;
        for at in 0..BATCH {
            let mut element = one.remote(SendOpcode::Write, other, 1 << 20);
            element.flags = if at + 1 == BATCH { SendFlags::SIGNALED } else { SendFlags::default() };
            one.post(element, &[one.piece(0, BYTES)]);
        }
        while self.pair.nodes[0].completions.is_empty() {
            for side in 0..2 {
                let Node { shard, drops, events, tx, .. } = &mut self.pair.nodes[side];
                let mut out = ShardOutput { tx, pool: &mut self.pool, drops, events };
                shard.poll(self.pair.now, &mut self.frames[side], &mut out);
                self.frames[1 - side].append(tx);
            }
            self.pair.nodes[0].take_completions();
            self.pair.now += 100;
        }
        let completions = &mut self.pair.nodes[0].completions;
        assert!(completions.iter().all(|completion| completion.status == Status::Success));
        completions.clear();
        self.buffers.extend((0..BATCH).map(|_| self.pool.large()));
    }

    /// Every buffer has been used once.
    fn lap(&mut self) {
        (0..self.buffers.len() / BATCH).for_each(|_| self.batch(Order::RoundRobin));
    }
}

#[inline(never)]
fn path_receive(receiver: &mut Receiver, order: Order, messages: usize) {
    (0..messages / BATCH).for_each(|_| receiver.batch(order));
}

fn fail() -> ! {
    eprintln!("usage: working_set recent|round-robin MIB time MILLISECONDS | count, of at most {MOST_MIB} MiB");
    std::process::exit(2);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [order, mib, ref what @ ..] = words[..] else { fail() };
    let order = match order {
        "recent" => Order::Recent,
        "round-robin" => Order::RoundRobin,
        _ => fail(),
    };
    let Some(mib) = mib.parse().ok().filter(|mib| (1..=MOST_MIB).contains(mib)) else { fail() };
    let time = match what {
        ["count"] => None,
        ["time", milliseconds] => Some(Duration::from_millis(milliseconds.parse().unwrap_or_else(|_| fail()))),
        _ => fail(),
    };
    let mut receiver = Receiver::new((mib << 20) / BYTES as usize);
    let buffers = receiver.buffers.len();
    receiver.lap();
    let Some(time) = time else {
        let messages = buffers.max(LEAST);
        path_receive(&mut receiver, order, messages);
        println!("{}", messages * BYTES as usize);
        return;
    };
    let (begin, mut messages) = (Instant::now(), 0);
    while begin.elapsed() < time {
        path_receive(&mut receiver, order, BATCH * 16);
        messages += BATCH * 16;
    }
    println!("{:.2}", (messages * BYTES as usize * 8) as f64 / begin.elapsed().as_secs_f64() / 1e9);
}
