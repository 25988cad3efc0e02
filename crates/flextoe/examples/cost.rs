//! Cost of a segment: requests and responses between two engines on one thread, frames handed over directly.
//!
//! ```text
//! cargo run --release -p flextoe --example cost [connections] [payload bytes] [rounds]
//! cargo run --release -p flextoe --example cost paths [connections] [payload bytes] [rounds]
//! cargo run --release -p flextoe --example cost null|vlan|capture [paths] [connections] [payload bytes] [rounds]
//! ```
//!
//! With `null` or `vlan`, the server runs a module on received frames. It does nothing, or takes the VLAN tag out that
//! all frames to it have then. With `capture`, all its frames are captured, whole, and thrown away.
//!
//! Only the engines' rounds are timed; the applications' work and the wire are not. Instructions: run it under
//! `valgrind --tool=callgrind` with few rounds. With `paths`, each path of a segment is a round of its own, in a
//! function named after it: `bench/instructions` counts what each costs. With `TRACE=1` in the environment, all
//! tracepoints are on.
use context::{AppEnd, Bump, Completion, Geometry, daemon_ends};
use engine::stream::{Agreed, FlowParams, FlowStats, FourTuple, Stream};
use engine::{Burst, Command, ContextId, DropCounts, Engine, FlowId, FramePool};
use engine::{Changes, Front, Limits, LoadedModule, Module, ModuleId, ModuleSource, Packet, Slot, Stage, Verdict};
use flextoe::{FlexToe, Mapping};
use port::Recorder;
use port::capture::{Queue, Wanted};
use shm::{ByteRing, Doorbell, Pooled};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::{Endpoint, Mac, Seq};

/// The tick source of tracepoints.
fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Bytes of each buffer.
fn buffer() -> u32 {
    std::env::var("BUFFER").ok().and_then(|bytes| bytes.parse().ok()).unwrap_or(16384)
}

struct Host {
    engine: FlexToe,
    pool: FramePool,
    app: AppEnd,
    buffers: Vec<(ByteRing, ByteRing)>,
    written: Vec<u32>,
    stats: Vec<Pooled<FlowStats>>,
    commands: Vec<Command<Stream>>,
    rx: Vec<Box<engine::Frame>>,
    tx: Vec<Box<engine::Frame>>,
    exceptions: Vec<(engine::Exception, Box<engine::Frame>)>,
    events: Vec<engine::Event<Stream>>,
    drops: DropCounts,
    spent: Duration,
    /// Frames to it carry a VLAN tag.
    tagged: bool,
    recorder: Recorder,
    captured: Option<Arc<Queue>>,
    /// What was captured last.
    blocks: Vec<u8>,
}

impl Host {
    fn new(first: bool, connections: u32) -> Host {
        let slots = connections.next_power_of_two();
        // All connections may send a message in one round.
        let (data_entries, bytes) = (slots.max(4096), buffer());
        let geometry = Geometry {
            slots,
            long: context::LongPaths::NONE,
            growing: context::Growing::NONE,
            data_entries,
            control_entries: 64,
            rx_bytes: bytes,
            tx_bytes: bytes,
            full_slots: slots,
            small_bytes: 0,
            log_bytes: 0,
            heap_bytes: 0,
        };
        let region = Arc::new(geometry.create_region("flextoe-cost").expect("memory"));
        let (app_bell, daemon_bell) = (Doorbell::eventfd().expect("eventfd"), Doorbell::eventfd().expect("eventfd"));
        let fds = (app_bell.try_clone().expect("a descriptor"), daemon_bell.try_clone().expect("a descriptor"));
        let (engine_end, control_end) = daemon_ends(&region, geometry, app_bell, daemon_bell);
        let app = AppEnd::new(region, geometry, fds.0, fds.1).expect("a sound region");
        let pool = FramePool::new(8192);
        let limits = Limits { flows: connections, contexts: 1 };
        let mut host = Host {
            engine: FlexToe::new(limits, Mapping::default(), pool.clone()),
            pool,
            app,
            buffers: Vec::new(),
            written: vec![0; connections as usize],
            stats: Vec::new(),
            commands: vec![Command::Attach(ContextId(0), engine_end)],
            rx: Vec::new(),
            tx: Vec::new(),
            exceptions: Vec::new(),
            events: Vec::new(),
            drops: DropCounts::default(),
            spent: Duration::ZERO,
            tagged: false,
            recorder: Recorder::default(),
            captured: None,
            blocks: Vec::new(),
        };
        if std::env::var_os("TRACE").is_some() {
            let traces = trace::Traces::new(ticks);
            traces.enable(trace::PointSet::all());
            host.engine.trace(&traces);
        }
        for index in 0..connections {
            let (rx, tx) = control_end.map_buffers(index).expect("address space");
            let stats = Pooled::new(FlowStats::default());
            let params = flow(first, index, Arc::new(rx), Arc::new(tx), &stats);
            host.commands.push(Command::Install(Box::new(params)));
            let slot = Slot { index, generation: 0 };
            host.buffers.push(host.app.map_buffers(slot).expect("address space"));
            host.stats.push(stats);
        }
        host
    }

