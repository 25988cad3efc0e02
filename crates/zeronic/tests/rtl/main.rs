//! The split unit in SystemVerilog (`rtl/`), simulated by Verilator, against the NIC's half of this crate: what becomes
//! of each arrival, each part of memory that its payload gets, and each answer to the control stack.
#[path = "../../../rmt/tests/rtl/verilated.rs"]
mod verilated;

use memory::{Domain, Fault, Key};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use verilated::{Model, Module, verilator};
use wire::{Ipv4Tuple, Seq};
use zeronic::{Arrival, FlowId, Kind, Limits, Memory, Nic, Segment};

/// Writes down where payload goes.
#[derive(Default)]
struct Places(RefCell<Vec<(u32, u64, usize)>>);

impl Memory for Places {
    fn write(&self, _: Domain, key: Key, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.0.borrow_mut().push((key.0, at, from.len()));
        Ok(())
    }
    fn append(&self, _: Domain, _: Key, _: u64, _: usize, _: &mut Vec<u8>) -> Result<(), Fault> {
        Ok(())
    }
    fn check(&self, _: Domain, _: Key, _: u64, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}

const OPEN: u8 = 1;
const BEGIN: u8 = 2;
const POST: u8 = 3;
const ADVANCE: u8 = 4;
const CLOSE: u8 = 5;
/// What headers are marked with, by number.
const CASES: [&str; 4] = ["placed", "old", "nowhere", "no flow"];

/// Random numbers that repeat (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// The crate's half, the script for the other, and what that has to say.
struct Pair {
    nic: Nic,
    places: Places,
    script: String,
    headers: VecDeque<String>,
    parts: VecDeque<String>,
    answers: VecDeque<String>,
    /// Arrivals of each case.
    counts: [usize; 4],
}

fn tuple(flow: u32) -> Ipv4Tuple {
    let (local_ip, remote_ip) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::from(0x0a00_0100 + flow / 7));
    Ipv4Tuple { local_ip, remote_ip, local_port: 80, remote_port: 1024 + (flow % 7) as u16 }
}

fn bits(flow: u32) -> String {
    let Ipv4Tuple { local_ip, remote_ip, local_port, remote_port } = tuple(flow);
    format!("{:08x}{:08x}{local_port:04x}{remote_port:04x}", local_ip.to_bits(), remote_ip.to_bits())
}

impl Pair {
    fn new(limits: Limits) -> Pair {
        let (nic, places) = (Nic::new(limits), Places::default());
        let (headers, parts, answers) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Pair { nic, places, script: String::new(), headers, parts, answers, counts: [0; 4] }
    }

    fn find(&self, flow: u32) -> Option<FlowId> {
        self.nic.find(&tuple(flow))
    }

    fn arrive(&mut self, flow: u32, seq: Seq, len: u16) {
        let head = self.headers.len();
        writeln!(self.script, "A {} {:x} {len:x} {head:x}", bits(flow), seq.0).unwrap();
        let found = self.find(flow);
        let arrival = match found {
            Some(id) => self.nic.place(id, seq, &vec![0; usize::from(len)], &self.places),
            None => Arrival::NoFlow,
        };
        let (case, skip, placed) = match arrival {
            Arrival::Placed { skip, len } => (0, skip, len),
            Arrival::Old => (1, 0, 0),
            Arrival::Nowhere => (2, 0, 0),
            Arrival::NoFlow => (3, 0, 0),
            other => panic!("the limits leave no room for {other:?}"),
        };
        self.counts[case] += 1;
        let line = found.map_or(0, |id| id.line());
        self.headers.push_back(format!("h {line:x} {case:x} {skip:x} {placed:x} {head:x}"));
        let (mut at, end) = (skip as usize, (skip + placed) as usize);
        for (key, offset, len) in self.places.0.take() {
            let last = u8::from(at + len == end);
            self.parts.push_back(format!("d {line:x} {key:x} {offset:x} {at:x} {len:x} {last}"));
            at += len;
        }
    }

    fn operation(&mut self, kind: u8, flow: u32, line: usize, segment: Segment, seq: Seq) {
        let Segment { key, offset, len } = segment;
        let (tuple, key, seq) = (bits(flow), key.0, seq.0);
        writeln!(self.script, "O {kind} {tuple} {line:x} {key:x} {offset:x} {len:x} {seq:x}").unwrap();
    }

    fn answer(&mut self, ok: bool, moved: u32) {
        let free = self.nic.free_entries() / 8;
        self.answers.push_back(format!("o {} {moved:x} {free:x}", u8::from(ok)));
    }

    /// The control stack names the line, so it asks for none where it has none.
    fn open(&mut self, flow: u32, begin: Seq) {
        let nothing = Segment { key: Key(0), offset: 0, len: 0 };
        let is_open = self.find(flow).is_some();
        let id = self.nic.add(tuple(flow), Domain(1), Kind::Stream);
        if id.is_none() && !is_open {
            return;
        }
        self.operation(OPEN, flow, id.map_or(0, FlowId::line), nothing, Seq(0));
        self.answer(id.is_some(), 0);
        if let Some(id) = id {
            self.nic.begin_receiving(id, begin);
            self.operation(BEGIN, flow, 0, nothing, begin);
            self.answer(true, 0);
        }
    }

