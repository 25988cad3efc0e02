//! Messages over a stream beside a plain reference: every short sequence of parts, posts and cursor moves, and long
//! random ones; marks that lie.
mod support;

use memory::Key;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use support::{DOMAIN, Plain, REGION_LEN, REGIONS, small_limits, tuple};
use wire::Seq;
use zeronic::{Arrival, FlowId, Kind, Mark, Nic, Payload, Segment};

/// What happens to a flow that receives messages.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Bytes `[from, to)` of a message arrive.
    Part(usize, usize, usize),
    /// A receive of so many bytes is posted, in a region.
    Post(usize, usize),
    /// Everything up to there is in order, as the transport, or a liar, reports.
    Advance(usize),
}

/// The NIC's half and a plain reference, side by side. Positions count from the beginning of the stream.
#[derive(Clone)]
struct Pair {
    nic: Nic,
    id: FlowId,
    memory: Plain,
    begin: Seq,
    /// Of each message: where it begins, and its bytes.
    messages: Vec<(usize, usize)>,
    expected: [[u8; REGION_LEN]; REGIONS],
    /// Of each receive: region, first byte, bytes.
    receives: Vec<(usize, usize, usize)>,
    placed: BTreeSet<usize>,
    cursor: usize,
    reported: usize,
    arrivals: u8,
    free: [usize; REGIONS],
}

impl Pair {
    fn new(begin: Seq, lengths: &[usize]) -> Pair {
        let mut nic = Nic::new(small_limits());
        let id = nic.add(tuple(1), DOMAIN, Kind::Messages).unwrap();
        nic.begin_receiving(id, begin);
        let mut end = 0;
        let place = |len: &usize| {
            end += len;
            (end - len, *len)
        };
        Pair {
            nic,
            id,
            memory: Plain::new(),
            begin,
            messages: lengths.iter().map(place).collect(),
            expected: [[0; REGION_LEN]; REGIONS],
            receives: Vec::new(),
            placed: BTreeSet::new(),
            cursor: 0,
            reported: 0,
            arrivals: 0,
            free: [1; REGIONS],
        }
    }

    fn seq(&self, at: usize) -> Seq {
        self.begin + at as u32
    }

    fn mark(&self, message: usize) -> Mark {
        let (start, len) = self.messages[message];
        Mark { number: message as u32, start: self.seq(start), len: len as u32 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Part(message, from, to) => self.part(message, from, to),
            Step::Post(region, len) => self.post(region, len),
            Step::Advance(to) => self.advance(to),
        }
        assert_eq!(*self.memory.0.borrow(), self.expected, "after {step:?}");
        let positions = self.nic.positions(self.id).unwrap();
        assert_eq!(positions.cursor, self.seq(self.cursor), "after {step:?}");
        assert_eq!(positions.frontier, self.seq(self.frontier()), "after {step:?}");
    }

    fn frontier(&self) -> usize {
        (self.cursor..).find(|at| !self.placed.contains(at)).unwrap()
    }

    fn part(&mut self, message: usize, from: usize, to: usize) {
        self.arrivals = self.arrivals.wrapping_add(1).max(1);
        let (start, len) = self.messages[message];
        let new: Vec<usize> = (from..to).filter(|at| start + at >= self.cursor).collect();
        let expected = match (new.is_empty(), self.receives.get(message)) {
            (true, _) => Arrival::Old,
            (_, None) => Arrival::Nowhere,
            (_, Some((_, _, room))) if *room < len => Arrival::TooLong,
            (_, Some((region, first, _))) => {
                for at in &new {
                    self.expected[*region][first + at] = self.arrivals;
                    self.placed.insert(start + at);
                }
                Arrival::Placed { skip: (to - from - new.len()) as u32, len: new.len() as u32 }
            }
        };
        let payload = vec![self.arrivals; to - from];
        let (seq, mark) = (self.seq(start + from), self.mark(message));
        let got = self.nic.place_part(self.id, seq, mark, Payload::Bytes(&payload), &self.memory);
        assert_eq!(got, expected, "message {message}, [{from}, {to})");
    }

