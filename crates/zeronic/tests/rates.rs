//! Long runs and measurements, for a machine that does nothing else:
//! `cargo test --release -p zeronic --test rates -- --ignored --nocapture --test-threads 1`.
#[path = "support/ends.rs"]
mod ends;

use ends::{Below, End, Habit, pair, run};
use engines::EngineKind;
use port::{FabricConfig, Interface, Netns};
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tcp::congestion::CongestionName;

const GB: u64 = 1 << 30;
const ROUNDS: usize = 5;

#[test]
#[ignore = "a minute"]
fn a_gigabyte_each_way() {
    let lossy = FabricConfig { loss: 0.01, reorder: 0.01, duplicate: 0.01, seed: 1, ..FabricConfig::default() };
    for (name, config) in [("perfect", FabricConfig::default()), ("1% loss, reordering, duplication", lossy)] {
        let Some((took, ends)) = run(name, config, Habit::default(), [GB, GB]) else { return };
        let counters = ends.map(|end| end.stack.counters());
        println!("{name}: {took:.1?}, every byte compared; {:#?}", counters[0]);
    }
}

/// What one way of moving bytes took: rate, and processor time of both threads for each byte.
struct Figure {
    gbits: f64,
    sender_ns: f64,
    receiver_ns: f64,
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Two threads, of which the second returns when it has everything.
fn measure(bytes: u64, sender: impl FnOnce() + Send, receiver: impl FnOnce() + Send) -> Figure {
    let timed = |act: Box<dyn FnOnce() + Send>| {
        let (begun, before) = (Instant::now(), cpu());
        act();
        (begun.elapsed(), cpu() - before)
    };
    std::thread::scope(|scope| {
        let sender: Box<dyn FnOnce() + Send> = Box::new(sender);
        let receiver: Box<dyn FnOnce() + Send> = Box::new(receiver);
        let sending = scope.spawn(move || timed(sender));
        let (took, receiver_cpu) = timed(receiver);
        let (_, sender_cpu) = sending.join().unwrap();
        let per_byte = |cpu: Duration| cpu.as_nanos() as f64 / bytes as f64;
        let gbits = bytes as f64 * 8.0 / took.as_nanos() as f64;
        Figure { gbits, sender_ns: per_byte(sender_cpu), receiver_ns: per_byte(receiver_cpu) }
    })
}

fn zeronic(bytes: u64, config: FabricConfig) -> Option<Figure> {
    let habit = Habit { least: 256 << 10, most: 256 << 10, receives: 32, check: false, ..Habit::default() };
    let [mut one, mut two] = pair("rate", config, habit, [bytes, 0])?;
    let begun = Instant::now();
    let drive = move |end: &mut End| {
        let mut idle = 0;
        while !end.is_done() {
            assert!(begun.elapsed() < Duration::from_secs(120), "it takes too long: {:?}", end.stack.counters());
            idle = if end.turn(begun) > 0 { 0 } else { idle + 1 };
            if idle > 50 {
                end.trim();
            }
        }
        // The last acknowledgement is for the other one.
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            end.turn(begun);
            end.trim();
        }
    };
    Some(measure(bytes, move || drive(&mut one), move || drive(&mut two)))
}

/// Linux' own TCP between two namespaces over veth, with all its offloads.
fn linux(bytes: u64) -> Option<Figure> {
    let [left, right] = [Netns::create().ok()?, Netns::create().ok()?];
    left.run(|| {
        Interface::create_veth("v0", "v1", Some(right.as_fd()))?;
        let interface = Interface::named("v0")?;
        interface.set_address(Ipv4Addr::new(10, 98, 0, 1), 24)?;
        interface.set_up()
    })
    .unwrap()
    .unwrap();
    let listener = right
        .run(|| {
            let interface = Interface::named("v1")?;
            interface.set_address(Ipv4Addr::new(10, 98, 0, 2), 24)?;
            interface.set_up()?;
            TcpListener::bind("10.98.0.2:7000").map_err(|error| error.to_string())
        })
        .unwrap()
        .unwrap();
    let mut sending = left.run(|| TcpStream::connect("10.98.0.2:7000")).unwrap().unwrap();
    rustix::net::sockopt::set_tcp_congestion(&sending, "cubic").unwrap();
    let (mut receiving, _) = listener.accept().unwrap();
    let send = move || {
        let (block, mut left) = (vec![7; 256 << 10], bytes);
        while left > 0 {
            let count = left.min(block.len() as u64) as usize;
            sending.write_all(&block[..count]).unwrap();
            left -= count as u64;
        }
    };
    let receive = move || {
        let (mut block, mut got) = (vec![0; 256 << 10], 0);
        while got < bytes {
            got += receiving.read(&mut block).unwrap() as u64;
        }
    };
    Some(measure(bytes, send, receive))
}

#[test]
#[ignore = "half a minute, and only alone on the machine"]
fn rate_beside_linux() {
    let jumbo = || FabricConfig { mtu: 9000, ..FabricConfig::default() };
    for round in 0..ROUNDS {
        let (Some(ours), Some(theirs)) = (zeronic(GB, jumbo()), linux(GB)) else {
            return println!("SKIPPED rate_beside_linux: no namespaces");
        };
        for (name, figure) in [("ZeroNIC over Linux' TCP", &ours), ("Linux' TCP over veth", &theirs)] {
            let Figure { gbits, sender_ns, receiver_ns } = figure;
            println!(
                "{round} {name:23} {gbits:6.2} Gbit/s, ns a byte: sender {sender_ns:.3}, receiver {receiver_ns:.3}"
            );
        }
        println!("{round} ratio {:.2}", ours.gbits / theirs.gbits);
    }
}

/// Single frames of 1500 bytes, through more and more loss, over each engine and with each of two policies.
#[test]
#[ignore = "a minute, and only alone on the machine"]
fn rate_through_loss() {
    for (kind, loss) in EngineKind::TRANSPORTS.iter().flat_map(|kind| [0.0, 0.001, 0.01, 0.1].map(|loss| (*kind, loss)))
    {
        for congestion in ["cubic", "none"] {
            let congestion = CongestionName::from_name(congestion);
            // What is impaired is cut into single frames.
            let config = FabricConfig { loss, duplicate: 1e-9, seed: 7, ..FabricConfig::default() };
            let shape = Habit { least: 256 << 10, most: 256 << 10, receives: 32, check: false, ..Habit::default() };
            let habit = Habit { below: Below::Engine(kind), congestion, ..shape };
            let bytes = if loss < 0.01 { GB / 2 } else { GB / 16 };
            let (took, ends) = run("rate", config, habit, [bytes, 0]).unwrap();
            let gbits = bytes as f64 * 8.0 / took.as_nanos() as f64;
            let counters = ends.map(|end| end.stack.counters());
            let again = counters[0].fetched_bytes as f64 / bytes as f64 - 1.0;
            println!(
                "{:8} {:6} {loss:6} {gbits:7.3} Gbit/s, {:.1} % sent again",
                kind.name(),
                congestion.unwrap(),
                100.0 * again
            );
        }
    }
}
