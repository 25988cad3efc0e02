//! Two hosts with ZeroNIC and a transport each, on a fabric, in one thread. Each byte of a stream is a function of
//! its offset, so that a byte in a wrong place shows.
#![allow(dead_code, reason = "each test file uses its part")]
use control::{HostConfig, MemoryConfig};
use engine::ROUND_BYTES;
use engines::{EngineKind, Mapping};
use memory::{DmaCopy, DmaQueue, DmaServer, Domain, Key, Limits as MemoryLimits, MemoryTable, Registrar, Rights};
use port::{Fabric, FabricConfig, FabricPort, FramePool, Netns, Port, PortDrops};
use rustix::event::PollFlags;
use shm::{ByteRing, Doorbell, Region, handover};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tcp::congestion::CongestionName;
use wire::Mac;
use zeronic::{
    Carries, Connection, EngineTcp, Event, Limits, LinuxConfig, LinuxTcp, Segment, Shortage, Stack, Transport,
};

pub(crate) const DOMAIN: Domain = Domain(1);
/// A frame with more bytes than any has.
const FRAME: u32 = 64 << 10;
/// Bytes of each buffer.
pub(crate) const BUFFER: usize = 16 << 20;

/// Eight bytes of the stream at a multiple of eight (SplitMix64).
fn word(at: u64, salt: u64) -> u64 {
    let z = (at ^ salt).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// The bytes of the stream from offset `at` on.
pub(crate) fn fill(at: u64, salt: u64, into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        let from = at + done as u64;
        let (skip, bytes) = ((from % 8) as usize, word(from & !7, salt).to_le_bytes());
        let count = (8 - skip).min(into.len() - done);
        into[done..done + count].copy_from_slice(&bytes[skip..skip + count]);
        done += count;
    }
}

/// A device's address of its memory.
pub(crate) const DEVICE_AT: u64 = 1 << 50;

/// A device's queue, its server's end, and the key of its memory, of so many bytes.
pub(crate) fn device_in(
    table: &MemoryTable,
    domain: Domain,
    bytes: usize,
    timeout_ns: u64,
) -> (Arc<DmaQueue>, DmaServer, Key) {
    let (queue, ends) = DmaQueue::create(Doorbell::eventfd().unwrap(), timeout_ns).unwrap();
    let (ours, its) = handover::pair().unwrap();
    ends.send(&ours).unwrap();
    let (queue, server) = (Arc::new(queue), DmaServer::open(its).unwrap());
    table.devices().add(&queue);
    let key = table.register_device(domain, &queue, DEVICE_AT, bytes as u64, Rights::LOCAL_WRITE).unwrap();
    (queue, server, key)
}

/// Makes a copy that was ordered, in the device's memory.
pub(crate) fn carry_out(server: &mut DmaServer, copy: &DmaCopy, memory: &mut [u8]) {
    let begin = (copy.address - DEVICE_AT) as usize;
    let bytes = &mut memory[begin..begin + copy.len];
    if copy.into_device {
        server.read(copy.at, bytes);
    } else {
        server.write(copy.at, bytes);
    }
    server.done(copy.number, 0);
}

/// A registered buffer, used as a ring.
pub(crate) struct Buffer {
    byte_ring: Arc<ByteRing>,
    pub key: Key,
    scratch: Vec<u8>,
}

impl Buffer {
    pub(crate) fn register(table: &MemoryTable) -> Buffer {
        let region = Arc::new(Region::create("zeronic test", BUFFER).unwrap());
        let byte_ring = Arc::new(ByteRing::map(&region, 0, BUFFER).unwrap());
        let address = region.address(0, BUFFER) as u64;
        let prepared = Registrar::new().prepare(address, BUFFER as u64, Rights::LOCAL_WRITE).unwrap();
        let key = table.register(DOMAIN, &prepared.description, &prepared.files, None).unwrap();
        Buffer { byte_ring, key, scratch: Vec::new() }
    }

    pub(crate) fn write(&mut self, offset: usize, len: usize, at: u64, salt: u64) {
        self.scratch.resize(len, 0);
        fill(at, salt, &mut self.scratch);
        self.byte_ring.write(offset as u32, &self.scratch);
    }

    /// Nothing was written there.
    pub(crate) fn check_untouched(&mut self, offset: usize, len: usize) {
        self.scratch.resize(len, 0);
        self.byte_ring.read(offset as u32, &mut self.scratch);
        assert!(self.scratch.iter().all(|byte| *byte == 0), "a byte was written from {offset} on");
    }