    fn close(&mut self, flow: u32) {
        let closed = self.find(flow).is_some_and(|id| self.nic.remove(id));
        self.operation(CLOSE, flow, 0, Segment { key: Key(0), offset: 0, len: 0 }, Seq(0));
        self.answer(closed, 0);
    }

    fn post(&mut self, flow: u32, segment: Segment) -> bool {
        let posted = self.find(flow).is_some_and(|id| self.nic.post_receive(id, segment).is_ok());
        self.operation(POST, flow, 0, segment, Seq(0));
        self.answer(posted, 0);
        posted
    }

    /// The transport has the stream up to `to`. The unit counts no holes: a control stack names none beyond the first,
    /// but it may name what nobody posted.
    fn advance(&mut self, flow: u32, to: Seq) {
        let Some(id) = self.find(flow) else { return };
        let positions = self.nic.positions(id).unwrap();
        let whole = positions.frontier == positions.posted_end;
        let to = if whole || to.at_or_before(positions.frontier) { to } else { positions.frontier };
        let moved = self.nic.advance(id, to);
        self.operation(ADVANCE, flow, 0, Segment { key: Key(0), offset: 0, len: 0 }, to);
        self.answer(true, moved);
    }

    /// Simulates. The first difference, if there is one; otherwise the clocks that each `T` of the script named.
    fn run(mut self, name: &str, limits: Limits, plant: Option<(&str, &str)>) -> Result<Vec<u64>, String> {
        let model = build(name, limits, self.script.lines().count(), plant)?;
        let mut clocks = Vec::new();
        for (at, line) in model.run(&self.script)?.iter().enumerate() {
            let expected = match line.as_bytes()[0] {
                b'h' => &mut self.headers,
                b'd' => &mut self.parts,
                b'o' => &mut self.answers,
                _ => {
                    clocks.push(u64::from_str_radix(&line[2..], 16).unwrap());
                    continue;
                }
            };
            let expected = expected.pop_front().ok_or(format!("{name}: line {at}, {line}, is one too many"))?;
            if *line != expected {
                return Err(format!("{name}: line {at} is {line}, not {expected}"));
            }
        }
        let left = [self.headers.len(), self.parts.len(), self.answers.len()];
        if left == [0; 3] { Ok(clocks) } else { Err(format!("{name}: {left:?} lines are missing")) }
    }
}

fn build(name: &str, limits: Limits, steps: usize, plant: Option<(&str, &str)>) -> Result<Model, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["split_sums", "split_table", "split_lists", "split_walk", "split_unit"].map(|n| format!("{n}.sv"));
    let read = |name: &String| std::fs::read_to_string(folder.join("rtl").join(name)).unwrap();
    let mut files: Vec<(String, String)> = names.iter().map(|name| (name.clone(), read(name))).collect();
    // A module of the RTL of P4 programs.
    let crc = folder.join("../rmt/src/rtl/lib/rtl_crc.sv");
    files.insert(0, ("rtl_crc.sv".into(), std::fs::read_to_string(crc).unwrap()));
    if let Some((from, to)) = plant {
        let file = files.iter_mut().find(|(_, text)| text.contains(from)).expect("the line stands somewhere");
        file.1 = file.1.replacen(from, to, 1);
    }
    let Limits { flows, entries, committed, peak, .. } = limits;
    let sizes = [("FLOWS", flows), ("ENTRIES", entries), ("COMMITTED", committed), ("PEAK", peak)];
    let arguments = sizes.map(|(name, value)| format!("-G{name}={value}"));
    let harness = folder.join("tests/rtl/harness.cpp");
    Model::build(name, &Module { top: "split_unit", files, harness: &harness, arguments: &arguments }, steps)
}

/// A store that flows run out of, and lists of a few blocks.
fn small() -> Limits {
    let (intervals, intervals_per_flow) = (1 << 20, 1 << 20);
    Limits { flows: 12, entries: 512, committed: 24, peak: 100, intervals, intervals_per_flow }
}

