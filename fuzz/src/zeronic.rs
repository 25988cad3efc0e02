//! A ZeroNIC control stack whose peers, whose transport and whose program do what they like. Nothing outside of
//! receives changes, nothing leaves that was not posted to send, and no more is reported than came.
use crate::Input;
use crate::zeronic_sides::{HERE, Line, PORT, POSTED, Puppet, Segment, THERE};
use engine::FramePool;
use memory::{AccessPath, Description, Domain, Extent, Key, MemoryTable, Rights};
use port::PortDrops;
use shm::{PAGE, Region};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::tcp::{Flags, Options, Timestamps};
use wire::{Ipv4Tuple, Seq};
use zeronic::{Carries, Connection, Event, InOrder, Limits, Shortage, Socket, Stack};

const DOMAIN: Domain = Domain(1);
/// The page of sends, and that of receives, between pages that are nobody's; all are registered.
const SENDS: usize = PAGE;
const RECEIVES: usize = 3 * PAGE;
const PAGES: usize = 5;
/// What stands where nobody may write.
const GUARD: u64 = 0x6767_6767_6767_6767;
/// Ports of listeners: of streams, and of messages.
const LISTENERS: [(u16, Carries); 2] = [(7000, Carries::Stream), (7001, Carries::Messages)];
/// Where both streams of a connection begin: sequence numbers wrap soon.
const OURS: Seq = Seq(u32::MAX - 20);
const THEIRS: Seq = Seq(u32::MAX - 5);
/// Steps of an input that are looked at.
const MOST: usize = 512;

struct World {
    stack: Stack<Puppet, Arc<MemoryTable>>,
    line: Line,
    memory: Arc<Region>,
    key: Key,
    now: u64,
    connections: Vec<Connection>,
    /// Receives that were posted, as offsets in the page of receives.
    posted: Vec<(usize, usize)>,
    /// Bytes that the program had reports of.
    reported: u64,
}

impl World {
    fn new(shortage: Shortage) -> World {
        let table = Arc::new(MemoryTable::new(memory::Limits::default()).expect("random numbers"));
        let memory = Arc::new(Region::create("fuzz", PAGES * PAGE).expect("memory"));
        (0..PAGES * PAGE).step_by(8).for_each(|at| {
            let of_sends = (SENDS..SENDS + PAGE).contains(&at);
            memory.u64_at(at).store(if of_sends { u64::from_ne_bytes([POSTED; 8]) } else { GUARD }, Relaxed);
        });
        let extents = vec![Extent { len: (PAGES * PAGE) as u64, way: AccessPath::Shared { file: 0, offset: 0 } }];
        let description = Description { address: 0, rights: Rights::ALL, extents };
        let files = [memory.fd().try_clone_to_owned().expect("a descriptor")];
        let key = table.register(DOMAIN, &description, &files, None).expect("a sealed memfd");
        let limits = Limits { flows: 8, entries: 512, committed: 16, peak: 64, intervals: 16, intervals_per_flow: 6 };
        let pool = FramePool::new(64);
        let stack = Stack::new(Puppet::default(), table, limits, shortage, pool).expect("memory");
        let (line, posted) = (Line::default(), Vec::new());
        let mut world = World { stack, line, memory, key, now: 1, connections: Vec::new(), posted, reported: 0 };
        for (port, carries) in LISTENERS {
            world.stack.listen(port, DOMAIN, carries).expect("the transport listens");
        }
        world
    }

    fn round(&mut self) {
        self.now += 1000;
        self.stack.poll(self.now, &mut self.line, &mut PortDrops::default());
        while let Some(event) = self.stack.next_event() {
            match event {
                Event::Accepted { connection, .. } => self.connections.push(connection),
                Event::Received { bytes, .. } => self.reported += bytes,
                Event::Failed { connection, .. } => self.connections.retain(|held| *held != connection),
                Event::Sent { .. } | Event::Ended { .. } => {}
            }
        }
    }

