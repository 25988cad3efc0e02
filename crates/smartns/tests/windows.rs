//! Memory windows: a peer reaches what is bound, as long as it is bound, and nothing else.
mod support;

use engine::{Checksum, DropReason};
use memory::{Domain, Rights};
use std::sync::{Arc, Mutex};
use support::{Faults, MS, Pair, Parcel, SETTINGS, Settings, Wire};
use verbs::{Binding, CompletionFlags, CompletionOpcode, SendElement, SendFlags, SendOpcode, Status};

/// Where the region begins, how long it is, and where the window begins in it.
const REGION: u64 = 8192;
const REGION_LEN: u64 = 1 << 20;
const AT: u64 = 100;
const LEN: u64 = 1000;
const WINDOW: u32 = 0xab_cdef;
const KEY: u32 = WINDOW << 8 | 1;
const READ_WRITE: u8 = 0b0110;
const FAULTS: Faults = Faults { lost: 20, repeated: 10, delayed: 20, damaged: 5, marked: 0 };

/// A pair whose second side has a window, and a region that grants peers nothing by itself.
fn pair_on(settings: Settings, wire: Wire) -> (Pair, Binding) {
    let mut pair = Pair::connected([settings; 2], wire);
    let other = &mut pair.nodes[1];
    let region = other.register_as(REGION, REGION_LEN, Rights::LOCAL_WRITE | Rights::WINDOWS);
    other.shard.add_window(WINDOW, Domain(7)).unwrap();
    let address = other.piece(REGION + AT, 1).address;
    let zero_based = false;
    let binding =
        Binding { window: WINDOW, key: KEY, region: region.0, address, len: LEN, rights: READ_WRITE, zero_based };
    (pair, binding)
}

fn pair() -> (Pair, Binding) {
    pair_on(SETTINGS, Wire::perfect())
}

/// Posts a binding at the second side.
fn post_bind(pair: &mut Pair, binding: &Binding) {
    let other = &mut pair.nodes[1];
    let mut element = other.work(SendOpcode::BindWindow);
    element.set_binding(binding);
    other.post(element, &[]);
}

/// How it ended, with all else forgotten.
fn bind(pair: &mut Pair, binding: &Binding) -> Status {
    post_bind(pair, binding);
    assert!(pair.run(100 * MS, |pair| !pair.nodes[1].completions.is_empty()));
    let ended = pair.nodes[1].completions.remove(0);
    assert!(ended.status != Status::Success || ended.opcode == CompletionOpcode::BindWindow);
    ended.status
}

fn invalidate(pair: &mut Pair, key: u32) -> Status {
    let other = &mut pair.nodes[1];
    let element = SendElement { key, ..other.work(SendOpcode::LocalInvalidate) };
    other.post(element, &[]);
    assert!(pair.run(100 * MS, |pair| !pair.nodes[1].completions.is_empty()));
    pair.nodes[1].completions.remove(0).status
}

/// An operation of the first side on `len` bytes, `skip` behind the window's first one.
fn access(pair: &mut Pair, opcode: SendOpcode, key: u32, skip: i64, len: u32) -> Status {
    let [one, other] = &mut pair.nodes;
    let remote = one.remote(opcode, other, REGION + AT);
    let element = SendElement { key, target: remote.target.wrapping_add_signed(skip), ..remote };
    one.post(element, &[one.piece(0, len)]);
    assert!(pair.run(1000 * MS, |pair| !pair.nodes[0].completions.is_empty()));
    pair.nodes[0].completions.remove(0).status
}

#[test]
fn a_peer_reads_and_writes_what_is_bound() {
    let (mut pair, binding) = pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    let data: Vec<u8> = (0..LEN).map(|at| at as u8 | 1).collect();
    pair.nodes[0].write(0, &data);
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY, 0, LEN as u32), Status::Success);
    assert!(pair.nodes[1].read(REGION + AT, LEN as usize) == data);
    pair.nodes[0].write(0, &[0; LEN as usize]);
    assert_eq!(access(&mut pair, SendOpcode::Read, KEY, 0, LEN as u32), Status::Success);
    assert!(pair.nodes[0].read(0, LEN as usize) == data);
}

