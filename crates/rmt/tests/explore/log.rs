//! A shared log: two connections write records of two bytes. The segments have of one to three bytes that come in any
//! order and as often as they like. Each record gets one place in the log, whole, and each connection's are in its own
//! order.
use super::flow::{Flow, HOST, NET, Out, Registers, segment_of, word};
use super::{Model, bytes, explore};

const RECORD: u32 = 2;
/// Sequence numbers of the first bytes: one stream wraps, and so does the log.
const FIRST: [u32; 2] = [u32::MAX - 1, 100];
const LOG: u32 = 0;
const BASE: u32 = 0u32.wrapping_sub(RECORD);
/// Pseudo segments that can wait at the traffic manager; more are lost there.
const WAITING: usize = 1;
const FILL: u8 = 0x10;
/// Bytes of a descriptor; behind it stands where its payload has its place.
const DMA: usize = 36;

/// A stretch of a stream that lies in the log in one piece: its first byte, and where that lies.
type Stretch = (u32, u32);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    registers: Registers,
    waiting: Vec<Vec<u8>>,
    log: Vec<u8>,
    stretches: [Vec<Stretch>; 2],
    /// Stream positions up to which all is there.
    readable: [u32; 2],
}

struct Writers {
    flows: Flow,
    /// Bytes of each stream.
    total: [u32; 2],
    /// Stream and position of the segment that is on its way through.
    arriving: (usize, u32),
}

/// The byte at a position of a stream: there is no other like it, and 0 is where nothing was written.
fn byte(flow: usize, position: u32) -> u8 {
    (flow as u8 + 1) << 4 | position as u8
}

/// Where a byte of the stream has its place, if it has one.
fn place_of(stretches: &[Stretch], position: u32) -> Option<u32> {
    let (from, place) = stretches.iter().rev().find(|(from, _)| *from <= position)?;
    Some(place + position - from)
}

impl Writers {
    fn new(total: [u32; 2], extensions: &[&str]) -> Writers {
        let mut flows = Flow::several(&[&["SHARED_LOG"], extensions].concat(), &FIRST, 5000, 15);
        (0..2).for_each(|flow| flows.join(flow, LOG, FIRST[flow], RECORD));
        Writers { flows, total, arriving: (0, 0) }
    }

    fn register(&self, state: &State, name: &str, flow: usize) -> u32 {
        state.registers[self.flows.place_of(name, flow)][0]
    }

    fn with(&mut self, state: &State, run: impl FnOnce(&mut Flow) -> Out) -> State {
        self.flows.write(&state.registers);
        let out = run(&mut self.flows);
        let mut after = State { registers: self.flows.read(), ..state.clone() };
        match out.sent {
            Some((HOST, dma)) => self.place(&mut after, &dma),
            Some((_, frame)) => self.acknowledged(&after, &frame),
            None => {}
        }
        after.waiting.extend(out.pseudo.filter(|_| after.waiting.len() < WAITING));
        after
    }

    /// What the host does: by the data-path's address, or by what it kept of earlier places.
    fn place(&self, state: &mut State, dma: &[u8]) {
        let length = u32::from(u16::from_be_bytes([dma[6], dma[7]]));
        let (flow, from) = self.arriving;
        if length == 0 {
            return;
        }
        let [offset, before, after, place] = [0, 4, 8, 12].map(|at| word(dma, DMA + at));
        assert_eq!((offset, after % RECORD), (from, 0), "whole records: {state:x?}");
        let (place, end) = (place.wrapping_sub(BASE), state.stretches.iter().flatten().count());
        if after != before {
            assert!(place % RECORD == 0 && before % RECORD == 0, "number {end} begins at {place}: {state:x?}");
            state.stretches[flow].push((before, place));
        }
        for i in word(dma, 12).min(length)..length {
            let at = match dma[1] & FILL {
                0 => word(dma, 16).wrapping_add(i).wrapping_sub(BASE),
                _ => place_of(&state.stretches[flow], from + i).expect("it has a place already"),
            };
            let slot = &mut state.log[at as usize];
            assert!([0, byte(flow, from + i)].contains(slot), "place {at} is another's: {slot:x}");
            *slot = byte(flow, from + i);
        }
        let readable = word(dma, 20).wrapping_sub(FIRST[flow]);
        state.readable[flow] = state.readable[flow].max(readable);
    }

    /// Nothing is acknowledged that is not there.
    fn acknowledged(&self, state: &State, frame: &[u8]) {
        let flow = usize::from(u16::from_be_bytes([frame[36], frame[37]]) - 4000);
        let ack = word(frame, 42).wrapping_sub(FIRST[flow]);
        assert!(ack <= state.readable[flow], "{ack} of {flow} is acknowledged: {state:x?}");
    }

