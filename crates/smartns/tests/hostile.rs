//! Frames and queue elements that a peer or a program makes up: nothing panics, and nothing outside what is granted is
//! written.
mod support;

use proptest::prelude::*;
use shm::PAGE;
use smartns::ShardOutput;
use support::{MEMORY, Node, Pair, Random, SETTINGS, Settings, Wire};
use verbs::{QpKind, SendFlags, SendOpcode};
use wire::roce::{Bth, Extension, Headers, Opcode, Psn, finish};

const KINDS: [QpKind; 3] = [QpKind::Rc, QpKind::Uc, QpKind::Ud];

/// A frame for the other side's queue pair that is sound down to its checksum; its fields are random.
fn made_up(random: &mut Random, node: &Node) -> Vec<u8> {
    let opcode = loop {
        if let Some(opcode) = Opcode::from_number(random.below(256) as u8) {
            break opcode;
        }
    };
    let psn = Psn::new(support::SETTINGS.psn).plus(random.below(40) as u32).minus(random.below(20) as u32);
    let bth = Bth {
        ack_request: random.chance(500),
        extension: if random.chance(300) { Extension::selective(random.below(8) as u8) } else { Extension::NONE },
        solicited: random.chance(500),
        ..Bth::new(opcode, node.qp, psn)
    };
    let mut extended = Headers::NONE;
    for _ in 0..opcode.extended_len() / 4 {
        // Often the right key, and an address in or near the region.
        let word = match random.below(4) {
            0 => node.key.0,
            1 => (0x7f00_0000_0000u64 >> 32) as u32,
            2 => random.below(8192) as u32,
            _ => random.below(1 << 32) as u32,
        };
        extended = extended.with(word.to_be_bytes());
    }
    let len = if opcode.has_payload() { [0, 1, 16, 1024, 4096, 1500][random.below(6) as usize] } else { 0 };
    let mut frame = Vec::new();
    support::path(0).emit(&bth, &extended, len, &mut frame);
    frame.resize(frame.len() + len, 0xaa);
    finish(&mut frame);
    frame
}

/// Gives a side frames that did not come over the wire.
fn receive(pair: &mut Pair, side: usize, frames: &[Vec<u8>]) {
    let node = &mut pair.nodes[side];
    let mut rx = Vec::new();
    for bytes in frames {
        let mut frame = node.pool.large();
        frame.bytes_vec().extend_from_slice(bytes);
        rx.push(frame);
    }
    let Node { shard, pool, drops, events, tx, .. } = node;
    shard.poll(pair.now, &mut rx, &mut ShardOutput { tx, pool, drops, events });
    tx.drain(..).for_each(|frame| pool.put(frame));
    node.take_completions();
}

// Checks IBTA: 9.6-a, 9.7.4-a.
#[test]
fn made_up_contents_complete_no_more_than_was_posted() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let kind = KINDS[seed as usize % 3];
        let mut pair = Pair::connected([Settings { kind, ..SETTINGS }; 2], Wire::perfect());
        let one = &mut pair.nodes[0];
        // Something is outstanding, so that responses are read.
        let element = one.work(SendOpcode::Send);
        one.post(element, &[one.piece(0, 5000)]);
        let other = &mut pair.nodes[1];
        let read = verbs::SendElement { target: 0x7f00_0000_0000, key: 1, ..other.work(SendOpcode::Read) };
        other.post(read, &[other.piece(8192, 4000)]);
        (0..3).for_each(|at| other.post_receive(&[other.piece(16_384 + 5000 * at, 4200)]));
        receive(&mut pair, 1, &[]);
        for _ in 0..60 {
            let frames: Vec<_> = (0..random.below(4)).map(|_| made_up(&mut random, &pair.nodes[1])).collect();
            receive(&mut pair, 1, &frames);
            pair.now += random.below(2_000_000);
        }
        let completions = &pair.nodes[1].completions;
        assert!(completions.len() <= 4, "no more than what was posted: {completions:?}");
    }
}

