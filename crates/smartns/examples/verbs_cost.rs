//! Work for `bench/instructions`: a WRITE of 64 bytes from the program's element to its completion, and a packet of
//! 4096 bytes, in the engines of both ends. Frames are handed over within the machine.
//!
//! `verbs_cost CONNECTIONS BYTES ROUNDS`: CONNECTIONS * ROUNDS of each.
#[path = "../tests/support/mod.rs"]
mod support;

use smartns::ShardOutput;
use std::hint::black_box;
use support::{Node, Pair, SETTINGS, Settings, Wire};
use verbs::{Mtu, SendFlags, SendOpcode, Status};

/// Work requests that are posted together.
const BATCH: usize = 32;
/// Bytes of a long message, and packets of it.
const LONG: u32 = 65_536;
const PACKETS: usize = LONG as usize / 4096;

/// Rounds until `count` work requests have ended.
fn exchange(pair: &mut Pair, count: usize) {
    let mut frames: [Vec<_>; 2] = Default::default();
    while pair.nodes[0].completions.len() < count {
        for side in 0..2 {
            let mut rx = std::mem::take(&mut frames[side]);
            let Node { shard, pool, drops, events, tx, .. } = &mut pair.nodes[side];
            shard.poll(pair.now, &mut rx, &mut ShardOutput { tx, pool, drops, events });
            frames[side] = rx;
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
fn write(pair: &mut Pair, len: u32, count: usize) {
    for posted in (0..count).step_by(BATCH) {
        let [one, other] = &mut pair.nodes;
        let batch = BATCH.min(count - posted);
        for at in 0..batch {
            let mut element = one.remote(SendOpcode::Write, other, 0);
            element.flags = if at + 1 == batch { SendFlags::SIGNALED } else { SendFlags::default() };
            one.post(element, &[one.piece(0, len)]);
        }
        exchange(pair, 1);
    }
}

#[inline(never)]
fn path_write64(pair: &mut Pair, count: usize) {
    write(pair, 64, black_box(count));
}

#[inline(never)]
fn path_packet4k(pair: &mut Pair, count: usize) {
    write(pair, LONG, black_box(count) / PACKETS);
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [connections, _, rounds] = arguments[..] else {
        eprintln!("usage: verbs_cost CONNECTIONS BYTES ROUNDS");
        std::process::exit(2);
    };
    let settings = Settings { mtu: Mtu::B4096, window: 256, signals_all: false, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    // Pools and caches are warm.
    write(&mut pair, 64, 2 * BATCH);
    write(&mut pair, LONG, BATCH);
    path_write64(&mut pair, connections * rounds);
    path_packet4k(&mut pair, connections * rounds);
}
