//! A reliable connection without faults: each operation does what the specification has.
mod support;

use smartns::{Event, Recovery};
use support::{MS, Pair, SETTINGS, Wire};
use verbs::{CompletionFlags, CompletionOpcode, Mtu, SendFlags, SendOpcode, Status};

fn pair() -> Pair {
    Pair::connected([SETTINGS; 2], Wire::perfect())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8 ^ 0x5a).collect()
}

#[test]
fn writes_of_all_lengths_arrive_and_touch_nothing_else() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let settings = support::Settings { mtu, ..SETTINGS };
        let mut pair = Pair::connected([settings; 2], Wire::perfect());
        let lens = [0, 1, 3, 4, 255, 256, 257, 1023, 1024, 1025, 4096, 5000, 70_001];
        for (round, len) in lens.into_iter().enumerate() {
            let data = pattern(len);
            pair.nodes[0].write(100, &data);
            pair.nodes[1].write(999, &vec![0xee; len + 2]);
            let [one, other] = &mut pair.nodes;
            let element = one.remote(SendOpcode::Write, other, 1000);
            let pieces = [one.piece(100, len as u32 / 3), one.piece(100 + len as u64 / 3, (len - len / 3) as u32)];
            one.post(element, &pieces);
            assert!(pair.completed(round + 1));
            let completion = pair.nodes[0].completions[round];
            assert_eq!((completion.status, completion.opcode), (Status::Success, CompletionOpcode::Write));
            let found = pair.nodes[1].read(999, len + 2);
            assert_eq!(found[1..=len], data[..], "{len} bytes by {mtu:?}");
            assert_eq!((found[0], found[len + 1]), (0xee, 0xee));
        }
    }
}

#[test]
fn payload_stays_in_its_memory_until_it_is_placed() {
    let mut pair = pair();
    let data = pattern(100_000);
    let before = pattern(100_001)[1..].to_vec();
    for side in 0..2 {
        pair.nodes[side].write(0, if side == 0 { &data } else { &before });
    }
    let [one, other] = &mut pair.nodes;
    // One way and back; entries that are cut within a frame, and short messages, are copied.
    other.post_receive(&[other.piece(1 << 20, 30_000), other.piece(2 << 20, 70_000)]);
    one.post(one.work(SendOpcode::Send), &[one.piece(0, 100_000)]);
    one.post(one.remote(SendOpcode::Read, other, 0), &[one.piece(1 << 20, 100_000)]);
    assert!(pair.completed(3));
    let referred = pair.wire.referred;
    assert!(referred >= 4, "{referred} frames referred to their payload");
    let [one, other] = &mut pair.nodes;
    assert!([other.read(1 << 20, 30_000), other.read(2 << 20, 70_000)].concat() == data);
    assert!(one.read(1 << 20, 100_000) == before);
    one.post(one.remote(SendOpcode::Write, other, 0), &[one.piece(0, 1000), one.piece(1000, 1500)]);
    one.post(one.remote(SendOpcode::Write, other, 5000), &[one.piece(0, 1000)]);
    assert!(pair.completed(5));
    assert_eq!(pair.wire.referred, referred);
    assert!(pair.nodes[1].read(0, 2500) == data[..2500] && pair.nodes[1].read(5000, 1000) == data[..1000]);
}