    /// These bytes of the stream are there.
    pub(crate) fn has(&mut self, offset: usize, len: usize, at: u64, salt: u64) -> bool {
        self.scratch.resize(2 * len, 0);
        let (expected, got) = self.scratch.split_at_mut(len);
        fill(at, salt, expected);
        self.byte_ring.read(offset as u32, got);
        expected == got
    }

    pub(crate) fn check(&mut self, offset: usize, len: usize, at: u64, salt: u64) {
        self.scratch.resize(2 * len, 0);
        let (expected, got) = self.scratch.split_at_mut(len);
        fill(at, salt, expected);
        self.byte_ring.read(offset as u32, got);
        if expected != got {
            let wrong = expected.iter().zip(got.iter()).position(|(a, b)| a != b).unwrap();
            panic!("byte {} of the stream is wrong", at + wrong as u64);
        }
    }
}

/// What an application has posted and not seen done.
struct Posted {
    id: u64,
    offset: usize,
    len: usize,
}

/// An application's use of a buffer: posts in a ring, of random lengths.
struct Ring {
    buffer: Buffer,
    salt: u64,
    posted: VecDeque<Posted>,
    next: usize,
    in_use: usize,
    /// Bytes of the stream that were posted, and that are done.
    at: u64,
    done: u64,
}

impl Ring {
    fn new(table: &MemoryTable, salt: u64) -> Ring {
        let buffer = Buffer::register(table);
        Ring { buffer, salt, posted: VecDeque::new(), next: 0, in_use: 0, at: 0, done: 0 }
    }

    /// The next post of at most `most` bytes; none where the ring is full.
    fn post(&mut self, len: usize, most_posts: usize) -> Option<Posted> {
        let len = len.min(BUFFER - self.next);
        if len == 0 || self.in_use + len > BUFFER || self.posted.len() >= most_posts {
            return None;
        }
        let posted = Posted { id: self.at, offset: self.next, len };
        (self.next, self.in_use) = ((self.next + len) % BUFFER, self.in_use + len);
        self.at += len as u64;
        Some(posted)
    }

    fn done(&mut self, id: u64, bytes: u64) -> Posted {
        let posted = self.posted.pop_front().unwrap();
        assert_eq!(posted.id, id, "posts are done in their order");
        self.in_use -= posted.len;
        self.done += bytes;
        posted
    }
}

/// Which transport decides on headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Below {
    Linux,
    Engine(EngineKind),
}

/// How an application posts, and over what.
#[derive(Clone, Copy)]
pub(crate) struct Habit {
    pub below: Below,
    pub least: usize,
    pub most: usize,
    /// Receives under way.
    pub receives: usize,
    /// Bytes are generated and compared; without, only moved.
    pub check: bool,
    pub shortage: Shortage,
    pub carries: Carries,
    /// An engine's; none for its default.
    pub congestion: Option<CongestionName>,
    /// Lines of the flow tables of the first end and of the second.
    pub lines: [usize; 2],
}

impl Default for Habit {
    fn default() -> Habit {
        Habit {
            below: Below::Linux,
            least: 1,
            most: 300_000,
            receives: 16,
            check: true,
            shortage: Shortage::Drop,
            carries: Carries::Stream,
            congestion: None,
            lines: [Limits::default().flows; 2],
        }
    }
}

pub(crate) struct End {
    pub stack: Stack<Box<dyn Transport + Send>, MemoryTable>,
    pub port: FabricPort,
    pub drops: PortDrops,
    pub connection: Option<Connection>,
    sends: Ring,
    receives: Ring,
    habit: Habit,
    random: u64,
    to_send: u64,
    pub ended: bool,
    end_said: bool,
    /// Of what was posted to send, and of receives that are done.
    pub lengths: (Vec<usize>, Vec<usize>),
}

/// A kernel's TCP in a namespace of its own; a printed line that the test is skipped where it may not make one.
fn linux(test: &str, last: u8, mtu: u16) -> Option<(Box<dyn Transport + Send>, Mac)> {
    let skipped = |sentence: String| println!("SKIPPED {test}: {sentence}");
    let netns = Netns::create().map_err(skipped).ok()?;
    let address = (Ipv4Addr::new(10, 99, 0, last), 24);
    let congestion = "cubic".into();
    let config = LinuxConfig { device: "zero0".into(), address, gateway: None, mtu, congestion, shared: None };
    let transport = LinuxTcp::open(netns, config).map_err(skipped).ok()?;
    let mac = transport.mac();
    Some((Box::new(transport), mac))
}

