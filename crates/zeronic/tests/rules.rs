//! Rules of the NIC's half that the reference does not cover: sending, datagrams, limits, removal.
mod support;

use memory::{Fault, Key};
use support::{DOMAIN, Plain, REGION_LEN, small_limits, tuple};
use wire::Seq;
use zeronic::{Arrival, Fetch, FlowId, Kind, Limits, Nic, Refused, Segment};

fn segment(region: u32, offset: u64, len: u64) -> Segment {
    Segment { key: Key(region), offset, len }
}

/// A flow that sends bytes 1, 2, 3, ... of region 0, posted in pieces of three, from two below the wrap on.
fn sender(bytes: u8) -> (Nic, FlowId, Plain) {
    let (mut nic, memory) = (Nic::new(small_limits()), Plain::new());
    let id = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    nic.begin_sending(id, Seq(u32::MAX - 1));
    memory.0.borrow_mut()[0].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 + 1);
    for at in (0..bytes).step_by(3) {
        nic.post_send(id, segment(0, u64::from(at), u64::from(3.min(bytes - at)))).unwrap();
    }
    (nic, id, memory)
}

fn fetch(nic: &mut Nic, id: FlowId, memory: &Plain, from: u32, len: usize) -> (Fetch, Vec<u8>) {
    let mut into = Vec::new();
    let done = nic.fetch(id, Seq(u32::MAX - 1) + from, len as u32, &mut into, memory);
    (done, into)
}