// Checks IBTA: 10.8.3-a.
#[test]
fn messages_go_into_receive_work_requests_in_order() {
    let mut pair = pair();
    let [one, other] = &mut pair.nodes;
    let data = pattern(3000);
    one.write(0, &data);
    other.post_receive(&[other.piece(0, 100), other.piece(50_000, 2000), other.piece(8000, 2000)]);
    other.post_receive(&[]);
    other.post_receive(&[other.piece(20_000, 512)]);
    let mut element = one.work(SendOpcode::SendImmediate);
    element.immediate = 0xdead_beef;
    one.post(element, &[one.piece(0, 3000)]);
    one.post(one.work(SendOpcode::Send), &[]);
    let inline = one.work(SendOpcode::Send);
    one.post_inline(inline, &data[..300]);
    assert!(pair.completed(6));
    let [one, other] = &pair.nodes;
    assert_eq!(one.ended(), [(Status::Success, 0), (Status::Success, 1), (Status::Success, 2)]);
    assert_eq!(other.ended(), [(Status::Success, 0), (Status::Success, 1), (Status::Success, 2)]);
    let first = other.completions[0];
    assert_eq!((first.bytes, first.immediate, first.flags), (3000, 0xdead_beef, CompletionFlags::IMMEDIATE));
    assert_eq!(other.completions.iter().map(|done| done.bytes).collect::<Vec<_>>(), [3000, 0, 300]);
    let placed = [other.read(0, 100), other.read(50_000, 2000), other.read(8000, 900)].concat();
    assert_eq!((placed, other.read(8900, 1)), (data.clone(), vec![0]));
    assert_eq!(other.read(20_000, 301), [&data[..300], &[0]].concat());
}

#[test]
fn a_write_with_immediate_takes_a_receive_but_no_memory() {
    let mut pair = pair();
    let [one, other] = &mut pair.nodes;
    one.write(0, &pattern(2500));
    other.post_receive(&[other.piece(0, 100)]);
    let mut element = one.remote(SendOpcode::WriteImmediate, other, 7000);
    element.immediate = 77;
    one.post(element, &[one.piece(0, 2500)]);
    assert!(pair.completed(2));
    let other = &pair.nodes[1];
    let completion = other.completions[0];
    assert_eq!((completion.opcode, completion.bytes), (CompletionOpcode::ReceiveWriteImmediate, 2500));
    assert_eq!((completion.immediate, completion.flags), (77, CompletionFlags::IMMEDIATE));
    assert_eq!((other.read(7000, 2500), other.read(0, 100)), (pattern(2500), vec![0; 100]));
}

#[test]
fn reads_and_atomics_bring_what_is_there() {
    let mut pair = pair();
    let [one, other] = &mut pair.nodes;
    other.write(5000, &pattern(40_000));
    other.write(64, &100u64.to_ne_bytes());
    for (at, len) in [(0u64, 40_000u32), (1, 0), (3, 1), (7, 1024), (9, 1025)] {
        let element = one.remote(SendOpcode::Read, other, 5000 + at);
        one.post(
            element,
            &[one.piece(100_000 * at, len / 2), one.piece(100_000 * at + u64::from(len / 2), len - len / 2)],
        );
    }
    let mut add = one.remote(SendOpcode::FetchAdd, other, 64);
    (add.words[2], add.words[3]) = (5, 0);
    one.post(add, &[one.piece(3_000_000, 8)]);
    let mut swap = one.remote(SendOpcode::CompareSwap, other, 64);
    (swap.words[2], swap.words[3]) = (105, 7);
    one.post(swap, &[one.piece(3_000_008, 8)]);
    one.post(swap, &[one.piece(3_000_016, 8)]);
    assert!(pair.completed(8));
    let [one, other] = &pair.nodes;
    let lens: Vec<u32> = one.completions.iter().map(|done| done.bytes).collect();
    assert_eq!(lens, [40_000, 0, 1, 1024, 1025, 8, 8, 8]);
    for (at, len) in [(0u64, 40_000usize), (3, 1), (7, 1024), (9, 1025)] {
        assert_eq!(one.read(100_000 * at, len), pattern(40_000)[at as usize..at as usize + len], "{at}");
    }
    let word = |at| u64::from_ne_bytes(one.read(at, 8).try_into().unwrap());
    assert_eq!([word(3_000_000), word(3_000_008), word(3_000_016)], [100, 105, 7]);
    assert_eq!(other.read(64, 8), 7u64.to_ne_bytes());
}

