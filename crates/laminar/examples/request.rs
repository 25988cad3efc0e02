//! Cost of a request and its response: two engines on one thread, frames handed over directly, FlexTOE beside Laminar.
//!
//! ```text
//! cargo run --release -p laminar --example request [laminar|flextoe] [connections] [payload bytes] [rounds]
//! ```
//!
//! Only the engines' rounds are timed; the applications' work and the wire are not. Instructions: run it under
//! `valgrind --tool=callgrind` with few rounds; the P4 program's own are in functions without a name. With `PLAIN=1` in
//! the environment: without extensions; with `V6=1`: over IPv6.
use context::{AppEnd, Bump, Completion, Geometry, daemon_ends};
use engine::stream::{Agreed, FlowParams, FlowStats, FourTuple, Stream};
use engine::{Burst, Command, ContextId, DropCounts, Engine, FlowId, FramePool};
use engine::{Limits, Slot};
use flextoe::{FlexToe, Mapping};
use laminar::{Extensions, Laminar};
use shm::{ByteRing, Doorbell, Pooled};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Endpoint, IpAddress, Mac, Seq};

struct Host {
    engine: Box<dyn Engine<Stream>>,
    pool: FramePool,
    app: AppEnd,
    buffers: Vec<(ByteRing, ByteRing)>,
    written: Vec<u32>,
    seen: Vec<u32>,
    commands: Vec<Command<Stream>>,
    rx: Vec<Box<engine::Frame>>,
    tx: Vec<Box<engine::Frame>>,
    spent: Duration,
    frames: u64,
}

fn address(host: u8) -> IpAddress {
    match std::env::var_os("V6") {
        Some(_) => IpAddress::v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()), 0),
        None => IpAddress::v4(Ipv4Addr::new(10, 0, 0, host)),
    }
}

fn engine(name: &str, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    let plain = std::env::var_os("PLAIN").is_some();
    let extensions = if plain { Extensions::NONE } else { Extensions::default() };
    match name {
        "flextoe" => Box::new(FlexToe::new(limits, Mapping::default(), pool)),
        _ => Box::new(Laminar::new(limits, 0, extensions).expect("it fits")),
    }
}

impl Host {
    fn new(name: &str, first: bool, connections: u32) -> Host {
        let slots = connections.next_power_of_two();
        let (data_entries, control_entries, rx_bytes, tx_bytes) = (4096, 64, 16384, 16384);
        let full_slots = slots;
        let geometry = Geometry {
            slots,
            long: context::LongPaths::NONE,
            growing: context::Growing::NONE,
            data_entries,
            control_entries,
            rx_bytes,
            tx_bytes,
            full_slots,
            small_bytes: 0,
            log_bytes: 0,
            heap_bytes: 0,
        };
        let region = Arc::new(geometry.create_region("laminar-cost").expect("memory"));
        let (app_bell, daemon_bell) = (Doorbell::eventfd().expect("eventfd"), Doorbell::eventfd().expect("eventfd"));
        let fds = (app_bell.try_clone().expect("a descriptor"), daemon_bell.try_clone().expect("a descriptor"));
        let (engine_end, control_end) = daemon_ends(&region, geometry, app_bell, daemon_bell);
        let app = AppEnd::new(region, geometry, fds.0, fds.1).expect("a sound region");
        let pool = FramePool::new(8192);
        let limits = Limits { flows: connections, contexts: 64 };
        let mut host = Host {
            engine: engine(name, limits, pool.clone()),
            pool,
            app,
            buffers: Vec::new(),
            written: vec![0; connections as usize],
            seen: vec![0; connections as usize],
            commands: vec![Command::Attach(ContextId(0), engine_end)],
            rx: Vec::new(),
            tx: Vec::new(),
            spent: Duration::ZERO,
            frames: 0,
        };
        for index in 0..connections {
            let (rx, tx) = control_end.map_buffers(index).expect("address space");
            host.commands.push(Command::Install(Box::new(flow(first, index, Arc::new(rx), Arc::new(tx)))));
            host.buffers.push(host.app.map_buffers(Slot { index, generation: 0 }).expect("address space"));
        }
        host
    }

