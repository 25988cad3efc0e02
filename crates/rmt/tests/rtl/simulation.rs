//! A design under Verilator, compared with the interpreter.
use crate::verilated::{Model, Module};
use rmt::Loaded;
use rmt::interp::{EntryKey, Machine, Queued, Session};
use rmt::ir::Gress;
use rmt::rtl::{Control, Design, Mapped, MappedKind, Operation, Timing, generate};
use std::fmt::Write as _;
use std::path::Path;

/// What the interpreter made of an operation.
enum Expected {
    Packet { packet: Vec<u8>, queued: Option<Queued>, mirrored: Vec<Queued> },
    Written,
    Words { name: String, index: u32, target: u8, words: Vec<u128> },
}

/// Operations of one half, and what is expected of each.
struct Recording {
    design: Design,
    control: Control,
    script: String,
    expected: Vec<Expected>,
}

impl Recording {
    fn operation(&mut self, operation: &Operation, expected: Expected) {
        let Operation { write, target, index, data } = operation;
        writeln!(self.script, "C {} {target:x} {index:x} {data}", u8::from(*write)).unwrap();
        self.expected.push(expected);
    }

    fn packet(&mut self, at: [u64; 4], packet: &[u8], queued: Option<Queued>, mirrored: Vec<Queued>) {
        let [idle, port, queue, time] = at;
        let mut front = packet[..packet.len().min(self.design.map.in_bytes as usize)].to_vec();
        front.resize(self.design.map.in_bytes as usize, 0);
        let hex: String = front.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(self.script, "P {idle:x} {:x} {port:x} {queue:x} {time:x} {hex}", packet.len()).unwrap();
        self.expected.push(Expected::Packet { packet: packet.to_vec(), queued, mirrored });
    }
}

/// A program in the interpreter and as RTL. What happens to it is recorded first and simulated at the end.
pub(crate) struct Pair {
    pub(crate) machine: Machine,
    halves: Vec<Recording>,
    now_ns: u64,
    /// Idle clocks before each packet.
    pub(crate) idle: u64,
}

/// The design as Verilator takes it.
fn module(design: &Design) -> Module<'static> {
    let files = design.files.iter().map(|file| (format!("{}.sv", file.name), file.text.clone())).collect();
    let harness = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rtl/harness.cpp"));
    Module { top: design.map.gress.name(), files, harness, arguments: &[] }
}

/// Where copies of a mirror session go, in all tests.
fn session(id: u8) -> Option<Session> {
    (id <= 2).then(|| Session { port: 7, truncate: 10 * usize::from(id) })
}

impl Pair {
    /// A sentence, where the RTL cannot be made.
    pub(crate) fn new(loaded: &Loaded, halves: &[Gress], timing: Timing) -> Result<Pair, String> {
        let mut machine = Machine::new(loaded.program.clone());
        (0..=2).for_each(|id| machine.set_session(id, session(id).unwrap()));
        let recording = |gress: &Gress| {
            let design = generate(loaded, *gress, timing).map_err(|list| list[0].to_string())?;
            let control = Control::new(loaded.program.clone(), design.map.clone());
            Ok(Recording { design, control, script: String::new(), expected: Vec::new() })
        };
        let halves = halves.iter().map(recording).collect::<Result<_, String>>()?;
        Ok(Pair { machine, halves, now_ns: 0, idle: 0 })
    }

    /// The half's files, to plant bugs in.
    pub(crate) fn design(&mut self, gress: Gress) -> &mut Design {
        &mut self.half(gress).expect("this half is simulated").design
    }

    fn half(&mut self, gress: Gress) -> Option<&mut Recording> {
        self.halves.iter_mut().find(|half| half.design.map.gress == gress)
    }

