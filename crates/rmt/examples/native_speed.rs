//! How fast compiled Laminar is on one core: `cargo run --release -p rmt --example native_speed [SECONDS]`.
//!
//! A recording of segments of 128 flows goes through ingress, egress, and, for the acknowledgements, egress again, in
//! batches of 64. It is data in order with 64 bytes of payload, every eighth out of order. For comparison there are
//! pure acknowledgements. A segment counts once, whatever it causes. The recorded part of each run is checked: the
//! right number of frames must come out.
use rmt::interp::Session;
use rmt::native::{Batch, EntryKey, Input, Native};
use std::path::Path;
use std::time::{Duration, Instant};

const FLOWS: u32 = 128;
const ROUNDS: u32 = 64;
const PAYLOAD: u32 = 64;
const BATCH: usize = 64;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(3.0);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4/laminar.p4");
    let loaded = rmt::load(&path, &[]).unwrap_or_else(|list| panic!("{}", list[0]));
    let begin = Instant::now();
    let mut native = Native::new(loaded.program).unwrap_or_else(|e| panic!("{e}"));
    println!("compiled in {:.0} ms", begin.elapsed().as_secs_f64() * 1e3);
    native.set_session(1, Session { port: 0, truncate: 0 });
    for flow in 0..FLOWS {
        install(&mut native, flow);
    }
    let all = FLOWS as usize * ROUNDS as usize;
    measure("data, each acknowledged", &mut native, &recording(PAYLOAD), seconds, 2 * all);
    measure("acknowledgements", &mut native, &recording(0), seconds, 0);
}

fn measure(name: &str, native: &mut Native, frames: &[Vec<u8>], seconds: f64, expected: usize) {
    let mut work = Work::default();
    let (mut best, mut count, begin) = (Duration::MAX, 0, Instant::now());
    while begin.elapsed().as_secs_f64() < seconds {
        reset(native);
        let start = Instant::now();
        let sent = frames.chunks(BATCH).map(|chunk| work.run(native, chunk)).sum::<usize>();
        best = best.min(start.elapsed());
        count += 1;
        assert_eq!(sent, expected, "{name}: frames that left");
    }
    let rate = frames.len() as f64 / best.as_secs_f64();
    println!("{name}: {:.2} M segments/s, {:.0} ns each, best of {count}", rate / 1e6, 1e9 / rate);
}

/// Results of the three passes.
#[derive(Default)]
struct Work {
    ingress: Batch,
    egress: Batch,
    pseudo: Batch,
}

impl Work {
    fn run(&mut self, native: &mut Native, frames: &[Vec<u8>]) -> usize {
        native.ingress(frames.iter().map(|frame| Input::whole(8, frame)), &mut self.ingress);
        let queued = self.ingress.outputs.iter().filter(|o| o.forwarded);
        let inputs = queued.map(|o| Input::whole(o.port, self.ingress.head(o)));
        native.egress(inputs, &mut self.egress);
        let copies = self.egress.outputs.iter().flat_map(|o| self.egress.mirrors(o));
        native.egress(copies.map(|m| Input::whole(m.port, m.front())), &mut self.pseudo);
        self.egress.outputs.iter().chain(&self.pseudo.outputs).filter(|o| o.forwarded).count()
    }
}

fn install(native: &mut Native, flow: u32) {
    let exact = |v: u32| EntryKey::Exact(v as u128);
    let tuple = [exact(0x0a00_0002), exact(0x0a00_0001), exact(4000 + flow), exact(80)];
    let flow_args = [flow as u128, 3, 8, 0, 0xffff, 0x1000, 7];
    native.table_add("flows", &tuple, 0, "rx_flow", &flow_args).expect("it has room");
    native.table_add("contexts", &[exact(flow), exact(3)], 0, "tx_flow", &[0, 8, 2]).expect("it has room");
    let addresses = [2, 1, 0x0a00_0001, 0x0a00_0002, 80, 4000 + flow as u128, 0];
    native.table_add("headers", &[exact(flow)], 0, "addresses", &addresses).expect("it has room");
}

fn reset(native: &mut Native) {
    let names = ["rx_window", "rx_advertised", "rx_ooo", "tx_window", "tx_edge", "dup_ack_count"];
    let [window, advertised, ooo, tx, edge, duplicates] =
        names.map(|name| native.register(name).expect("Laminar has it"));
    for flow in 0..FLOWS {
        native.write(window, flow, [1000, 1000 + 65536]);
        native.write(advertised, flow, [1000, 1000 + 65536]);
        native.write(ooo, flow, [0, 0]);
        native.write(tx, flow, [5000, 5000 + ROUNDS]);
        native.write(edge, flow, [5000, 0]);
        native.write(duplicates, flow, [0, 0]);
    }
}

/// All flows in turn; of each eight segments of a flow, two change places.
fn recording(payload: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for round in 0..ROUNDS {
        let place = match round % 8 {
            3 => round + 1,
            4 => round - 1,
            _ => round,
        };
        for flow in 0..FLOWS {
            let acknowledged = if payload == 0 { 5001 + round } else { 5000 };
            frames.push(frame(flow, 1000 + place * payload, acknowledged, payload));
        }
    }
    frames
}

fn frame(flow: u32, seq: u32, ack: u32, payload: u32) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let mut ip = vec![0x45, 0];
    ip.extend((52 + payload as u16).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let word = |c: &[u8]| (c[0] as u32) << 8 | c[1] as u32;
    let sum: u32 = ip.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!folded as u16).to_be_bytes());
    out.extend(ip);
    out.extend((4000 + flow as u16).to_be_bytes());
    out.extend(80u16.to_be_bytes());
    out.extend(seq.to_be_bytes());
    out.extend(ack.to_be_bytes());
    out.extend([0x80, 0x10, 2, 0, 0, 0, 0, 0]);
    out.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    out.extend((0..payload).map(|i| i as u8));
    out
}
