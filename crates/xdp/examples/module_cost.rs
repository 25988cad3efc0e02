//! Cost of a module: nanoseconds a frame on one core, compiled; also what the interpreter takes, for comparison.
//!
//! `make xdp && cargo run --release -p xdp --example module_cost [FOLDER]`
use engine::{Module, ModuleSource, Packet};
use port::{Frame, FramePool};
use std::time::Instant;
use xdp::{Limits, Object, Program};

const FRAMES: u32 = 1_000_000;

/// TCP from 10.0.0.9, port 80; with a VLAN tag where the module expects one.
fn packet(tagged: bool) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        bytes.extend([0x81, 0, 0, 5]);
    }
    bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1, 0, 80, 0x30, 0x39]);
    bytes.extend([0; 26]);
    bytes
}

/// Nanoseconds a frame; the frame is made again before each run, which the first figure is without any module.
fn measure(mut module: Option<&mut dyn Module>, bytes: &[u8], frames: u32) -> f64 {
    let mut frame: Box<Frame> = FramePool::new(1).large();
    let start = Instant::now();
    for now in 0..u64::from(frames) {
        frame.clear();
        frame.resize(bytes.len());
        frame.bytes_mut().copy_from_slice(bytes);
        if let Some(module) = &mut module {
            std::hint::black_box(module.process(Packet { frame: &mut frame, flow: None, now }));
        }
        std::hint::black_box(&frame);
    }
    start.elapsed().as_nanos() as f64 / f64::from(frames)
}

fn main() -> Result<(), String> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/xdp".into());
    println!("{:<12} {:>8} {:>12} {:>9}", "module", "ns", "interpreted", "load, ms");
    for name in ["null", "vlan_strip", "firewall", "classify"] {
        let file = format!("{folder}/{name}.o");
        let bytes = std::fs::read(&file).map_err(|error| format!("{file}: {error}: run make xdp first"))?;
        let start = Instant::now();
        let program = Program::load(Object::parse(&bytes)?, &Limits::default())?;
        let load = start.elapsed().as_secs_f64() * 1e3;
        match name {
            "firewall" => ["10.0.0.0/8", "192.168.0.0/16", "10.0.0.0/24"]
                .iter()
                .try_for_each(|rule| program.set("rules", rule, "{\"action\": 0}"))?,
            "classify" => program.set("rules", "{\"port\": 80, \"protocol\": 6}", "1")?,
            _ => {}
        }
        let packet = packet(name == "vlan_strip");
        let cost = |module: &mut dyn Module, frames| {
            let rounds = (0..5).map(|_| measure(Some(&mut *module), &packet, frames) - measure(None, &packet, frames));
            rounds.fold(f64::INFINITY, f64::min)
        };
        let native = cost(&mut *program.replica(0), FRAMES);
        let plain = cost(&mut *program.interpreted(0), FRAMES / 50);
        println!("{name:<12} {native:>8.1} {plain:>12.0} {load:>9.1}");
    }
    Ok(())
}