#[test]
fn short_writes_in_one_frame_are_checked_one_by_one() {
    let (mut pair, binding) = pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    let [one, other] = &mut pair.nodes;
    one.write(0, &[7; 64]);
    for at in 0..10 {
        // The last one is beyond the window.
        let skip = if at == 9 { LEN - 63 } else { at * 64 };
        let element = SendElement { key: KEY, ..one.remote(SendOpcode::Write, other, REGION + AT + skip) };
        one.post(element, &[one.piece(0, 64)]);
    }
    assert!(pair.completed(10));
    let statuses: Vec<Status> = pair.nodes[0].ended().iter().map(|(status, _)| *status).collect();
    assert!(statuses[..9].iter().all(|status| *status == Status::Success) && statuses[9] == Status::RemoteAccess);
    let bytes = pair.nodes[1].read(REGION, (AT + LEN + 100) as usize);
    assert!(bytes[AT as usize..][..9 * 64].iter().all(|byte| *byte == 7));
    assert!(bytes[..AT as usize].iter().chain(&bytes[AT as usize + 9 * 64..]).all(|byte| *byte == 0));
}

// Checks IBTA: 10.6.7-a.
#[test]
fn everything_else_is_refused() {
    let region_key: fn(&Binding) -> u32 = |binding| binding.region;
    let (reads, atomics) = (0b0100, 0b1000);
    let window: fn(&Binding) -> u32 = |_| KEY;
    let other_key: fn(&Binding) -> u32 = |_| KEY + 1;
    type Case = (u8, SendOpcode, fn(&Binding) -> u32, i64, u32);
    let cases: [Case; 9] = [
        (READ_WRITE, SendOpcode::Write, window, 1, LEN as u32),
        (READ_WRITE, SendOpcode::Write, window, -1, 1),
        (READ_WRITE, SendOpcode::Read, window, LEN as i64, 1),
        (READ_WRITE, SendOpcode::Read, window, i64::MAX, 100),
        (READ_WRITE, SendOpcode::Write, other_key, 0, 1),
        (READ_WRITE, SendOpcode::Write, region_key, 0, 1),
        (READ_WRITE, SendOpcode::FetchAdd, window, 4, 8),
        (reads, SendOpcode::Write, window, 0, 1),
        (atomics, SendOpcode::Read, window, 0, 1),
    ];
    for (at, (rights, opcode, key, skip, len)) in cases.into_iter().enumerate() {
        let (mut pair, binding) = pair();
        let binding = Binding { rights, ..binding };
        assert_eq!(bind(&mut pair, &binding), Status::Success, "case {at}");
        let untouched = pair.nodes[1].read(0, (REGION + REGION_LEN) as usize);
        assert_eq!(access(&mut pair, opcode, key(&binding), skip, len), Status::RemoteAccess, "case {at}");
        assert!(pair.nodes[1].read(0, untouched.len()) == untouched, "case {at}");
    }
}

#[test]
fn atomics_and_addresses_from_zero() {
    let (mut pair, binding) = pair();
    let binding = Binding { rights: 0b1000, zero_based: true, address: binding.address + 4, ..binding };
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    let [one, other] = &mut pair.nodes;
    other.write(REGION + AT + 4, &41u64.to_ne_bytes());
    let mut element = SendElement { key: KEY, target: 0, ..one.work(SendOpcode::FetchAdd) };
    element.words[2] = 1;
    one.post(element, &[one.piece(0, 8)]);
    assert!(pair.run(100 * MS, |pair| !pair.nodes[0].completions.is_empty()));
    assert_eq!(pair.nodes[0].completions[0].status, Status::Success);
    assert_eq!(pair.nodes[1].read(REGION + AT + 4, 8), 42u64.to_ne_bytes());
}