    fn connection(&self, input: &mut Input<'_>) -> Option<Connection> {
        let choice = usize::from(input.byte());
        self.connections.get(choice % self.connections.len().max(1)).copied()
    }

    fn post_receive(&mut self, input: &mut Input<'_>) {
        let (at, len) = (usize::from(input.byte()) * 8, usize::from(input.byte()));
        let Some(connection) = self.connection(input) else { return };
        let segment = zeronic::Segment { key: self.key, offset: (RECEIVES + at) as u64, len: len as u64 };
        if self.stack.post_receive(connection, 1, segment).is_ok() {
            self.posted.push((at, len));
        }
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        let (at, len) = (usize::from(input.byte()) * 8, u64::from(input.byte()));
        let Some(connection) = self.connection(input) else { return };
        let segment = zeronic::Segment { key: self.key, offset: (SENDS + at) as u64, len };
        // What means nothing is refused.
        let _ = self.stack.post_send(connection, 2, segment);
    }

    /// Whatever happened, only receives have other bytes, and all connections can be closed.
    fn end(mut self) {
        self.check();
        for connection in std::mem::take(&mut self.connections) {
            self.stack.close(connection);
        }
        self.round();
        assert!(self.stack.views(usize::MAX).is_empty(), "all connections are closed");
        self.check();
    }

    fn check(&self) {
        let mut bytes = vec![0; PAGES * PAGE];
        for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.memory.u64_at(at * 8).load(Relaxed).to_ne_bytes());
        }
        for (at, len) in &self.posted {
            bytes[RECEIVES + at..RECEIVES + at + len].fill(GUARD as u8);
        }
        bytes[SENDS..SENDS + PAGE].iter().for_each(|byte| assert_eq!(*byte, POSTED, "a send changed"));
        bytes[SENDS..SENDS + PAGE].fill(GUARD as u8);
        assert!(bytes.iter().all(|byte| *byte == GUARD as u8), "a byte outside of the receives changed");
    }
}

/// A number near this one, mostly.
fn near(input: &mut Input<'_>, begin: Seq) -> Seq {
    let choice = input.byte();
    if choice == 255 {
        Seq(input.word())
    } else {
        begin + (u32::from(choice) & 0x7f) - if choice & 0x80 == 0 { 0 } else { 8 }
    }
}

/// A segment of somebody's, whose stream begins at `begin`; the other one's at `other`.
fn segment(input: &mut Input<'_>, begin: Seq, other: Seq) -> Segment {
    let (kinds, flags) = (input.byte(), Flags(input.byte()));
    let mut options = Options::default();
    if kinds & 1 != 0 {
        options.timestamps = Some(Timestamps { value: input.byte().into(), echo: 0 });
    }
    if kinds & 2 != 0 {
        let from = near(input, other);
        options.sack[..2].fill(Some((from, from + u32::from(input.byte()))));
    }
    if kinds & 4 != 0 {
        options.window_scale = Some(input.byte() & 15);
        options.mss = Some(u16::from(input.byte()) * 8);
    }
    let more = match kinds >> 4 & 3 {
        0 => Vec::new(),
        1 => vec![253, 4, 0x5a, 0x4e],
        2 => input.bytes(16).to_vec(),
        _ => {
            let (number, start) = (u32::from(input.byte() & 7), near(input, begin));
            let words = [number, start.0, input.byte().into()];
            [253, 16, 0x5a, 0x4e].into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes)).collect()
        }
    };
    let seq = near(input, begin);
    let ack = near(input, other);
    Segment { seq, ack, flags, window: u16::from(input.byte()) << 4, options, more, payload: input.byte().into() }
}

/// This host's end of a connection: one that it opened, or a listener's.
fn own_end(input: &mut Input<'_>) -> SocketAddrV4 {
    let choice = input.byte();
    let port = if choice & 1 == 0 { PORT + u16::from(choice >> 5) } else { LISTENERS[usize::from(choice >> 1 & 1)].0 };
    SocketAddrV4::new(HERE, port)
}