#[test]
fn every_fetch_is_what_the_stream_has_there() {
    for una in 0..=11u32 {
        for (from, to) in (0..=13u32).flat_map(|from| (from..=14).map(move |to| (from, to))) {
            let (mut nic, id, memory) = sender(11);
            assert_eq!(fetch(&mut nic, id, &memory, 0, 11).0, Fetch::Done { skip: 0 });
            assert_eq!(nic.acknowledged(id, Seq(u32::MAX - 1) + una), una);
            let (done, got) = fetch(&mut nic, id, &memory, from, (to - from) as usize);
            let expected: Vec<u8> = (from.max(una)..to).map(|at| at as u8 + 1).collect();
            match done {
                Fetch::Done { skip } => {
                    assert!(to <= 11);
                    assert_eq!((skip, got), (una.saturating_sub(from), expected));
                }
                Fetch::Old => assert!(to <= una || from == to),
                Fetch::NotPosted => assert!(to > 11),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn una_never_passes_what_was_sent() {
    let (mut nic, id, memory) = sender(9);
    let begin = Seq(u32::MAX - 1);
    assert_eq!(nic.acknowledged(id, begin + 5), 0, "nothing was sent yet");
    fetch(&mut nic, id, &memory, 0, 4);
    assert_eq!(nic.acknowledged(id, begin + 9), 4);
    assert_eq!(nic.acknowledged(id, begin + 2), 0, "never back");
    assert_eq!(nic.acknowledged(id, begin + 0x8000_0000), 0, "nor from the other half of the numbers");
    assert_eq!(nic.positions(id).unwrap().una, begin + 4);
    nic.begin_sending(id, Seq(77));
    assert_eq!(nic.positions(id).unwrap().una, begin + 4, "a second SYN changes nothing");
}

#[test]
fn memory_that_is_not_there_is_a_fault_and_counts_as_not_placed() {
    let (mut nic, memory) = (Nic::new(small_limits()), Plain::new());
    let id = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    nic.post_receive(id, segment(0, REGION_LEN as u64 - 2, 4)).unwrap();
    nic.post_receive(id, segment(9, 0, 4)).unwrap();
    assert_eq!(nic.place(id, Seq(0), &[1; 4], &memory), Arrival::Fault(Fault::Bounds));
    assert_eq!(nic.place(id, Seq(4), &[1; 4], &memory), Arrival::Fault(Fault::Key));
    assert_eq!(nic.advance(id, Seq(8)), 0);
    assert_eq!(nic.place(id, Seq(0), &[1; 2], &memory), Arrival::Placed { skip: 0, len: 2 });
    nic.post_send(id, segment(9, 0, 4)).unwrap();
    assert_eq!(nic.fetch(id, Seq(0), 4, &mut Vec::new(), &memory), Fetch::Fault(Fault::Key));
}

#[test]
fn a_second_syn_moves_no_cursor() {
    let (mut nic, memory) = (Nic::new(small_limits()), Plain::new());
    let id = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    nic.begin_receiving(id, Seq(5));
    nic.begin_receiving(id, Seq(6));
    nic.post_receive(id, segment(0, 0, 8)).unwrap();
    assert_eq!(nic.place(id, Seq(6), &[1; 4], &memory), Arrival::Placed { skip: 0, len: 4 });
    assert_eq!(nic.advance(id, Seq(10)), 4);
    nic.begin_receiving(id, Seq(100));
    assert_eq!(nic.positions(id).unwrap().cursor, Seq(10));
}

#[test]
fn datagrams_take_a_segment_each() {
    let (mut nic, memory) = (Nic::new(small_limits()), Plain::new());
    let id = nic.add(tuple(1), DOMAIN, Kind::Datagrams).unwrap();
    nic.post_receive(id, segment(0, 0, 4)).unwrap();
    nic.post_receive(id, segment(1, 8, 2)).unwrap();
    assert_eq!(nic.place_datagram(id, &[7; 5], &memory), Arrival::TooLong, "longer than the segment");
    assert_eq!(nic.place_datagram(id, &[1; 3], &memory), Arrival::Placed { skip: 0, len: 3 });
    assert_eq!(nic.place_datagram(id, &[2; 2], &memory), Arrival::Placed { skip: 0, len: 2 });
    assert_eq!(nic.place_datagram(id, &[3; 1], &memory), Arrival::Nowhere);
    let memory = memory.0.borrow();
    assert_eq!((&memory[0][..5], &memory[1][7..11]), (&[1, 1, 1, 0, 0][..], &[0, 2, 2, 0][..]));
    assert_eq!(nic.place(id, Seq(0), &[1], &Plain::new()), Arrival::NoFlow, "it has no sequence numbers");
}

#[test]
fn holes_are_bounded_and_what_fills_them_is_always_taken() {
    let limits = Limits { intervals: 3, intervals_per_flow: 2, ..small_limits() };
    let (mut nic, memory) = (Nic::new(limits), Plain::new());
    let ids = [1, 2].map(|port| nic.add(tuple(port), DOMAIN, Kind::Stream).unwrap());
    ids.iter().for_each(|id| nic.post_receive(*id, segment(0, 0, 40)).unwrap());
    let placed = Arrival::Placed { skip: 0, len: 1 };
    let place = |nic: &mut Nic, flow: usize, at: u32| nic.place(ids[flow], Seq(at), &[1], &memory);
    assert_eq!([2, 4, 6].map(|at| place(&mut nic, 0, at)), [placed, placed, Arrival::Holes]);
    assert_eq!([2, 4].map(|at| place(&mut nic, 1, at)), [placed, Arrival::Holes], "of all flows");
    assert_eq!([0, 1, 3].map(|at| place(&mut nic, 0, at)), [placed; 3]);
    assert_eq!(nic.positions(ids[0]).unwrap().frontier, Seq(5));
    assert_eq!(place(&mut nic, 1, 4), placed, "the first flow has none any more");
}

#[test]
fn lists_are_bounded_and_a_promise_holds() {
    let limits = Limits { flows: 3, entries: 512, committed: 128, peak: 200, ..small_limits() };
    let mut nic = Nic::new(limits);
    let mut id = |port| nic.add(tuple(port), DOMAIN, Kind::Stream).unwrap();
    let (greedy, modest, late) = (id(1), id(2), id(3));
    let post = |nic: &mut Nic, id, most| {
        (0..most).take_while(|at| nic.post_receive(id, segment(0, at * 2, 1)) == Ok(())).count()
    };
    assert_eq!(post(&mut nic, greedy, 1000), 199, "and an entry for the region");
    while nic.post_send(greedy, segment(0, 0, 1)).is_ok() {}
    assert!(post(&mut nic, modest, 127) == 127, "whatever the first one takes");
    assert!(post(&mut nic, late, 127) == 127);
    assert_eq!(nic.post_receive(greedy, segment(0, 0, 0)), Err(Refused::Segment));
    assert_eq!(nic.post_receive(greedy, segment(0, 1 << 36, 1)), Err(Refused::Segment));
    assert_eq!(nic.post_receive(greedy, segment(0, u64::MAX, 2)), Err(Refused::Segment));
    for id in [greedy, modest, late] {
        assert!(nic.remove(id) && !nic.remove(id));
        assert_eq!(nic.post_receive(id, segment(0, 0, 1)), Err(Refused::Flow));
    }
    assert_eq!(nic.free_entries(), 512);
}

#[test]
fn a_segment_may_be_longer_than_an_entry_says() {
    struct Huge(std::cell::RefCell<Vec<(u64, usize)>>);
    impl zeronic::Memory for Huge {
        fn write(&self, _: memory::Domain, _: Key, at: u64, from: &[u8]) -> Result<(), Fault> {
            self.0.borrow_mut().push((at, from.len()));
            Ok(())
        }
        fn append(&self, _: memory::Domain, _: Key, _: u64, _: usize, _: &mut Vec<u8>) -> Result<(), Fault> {
            Err(Fault::Rights)
        }
        fn check(&self, _: memory::Domain, _: Key, _: u64, _: u64) -> Result<(), Fault> {
            Ok(())
        }
    }
    let (mut nic, memory) = (Nic::new(small_limits()), Huge(Default::default()));
    let id = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    nic.post_receive(id, segment(0, 5, 1 << 30)).unwrap();
    let border = (1 << 27) - 1;
    assert_eq!(nic.place(id, Seq(border - 2), &[1; 6], &memory), Arrival::Placed { skip: 0, len: 6 });
    assert_eq!(*memory.0.borrow(), [(5 + u64::from(border) - 2, 2), (5 + u64::from(border), 4)]);
}

#[test]
fn a_number_of_an_earlier_flow_means_no_later_one() {
    let mut nic = Nic::new(small_limits());
    let first = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    assert_eq!(nic.add(tuple(1), DOMAIN, Kind::Stream), None, "the tuple is taken");
    assert!(nic.remove(first));
    let second = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
    assert_eq!((first.line(), first == second), (second.line(), false));
    assert_eq!(nic.find(&tuple(1)), Some(second));
    assert!(nic.add(tuple(2), DOMAIN, Kind::Stream).is_some());
    assert_eq!(nic.add(tuple(3), DOMAIN, Kind::Stream), None, "the table is full");
}