    fn poll(&mut self, now: u64) {
        let (mut exceptions, mut events, mut drops) = (Vec::new(), Vec::new(), DropCounts::default());
        self.frames += self.rx.len() as u64;
        let start = Instant::now();
        let mut burst = Burst {
            rx: &mut self.rx,
            back: &mut Vec::new(),
            tx: &mut self.tx,
            exceptions: &mut exceptions,
            events: &mut events,
            commands: &mut self.commands,
            pool: &mut self.pool,
            drops: &mut drops,
            recorder: None,
        };
        path_request(&mut *self.engine, now, &mut burst);
        self.spent += start.elapsed();
        assert!(drops == DropCounts::default() && exceptions.is_empty());
    }

    fn send(&mut self, index: u32, message: &[u8]) {
        let at = index as usize;
        self.buffers[at].1.write(self.written[at], message);
        self.written[at] = self.written[at].wrapping_add(message.len() as u32);
        let slot = Slot { index, generation: 0 };
        let bump = Bump { slot, tx_head: self.written[at], rx_head: self.seen[at], fin: false, ring: 0 };
        self.app.bumps.push(bump.to_words()).expect("room");
    }

    /// Answers each whole message with a message; returns how many.
    fn answer(&mut self, message: &mut [u8]) -> u64 {
        let mut answered = 0;
        while let Some(words) = self.app.completions.pop().expect("a sound ring") {
            let completion = Completion::from_words(words);
            let at = completion.slot.index as usize;
            while completion.rx_tail.wrapping_sub(self.seen[at]) >= message.len() as u32 {
                self.buffers[at].0.read(self.seen[at], message);
                self.seen[at] = self.seen[at].wrapping_add(message.len() as u32);
                self.send(at as u32, message);
                answered += 1;
            }
        }
        answered
    }
}

/// Rounds until there is nothing left to do: counted by `bench/instructions`.
#[inline(never)]
fn path_request(engine: &mut dyn Engine<Stream>, now: u64, burst: &mut Burst<'_, Stream>) {
    for _ in 0..64 {
        engine.poll(now, burst);
        if !engine.has_work(now) {
            return;
        }
    }
}

fn mac(first: bool) -> Mac {
    Mac([2, 0, 0, 0, 0, 2 - first as u8])
}

fn flow(first: bool, index: u32, rx: Arc<ByteRing>, tx: Arc<ByteRing>) -> FlowParams {
    let side = |first| match first {
        true => (address(1), 2000 + index as u16),
        false => (address(2), 80),
    };
    let ((local_ip, local_port), (remote_ip, remote_port)) = (side(first), side(!first));
    FlowParams {
        flow: FlowId(index),
        tuple: FourTuple::new(Endpoint::new(local_ip, local_port), Endpoint::new(remote_ip, remote_port)),
        local_mac: mac(first),
        remote_mac: mac(!first),
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
        agreed: Agreed { mss: 1460, snd_shift: 0, rcv_shift: 0, ts_offset: None, sack: true, ecn: true },
        receiving: Default::default(),
        ts_recent: 0,
        super_segment: 65536,
        checksum_offload: true,
        rtt: 0,
        dctcp_echo: true,
        cwnd: 65536,
        // As a connection has that is not limited by its window.
        growth: engine::stream::Growth::slow_start(1 << 30),
        rate: 0,
        stats: Pooled::new(FlowStats::default()),
    }
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let named = words.first().is_some_and(|word| word.parse::<u32>().is_err());
    let name = if named { words.remove(0) } else { "laminar".into() };
    let number = |at: usize, default: u64| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (connections, payload, rounds) = (number(0, 128) as u32, number(1, 64) as usize, number(2, 4000));
    let (mut client, mut server) = (Host::new(&name, true, connections), Host::new(&name, false, connections));
    let mut now = 1_000_000_000;
    client.poll(now);
    server.poll(now);
    let mut message = vec![7; payload];
    (0..connections).for_each(|index| client.send(index, &message));
    let (mut requests, mut responses) = (0, 0);
    (client.spent, server.spent) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        now += 50_000;
        client.poll(now);
        server.rx.append(&mut client.tx);
        server.poll(now);
        requests += server.answer(&mut message);
        server.poll(now);
        client.rx.append(&mut server.tx);
        client.poll(now);
        responses += client.answer(&mut message);
    }
    assert!(requests >= u64::from(connections) * rounds / 2 && requests - responses <= u64::from(connections));
    let each = |host: &Host| host.spent.as_nanos() as f64 / requests as f64;
    let frames = (client.frames + server.frames) as f64 / requests as f64;
    println!("{name}: {requests} requests, {frames:.2} frames each");
    println!("server {:.0} ns, client {:.0} ns for each", each(&server), each(&client));
}
