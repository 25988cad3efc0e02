//! Sends by reference: parts of a stream lie in the program's memory, and are sent from there, again and again, until
//! they are acknowledged. Then they mean something else, and the peer has the stream all the same.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;
#[path = "support/over.rs"]
mod over;

use common::solo::{ACK, FLOW, START, Solo, seg};
use common::{Config, Lab, Rng};
use context::{Post, SendWords};
use engine::stream;
use over::{over_flextoe, over_laminar};
use std::sync::atomic::Ordering::Relaxed;

/// Random streams through loss, reordering and duplication, with sends from the ring between.
#[test]
fn the_peer_has_the_stream_wherever_its_bytes_lay() {
    let mut sent = 0;
    for seed in 0..200 {
        let engine = if seed % 5 == 0 { over_laminar } else { over_flextoe };
        let mut lab = Lab::new(Config { engine, v6: seed % 3 == 1, ..Config::random(seed) });
        lab.sides.iter_mut().for_each(|side| side.app.refer());
        lab.finish(20);
        let of_side = |side: &common::Side| side.app.referring.as_ref().map_or(0, |referring| referring.sent);
        sent += lab.sides.iter().map(of_side).sum::<u64>();
    }
    assert!(sent > 5_000_000, "much of it went by reference: {sent}");
}

/// Streams begin in small rings, and go on in larger ones meanwhile.
#[test]
fn rings_grow_beside_sends_by_reference() {
    for seed in 0..100 {
        let engine = if seed % 8 == 0 { over_laminar } else { over_flextoe };
        let config = Config { engine, ..Config::random(seed) };
        let most = config.rx_bytes.max(config.tx_bytes.min(16_384)) << 1;
        let config = Config { tx_bytes: config.tx_bytes.min(16_384), rx_bytes: config.rx_bytes.min(16_384), ..config };
        let mut lab = Lab::new(Config { most: most.min(65_536), bytes: 20_000 + config.bytes, ..config });
        lab.sides.iter_mut().for_each(|side| side.app.refer());
        lab.finish(50);
    }
}

fn solo(engine: common::MakeEngine) -> (Solo, SendWords) {
    let config = Config { engine, timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) };
    let solo = Solo::new(config);
    let end = &solo.side.app.end;
    let words = SendWords::new(&end.region, &end.geometry, solo.side.app.slot.index).expect("a heap");
    (solo, words)
}

/// How many bytes the NIC's half has fetched in a way.
fn moved(solo: &Solo, counter: &str) -> u64 {
    let counted = solo.side.engine.module_stats();
    counted.iter().find(|(_, name, _)| *name == counter).expect("a counter").2
}

#[test]
fn what_is_sent_again_is_fetched_from_the_same_place() {
    for engine in [over_flextoe, over_laminar] {
        let (mut solo, words) = solo(engine);
        let mark = solo.side.app.slot.mark();
        assert!(words.may_post(mark) && !words.may_post(mark + 1));
        words.post(mark, Post { pos: 0, at: 4096, len: 3000 });
        let sent = solo.write(3000, false);
        assert_eq!(sent.iter().map(|s| s.len).sum::<u32>(), 3000);
        assert_eq!((moved(&solo, "referred_bytes"), moved(&solo, "gathered_bytes")), (3000, 0));
        solo.command(stream::Command::Retransmit(FLOW, None));
        assert!(moved(&solo, "referred_bytes") > 3000);
        solo.receive(&[seg(START, START + 3000, ACK, 0)]);
        let before = moved(&solo, "referred_bytes");
        solo.write(1000, false);
        assert_eq!(moved(&solo, "referred_bytes"), before, "the ring's");
    }
}

/// A program that writes anything into the words: its own stream goes on, and only its own heap is read.
#[test]
fn hostile_words_name_the_programs_own_heap_only() {
    for seed in 0..200 {
        let (mut solo, _words) = solo(if seed % 4 == 0 { over_laminar } else { over_flextoe });
        let mut rng = Rng(seed);
        let end = &solo.side.app.end;
        let (region, from) = (std::sync::Arc::clone(&end.region), end.geometry.heap_at() - 4096);
        let mut sent = 0;
        for _ in 0..40 {
            for _ in 0..60 {
                let near = [0, 1, 4, 7, 64, 1000, sent, 65_535, 65_536, u32::MAX, rng.next() as u32];
                let value = near[rng.below(near.len() as u64) as usize];
                // The page before the heap has the words of all slots.
                region.u32_at(from + 4 * rng.below(1024) as usize).store(value, Relaxed);
            }
            let segs = solo.write(rng.below(1500) as u32 + 1, false);
            sent = segs.iter().fold(sent, |sent, s| sent.max(s.seq - START + s.len));
            let segs = solo.receive(&[seg(START, START + sent, ACK, 0)]);
            sent = segs.iter().fold(sent, |sent, s| sent.max(s.seq - START + s.len));
        }
        assert!(sent > 10_000, "the stream goes on: {sent}");
    }
}
