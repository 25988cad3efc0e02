//! Reassembly: a stream in segments of one and two bytes into a buffer of four.
use super::flow::{Flow, HOST, NET, Out, Registers, descriptor, segment, word};
use super::{Model, bytes, explore};

const BUFFER: u32 = 4;
/// Sequence number of the first byte: the stream wraps.
const FIRST: u32 = u32::MAX - 1;
/// Pseudo segments that can wait at the traffic manager; more are lost there.
const WAITING: usize = 2;
const SYNC: u8 = 2;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    registers: Registers,
    waiting: Vec<Vec<u8>>,
    buffer: [u8; BUFFER as usize],
    /// Stream positions: what the application may read, what it has read.
    readable: u32,
    read: u32,
}

struct Receiver {
    flow: Flow,
    total: u32,
    window: usize,
    advertised: usize,
    /// Stream position of the segment that is on its way through.
    arriving: u32,
}

/// The byte at a position of the stream: its number, so that the wrong one is never right by chance.
fn byte(position: u32) -> u8 {
    position as u8 + 1
}

impl Receiver {
    fn new(total: u32, extensions: &[&str]) -> Receiver {
        let flow = Flow::new(extensions, FIRST, 5000, BUFFER - 1);
        let (window, advertised) = (flow.place("rx_window"), flow.place("rx_advertised"));
        Receiver { flow, total, window, advertised, arriving: 0 }
    }

    /// Something goes through the pipeline.
    fn with(&mut self, state: &State, run: impl FnOnce(&mut Flow) -> Out) -> State {
        self.flow.write(&state.registers);
        let out = run(&mut self.flow);
        let mut after = State { registers: self.flow.read(), ..state.clone() };
        match out.sent {
            Some((HOST, dma)) => self.place(&mut after, &dma),
            Some((_, frame)) => self.acknowledged(&after, &frame),
            None => {}
        }
        after.waiting.extend(out.pseudo.filter(|_| after.waiting.len() < WAITING));
        after.waiting.sort();
        after
    }

    /// What the DMA engine does. The bytes of a segment are those of its place in the stream.
    fn place(&self, state: &mut State, dma: &[u8]) {
        let length = u16::from_be_bytes([dma[6], dma[7]]) as u32;
        let (skip, address, position) = (word(dma, 12), word(dma, 16), word(dma, 20));
        let from = self.arriving;
        for i in skip.min(length)..length {
            state.buffer[((address + i) % BUFFER) as usize] = byte(from + i);
        }
        let readable = position.wrapping_sub(FIRST);
        if length > 0 && readable.wrapping_sub(state.readable) as i32 > 0 {
            state.readable = readable;
        }
    }

    /// Nothing is acknowledged that is not there, and no room is advertised that is not free.
    fn acknowledged(&self, state: &State, frame: &[u8]) {
        let ack = word(frame, 42).wrapping_sub(FIRST);
        let window = u16::from_be_bytes([frame[48], frame[49]]) as u32;
        assert!(ack <= state.readable, "{ack} is acknowledged: {state:x?}");
        assert!(ack + window <= state.read + BUFFER, "a window of {window} behind {ack}: {state:x?}");
    }
}

impl Receiver {
    fn arrive(&mut self, state: &State, from: u32, len: u32) -> State {
        self.arriving = from;
        let frame = segment(FIRST.wrapping_add(from), 5000, 1000, len);
        self.with(state, |flow| flow.process(NET, &frame, len))
    }

    fn deliver(&mut self, state: &State, which: usize) -> State {
        let mut before = state.clone();
        let pseudo = before.waiting.remove(which);
        self.with(&before, |flow| flow.egress(NET, &pseudo))
    }

    /// The application takes everything, and gives the room back.
    fn take(&mut self, state: &State) -> State {
        let mut before = state.clone();
        let amount = before.readable - before.read;
        before.read = before.readable;
        let expected = FIRST.wrapping_add(before.readable);
        self.with(&before, |flow| flow.process(HOST, &descriptor(SYNC, 0, 0, amount, expected), 0))
    }

    fn next(&self, state: &State) -> u32 {
        state.registers[self.window][0].wrapping_sub(FIRST)
    }

    /// The peer sends what is missing, nothing is lost any more: the stream ends.
    fn finishes(&mut self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..4 * self.total {
            while !state.waiting.is_empty() {
                state = self.deliver(&state, 0);
            }
            if state.read < state.readable {
                state = self.take(&state);
            }
            let next = self.next(&state);
            if state.read == self.total && next == self.total {
                return true;
            }
            if next < self.total {
                state = self.arrive(&state, next, 1);
            }
        }
        false
    }
}

impl Model for Receiver {
    type State = State;

    fn first(&self) -> State {
        let mut registers = self.flow.read();
        registers[self.window] = [FIRST, FIRST.wrapping_add(BUFFER)];
        registers[self.advertised] = registers[self.window];
        registers[self.flow.place("tx_window")] = [5000, 5000];
        registers[self.flow.place("tx_edge")] = [6000, 0];
        State { registers, waiting: Vec::new(), buffer: [0; BUFFER as usize], readable: 0, read: 0 }
    }

    fn steps(&mut self, state: &State) -> Vec<(String, State)> {
        let mut out = Vec::new();
        for from in 0..self.total {
            for len in 1..=2.min(self.total - from) {
                out.push((format!("bytes {from} to {}", from + len), self.arrive(state, from, len)));
            }
        }
        for which in 0..state.waiting.len() {
            out.push((format!("pseudo segment {which}"), self.deliver(state, which)));
            let mut lost = state.clone();
            lost.waiting.remove(which);
            out.push((format!("pseudo segment {which} is lost"), lost));
        }
        if state.read < state.readable {
            out.push(("read".into(), self.take(state)));
        }
        out
    }

    fn wrong(&mut self, state: &State) -> Option<String> {
        if state.readable > self.total || state.readable > state.read + BUFFER || state.readable < self.next(state) {
            return Some("the application may read what is not there".into());
        }
        let ([_, edge], [acked, advertised]) = (state.registers[self.window], state.registers[self.advertised]);
        if edge != advertised || acked.wrapping_sub(FIRST) > state.readable {
            return Some("the advertised window differs from that of the data-path".into());
        }
        let right = |p: &u32| state.buffer[(p % BUFFER) as usize] == byte(*p);
        if let Some(p) = (state.read..state.readable).find(|p| !right(p)) {
            return Some(format!("byte {p} is another's"));
        }
        (!self.finishes(state)).then(|| "from here the stream can't be finished".into())
    }
}

#[test]
fn every_order_of_segments_and_pseudo_segments() {
    let states = explore(&mut Receiver::new(bytes(6), &[]));
    println!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn every_order_with_extensions() {
    let states = explore(&mut Receiver::new(bytes(5), &["SACK", "DELAYED_ACKS"]));
    println!("{states} states");
    assert!(states > 1000, "{states}");
}