    fn poll(&mut self, now: u64) {
        let start = Instant::now();
        self.round(now);
        self.spent += start.elapsed();
        assert_eq!(self.drops, DropCounts::default());
    }

    /// The engine's work, and nothing else.
    fn round(&mut self, now: u64) {
        let burst = &mut Burst {
            rx: &mut self.rx,
            back: &mut Vec::new(),
            tx: &mut self.tx,
            exceptions: &mut self.exceptions,
            events: &mut self.events,
            commands: &mut self.commands,
            pool: &mut self.pool,
            drops: &mut self.drops,
            recorder: Some(&mut self.recorder).filter(|recorder| recorder.is_on()),
        };
        self.engine.poll(now, burst);
        self.engine.egress(now, 0, burst);
        if let Some(queue) = &self.captured {
            self.recorder.hand_over(true);
            queue.take(&mut self.blocks);
        }
        self.events.clear();
    }

    /// The other host's frames come in.
    fn arrive(&mut self, frames: &mut Vec<Box<engine::Frame>>) {
        self.rx.append(frames);
        for frame in self.rx.iter_mut().filter(|_| self.tagged) {
            frame.grow_front(4);
            frame.bytes_mut().copy_within(4..16, 0);
            frame.bytes_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
        }
    }

    /// Sends a message on a connection and reports that all up to `read` was read.
    fn send(&mut self, index: u32, message: &[u8], read: u32) {
        let at = index as usize;
        self.buffers[at].1.write(self.written[at], message);
        self.written[at] = self.written[at].wrapping_add(message.len() as u32);
        let slot = Slot { index, generation: 0 };
        let bump = Bump { slot, tx_head: self.written[at], rx_head: read, fin: false, ring: 0 };
        self.app.bumps.push(bump.to_words()).expect("room");
    }

    /// Answers each whole message with a message; returns how many.
    fn answer(&mut self, message: &mut [u8], seen: &mut [u32]) -> u64 {
        let mut answered = 0;
        while let Some(words) = self.app.completions.pop().expect("a sound ring") {
            let completion = Completion::from_words(words);
            let at = completion.slot.index as usize;
            while completion.rx_tail.wrapping_sub(seen[at]) >= message.len() as u32 {
                self.buffers[at].0.read(seen[at], message);
                seen[at] = seen[at].wrapping_add(message.len() as u32);
                self.send(at as u32, message, seen[at]);
                answered += 1;
            }
        }
        answered
    }

    /// Takes all completions and reports that everything was read.
    fn read_all(&mut self) {
        while let Some(words) = self.app.completions.pop().expect("a sound ring") {
            let Completion { slot, rx_tail, .. } = Completion::from_words(words);
            let tx_head = self.written[slot.index as usize];
            let bump = Bump { slot, tx_head, rx_head: rx_tail, fin: false, ring: 0 };
            self.app.bumps.push(bump.to_words()).expect("room");
        }
    }

