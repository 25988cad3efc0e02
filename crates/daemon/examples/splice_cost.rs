//! Cost of splicing: segments as Linux sends them, through the ingress stage of the FlexTOE engine with the compiled
//! `xdp/splice.c`, on one core.
//!
//! ```text
//! cargo run --release -p daemon --example splice_cost FILE [pairs] [rounds]
//! ```
//!
//! FILE is the object that clang made (`make xdp`). Only the engine's rounds are timed, in time of the processor, so
//! that other programs do not count: frames are made and given back outside.
use control::SpliceTable;
use daemon::SpliceMaps;
use engine::stream::Stream;
use engine::{Burst, Command, DropCounts, Engine, Frame, FramePool, Limits, LoadedModule, ModuleFigures, ModuleId};
use flextoe::{FlexToe, Mapping};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use wire::tcp::{Flags, Options, Timestamps};
use wire::{EtherType, Ipv4Tuple, Mac, Seq, Translation, ethernet, ipv4, tcp};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
/// Frames of one burst from a port.
const BURST: usize = 64;

fn tuple(pair: u32) -> Ipv4Tuple {
    let remote_ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 78, 0, 0)) + pair / 1000);
    Ipv4Tuple { local_ip: HERE, remote_ip, local_port: 8080, remote_port: 30_000 + (pair % 1000) as u16 }
}

fn translation(pair: u32) -> Translation {
    Translation {
        dst_mac: Mac([2, 0, 0, 0, 0, 3]),
        src_mac: MAC,
        src: HERE,
        dst: Ipv4Addr::new(10, 79, 0, 1),
        src_port: 40_000 + (pair % 20_000) as u16,
        dst_port: 80,
        seq: pair.wrapping_mul(2_654_435_761),
        ack: pair.wrapping_mul(40_503),
        timestamps: Some((pair, 77)),
        sack: true,
        window_in: 7,
        window_out: 3,
    }
}

/// A segment of the pair's client: two with data, then an acknowledgement.
fn write_segment(frame: &mut Frame, pair: u32, number: u32) {
    let payload = if number % 3 == 2 { 0 } else { 1448 };
    let tuple = tuple(pair);
    let options = Options { timestamps: Some(Timestamps { value: number, echo: 9 }), ..Options::default() };
    let header = tcp::Header {
        src_port: tuple.remote_port,
        dst_port: tuple.local_port,
        seq: Seq(number),
        ack: Seq(number),
        flags: Flags::ACK,
        window: 502,
        options,
    };
    let (at, start) = (ethernet::HEADER_LEN, ethernet::HEADER_LEN + ipv4::HEADER_LEN);
    frame.clear();
    frame.resize(start + header.len() + payload);
    let bytes = frame.bytes_mut();
    ethernet::Header { dst: MAC, src: Mac([2, 0, 0, 0, 0, 2]), ethertype: EtherType::Ipv4 }.emit(bytes);
    let payload_len = (header.len() + payload) as u16;
    let ip = ipv4::Header::new(ipv4::TCP, (tuple.remote_ip, tuple.local_ip), payload_len);
    ipv4::Header { id: number as u16, ..ip }.emit(&mut bytes[at..]);
    header.emit(&mut bytes[start..]);
    // As a port with checksum offload gives them.
    frame.checksum = port::Checksum::Verified;
}

/// An engine with the splice module, its maps filled.
fn spliced(file: &str, pairs: u32) -> Result<(FlexToe, FramePool, Command<Stream>, Arc<ModuleFigures>), String> {
    let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let program = xdp::Program::load(xdp::Object::parse(&bytes)?, &xdp::Limits::default())?;
    let mut maps = SpliceMaps::of(&program).ok_or("this is no splice module")?;
    for pair in 0..pairs.min(maps.capacity()) {
        maps.start(pair, &control::Seen::default());
        maps.insert(pair, &tuple(pair).into(), &translation(pair)).then_some(()).ok_or("the map is full")?;
    }
    let pool = FramePool::new(1024);
    let engine = FlexToe::new(Limits { flows: 64, contexts: 1 }, Mapping::default(), pool.clone());
    let figures = Arc::new(ModuleFigures::default());
    let module = LoadedModule { id: ModuleId(1), source: program, figures: Arc::clone(&figures), ticks: || 0 };
    Ok((engine, pool, Command::Modules(vec![module]), figures))
}

/// What this thread has used of the processor.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u32| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let file = words.get(1).ok_or("usage: splice_cost FILE [pairs] [rounds]")?;
    let (pairs, rounds) = (number(2, 1000).max(1), number(3, 100_000));
    let (mut engine, mut pool, command, figures) = spliced(file, pairs)?;
    let mut commands = vec![command];
    let (mut rx, mut tx, mut exceptions, mut events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut drops = DropCounts::default();
    let (mut sent, mut spent, mut dice) = (0u64, Duration::ZERO, 1u32);
    for round in 0..rounds {
        for at in 0..BURST as u32 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let mut frame = pool.large();
            write_segment(&mut frame, (dice >> 8) % pairs, round * BURST as u32 + at);
            rx.push(frame);
        }
        let start = processor_time();
        let mut burst = Burst {
            rx: &mut rx,
            back: &mut Vec::new(),
            tx: &mut tx,
            exceptions: &mut exceptions,
            events: &mut events,
            commands: &mut commands,
            pool: &mut pool,
            drops: &mut drops,
            recorder: None,
        };
        engine.poll(round as u64 * 1000, &mut burst);
        spent += processor_time() - start;
        sent += tx.len() as u64;
        tx.drain(..).for_each(|frame| pool.put(frame));
        exceptions.drain(..).for_each(|(_, frame)| pool.put(frame));
    }
    let all = rounds as u64 * BURST as u64;
    let runs = figures.runs.load(std::sync::atomic::Ordering::Relaxed);
    let nanos = spent.as_nanos() as f64 / all as f64;
    println!(
        "{pairs} pairs: {sent} of {all} segments spliced ({runs} runs), {nanos:.1} ns each, {:.2} M/s",
        1000.0 / nanos
    );
    if sent == all { Ok(()) } else { Err("not all segments were spliced".into()) }
}