// Checks IBTA: 10.8.5-a.
#[test]
fn unsignalled_work_requests_complete_with_the_next() {
    let settings = support::Settings { signals_all: false, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    let [one, other] = &mut pair.nodes;
    for number in 0..200 {
        let mut element = one.remote(SendOpcode::Write, other, number);
        element.flags = if number == 199 { SendFlags::SIGNALED } else { SendFlags::default() };
        one.post(element, &[one.piece(0, 64)]);
    }
    assert!(pair.completed(1));
    pair.idle(MS);
    assert_eq!(pair.nodes[0].ended(), [(Status::Success, 199)]);
    // Short messages travel together, and few acknowledgements are asked for.
    let frames = pair.wire.count();
    assert!(frames < 40, "{frames} frames for 200 writes and their acknowledgements");
}

#[test]
fn short_messages_travel_together_and_end_alone() {
    for recovery in [Recovery::GoBackN, Recovery::SelectiveRepeat] {
        let mut pair = Pair::connected([support::Settings { recovery, ..SETTINGS }; 2], Wire::perfect());
        let data = pattern(6 * 50);
        let [one, other] = &mut pair.nodes;
        one.write(0, &data);
        other.write(0, &vec![0; 7000]);
        other.post_receive(&[other.piece(1000, 50)]);
        other.post_receive(&[other.piece(2000, 10), other.piece(2500, 60)]);
        other.post_receive(&[other.piece(3000, 64)]);
        for at in 0..6 {
            one.post(one.work(SendOpcode::Send), &[one.piece(50 * at, 50)]);
        }
        one.post(one.remote(SendOpcode::Write, other, 6000), &[one.piece(0, 20)]);
        // No receive work request is there for the fourth one: it stops those behind it.
        assert!(pair.completed(6));
        pair.idle(MS / 100);
        let [one, other] = &mut pair.nodes;
        assert_eq!((one.ended().len(), other.ended().len(), other.read(6000, 20)), (3, 3, vec![0; 20]));
        (4..7).for_each(|at| other.post_receive(&[other.piece(1000 * at, 50)]));
        assert!(pair.completed(13));
        let [one, other] = &pair.nodes;
        assert!(one.ended().iter().chain(&other.ended()).all(|(status, _)| *status == Status::Success));
        assert!(other.completions.iter().all(|completion| completion.bytes == 50));
        let placed = [other.read(1000, 50), other.read(2000, 10), other.read(2500, 40), other.read(3000, 50)].concat();
        assert_eq!(placed, data[..150], "{recovery:?}");
        // The sixth one went where the write then did.
        let placed = [other.read(4000, 50), other.read(5000, 50), other.read(6000, 50)].concat();
        let expected = [&data[150..250], &data[..20], &data[270..]].concat();
        assert_eq!(placed, expected, "{recovery:?}");
    }
}

#[test]
fn a_wish_gives_an_event_for_what_it_names() {
    let mut pair = pair();
    let [one, other] = &mut pair.nodes;
    other.post_receive(&[other.piece(0, 100)]);
    other.post_receive(&[other.piece(0, 100)]);
    other.notify.ask(verbs::Wish::Solicited);
    one.post(one.work(SendOpcode::Send), &[one.piece(0, 1)]);
    assert!(pair.completed(2));
    assert_eq!(pair.nodes[1].events, []);
    let one = &mut pair.nodes[0];
    let mut element = one.work(SendOpcode::Send);
    element.flags = SendFlags::SOLICITED;
    one.post(element, &[one.piece(0, 1)]);
    assert!(pair.completed(4));
    assert_eq!(pair.nodes[1].events, [Event::Completion(3)]);
}

// Checks IBTA: 10.8.3-a.
#[test]
fn a_fence_waits_for_the_reads_before_it() {
    let mut pair = pair();
    let [one, other] = &mut pair.nodes;
    other.write(0, &pattern(30_000));
    let read = one.remote(SendOpcode::Read, other, 0);
    one.post(read, &[one.piece(0, 30_000)]);
    let mut back = one.remote(SendOpcode::Write, other, 100_000);
    back.flags = SendFlags::FENCE | SendFlags::SIGNALED;
    one.post(back, &[one.piece(0, 30_000)]);
    assert!(pair.completed(2));
    assert_eq!(pair.nodes[1].read(100_000, 30_000), pattern(30_000));
}