// Checks IBTA: 9.7.4-b, 10.6-a.
#[test]
fn only_granted_bytes_are_written() {
    // The region is a part of the memory: neighbours stay as they are whatever the peer asks.
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut pair = Pair::connected([SETTINGS; 2], Wire::perfect());
        let granted = (PAGE as u64 * 3 + 100, 5000u32);
        let key = pair.nodes[1].register_part(granted.0, granted.1.into());
        pair.nodes[1].write(0, &vec![0x55; MEMORY as usize]);
        let [one, other] = &mut pair.nodes;
        one.write(0, &vec![0x99; 1 << 16]);
        let at = (granted.0 + random.below(12_000)).saturating_sub(6000);
        let len = random.below(9000) as u32;
        let opcode = [SendOpcode::Write, SendOpcode::WriteImmediate][random.below(2) as usize];
        let mut element = one.remote(opcode, other, at);
        element.key = key.0;
        one.post(element, &[one.piece(0, len)]);
        other.post_receive(&[]);
        assert!(pair.completed(1));
        pair.idle(support::MS / 10);
        let memory = pair.nodes[1].read(0, MEMORY as usize);
        let allowed = at >= granted.0 && at + u64::from(len) <= granted.0 + u64::from(granted.1);
        let mut expected = vec![0x55; MEMORY as usize];
        if allowed {
            expected[at as usize..at as usize + len as usize].fill(0x99);
        }
        assert!(memory == expected, "seed {seed}: {len} bytes at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_elements_are_taken_without_harm(
        kind in 0usize..3,
        words in prop::collection::vec(any::<[u64; 8]>(), 1..40),
        opcodes in prop::collection::vec((0u8..12, any::<u8>(), 0u8..40, 0u32..2000), 1..40),
        receives in prop::collection::vec(any::<[u64; 2]>(), 0..40),
    ) {
        let settings = Settings { kind: KINDS[kind], ..SETTINGS };
        let mut pair = Pair::connected([settings; 2], Wire::perfect());
        let node = &mut pair.nodes[0];
        for element in receives {
            let _ = node.receive.push(element);
        }
        for (words, (opcode, flags, pieces, inline)) in words.iter().zip(&opcodes) {
            let mut words = *words;
            // Often an element that is one.
            if let Some(opcode) = SendOpcode::from_code(*opcode) {
                let has_data = SendFlags(*flags).has(SendFlags::INLINE);
                let mut element = node.remote(opcode, node, words[1] % MEMORY);
                element.flags = SendFlags(*flags);
                element.pieces = if has_data { 0 } else if opcode.is_atomic() { 1 } else { pieces % 33 };
                element.inline = if has_data { inline % 1000 } else { 0 };
                element.words = [words[3], words[4], words[5], words[6]];
                if let Some(more) = element.further() {
                    element.more = more;
                    words = element.encode();
                }
            }
            let _ = node.send.push(words);
        }
        pair.idle(20_000_000);
        let [one, other] = &pair.nodes;
        prop_assert!(one.completions.len() <= 120 && other.completions.len() <= 60);
    }

    // Checks IBTA: 7.8.1-a.
    #[test]
    fn damaged_frames_are_dropped(at in 14usize..200, bit in 0u8..8) {
        let mut pair = Pair::connected([SETTINGS; 2], Wire::perfect());
        let before = pair.nodes[1].read(0, MEMORY as usize);
        let [one, other] = &mut pair.nodes;
        let mut element = one.remote(SendOpcode::Write, other, 0);
        element.flags = SendFlags::default();
        one.write(0, &[1; 200]);
        one.post(element, &[one.piece(0, 128)]);
        let mut bytes = Vec::new();
        let Node { shard, pool, drops, events, tx, .. } = one;
        shard.poll(pair.now, &mut Vec::new(), &mut ShardOutput { tx, pool, drops, events });
        tx[0].complete_checksum();
        bytes.extend(tx[0].bytes());
        let at = at.min(bytes.len() - 1);
        bytes[at] ^= 1 << bit;
        receive(&mut pair, 1, &[bytes]);
        let unseen = [40, 41, 46].contains(&at);
        let same = pair.nodes[1].read(0, MEMORY as usize) == before;
        prop_assert_eq!(same, !unseen, "byte {}", at);
    }
}