// Checks IBTA: 10.6.7-a.
#[test]
fn what_was_bound_is_taken_back() {
    // By the program itself.
    let (mut pair, binding) = pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY, 0, 10), Status::Success);
    assert_eq!(invalidate(&mut pair, KEY), Status::Success);
    // It may be bound again, by another key.
    let again = Binding { key: KEY + 1, len: 5, ..binding };
    assert_eq!(bind(&mut pair, &again), Status::Success);
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY + 1, 0, 5), Status::Success);
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY, 0, 5), Status::RemoteAccess);
    // With the window itself.
    let (mut pair, binding) = self::pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    pair.nodes[1].shard.remove_window(WINDOW).unwrap();
    assert!(pair.nodes[1].shard.remove_window(WINDOW).is_err());
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY, 0, 10), Status::RemoteAccess);
    // With the region, whose domain the window still has.
    let (mut pair, binding) = self::pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    pair.nodes[1].table.deregister(Domain(7), memory::Key(binding.region)).unwrap();
    assert_eq!(access(&mut pair, SendOpcode::Write, KEY, 0, 10), Status::RemoteAccess);
}

/// The network repeats the request of a READ whose answer has come. A program may take memory back by then.
#[test]
fn a_repeated_read_of_what_was_taken_back_harms_nobody() {
    let (mut pair, binding) = pair_on(SETTINGS, Wire::between_machines());
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&sent);
    pair.wire.gate = Some(Box::new(move |to, bytes| {
        if to == 1 {
            kept.lock().unwrap().push(bytes.to_vec());
        }
        true
    }));
    assert_eq!(access(&mut pair, SendOpcode::Read, KEY, 0, 100), Status::Success);
    assert_eq!(invalidate(&mut pair, KEY), Status::Success);
    let bytes = sent.lock().unwrap()[0].clone();
    let again = Parcel { bytes, checksum: Checksum::Complete, segment_size: 0, payload: None };
    pair.wire.carry(1, pair.now, again);
    pair.idle(MS);
    assert!(pair.nodes[1].drops.get(DropReason::PsnDuplicate) == 1 && pair.nodes[1].events.is_empty());
    assert_eq!(bind(&mut pair, &Binding { key: KEY + 1, ..binding }), Status::Success);
    assert_eq!(access(&mut pair, SendOpcode::Read, KEY + 1, 0, 100), Status::Success);
}

// Checks IBTA: 10.6.7-a.
#[test]
fn a_peer_gives_back_what_it_was_granted() {
    let (mut pair, binding) = pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    for (key, status) in [(KEY, Status::Success), (KEY, Status::RemoteAccess)] {
        let [one, other] = &mut pair.nodes;
        other.post_receive(&[other.piece(0, 100)]);
        let element = SendElement { immediate: key, ..one.work(SendOpcode::SendInvalidate) };
        one.post_inline(element, b"done with it");
        assert!(pair.completed(2));
        let [one, other] = &mut pair.nodes;
        assert_eq!(one.completions.remove(0).status, status);
        let received = other.completions.remove(0);
        match status {
            Status::Success => {
                assert_eq!((received.flags, received.immediate), (CompletionFlags::INVALIDATED, KEY));
                assert_eq!(other.read(0, 12), b"done with it");
            }
            // It is bound no more.
            _ => assert_eq!(received.status, Status::Flushed),
        }
    }
}