    pub(crate) fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.machine.set_time(now_ns);
    }

    /// One packet through ingress; what goes on to egress.
    pub(crate) fn ingress(&mut self, port: u16, packet: &[u8]) -> Vec<Queued> {
        let out = self.machine.ingress(port, packet);
        let at = [self.idle, u64::from(port), 0, self.now_ns];
        if let Some(half) = self.half(Gress::Ingress) {
            half.packet(at, packet, out.queued.clone(), out.mirrored.clone());
        }
        out.queued.into_iter().chain(out.mirrored).collect()
    }

    /// One packet through egress; the copies that follow it.
    pub(crate) fn egress(&mut self, packet: &Queued) -> Vec<Queued> {
        if packet.bypass {
            return Vec::new();
        }
        let out = self.machine.egress(packet);
        let at = [self.idle, u64::from(packet.port), u64::from(packet.queue), self.now_ns];
        if let Some(half) = self.half(Gress::Egress) {
            let sent = out.sent.map(|s| Queued { port: s.port, queue: 0, bypass: false, data: s.data });
            half.packet(at, &packet.data, sent, out.mirrored.clone());
        }
        out.mirrored
    }

    /// Through both halves, with all copies.
    pub(crate) fn process(&mut self, port: u16, packet: &[u8]) {
        let mut queue = self.ingress(port, packet);
        for _ in 0..8 {
            let Some(packet) = queue.pop() else { return };
            queue.extend(self.egress(&packet));
        }
    }

    fn operations(&mut self, mut of: impl FnMut(&mut Control) -> Vec<Operation>) {
        for half in &mut self.halves {
            for operation in of(&mut half.control) {
                half.operation(&operation, Expected::Written);
            }
        }
    }

    /// The same change to both, as the interpreter takes it.
    pub(crate) fn add(&mut self, table: &str, keys: &[EntryKey], priority: u32, action: &str, args: &[u128]) {
        let seen = self.machine.table_add(table, keys, priority, action, args);
        self.operations(|control| {
            let operations = control.table_add(table, keys, priority, action, args);
            // For a table of the other half there is nothing to do.
            let nothing = operations.as_ref().is_ok_and(Vec::is_empty);
            if let Err(e) = &seen {
                assert!(nothing || operations.as_ref().err() == Some(e), "{table}: {e}");
            }
            operations.unwrap_or_else(|e| if seen.is_ok() { panic!("{e}") } else { Vec::new() })
        });
    }

    pub(crate) fn remove(&mut self, table: &str, keys: &[EntryKey]) {
        let seen = self.machine.table_remove(table, keys).is_ok();
        self.operations(|control| {
            let operations = control.table_remove(table, keys);
            assert_eq!(operations.is_ok(), seen);
            operations.unwrap_or_default()
        });
    }

    pub(crate) fn set_default(&mut self, table: &str, action: &str, args: &[u128]) {
        let seen = self.machine.table_set_default(table, action, args).is_ok();
        self.operations(|control| {
            let operations = control.table_set_default(table, action, args);
            assert_eq!(operations.is_ok(), seen);
            operations.unwrap_or_default()
        });
    }

    pub(crate) fn write(&mut self, register: &str, index: u32, words: &[u128]) {
        self.machine.register_write(register, index, words).unwrap();
        self.operations(|control| control.register_write(register, index, words).unwrap().into_iter().collect());
    }

    /// Asks for the first entries of each register and counter, and some at its end.
    fn read_all(&mut self, most: u32) {
        for half in &mut self.halves {
            for (number, target) in half.design.map.targets.clone().iter().enumerate() {
                let (MappedKind::Register { size, .. } | MappedKind::Counter { size, .. }) = target.kind else {
                    continue;
                };
                for index in (0..size.min(most)).chain(size.saturating_sub(2).max(most)..size) {
                    let words = words_of(&self.machine, target, index);
                    let (name, target) = (target.name.clone(), number as u8);
                    let read = half.control.read(target, index);
                    half.operation(&read, Expected::Words { name, index, target, words });
                }
            }
        }
    }

    /// Packets a second that each half's model takes on a core, one every clock: all that were recorded, so often.
    pub(crate) fn speed(self, name: &str, times: u32) -> Vec<(Gress, u64)> {
        let speed = |half: &Recording| {
            let packets = half.script.lines().filter_map(|line| line.strip_prefix('P'));
            let entries: String =
                half.script.lines().filter(|line| line.starts_with('C')).map(|l| format!("{l}\n")).collect();
            let script: String = packets.map(|packet| format!("M{packet}\n")).collect();
            let model = Model::build(name, &module(&half.design), usize::MAX).unwrap_or_else(|what| panic!("{what}"));
            let answers = model.run(&format!("{entries}{script}T {times:x}\n")).unwrap_or_else(|what| panic!("{what}"));
            let words: Vec<u64> =
                answers.last().unwrap().split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
            (half.design.map.gress, words[0] * 1_000_000 / words[1].max(1))
        };
        self.halves.iter().map(speed).collect()
    }

    /// Simulates what was recorded. The first difference, if there is one.
    pub(crate) fn run(mut self, name: &str) -> Result<usize, String> {
        self.read_all(300);
        let mut count = 0;
        for half in &self.halves {
            let model = Model::build(name, &module(&half.design), half.expected.len())?;
            let answers = model.run(&half.script)?;
            for (i, (answer, expected)) in answers.iter().zip(&half.expected).enumerate() {
                let seen = compare(half, answer, expected);
                seen.map_err(|what| format!("{name}, {}, operation {i}: {what}", half.design.map.gress.name()))?;
            }
            assert_eq!(answers.len(), half.expected.len());
            count += answers.len();
        }
        Ok(count)
    }
}

