//! Transmission: segments of one and two bytes by credits, to a receiver that takes what is in order; both directions
//! lose, double and overtake.
use super::flow::{CONTROL, Flow, HOST, NET, Registers, descriptor, segment, word};
use super::{Model, bytes, explore};

/// Sequence number of the first byte: the stream wraps.
const FIRST: u32 = u32::MAX - 1;
/// Frames under way in each direction; more are lost.
const UNDER_WAY: usize = 2;
/// The peer's window.
const WINDOW: u32 = 3;
const CREDITS: u32 = 2;
const TX: u8 = 1;
const GRANT: u8 = 3;
const FAST_RETRANSMIT: u8 = 1;
const BAD_ACK: u8 = 2;
const TIMEOUT: u8 = 4;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    registers: Registers,
    /// What the host sends next: a stream position.
    head: u32,
    data: Vec<(u32, u32)>,
    acks: Vec<u32>,
    /// The peer has everything below.
    received: u32,
}

struct Sender {
    flow: Flow,
    total: u32,
    window: usize,
    credits: usize,
}

impl Sender {
    fn new(total: u32, extensions: &[&str]) -> Sender {
        let flow = Flow::new(extensions, 1, FIRST, 0xffff);
        let (window, credits) = (flow.place("tx_window"), flow.place("tx_credits"));
        Sender { flow, total, window, credits }
    }

    fn una(&self, state: &State) -> u32 {
        state.registers[self.window][0].wrapping_sub(FIRST)
    }

    /// The host gives the next `len` bytes; the pipeline may drop them.
    fn push(&mut self, state: &State, len: u32) -> State {
        self.flow.write(&state.registers);
        let out = self.flow.process(HOST, &descriptor(TX, 0, len as u16, state.head, 0), len);
        let mut after = State { registers: self.flow.read(), head: state.head + len, ..state.clone() };
        if let Some((_, frame)) = out.sent {
            let from = word(&frame, 38).wrapping_sub(FIRST);
            assert_eq!(from, state.head, "the sequence number of what was given");
            assert!(from + len <= self.total.min(state.received + WINDOW), "the peer's window: {state:x?}");
            after.data.push((from, len));
            after.data.truncate(UNDER_WAY);
            after.data.sort();
        }
        after
    }

    fn grant(&mut self, state: &State, flags: u8) -> State {
        self.flow.write(&state.registers);
        let credits = if flags == 0 { CREDITS } else { 0 };
        let out = self.flow.process(CONTROL, &descriptor(GRANT, flags, 0, credits, CREDITS), 0);
        let after = State { registers: self.flow.read(), ..state.clone() };
        self.take_descriptor(after, out.sent)
    }

    /// What libTOE does with a descriptor.
    fn take_descriptor(&self, mut state: State, sent: Option<(u16, Vec<u8>)>) -> State {
        let Some((HOST, dma)) = sent else { return state };
        assert_eq!(dma[1] & BAD_ACK, 0, "the peer acknowledges only what was sent");
        let una = word(&dma, 24).wrapping_sub(FIRST);
        assert!(una <= state.received, "what the host may overwrite has arrived");
        if dma[1] & (FAST_RETRANSMIT | TIMEOUT) != 0 {
            state.head = una;
        }
        state.head = state.head.max(una);
        state
    }

    fn arrive(&mut self, state: &State, which: usize, twice: bool) -> State {
        let mut after = state.clone();
        let (from, len) = if twice { after.data[which] } else { after.data.remove(which) };
        if from <= after.received {
            after.received = after.received.max(from + len);
        }
        after.acks.push(after.received);
        after.acks.truncate(UNDER_WAY);
        after.acks.sort();
        after
    }

    fn acknowledge(&mut self, state: &State, which: usize, twice: bool) -> State {
        let mut after = state.clone();
        let ack = if twice { after.acks[which] } else { after.acks.remove(which) };
        self.flow.write(&state.registers);
        let frame = segment(1, FIRST.wrapping_add(ack), WINDOW as u16, 0);
        let out = self.flow.process(NET, &frame, 0);
        after.registers = self.flow.read();
        self.take_descriptor(after, out.sent)
    }

    /// With timeouts, credits and a network that loses nothing, all is acknowledged in the end.
    fn finishes(&mut self, state: &State) -> bool {
        let mut state = state.clone();
        for _ in 0..6 * self.total + 6 {
            while !state.data.is_empty() {
                state = self.arrive(&state, 0, false);
            }
            while !state.acks.is_empty() {
                state = self.acknowledge(&state, 0, false);
            }
            if self.una(&state) == self.total {
                return true;
            }
            state = self.grant(&state, TIMEOUT);
            state = self.grant(&state, 0);
            state = self.push(&state, 1);
        }
        false
    }
}

impl Model for Sender {
    type State = State;

    fn first(&self) -> State {
        let mut registers = self.flow.read();
        registers[self.window] = [FIRST, FIRST];
        registers[self.flow.place("tx_edge")] = [FIRST.wrapping_add(WINDOW), 0];
        registers[self.flow.place("rx_window")] = [1, 1001];
        registers[self.flow.place("rx_advertised")] = [1, 1001];
        State { registers, head: 0, data: Vec::new(), acks: Vec::new(), received: 0 }
    }

    fn steps(&mut self, state: &State) -> Vec<(String, State)> {
        let mut out = Vec::new();
        for len in 1..=2.min(self.total.saturating_sub(state.head)) {
            out.push((format!("push {len}"), self.push(state, len)));
        }
        if state.registers[self.credits][0] < CREDITS {
            out.push(("grant".into(), self.grant(state, 0)));
        }
        out.push(("timeout".into(), self.grant(state, TIMEOUT)));
        for which in 0..state.data.len() {
            let mut lost = state.clone();
            lost.data.remove(which);
            out.push((format!("segment {which} is lost"), lost));
            out.push((format!("segment {which}"), self.arrive(state, which, false)));
            out.push((format!("segment {which}, and again"), self.arrive(state, which, true)));
        }
        for which in 0..state.acks.len() {
            let mut lost = state.clone();
            lost.acks.remove(which);
            out.push((format!("acknowledgement {which} is lost"), lost));
            out.push((format!("acknowledgement {which}"), self.acknowledge(state, which, false)));
            out.push((format!("acknowledgement {which}, and again"), self.acknowledge(state, which, true)));
        }
        // Counted duplicates go on to 255; more than four are as four.
        let count = self.flow.place("dup_ack_count");
        out.iter_mut().for_each(|(_, state)| state.registers[count][0] = state.registers[count][0].min(4));
        out
    }

    fn wrong(&mut self, state: &State) -> Option<String> {
        if self.una(state) > state.received || state.head > self.total {
            return Some("acknowledged before it arrived".into());
        }
        (!self.finishes(state)).then(|| "from here the stream can't be finished".into())
    }
}

#[test]
fn every_order_of_segments_and_acknowledgements() {
    let states = explore(&mut Sender::new(bytes(4), &[]));
    println!("{states} states");
    assert!(states > 1000, "{states}");
}