/// Frames, headers, posts, and time.
pub(crate) fn run(bytes: &[u8]) {
    play(bytes).end();
}

fn play(bytes: &[u8]) -> World {
    let mut input = Input::new(bytes);
    let shortage = [Shortage::Drop, Shortage::Buffer, Shortage::Defer][usize::from(input.byte() % 3)];
    let mut world = World::new(shortage);
    for _ in 0..MOST {
        if input.is_over() {
            break;
        }
        step(&mut world, &mut input);
        world.round();
        // Without a line, payload is the transport's word, which here is the input's.
        if world.stack.counters().without_line == 0 {
            assert!(world.reported <= world.stack.counters().placed_bytes, "reported before it came");
            assert_eq!(world.line.made_up, 0, "what leaves was posted");
        }
    }
    world
}

fn step(world: &mut World, input: &mut Input<'_>) {
    match input.byte() % 16 {
        0 => {
            let carries = if input.byte() & 1 == 0 { Carries::Stream } else { Carries::Messages };
            // A full table refuses messages, and has streams copied.
            world.connections.extend(world.stack.connect(THERE, DOMAIN, carries));
        }
        1 => world.post_receive(input),
        2 => world.post_send(input),
        3 => {
            let bytes = u64::from(input.byte());
            let ended = input.byte() & 7 == 0;
            world.stack.transport().in_order = InOrder { bytes, ended };
        }
        4 => world.stack.transport().acknowledged += u64::from(input.byte()),
        5 => world.stack.transport().takes = input.byte().into(),
        6 => {
            let end = own_end(input);
            let (remote_ip, remote_port) = (*THERE.ip(), THERE.port());
            let tuple = Ipv4Tuple { local_ip: HERE, local_port: end.port(), remote_ip, remote_port };
            world.stack.transport().accepts.push_back((Socket(99), tuple));
        }
        7 => {
            if let Some(connection) = world.connection(input) {
                match input.byte() & 3 {
                    0 => {
                        world.stack.close(connection);
                        world.connections.retain(|held| *held != connection);
                    }
                    _ => world.stack.end(connection),
                }
            }
        }
        8 => world.now += 1 << (input.byte() % 38),
        9 => {
            let len = usize::from(input.byte());
            let frame = input.bytes(len).to_vec();
            world.line.coming.push(frame);
        }
        10 => world.stack.transport().dies = input.byte() == 1,
        11 | 12 => {
            let end = own_end(input);
            let frame = segment(input, OURS, THEIRS).frame(end, THERE);
            world.stack.transport().out.push(frame);
        }
        _ => {
            let end = own_end(input);
            for _ in 0..=input.byte() & 3 {
                let frame = segment(input, THEIRS, OURS).frame(THERE, end);
                world.line.coming.push(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a seed makes up (SplitMix64), the first ones so that connections come up.
    fn made_up(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (z ^ (z >> 27)) as u8
        };
        let messages = (seed & 1) as u8;
        // Connect; the transport's SYN, and the peer's answer, each one byte ahead of its stream.
        let option = 0x10 * messages;
        let begin =
            [(seed % 3) as u8, 0, messages, 11, 0, option, 0x02, 0x87, 0, 0, 0, 13, 0, 0, option, 0x12, 0x87, 0, 9, 0];
        begin.into_iter().chain((0..400).map(|_| next())).collect()
    }

    /// Random inputs come far enough to be of use.
    #[test]
    fn inputs_that_are_made_up_reach_memory_both_ways() {
        let (mut placed, mut fetched, mut malformed) = (0, 0, 0);
        for seed in 0..3000 {
            let world = play(&made_up(seed));
            let counters = world.stack.counters();
            placed += u64::from(counters.placed_bytes > 0);
            fetched += u64::from(counters.fetched_bytes > 0);
            malformed += u64::from(counters.malformed > 0);
            world.end();
        }
        assert!(
            placed > 50 && fetched > 50 && malformed > 50,
            "{placed} placed, {fetched} fetched, {malformed} malformed"
        );
    }
}