    fn post(&mut self, region: usize, len: usize) {
        let first = self.free[region];
        if first + len > REGION_LEN {
            return;
        }
        self.free[region] += len + 1;
        let segment = Segment { key: Key(region as u32), offset: first as u64, len: len as u64 };
        self.nic.post_receive(self.id, segment).unwrap();
        self.receives.push((region, first, len));
    }

    fn advance(&mut self, to: usize) {
        let to = to.min(self.frontier()).max(self.cursor);
        let moved = self.nic.advance(self.id, self.seq(to.max(self.cursor)));
        assert_eq!(moved as usize, to - self.cursor);
        self.cursor = to;
        while let Some((start, len)) =
            self.messages.get(self.reported).filter(|(start, len)| start + len <= self.cursor)
        {
            assert_eq!(self.nic.take_message(self.id), Some(*len as u32), "the one at {start}");
            self.reported += 1;
        }
        assert_eq!(self.nic.take_message(self.id), None);
    }
}

fn every_sequence(pair: &Pair, steps: &[Step], depth: usize) -> u64 {
    let mut checked = 0;
    for step in steps {
        let mut next = pair.clone();
        next.step(*step);
        checked += 1 + if depth > 1 { every_sequence(&next, steps, depth - 1) } else { 0 };
    }
    checked
}

#[test]
fn every_sequence_of_four_steps_on_three_messages() {
    let lengths = [2, 1, 2];
    let parts = |message: usize| {
        let len = lengths[message];
        (0..len).flat_map(move |from| (from + 1..=len).map(move |to| Step::Part(message, from, to)))
    };
    let posts = [(0, 2), (1, 1), (0, 4)].map(|(region, len)| Step::Post(region, len));
    let steps: Vec<Step> = (0..3).flat_map(parts).chain(posts).chain((1..=6).map(Step::Advance)).collect();
    // The second one begins three bytes before sequence numbers wrap.
    for begin in [Seq(1000), Seq(u32::MAX - 2)] {
        let mut posted = Pair::new(begin, &lengths);
        [(0, 3), (1, 1)].into_iter().for_each(|(region, len)| posted.step(Step::Post(region, len)));
        let checked = every_sequence(&Pair::new(begin, &lengths), &steps, 4) + every_sequence(&posted, &steps, 4);
        assert!(checked > 100_000, "{checked} steps");
    }
}

fn any_step(messages: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..messages, 0usize..9, 1usize..9).prop_map(|(message, from, len)| Step::Part(message, from, from + len)),
        3 => (0usize..REGIONS, 1usize..12).prop_map(|(region, len)| Step::Post(region, len)),
        3 => (0usize..160).prop_map(Step::Advance),
    ]
}

/// A mark that may be wrong in each field.
#[derive(Clone, Copy, Debug)]
struct Lie {
    number: u32,
    start: u32,
    len: u32,
    at: u32,
    bytes: usize,
}