fn engine(kind: EngineKind, habit: Habit, last: u8, mtu: u16, pool: &FramePool) -> (Box<dyn Transport + Send>, Mac) {
    let bytes = 1 << 20;
    let memory = MemoryConfig {
        slots: 16,
        rx_bytes: bytes,
        tx_bytes: bytes,
        long_path_bytes: 0,
        most_bytes: 0,
        context_bytes: 0,
        small_bytes: 0,
        ..MemoryConfig::default()
    };
    let address = Ipv4Addr::new(10, 99, 0, last).into();
    let congestion = habit.congestion;
    let config = HostConfig { address, memory, congestion, max_flows: 64, max_contexts: 1, ..HostConfig::default() };
    let engine = kind.make(&config, &Mapping::default(), pool).unwrap();
    let mac = Mac([2, 0, 0, 0, 99, last]);
    (Box::new(EngineTcp::new(config, engine, mac, mtu, pool.clone(), [last; 16]).unwrap()), mac)
}

pub(crate) fn end(test: &str, fabric: &Fabric, last: u8, habit: Habit, pool: &FramePool) -> Option<End> {
    let mtu = fabric.config().mtu;
    let (transport, mac) = match habit.below {
        Below::Linux => linux(test, last, mtu)?,
        Below::Engine(kind) => engine(kind, habit, last, mtu, pool),
    };
    let port = fabric.join(&format!("end {last}"), mac).unwrap();
    let table = MemoryTable::new(MemoryLimits::default()).unwrap();
    let (one, other) = if last == 1 { (11, 22) } else { (22, 11) };
    let (sends, receives) = (Ring::new(&table, one), Ring::new(&table, other));
    let limits = Limits { flows: habit.lines[usize::from(last != 1)], ..Limits::default() };
    let stack = Stack::new(transport, table, limits, habit.shortage, pool.clone()).unwrap();
    Some(End {
        stack,
        port,
        drops: PortDrops::default(),
        connection: None,
        sends,
        receives,
        habit,
        random: u64::from(last),
        to_send: 0,
        ended: false,
        end_said: false,
        lengths: (Vec::new(), Vec::new()),
    })
}

impl End {
    fn length(&mut self) -> usize {
        self.random = word(self.random, 99);
        self.habit.least + (self.random >> 20) as usize % (self.habit.most - self.habit.least + 1)
    }

    pub(crate) fn received(&self) -> u64 {
        self.receives.done
    }

    /// Posts what there is room for.
    fn post(&mut self) {
        let Some(connection) = self.connection else { return };
        for _ in 0..8 {
            // Any message has to fit, and the buffer has a whole number of such receives.
            let messages = self.habit.carries == Carries::Messages;
            let len = if messages { self.habit.most.next_power_of_two() } else { self.length() };
            let Some(posted) = self.receives.post(len, self.habit.receives) else { break };
            let segment =
                Segment { key: self.receives.buffer.key, offset: posted.offset as u64, len: posted.len as u64 };
            self.stack.post_receive(connection, posted.id, segment).unwrap();
            self.receives.posted.push_back(posted);
        }
        for _ in 0..8 {
            let left = self.to_send - self.sends.at;
            let len = self.length().min(usize::try_from(left).unwrap());
            let Some(posted) = self.sends.post(len, 64) else { break };
            if self.habit.check {
                self.sends.buffer.write(posted.offset, posted.len, posted.id, self.sends.salt);
            }
            let segment = Segment { key: self.sends.buffer.key, offset: posted.offset as u64, len: posted.len as u64 };
            self.stack.post_send(connection, posted.id, segment).unwrap();
            self.lengths.0.push(posted.len);
            self.sends.posted.push_back(posted);
        }
        if self.sends.at == self.to_send && !self.end_said {
            self.end_said = true;
            self.stack.end(connection);
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            match event {
                Event::Accepted { connection, .. } => self.connection = Some(connection),
                Event::Received { id, bytes, .. } => {
                    let at = self.receives.done;
                    let posted = self.receives.done(id, bytes);
                    self.lengths.1.push(bytes as usize);
                    if self.habit.check {
                        self.receives.buffer.check(posted.offset, bytes as usize, at, self.receives.salt);
                    }
                }
                Event::Sent { id, .. } => {
                    let posted = self.sends.done(id, 0);
                    self.sends.done += posted.len as u64;
                    if self.habit.check {
                        // The memory is the application's again: what is read late must not show.
                        self.sends.buffer.write(posted.offset, posted.len, id, !self.sends.salt);
                    }
                }
                Event::Ended { .. } => self.ended = true,
                Event::Failed { why, .. } => panic!("the connection failed: {why}"),
            }
        }
    }

