//! Programs on the hosts: one that receives, the others send to it; requests of 64 KiB with short replies, or bytes
//! without end. Only positions in buffers are exchanged: the bytes are not read.
use crate::network::{Net, Plan, Station};
use context::{Bump, Completion, Congestion, Endpoint, Reply, Request, Slot};
use port::Nanos;
use std::collections::HashMap;
use std::net::Ipv4Addr;

const PORT: u16 = 7777;
/// Reaction time of an application.
const LATENCY: Nanos = 20_000;
/// Connections that are being opened at once.
const OPENING: usize = 128;

/// What the clients do on each connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// One request at a time, of this many bytes, answered with 32.
    Requests(u32),
    /// As much as the buffer takes.
    Bulk,
}

const REPLY: u32 = 32;

struct Connection {
    number: usize,
    tx_head: u32,
    rx_head: u32,
    asked_at: Nanos,
    answered: u32,
}

/// A host's program.
struct Program {
    connections: HashMap<Slot, Connection>,
    wake_at: Nanos,
}

/// A run: the network, its programs, and what they measured.
pub(crate) struct Run {
    pub net: Net,
    load: Load,
    buffer: u32,
    programs: Vec<Program>,
    /// Connections to open: (client, its number).
    to_open: Vec<(usize, usize)>,
    opening: HashMap<(usize, u32), usize>,
    pub open: usize,
    /// Since measuring began, by connection: bytes that arrived, or requests that were answered.
    pub moved: Vec<u64>,
    /// Nanoseconds from each request to its reply.
    pub latencies: Vec<Nanos>,
}

impl Run {
    /// Opens connections, spread over all hosts but the first, which receives.
    pub(crate) fn new(plan: &Plan, connections: usize, load: Load) -> Run {
        let net = Net::new(plan);
        let clients = plan.hosts - 1;
        let programs = (0..plan.hosts).map(|_| Program { connections: HashMap::new(), wake_at: 0 }).collect();
        let to_open = (0..connections).rev().map(|number| (1 + number % clients, number)).collect();
        let moved = vec![0; connections];
        let (opening, latencies) = (HashMap::new(), Vec::new());
        let mut run = Run { net, load, buffer: plan.buffer, programs, to_open, opening, open: 0, moved, latencies };
        run.listen();
        let until = run.net.now + 20 * crate::network::SECOND;
        while run.open < connections {
            run.step(until);
            assert!(run.net.now < until, "{} of {connections} connections are open", run.open);
        }
        run
    }

    fn listen(&mut self) {
        let any = Endpoint::v4(Ipv4Addr::UNSPECIFIED, PORT);
        self.net.stations[0].ask(Request::Bind {
            tag: 1,
            local: any,
            reuse_address: true,
            reuse_port: false,
            dual_stack: false,
        });
        let binding = loop {
            self.net.round(Nanos::MAX);
            if let Some(Reply::Bound { binding, .. }) = self.net.stations[0].reply() {
                break binding;
            }
        };
        self.net.stations[0].ask(Request::Listen { tag: 2, binding, backlog: 4096 });
        self.net.stations[0].ask(Request::Arm { binding, credits: 4096 });
    }

    /// Runs for a time.
    pub(crate) fn run_for(&mut self, time: Nanos) {
        let end = self.net.now + time;
        while self.net.now < end {
            self.step(end);
        }
    }

    /// Forgets what was measured so far.
    pub(crate) fn begin(&mut self) {
        self.moved.fill(0);
        self.latencies.clear();
    }

    fn step(&mut self, end: Nanos) {
        while self.opening.len() < OPENING {
            let Some((client, number)) = self.to_open.pop() else { break };
            let remote = Endpoint::v4(self.net.stations[0].ip, PORT);
            let tag = number as u32;
            let congestion = Congestion::DEFAULT;
            self.net.stations[client].ask(Request::Connect {
                tag,
                binding: 0,
                remote,
                congestion,
                mss: 0,
                early: context::EarlyData::No,
            });
            self.opening.insert((client, tag), number);
        }
        let wake = self.programs.iter().map(|program| program.wake_at).filter(|at| *at > 0).min();
        self.net.round(wake.map_or(end, |at| at.clamp(self.net.now, end)));
        for at in 0..self.programs.len() {
            let station = &self.net.stations[at];
            if !station.app.completions.is_empty() || !station.app.replies.is_empty() {
                let program = &mut self.programs[at];
                program.wake_at = if program.wake_at > 0 { program.wake_at } else { self.net.now + LATENCY };
            }
            if self.programs[at].wake_at > 0 && self.programs[at].wake_at <= self.net.now {
                self.programs[at].wake_at = 0;
                self.take_replies(at);
                self.take_completions(at);
            }
        }
    }

    fn take_replies(&mut self, at: usize) {
        while let Some(reply) = self.net.stations[at].reply() {
            let (slot, number) = match reply {
                Reply::Connected { tag, slot, .. } => {
                    self.open += 1;
                    (slot, self.opening.remove(&(at, tag)).unwrap())
                }
                // The client's ports are given in the order of its connections; the server needs no numbers.
                Reply::Accept { slot, .. } => (slot, usize::MAX),
                Reply::Failed { errno, .. } => panic!("a request failed: errno {errno}"),
                _ => continue,
            };
            let now = self.net.now;
            let mut connection = Connection { number, tx_head: 0, rx_head: 0, asked_at: now, answered: 0 };
            if at > 0 {
                connection.tx_head = if let Load::Requests(size) = self.load { size } else { self.buffer };
                bump(&mut self.net.stations[at], slot, &connection);
            }
            self.programs[at].connections.insert(slot, connection);
        }
    }

    fn take_completions(&mut self, at: usize) {
        while let Some(words) = self.net.stations[at].app.completions.pop().unwrap() {
            let completion = Completion::from_words(words);
            let Some(connection) = self.programs[at].connections.get_mut(&completion.slot) else { continue };
            let now = self.net.now;
            let taken = completion.rx_tail.wrapping_sub(connection.rx_head);
            connection.rx_head = completion.rx_tail;
            match (at, self.load) {
                (0, Load::Requests(size)) => {
                    let whole = connection.rx_head.wrapping_sub(connection.answered.wrapping_mul(size)) / size;
                    connection.answered = connection.answered.wrapping_add(whole);
                    connection.tx_head = connection.tx_head.wrapping_add(whole * REPLY);
                }
                (_, Load::Requests(size)) if taken > 0 && connection.rx_head % REPLY == 0 => {
                    self.moved[connection.number] += 1;
                    self.latencies.push(now - connection.asked_at);
                    connection.asked_at = now;
                    connection.tx_head = connection.tx_head.wrapping_add(size);
                }
                (0, Load::Bulk) => {}
                (_, Load::Bulk) => {
                    let acked = completion.tx_tail.wrapping_sub(connection.answered);
                    connection.answered = completion.tx_tail;
                    self.moved[connection.number] += u64::from(acked);
                    connection.tx_head = completion.tx_tail.wrapping_add(self.buffer);
                }
                _ => {}
            }
            bump(&mut self.net.stations[at], completion.slot, connection);
        }
    }
}

fn bump(station: &mut Station, slot: Slot, connection: &Connection) {
    let bump = Bump { slot, tx_head: connection.tx_head, rx_head: connection.rx_head, fin: false, ring: 0 };
    station.app.bumps.push(bump.to_words()).unwrap();
    station.app.daemon_bell.ring();
}
