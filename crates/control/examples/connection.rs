//! Cost of a short connection in the daemon: two hosts with the FlexTOE engine, whose frames are handed over directly.
//! Clients connect, send a request, read the reply and close; the server closes after its reply.
//!
//! ```text
//! cargo run --release -p control --example connection [connections at once] [payload bytes] [rounds]
//! ```
//!
//! Each step of a connection is in a function named after it: `bench/instructions` counts under callgrind what each
//! costs both hosts, control plane and engine.
#[path = "../tests/support/mod.rs"]
mod support;

use context::{Reply, Request, Slot, Unaccelerated};
use control::HostConfig;
use engine::{Engine, Limits, Nanos, stream::Stream};
use flextoe::{FlexToe, Mapping};
use port::{Capabilities, Frame, FramePool};
use shm::ByteRing;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use support::{App, MS, Net, config, ip_of};

/// The port that the server listens at.
const PORT: u16 = 80;
/// Two hosts work for so long, in virtual time, until both have processed what there is.
const ROUND: Nanos = 1_000;
/// A connection waits for its last segments for so long (TIME-WAIT): its end is counted, too.
const TIME_WAIT_MS: u32 = 1;
/// As a fabric's port.
const FABRIC: Capabilities = Capabilities { mtu: 1500, super_segment: 65_000, checksum: true };

/// Two hosts of one thread, which share their frames as the daemon's do, and what their rounds have taken.
struct Lab {
    net: Net,
    pool: FramePool,
    spent: Duration,
}

/// Both hosts, until neither has anything to do.
fn settle(lab: &mut Lab, _path: u32) {
    let Lab { net, pool, .. } = lab;
    let mut tx: Vec<Box<Frame>> = Vec::new();
    for _ in 0..1000 {
        let mut done = 0;
        net.now += ROUND;
        for at in 0..2 {
            let node = &mut net.nodes[at];
            done += node.host.poll(net.now, &mut node.inbox, &mut tx, pool) + tx.len();
            net.nodes[1 - at].inbox.append(&mut tx);
        }
        if done == 0 {
            return;
        }
    }
    panic!("the hosts do not become idle");
}

/// Functions of their own, which stay so: each passes another number on.
macro_rules! paths {
    ($($name:ident $number:literal)*) => {$(
        #[inline(never)]
        fn $name(lab: &mut Lab) {
            let start = Instant::now();
            settle(lab, std::hint::black_box($number));
            lab.spent += start.elapsed();
        }
    )*};
}
paths!(path_open 0 path_request 1 path_reply 2 path_close 3 path_wait 4);

/// A program's end of a connection.
struct End {
    slot: Slot,
    tx: ByteRing,
}

impl End {
    fn of(app: &App, slot: Slot) -> End {
        let (_, tx) = app.end.map_buffers(slot).expect("address space");
        End { slot, tx }
    }

    fn write(&self, app: &mut App, bytes: &[u8], read: u32) {
        self.tx.write(0, bytes);
        let bump = context::Bump { slot: self.slot, tx_head: bytes.len() as u32, rx_head: read, fin: false, ring: 0 };
        app.end.bumps.push(bump.to_words()).expect("room");
    }

    /// Reports what a program has: `opentoe why` shows it.
    fn label(&self, app: &mut App) {
        app.ask(Request::Label {
            fd: 10 + self.slot.index,
            reason: Unaccelerated::No,
            slot: Some(self.slot),
            binding: 0,
        });
    }
}

/// Completions that came: so many, each of so many bytes.
fn take_completions(app: &mut App, many: usize, bytes: usize, ends: &VecDeque<End>) {
    let mut came = vec![0; ends.len()];
    while let Some(words) = app.end.completions.pop().expect("a sound ring") {
        let completion = context::Completion::from_words(words);
        if let Some(at) = ends.iter().position(|end| end.slot == completion.slot) {
            came[at] = completion.rx_tail;
        }
    }
    assert_eq!(came, vec![bytes as u32; many]);
}

fn connect(lab: &mut Lab, client: &mut App, server: &mut App, many: usize) -> [VecDeque<End>; 2] {
    for _ in 0..many {
        client.connect(ip_of(1), PORT, 0);
    }
    path_open(lab);
    let mut ends = [VecDeque::new(), VecDeque::new()];
    for _ in 0..many {
        let slot = client.expect(|reply| if let Reply::Connected { slot, .. } = *reply { Some(slot) } else { None });
        ends[0].push_back(End::of(client, slot));
        let slot = server.accepted().expect("a connection");
        ends[1].push_back(End::of(server, slot));
    }
    while client.find(|reply| matches!(reply, Reply::Connecting { .. }).then_some(())).is_some() {}
    ends[0].iter().for_each(|end| end.label(client));
    ends[1].iter().for_each(|end| end.label(server));
    ends
}

fn close(app: &mut App, ends: &VecDeque<End>, written: usize, read: usize) {
    ends.iter().for_each(|end| app.close(end.slot, written as u32, read as u32, false));
}

fn hosts(many: u32) -> Net {
    let configure = |node| {
        let mut config: HostConfig = config(node);
        config.max_flows = 4 * many;
        config.timers.time_wait_ms = TIME_WAIT_MS;
        config.memory.slots = 4 * many;
        (config.memory.data_entries, config.memory.control_entries) = (4096, 4096);
        config.memory.cached_buffers = 4 * many;
        config
    };
    let engine = |_: usize, config: &HostConfig| -> Box<dyn Engine<Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, Mapping::default(), FramePool::new(1024)))
    };
    Net::with_ports(vec![configure(0), configure(1)], FABRIC, engine)
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [many, bytes, rounds] = [0, 1, 2].map(|i| arguments.get(i).copied().unwrap_or([16, 64, 2000][i]));
    let mut net = hosts(many as u32);
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(&mut net, PORT, true, false).expect("a free port");
    server.listen(&mut net, binding, many as u32).expect("a bound port");
    let message = vec![7; bytes];
    let mut lab = Lab { net, pool: FramePool::new(1024), spent: Duration::ZERO };
    for _ in 0..rounds {
        server.ask(Request::Arm { binding, credits: many as u32 });
        let [clients, servers] = connect(&mut lab, &mut client, &mut server, many);
        clients.iter().for_each(|end| end.write(&mut client, &message, 0));
        path_request(&mut lab);
        take_completions(&mut server, many, bytes, &servers);
        servers.iter().for_each(|end| end.write(&mut server, &message, bytes as u32));
        close(&mut server, &servers, bytes, bytes);
        path_reply(&mut lab);
        take_completions(&mut client, many, bytes, &clients);
        close(&mut client, &clients, bytes, bytes);
        path_close(&mut lab);
        lab.net.now += 2 * MS;
        path_wait(&mut lab);
        for app in [&mut client, &mut server] {
            (0..many).for_each(|_| assert!(app.freed().is_some(), "both ends are free again"));
            app.no_replies();
        }
    }
    let connections = many * rounds;
    println!(
        "{connections} connections, {:.0} ns of both hosts each",
        lab.spent.as_nanos() as f64 / connections as f64
    );
}