fn words_of(machine: &Machine, target: &Mapped, index: u32) -> Vec<u128> {
    match target.kind {
        MappedKind::Counter { .. } => vec![u128::from(machine.counter_read(&target.name, index).unwrap())],
        _ => machine.register_read(&target.name, index).unwrap().to_vec(),
    }
}

fn compare(half: &Recording, answer: &str, expected: &Expected) -> Result<(), String> {
    let words: Vec<&str> = answer.split(' ').collect();
    match (words[0], expected) {
        ("c", Expected::Written) => Ok(()),
        ("c", Expected::Words { name, index, target, words: expected }) => {
            let seen = half.control.words(*target, words[1]);
            let text = || format!("{name}[{index}] is {seen:x?}, not {expected:x?}");
            if seen == *expected { Ok(()) } else { Err(text()) }
        }
        ("p", Expected::Packet { packet, queued, mirrored }) => {
            let seen = outcome(half, &words, packet);
            let (kept, copies) = (&seen.0, &seen.1);
            let text = || format!("{packet:02x?}:\n{kept:02x?} {copies:02x?}, not\n{queued:02x?} {mirrored:02x?}");
            if kept == queued && copies == mirrored { Ok(()) } else { Err(text()) }
        }
        _ => Err(format!("an answer of another kind: {answer}")),
    }
}

/// Bytes of a hexadecimal number of so many bits.
fn bytes_of(hex: &str, bits: usize) -> Vec<u8> {
    let digits = format!("{:0>width$}", hex, width = bits.div_ceil(4));
    let digits = &digits[digits.len() - bits.div_ceil(4)..];
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// What the RTL made of a packet, in the interpreter's terms.
fn outcome(half: &Recording, words: &[&str], packet: &[u8]) -> (Option<Queued>, Vec<Queued>) {
    let map = &half.design.map;
    let number = |i: usize| usize::from_str_radix(words[i], 16).unwrap();
    let (drop, head, rest) = (number(1) == 1, number(5), number(6));
    let headers = bytes_of(words[7], map.out_bytes as usize * 8);
    let mut data = headers[..head].to_vec();
    data.extend(packet.get(rest..).unwrap_or(&[]));
    let egress = map.gress == Gress::Egress;
    let mut mirrored = Vec::new();
    let all: usize = map.mirrors.iter().map(|bits| *bits as usize).sum();
    let fronts = bytes_of(words[12], all.max(8));
    let mut end = fronts.len();
    for (i, bits) in map.mirrors.iter().enumerate() {
        let front = &fronts[end - *bits as usize / 8..end];
        end -= *bits as usize / 8;
        let sessions = bytes_of(words[9], 8 * map.mirrors.len());
        let Some(to) = session(sessions[map.mirrors.len() - 1 - i]).filter(|_| number(8) >> i & 1 == 1) else {
            continue;
        };
        let original: &[u8] = if egress { &data } else { packet };
        let port = if number(10) == 0 { to.port } else { number(10) as u16 };
        let copy = [front, &original[..original.len().min(to.truncate)]].concat();
        mirrored.push(Queued { port, queue: number(11) as u8, bypass: false, data: copy });
    }
    let queue = if egress { 0 } else { number(3) as u8 };
    let kept = (!drop).then(|| Queued { port: number(2) as u16, queue, bypass: number(4) == 1, data });
    (kept, mirrored)
}