    fn segments(&self) -> u64 {
        let figures = self.stats.iter().map(|stats| stats.read());
        figures.map(|f| f.tx_segments + f.rx_segments).sum()
    }
}

fn flow(first: bool, index: u32, rx: Arc<ByteRing>, tx: Arc<ByteRing>, stats: &Pooled<FlowStats>) -> FlowParams {
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let port = 10_000 + index as u16;
    let tuple = if first {
        FourTuple::new(Endpoint::v4(a, port), Endpoint::v4(b, 80))
    } else {
        FourTuple::new(Endpoint::v4(b, 80), Endpoint::v4(a, port))
    };
    FlowParams {
        flow: FlowId(index),
        tuple,
        local_mac: Mac([2, 0, 0, 0, 0, first as u8]),
        remote_mac: Mac([2, 0, 0, 0, 0, !first as u8]),
        context: ContextId(0),
        slot: Slot { index, generation: 0 },
        rx,
        tx,
        snd_nxt: Seq(1),
        tx_pos: 0,
        rcv_nxt: Seq(1),
        rx_pos: 0,
        answered: 0,
        snd_wnd: 16384,
        agreed: Agreed { mss: 1448, snd_shift: 0, rcv_shift: 0, ts_offset: Some(0), sack: true, ecn: false },
        receiving: Default::default(),
        ts_recent: 0,
        super_segment: 0,
        checksum_offload: true,
        rtt: 0,
        dctcp_echo: false,
        cwnd: 1 << 20,
        // As a connection has that is not limited by its window.
        growth: engine::stream::Growth::slow_start(1 << 30),
        rate: 0,
        stats: stats.clone(),
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let argument = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let (connections, bytes) = (argument(0, 64) as u32, argument(1, 64) as usize);
    let (mut client, mut server) = (Host::new(true, connections), Host::new(false, connections));
    let asked = |name: &str| words.iter().any(|word| word == name);
    server.tagged = asked("vlan");
    if asked("null") || asked("vlan") {
        server.commands.push(Command::Modules(vec![module(asked("vlan"))]));
    }
    if asked("capture") {
        server.captured = Some(server.recorder.start(&Arc::new(Wanted::everything()), 0, 0));
    }
    client.poll(START);
    server.poll(START);
    if asked("paths") {
        paths(&mut client, &mut server, bytes, argument(2, 500));
    } else {
        echo(&mut client, &mut server, bytes, argument(2, 20_000));
    }
}

/// A module on received frames, in Rust: what a module costs besides its own code is the same for eBPF.
struct Ingress {
    strips: bool,
}

impl ModuleSource for Ingress {
    fn name(&self) -> &str {
        if self.strips { "vlan_strip" } else { "null" }
    }
    fn stage(&self) -> Stage {
        Stage::Ingress
    }
    fn whole_frames(&self) -> bool {
        false
    }
    fn changes(&self) -> Changes {
        if self.strips { Changes::Front(Front { below: 16, strips: 4 }) } else { Changes::Nothing }
    }
    fn replica(&self, _index: u32) -> Box<dyn Module> {
        Box::new(Ingress { strips: self.strips })
    }
}

impl Module for Ingress {
    fn process(&mut self, packet: Packet<'_>) -> Verdict {
        if self.strips && packet.frame.bytes().get(12..14) == Some(&[0x81, 0]) {
            if let Some(addresses) = packet.frame.bytes_mut().first_chunk_mut::<16>() {
                addresses.copy_within(..12, 4);
            }
            packet.frame.strip_front(4);
        }
        Verdict::Pass
    }
}

fn module(strips: bool) -> LoadedModule {
    LoadedModule { id: ModuleId(0), source: Arc::new(Ingress { strips }), figures: Arc::default(), ticks: || 0 }
}

const START: u64 = 1_000_000_000;

fn echo(client: &mut Host, server: &mut Host, bytes: usize, rounds: u64) {
    let connections = client.written.len();
    let mut message = vec![7u8; bytes];
    let mut seen = [vec![0u32; connections], vec![0u32; connections]];
    let mut now = START;
    (0..connections).for_each(|index| client.send(index as u32, &message, 0));
    let (mut answered, mut best, mut before) = (0, f64::MAX, (Duration::ZERO, 0));
    for round in 0..rounds {
        let all = client.spent + server.spent;
        if round % (rounds / 20).max(1) == 0 && answered > before.1 {
            best = best.min((all - before.0).as_nanos() as f64 / (answered - before.1) as f64);
            before = (all, answered);
        }
        now += 10_000;
        client.poll(now);
        server.arrive(&mut client.tx);
        server.poll(now);
        server.answer(&mut message, &mut seen[1]);
        server.poll(now);
        client.rx.append(&mut server.tx);
        client.poll(now);
        answered += client.answer(&mut message, &mut seen[0]);
    }
    let segments = client.segments() + server.segments();
    let spent = (client.spent + server.spent).as_nanos() as f64;
    println!("{connections} connections, {bytes} bytes: {answered} requests answered");
    println!("{segments} passes of a segment, {:.1} ns each", spent / segments as f64);
    println!("{:.1} ns of engine a round trip, {best:.1} in the best twentieth", spent / answered as f64);
}

/// One path after the other: messages go to the server and are read there, acknowledgements come back late. Then
/// requests and responses, of which all that the server does is one path.
fn paths(client: &mut Host, server: &mut Host, bytes: usize, rounds: u64) {
    let message = vec![7u8; bytes];
    let mut now = START;
    for _ in 0..rounds {
        now += 1_000_000;
        (0..client.written.len()).for_each(|index| client.send(index as u32, &message, 0));
        path_tx(client, now);
        server.arrive(&mut client.tx);
        path_rx_data(server, now);
        server.read_all();
        path_hc(server, now);
        assert!(server.tx.is_empty(), "acknowledgements wait");
        now += 1_000_000;
        path_tx_ack(server, now);
        assert_eq!(server.tx.len(), client.written.len());
        client.rx.append(&mut server.tx);
        path_rx_ack(client, now);
        while client.app.completions.pop().expect("a sound ring").is_some() {}
    }
    let mut now = now + 1_000_000;
    let mut message = message;
    // What the client wrote was read by the server, which has written nothing.
    let mut seen = [server.written.clone(), client.written.clone()];
    (0..client.written.len()).for_each(|index| client.send(index as u32, &message, seen[0][index]));
    for _ in 0..rounds {
        now += 10_000;
        client.poll(now);
        server.arrive(&mut client.tx);
        path_echo(server, now);
        assert_eq!(server.answer(&mut message, &mut seen[1]), client.written.len() as u64);
        path_echo(server, now);
        assert_eq!(server.tx.len(), client.written.len());
        client.rx.append(&mut server.tx);
        client.poll(now);
        client.answer(&mut message, &mut seen[0]);
    }
    assert_eq!((&client.drops, &server.drops), (&DropCounts::default(), &DropCounts::default()));
    println!("{} segments on each path", rounds * client.written.len() as u64);
}

/// Functions of their own, which stay so: each passes another number on.
macro_rules! path {
    ($($(#[$doc:meta])+ $name:ident = $number:literal,)+) => {
        $($(#[$doc])+
        #[inline(never)]
        fn $name(host: &mut Host, now: u64) {
            std::hint::black_box($number);
            host.round(now);
        })+
    };
}

path! {
    /// An application's descriptor (it has written), and the segment that follows from it.
    path_tx = 1,
    /// A segment in order, and its completion.
    path_rx_data = 2,
    /// An application's descriptor (it has read), from which no segment follows.
    path_hc = 3,
    /// A delayed acknowledgement.
    path_tx_ack = 4,
    /// A pure acknowledgement, and its completion.
    path_rx_ack = 5,
    /// First a request in order that acknowledges the response before it, and its completion. Then the descriptor of an
    /// application that has read it and written a response, and that response.
    path_echo = 6,
}
