//! Work for `bench/instructions`, in the engines of both ends. It is a WRITE and a SEND of 64 bytes and a WRITE of
//! 4096, from the program's element to its completion, and a packet of 4096 bytes of a long WRITE. Frames are handed
//! over within the machine.
//!
//! `verbs_cost CONNECTIONS BYTES ROUNDS [WAY]`: CONNECTIONS * ROUNDS of each. WAY is how payload comes into frames:
//! `header-only` or `staged`.
#[path = "../tests/support/mod.rs"]
mod support;

use engine::{Frame, FramePool};
use smartns::{ShardOutput, TransmitPath};
use std::hint::black_box;
use support::{Node, Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendFlags, SendOpcode, Status};

/// Work requests that are posted together.
const BATCH: usize = 32;
/// Bytes of a long message, and packets of it.
const LONG: u32 = 65_536;
const PACKETS: usize = LONG as usize / 4096;

/// What the two hosts of a data-path thread share.
struct Thread {
    pair: Pair,
    pool: FramePool,
    /// Frames on their way to each.
    frames: [Vec<Box<Frame>>; 2],
}

impl Thread {
    /// Rounds until `count` work requests have ended.
    fn exchange(&mut self, count: usize) {
        let Thread { pair, pool, frames } = self;
        while pair.nodes[0].completions.len() < count {
            for side in 0..2 {
                let Node { shard, drops, events, tx, .. } = &mut pair.nodes[side];
                shard.poll(pair.now, &mut frames[side], &mut ShardOutput { tx, pool, drops, events });
                frames[1 - side].append(tx);
            }
            pair.nodes[0].take_completions();
            pair.now += 100;
        }
        let completions = &mut pair.nodes[0].completions;
        assert!(completions.iter().all(|completion| completion.status == Status::Success));
        completions.clear();
    }

    /// WRITEs of so many bytes, `count` of them; one completion for each batch.
    fn write(&mut self, len: u32, count: usize) {
        for posted in (0..count).step_by(BATCH) {
            let [one, other] = &mut self.pair.nodes;
            let batch = BATCH.min(count - posted);
            for at in 0..batch {
                let mut element = one.remote(SendOpcode::Write, other, 0);
                element.flags = if at + 1 == batch { SendFlags::SIGNALED } else { SendFlags::default() };
                one.post(element, &[one.piece(0, len)]);
            }
            self.exchange(1);
        }
    }

    /// SENDs of 64 bytes, each with its receive work request and both completions.
    fn send(&mut self, count: usize) {
        for posted in (0..count).step_by(BATCH) {
            let [one, other] = &mut self.pair.nodes;
            let batch = BATCH.min(count - posted);
            for at in 0..batch {
                other.post_receive(&[other.piece(0, 64)]);
                let mut element = one.work(SendOpcode::Send);
                element.flags = if at + 1 == batch { SendFlags::SIGNALED } else { SendFlags::default() };
                one.post(element, &[one.piece(0, 64)]);
            }
            self.exchange(1);
            other_completions(&mut self.pair.nodes[1], batch);
        }
    }
}

/// A receiver's completions, all of which are there.
fn other_completions(node: &mut Node, count: usize) {
    node.take_completions();
    assert_eq!(node.completions.len(), count);
    node.completions.clear();
}

#[inline(never)]
fn path_write64(thread: &mut Thread, count: usize) {
    thread.write(64, black_box(count));
}

#[inline(never)]
fn path_packet4k(thread: &mut Thread, count: usize) {
    thread.write(LONG, black_box(count) / PACKETS);
}

#[inline(never)]
fn path_send64(thread: &mut Thread, count: usize) {
    thread.send(black_box(count));
}

/// Messages of 64 bytes, each alone: what programs that measure latency send. What posts them is not counted.
fn alone(thread: &mut Thread, count: usize) {
    let data = [7; 64];
    for _ in 0..count {
        let [one, other] = &mut thread.pair.nodes;
        other.post_receive(&[other.piece(0, 64)]);
        one.post(one.work(SendOpcode::Send), &[one.piece(0, 64)]);
        path_send_alone(thread);
        let [one, other] = &mut thread.pair.nodes;
        other.post_receive(&[other.piece(0, 64)]);
        one.post_inline(one.work(SendOpcode::Send), &data);
        path_inline_alone(thread);
        other_completions(&mut thread.pair.nodes[1], 2);
        let [one, other] = &mut thread.pair.nodes;
        one.post(one.remote(SendOpcode::Write, other, 0), &[one.piece(0, 64)]);
        path_write_alone(thread);
        let [one, other] = &mut thread.pair.nodes;
        one.post_inline(one.remote(SendOpcode::Write, other, 0), &data);
        path_write_inline_alone(thread);
    }
}

// What is black keeps the compiler from making one function of these.
#[inline(never)]
fn path_send_alone(thread: &mut Thread) {
    black_box("send");
    thread.exchange(1);
}

#[inline(never)]
fn path_inline_alone(thread: &mut Thread) {
    black_box("inline");
    thread.exchange(1);
}

#[inline(never)]
fn path_write_alone(thread: &mut Thread) {
    black_box("write");
    thread.exchange(1);
}

#[inline(never)]
fn path_write_inline_alone(thread: &mut Thread) {
    black_box("write_inline");
    thread.exchange(1);
}

#[inline(never)]
fn path_write4k(thread: &mut Thread, count: usize) {
    thread.write(4096, black_box(count));
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [connections, _, rounds] = arguments[..] else {
        eprintln!("usage: verbs_cost CONNECTIONS BYTES ROUNDS [header-only|staged]");
        std::process::exit(2);
    };
    let transmit_path = match std::env::args().nth(4).as_deref() {
        Some("header-only") => TransmitPath::HeaderOnly,
        Some("staged") => TransmitPath::Staged,
        _ => TransmitPath::Auto,
    };
    let settings = Settings { mtu: Mtu::B4096, window: 256, signals_all: false, transmit_path, ..SETTINGS };
    let pair = Pair::connected([settings; 2], Wire::perfect());
    let mut thread = Thread { pair, pool: FramePool::new(256), frames: Default::default() };
    // Pools and caches are warm.
    thread.write(64, 2 * BATCH);
    thread.write(LONG, BATCH);
    thread.send(2 * BATCH);
    path_write64(&mut thread, connections * rounds);
    path_packet4k(&mut thread, connections * rounds);
    path_send64(&mut thread, connections * rounds);
    path_write4k(&mut thread, connections * rounds);
    // Each of them gets its completion.
    let settings = Settings { signals_all: true, ..settings };
    thread.pair = Pair::connected([settings; 2], Wire::perfect());
    alone(&mut thread, connections * rounds);
}