#[test]
fn a_message_whose_window_goes_places_no_more() {
    let settings = Settings { window: 8, ..SETTINGS };
    let (mut pair, binding) = pair_on(settings, Wire::between_machines());
    let len = REGION_LEN - AT;
    assert_eq!(bind(&mut pair, &Binding { len, ..binding }), Status::Success);
    pair.nodes[0].write(0, &vec![9; len as usize]);
    let [one, other] = &mut pair.nodes;
    let element = SendElement { key: KEY, ..one.remote(SendOpcode::Write, other, REGION + AT) };
    one.post(element, &[one.piece(0, len as u32)]);
    assert!(pair.run(1000 * MS, |pair| pair.nodes[1].read(REGION + AT, 1) == [9]));
    pair.nodes[1].shard.remove_window(WINDOW).unwrap();
    let then = pair.nodes[1].read(REGION, REGION_LEN as usize);
    assert!(pair.run(1000 * MS, |pair| !pair.nodes[0].completions.is_empty()));
    assert_eq!(pair.nodes[0].completions[0].status, Status::RemoteAccess);
    assert!(pair.nodes[1].read(REGION, REGION_LEN as usize) == then && then.ends_with(&[0]));
}

#[test]
fn a_false_binding_ends_its_queue_pair_and_grants_nothing() {
    type Change = fn(&mut Pair, &mut Binding);
    let wrong: [Change; 10] = [
        |_, binding| binding.window ^= 1,
        |_, binding| binding.key ^= 1 << 8,
        |_, binding| binding.len = 0,
        |_, binding| binding.len = REGION_LEN - AT + 1,
        |_, binding| binding.len = u64::MAX,
        |_, binding| binding.address -= AT + 1,
        |_, binding| binding.rights |= 1,
        |_, binding| binding.region ^= 1 << 31,
        // A region that permits no windows, and one that the program may not write.
        |pair, binding| binding.region = pair.nodes[1].register_as(REGION, REGION_LEN, Rights::ALL).0,
        |pair, binding| binding.region = pair.nodes[1].register_as(REGION, REGION_LEN, Rights::WINDOWS).0,
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        let (mut pair, mut binding) = pair();
        change(&mut pair, &mut binding);
        assert_eq!(bind(&mut pair, &binding), Status::WindowBind, "case {at}");
        assert_eq!(invalidate(&mut pair, binding.key), Status::Flushed, "case {at}");
    }
    // A window of another domain; one that is bound already; one that is not bound.
    let (mut pair, binding) = pair();
    pair.nodes[1].shard.add_window(1, Domain(8)).unwrap();
    assert_eq!(bind(&mut pair, &Binding { window: 1, key: 1 << 8, ..binding }), Status::WindowBind);
    let (mut pair, binding) = self::pair();
    assert_eq!(bind(&mut pair, &binding), Status::Success);
    assert_eq!(bind(&mut pair, &Binding { key: KEY + 1, ..binding }), Status::WindowBind);
    let (mut pair, _) = self::pair();
    assert_eq!(invalidate(&mut pair, KEY), Status::WindowBind);
}

#[test]
fn bindings_keep_their_place_among_other_work_requests() {
    for seed in 0..40 {
        let settings = Settings { signals_all: false, ..SETTINGS };
        let (mut pair, binding) = pair_on(settings, Wire::new(seed, FAULTS));
        // Nothing behind the binding asks for an acknowledgement, and it ends after what is before it.
        for round in 0..6u32 {
            let [one, other] = &mut pair.nodes;
            let mut element = other.remote(SendOpcode::Write, one, 0);
            element.flags = SendFlags::default();
            for _ in 0..3 {
                other.post(element, &[other.piece(0, 3000)]);
            }
            post_bind(&mut pair, &Binding { key: KEY + round, ..binding });
            let other = &mut pair.nodes[1];
            let takes_back = SendElement { key: KEY + round, ..other.work(SendOpcode::LocalInvalidate) };
            other.post(takes_back, &[]);
        }
        assert!(pair.run(5000 * MS, |pair| pair.nodes[1].completions.len() == 12), "seed {seed}");
        let ended = pair.nodes[1].ended();
        assert!(ended.iter().all(|(status, _)| *status == Status::Success), "seed {seed}: {ended:?}");
    }
}