    fn arrive(&mut self, state: &State, flow: usize, from: u32, len: u32) -> State {
        self.arriving = (flow, from);
        let frame = segment_of(flow as u16, FIRST[flow].wrapping_add(from), 5000, 1000, len);
        self.with(state, |flows| flows.process(NET, &frame, len))
    }

    fn deliver(&mut self, state: &State, which: usize) -> State {
        let mut before = state.clone();
        let pseudo = before.waiting.remove(which);
        self.with(&before, |flows| flows.egress(NET, &pseudo))
    }

    fn next(&self, state: &State, flow: usize) -> u32 {
        self.register(state, "rx_window", flow).wrapping_sub(FIRST[flow])
    }

    /// The peers send what is missing, nothing is lost any more: all records are in the log, each once.
    fn finishes(&mut self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..4 * self.total.iter().sum::<u32>() {
            while !state.waiting.is_empty() {
                state = self.deliver(&state, 0);
            }
            let missing = (0..2).find(|flow| self.next(&state, *flow) < self.total[*flow]);
            let Some(flow) = missing else { break };
            let next = self.next(&state, flow);
            state = self.arrive(&state, flow, next, 1);
        }
        state.readable == self.total && !state.log.contains(&0) && self.misplaced(&state).is_none()
    }

    /// What can be read and lies where it should not.
    fn misplaced(&self, state: &State) -> Option<String> {
        for (flow, stretches) in state.stretches.iter().enumerate() {
            if !stretches.is_sorted() {
                return Some(format!("a later record of {flow} stands before an earlier one"));
            }
            let right = |p: &u32| place_of(stretches, *p).is_some_and(|at| state.log[at as usize] == byte(flow, *p));
            if let Some(position) = (0..state.readable[flow]).find(|p| !right(p)) {
                return Some(format!("byte {position} of {flow} is not in its place"));
            }
        }
        None
    }
}

impl Model for Writers {
    type State = State;

    fn first(&self) -> State {
        let mut registers = self.flows.read();
        for (flow, first) in FIRST.into_iter().enumerate() {
            registers[self.flows.place_of("rx_window", flow)] = [first, first.wrapping_add(self.total[flow])];
            registers[self.flows.place_of("rx_advertised", flow)] = [first, first.wrapping_add(self.total[flow])];
            registers[self.flows.place_of("tx_window", flow)] = [5000, 5000];
            registers[self.flows.place_of("tx_edge", flow)] = [6000, 0];
        }
        registers[self.flows.place("log_tail")] = [BASE, 0];
        let log = vec![0; self.total.iter().sum::<u32>() as usize];
        State { registers, waiting: Vec::new(), log, stretches: [Vec::new(), Vec::new()], readable: [0; 2] }
    }

    fn steps(&mut self, state: &State) -> Vec<(String, State)> {
        let mut out = Vec::new();
        for flow in 0..2 {
            for from in 0..self.total[flow] {
                for len in 1..=3.min(self.total[flow] - from) {
                    out.push((format!("{flow}: {from} to {}", from + len), self.arrive(state, flow, from, len)));
                }
            }
        }
        for which in 0..state.waiting.len() {
            out.push((format!("pseudo segment {which}"), self.deliver(state, which)));
            let mut lost = state.clone();
            lost.waiting.remove(which);
            out.push((format!("pseudo segment {which} is lost"), lost));
        }
        out
    }

    fn wrong(&mut self, state: &State) -> Option<String> {
        let reserved = (0..2).map(|flow| self.register(state, "log_reserved", flow)).sum::<u32>();
        let tail = self.register(state, "log_tail", LOG as usize).wrapping_sub(BASE);
        if reserved != tail || tail > state.log.len() as u32 {
            return Some(format!("{reserved} bytes have places in a log of {tail}"));
        }
        let behind = |flow: &usize| state.readable[*flow] < self.next(state, *flow);
        if let Some(flow) = (0..2).find(behind) {
            return Some(format!("the host lacks what {flow} has brought"));
        }
        let wrong = self.misplaced(state);
        wrong.or_else(|| (!self.finishes(state)).then(|| "from here the log can't be finished".into()))
    }
}

#[test]
fn every_order_of_two_writers() {
    let states = explore(&mut Writers::new([bytes(4), 4], &[]));
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn every_order_of_two_writers_with_extensions() {
    let states = explore(&mut Writers::new([bytes(4), 2], &["SACK", "DELAYED_ACKS"]));
    println!("{states} states");
    assert!(states > 1000, "{states}");
}