fn any_lie() -> impl Strategy<Value = Lie> {
    let near = |most: u32| prop_oneof![4 => 0..most, 1 => (0..most).prop_map(|n| n.wrapping_neg()), 1 => any::<u32>()];
    (near(6), near(40), near(14), near(40), 1usize..9).prop_map(|(number, start, len, at, bytes)| Lie {
        number,
        start,
        len,
        at,
        bytes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn long_sequences(begin in prop_oneof![Just(0u32), Just(u32::MAX - 30), Just((1 << 31) - 30), any::<u32>()],
                      lengths in proptest::collection::vec(1usize..9, 12),
                      steps in proptest::collection::vec(any_step(12), 1..120)) {
        let mut pair = Pair::new(Seq(begin), &lengths);
        for step in steps {
            match step {
                // No further than the message goes.
                Step::Part(message, from, to) if to > lengths[message] => {
                    let to = lengths[message];
                    if from < to {
                        pair.step(Step::Part(message, from, to));
                    }
                }
                step => pair.step(step),
            }
        }
        prop_assert!(pair.nic.remove(pair.id));
        prop_assert_eq!(pair.nic.free_entries(), small_limits().entries);
    }

    /// Whatever marks say: each message takes its own receive, and no byte beside it.
    #[test]
    fn marks_that_lie(begin in any::<u32>(), lies in proptest::collection::vec((any_lie(), 0u32..60), 1..200)) {
        let mut nic = Nic::new(small_limits());
        let id = nic.add(tuple(1), DOMAIN, Kind::Messages).unwrap();
        nic.begin_receiving(id, Seq(begin));
        let memory = Plain::new();
        // Receives of 8 bytes with 2 between them, in one region.
        (0..6).for_each(|at| nic.post_receive(id, Segment { key: Key(0), offset: 1 + 10 * at, len: 8 }).unwrap());
        let (mut reported, mut moved, mut of) = (0u64, 0u64, BTreeMap::new());
        for (lie, to) in lies {
            let mark = Mark { number: lie.number, start: Seq(begin) + lie.start, len: lie.len };
            let payload = vec![1; lie.bytes];
            let placed = nic.place_part(id, Seq(begin) + lie.at, mark, Payload::Bytes(&payload), &memory);
            if let Arrival::Placed { .. } = placed {
                let held = of.entry(lie.number).or_insert(mark);
                prop_assert_eq!(*held, mark, "a message does not change");
                prop_assert!(lie.number < 6 && mark.len <= 8);
            }
            moved += u64::from(nic.advance(id, Seq(begin) + to));
            while let Some(len) = nic.take_message(id) {
                reported += u64::from(len);
            }
            prop_assert!(reported <= moved, "reported before it was in order");
        }
        let bytes = memory.0.borrow();
        prop_assert!((0..7).all(|at| bytes[0][10 * at] == 0 && (at == 0 || bytes[0][10 * at - 1] == 0)));
        prop_assert!(bytes[0][61..].iter().chain(&bytes[1]).chain(&bytes[2]).all(|byte| *byte == 0));
        // What a lie began is in the way of no end.
        prop_assert!(nic.remove(id));
        prop_assert_eq!(nic.free_entries(), small_limits().entries);
    }
}

#[test]
fn each_byte_that_is_sent_has_its_message() {
    let (mut nic, memory) = (Nic::new(small_limits()), Plain::new());
    let id = nic.add(tuple(1), DOMAIN, Kind::Messages).unwrap();
    let begin = Seq(u32::MAX - 1);
    nic.begin_sending(id, begin);
    let lengths = [3u32, 1, 4];
    for (at, len) in lengths.iter().enumerate() {
        nic.post_send(id, Segment { key: Key(0), offset: 8 * at as u64, len: u64::from(*len) }).unwrap();
    }
    let message_of = |at: u32| [0, 0, 0, 1, 2, 2, 2, 2][at as usize];
    let start_of = |message: u32| [0, 3, 4][message as usize];
    for una in 0..=8 {
        if una > 0 {
            nic.fetch(id, begin, 8, &mut Vec::new(), &memory);
            assert_eq!(nic.acknowledged(id, begin + una), 1);
        }
        for at in 0..9u32 {
            let expected = (una..8).contains(&at).then(|| {
                let (number, start) = (message_of(at), start_of(message_of(at)));
                let len = lengths[number as usize];
                (Mark { number, start: begin + start, len }, start + len - at)
            });
            assert_eq!(nic.message_at(id, begin + at), expected, "byte {at}, {una} acknowledged");
        }
    }
}

#[test]
fn a_message_has_a_receive_of_its_own() {
    let mut nic = Nic::new(small_limits());
    let id = nic.add(tuple(1), DOMAIN, Kind::Messages).unwrap();
    let long = Segment { key: Key(0), offset: 0, len: 1 << 27 };
    assert_eq!(nic.post_receive(id, long), Err(zeronic::Refused::Segment));
    assert_eq!(nic.post_send(id, long), Err(zeronic::Refused::Segment));
    let payload = Payload::Bytes(&[1]);
    let mark = Mark { number: 0, start: Seq(0), len: 1 };
    let stream = nic.add(tuple(2), DOMAIN, Kind::Stream).unwrap();
    assert_eq!(nic.place_part(stream, Seq(0), mark, payload, &Plain::new()), Arrival::NoFlow);
    assert_eq!(nic.place(id, Seq(0), &[1], &Plain::new()), Arrival::NoFlow);
}