/// Random posts, arrivals and moves of the cursor, of flows that come and go; a few flows are busier.
fn random_steps(pair: &mut Pair, steps: u64, flows: u64, random: &mut Random) {
    for step in 0..steps {
        if step % 1000 == 0 {
            let stall = |random: &mut Random| [0, 0, 40, 128, 230][random.below(5) as usize];
            let [a, b, c] = [stall(random), stall(random), stall(random)];
            writeln!(pair.script, "S {a:x} {b:x} {c:x}").unwrap();
        }
        let flow = if random.below(2) == 0 { random.below(2) } else { random.below(flows) } as u32;
        let positions = pair.find(flow).and_then(|id| pair.nic.positions(id));
        let Some(at) = positions else {
            match random.below(3) {
                0 => pair.arrive(flow, Seq(random.below(1 << 32) as u32), 100),
                1 => pair.close(flow),
                _ => pair.open(flow, Seq([5, u32::MAX - 3000, 0x7fff_f000][random.below(3) as usize])),
            }
            continue;
        };
        let posted = at.posted_end - at.cursor;
        match random.below(40) {
            0 if random.below(20) == 0 => pair.close(flow),
            1 if random.below(5) == 0 => pair.open(flow, Seq(1)),
            0..14 => {
                let key = Key([7, 7, 7, 8, u32::MAX][random.below(5) as usize]);
                let len = [1, 90, 700, 1460, 4096, 1460, 90, (1 << 27) - 1][random.below(8) as usize];
                let offset = [0, 12_345, (1 << 36) - (1 << 27), (1 << 36) - 100][random.below(4) as usize];
                pair.post(flow, Segment { key, offset, len });
            }
            14..24 => pair.advance(flow, at.cursor + random.below(u64::from(posted) + 20) as u32 % 9000),
            24..30 => pair.arrive(flow, at.frontier, 1 + random.below(1460) as u16),
            _ => {
                let from = random.below(u64::from(posted.min(6000)) + 4000) as u32;
                pair.arrive(flow, at.cursor + from - 2000, [0, 1, 100, 1460, 9000, 65_000][random.below(6) as usize]);
            }
        }
    }
    println!("{:?}: {:?}", CASES, pair.counts);
    assert!(pair.counts.iter().all(|count| *count as u64 > steps / 400), "each case is met");
}

fn random_agrees(name: &str, steps: u64, plant: Option<(&str, &str)>) -> Result<Vec<u64>, String> {
    let mut pair = Pair::new(small());
    random_steps(&mut pair, steps, 15, &mut Random(steps));
    pair.run(name, small(), plant)
}

#[test]
fn the_split_unit_places_as_the_nic_does() {
    if verilator() {
        random_agrees("split", 20_000, None).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Seen only where an operation stands right behind an arrival that walks.
#[test]
fn an_operation_that_overtakes_is_found() {
    if verilator() {
        let bug = Some(("!refuses && !in_flight", "!refuses"));
        let what = random_agrees("overtakes", 20_000, bug).expect_err("the bug is found");
        assert!(what.contains(" is "), "by a difference, not by the compiler: {what}");
    }
}

/// Headers in order, each in one segment of its flow's first block, of one flow and of several: one a clock.
#[test]
#[ignore = "make rtl runs it"]
fn headers_pass_one_a_clock() {
    assert!(verilator(), "Verilator is needed");
    let mut pair = Pair::new(small());
    for flow in 0..4 {
        pair.open(flow, Seq(0));
        assert!(pair.post(flow, Segment { key: Key(1), offset: 0, len: 1 << 26 }));
    }
    pair.script.push_str("T\n");
    let mut at = [0; 4];
    for step in 0..20_000u32 {
        let flow = if step < 10_000 { 0 } else { step as usize % 4 };
        pair.arrive(flow as u32, Seq(at[flow]), 1460);
        at[flow] += 1460;
    }
    pair.script.push_str("T\n");
    // The last of 50 segments: six blocks on, at most two clocks a block more.
    (0..49).for_each(|_| assert!(pair.post(2, Segment { key: Key(1), offset: 0, len: 10 })));
    pair.script.push_str("T\n");
    (0..1000).for_each(|_| pair.arrive(2, Seq((1 << 26) + 485), 5));
    pair.script.push_str("T\n");
    let clocks = pair.run("clocks", small(), None).unwrap_or_else(|what| panic!("{what}"));
    println!("20,000 headers in {} clocks, 1,000 behind six blocks in {}", clocks[1], clocks[3]);
    assert!(clocks[1] <= 20_000 + 20);
    assert!(clocks[3] <= 1000 * 15 + 20);
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn the_split_unit_agrees_at_length() {
    assert!(verilator(), "Verilator is needed");
    random_agrees("long", 400_000, None).unwrap_or_else(|what| panic!("{what}"));
    // The paper's sizes, all flows open.
    let limits = Limits { intervals: 1 << 20, intervals_per_flow: 1 << 20, ..Limits::default() };
    let mut pair = Pair::new(limits);
    (0..10_000).for_each(|flow| pair.open(flow, Seq(flow)));
    random_steps(&mut pair, 200_000, 10_100, &mut Random(5));
    pair.run("whole", limits, None).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn planted_bugs_of_the_split_unit_are_found() {
    assert!(verilator(), "Verilator is needed");
    let bugs = [
        (
            "a region at the list's begin is not read",
            "i >= 32'(first) && block[i*64+63]",
            "i > 32'(first) && block[i*64+63]",
        ),
        ("bytes of the first segment that are done count anew", "from + 32'(d4.done)", "from - 32'(d4.done)"),
        ("a block's bytes are not passed", "pos <= pos - 32'(ends_q[239:210]);", "pos <= pos;"),
        ("a flow is promised nothing", "promised <= promised + 32'(put.promise)", "promised <= promised"),
    ];
    for (what, from, to) in bugs {
        let found = random_agrees("planted", 20_000, Some((from, to))).expect_err(what);
        println!("{what}: {found}");
        assert!(!found.contains("%Error"), "by a difference, not by the compiler: {found}");
    }
}