    pub(crate) fn turn(&mut self, begun: Instant) -> usize {
        self.turn_at(begun.elapsed().as_nanos() as u64 + 1)
    }

    /// A turn at a time that the test chooses. No round is so long that others would wait for its copies.
    pub(crate) fn turn_at(&mut self, now: u64) -> usize {
        self.post();
        let before = self.stack.counters().fetched_bytes;
        let moved = self.stack.poll(now, &mut self.port, &mut self.drops);
        let sent = self.stack.counters().fetched_bytes - before;
        assert!(sent < u64::from(ROUND_BYTES + FRAME), "{sent} bytes in a round");
        self.take_events();
        moved
    }

    /// Sleeps until a frame comes, a millisecond at most.
    pub(crate) fn trim(&mut self) {
        self.port.prepare_to_sleep();
        if !self.port.has_work(u64::MAX - 1) {
            let wire = self.port.wait_fd().unwrap();
            let kernel = self.stack.transport().wait_fd();
            let fds = [Some(wire), kernel].into_iter().flatten();
            let mut fds: Vec<_> = fds.map(|fd| rustix::event::PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            let most = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            let _ = rustix::event::poll(&mut fds, Some(&most));
        }
        self.port.awake();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.sends.done == self.to_send
    }
}

/// A fabric that loses frames, lets them overtake each other, has them come twice, and damages them.
pub(crate) fn impaired(seed: u64) -> FabricConfig {
    let (loss, reorder, duplicate, corrupt) = (0.01, 0.01, 0.01, 0.002);
    FabricConfig { loss, reorder, duplicate, corrupt, delay_ns: 20_000, seed, ..FabricConfig::default() }
}

/// Two hosts on a fabric, of which the first has begun to connect. `None` where the test cannot run here.
pub(crate) fn pair(test: &str, config: FabricConfig, habit: Habit, bytes: [u64; 2]) -> Option<[End; 2]> {
    let fabric = Fabric::new(config);
    // Frames travel from one to the other: what one takes from the store, the other gives back.
    let pool = FramePool::new(4096);
    let mut ends = [end(test, &fabric, 1, habit, &pool)?, end(test, &fabric, 2, habit, &pool)?];
    ends[1].stack.listen(7000, DOMAIN, habit.carries).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 2), 7000);
    ends[0].connection = Some(ends[0].stack.connect(to, DOMAIN, habit.carries).unwrap());
    (ends[0].to_send, ends[1].to_send) = (bytes[0], bytes[1]);
    Some(ends)
}

/// Streams of these bytes from the one that connects to the one that accepts, and back. Returns the time, or `None`
/// where the test cannot run here.
pub(crate) fn run(test: &str, config: FabricConfig, habit: Habit, bytes: [u64; 2]) -> Option<(Duration, [End; 2])> {
    let mut ends = pair(test, config, habit, bytes)?;
    let (begun, mut last, mut seen) = (Instant::now(), Instant::now(), 0);
    while !ends.iter().all(End::is_done) {
        let moved: usize = ends.iter_mut().map(|end| end.turn(begun)).sum();
        let received = ends[0].received() + ends[1].received();
        if received > seen {
            (seen, last) = (received, Instant::now());
        } else if last.elapsed() > Duration::from_secs(60) {
            panic!("nothing came for 60 s: {}, {:?}", seen, ends.map(|end| (end.stack.counters(), end.drops)));
        }
        if moved == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!([ends[1].received(), ends[0].received()], bytes);
    Some((begun.elapsed(), ends))
}

/// The same in virtual time, a turn of both each 10 us: the same each time. Returns the time that it took, nanoseconds.
/// Panics where nothing is received for `time_limit`.
pub(crate) fn run_virtually(config: FabricConfig, habit: Habit, bytes: [u64; 2], time_limit: u64) -> (u64, [End; 2]) {
    let mut ends = pair("virtual", config, habit, bytes).expect("engines need no namespace");
    let (mut now, mut last, mut seen) = (1, 1, 0);
    while !ends.iter().all(End::is_done) {
        for end in &mut ends {
            end.turn_at(now);
        }
        let received = ends[0].received() + ends[1].received();
        if received > seen {
            (seen, last) = (received, now);
        }
        let counters = || ends.iter().map(|end| end.stack.counters()).collect::<Vec<_>>();
        assert!(
            now - last < time_limit,
            "nothing came for {} ms, after {seen} bytes: {:?}",
            (now - last) / 1_000_000,
            counters()
        );
        now += 10_000;
    }
    assert_eq!([ends[1].received(), ends[0].received()], bytes);
    (now, ends)
}
