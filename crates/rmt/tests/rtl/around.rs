//! `top`: both halves with all around them, against the interpreter. The traffic manager decides in which order packets
//! and copies meet egress, and which are lost; the interpreter follows.
use crate::support::*;
use crate::verilated::{Model, Module};
use rmt::Loaded;
use rmt::interp::{EntryKey, Machine, Queued, Session};
use rmt::ir::Gress;
use rmt::rtl::{Around, Control, Operation, Timing, generate};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;

/// Queues of the traffic manager, and what one holds.
const QUEUES: usize = 4;
const DEPTH: usize = 4;
/// Bytes of a slot.
const LONGEST: usize = 1024;
/// Packets of a batch of the generator, and their port.
const BATCH: usize = 9;
const GENERATOR: u16 = 6;
/// Entries of each register that are compared.
const ENTRIES: u32 = 64;

/// An entry of a table of one half.
struct Entry {
    half: usize,
    table: String,
    key: Vec<EntryKey>,
    action: String,
    args: Vec<u128>,
}

/// A command to a half: to read an entry of a register, or a part of a change of a table; the last part makes it.
enum Command {
    Read(usize),
    Part(usize),
    Change(Entry),
}

/// Bits of an entry of a register: the first 32, or those behind so many.
struct Read {
    register: String,
    index: u32,
    shift: u32,
}

/// A simulation of `top`, and what the interpreter makes of the same.
struct Rig {
    machine: Machine,
    controls: [Control; 2],
    script: String,
    /// That are to be sent, and that were taken and are to enter ingress.
    packets: VecDeque<(u16, Vec<u8>)>,
    taken: VecDeque<(u16, Vec<u8>)>,
    commands: VecDeque<Command>,
    reads: VecDeque<Read>,
    /// Packets that are longer than a slot.
    too_long: usize,
}

impl Rig {
    fn new(around: &mut Option<Around>) -> Rig {
        Rig::of(&load(&folder("tests/p4/around.p4")), around)
    }

    fn of(loaded: &Loaded, around: &mut Option<Around>) -> Rig {
        let mut machine = Machine::new(loaded.program.clone());
        machine.set_session(1, Session { port: 7, truncate: 0 });
        let halves = [Gress::Ingress, Gress::Egress].map(|gress| generate(loaded, gress, Timing::Split).unwrap());
        let controls = [0, 1].map(|half| Control::new(loaded.program.clone(), halves[half].map.clone()));
        *around = Some(Around::new(&halves));
        Rig {
            machine,
            controls,
            script: "L 2c 10207\n".into(),
            packets: VecDeque::new(),
            taken: VecDeque::new(),
            commands: VecDeque::new(),
            reads: VecDeque::new(),
            too_long: 0,
        }
    }

    /// A command through AXI4-Lite.
    fn operate(&mut self, half: usize, operation: &Operation) {
        let Operation { write, target, index, data } = operation;
        let padded = format!("{data:0>width$}", width = data.len().div_ceil(8) * 8);
        writeln!(self.script, "L 20 {:x}\nL 24 {index:x}", usize::from(*target) + 256 * half).unwrap();
        for (at, word) in padded.as_bytes().rchunks(8).enumerate().filter(|_| *write) {
            writeln!(self.script, "L {:x} {}", 0x100 + 4 * at, std::str::from_utf8(word).unwrap()).unwrap();
        }
        writeln!(self.script, "L 28 {}", if *write { 1 } else { 2 }).unwrap();
    }

    /// Packets of a flow go to this port from now on, or nowhere.
    fn route(&mut self, flow: u16, port: Option<u128>) {
        let (action, args) = port.map_or(("lose", Vec::new()), |port| ("to", vec![port]));
        self.add("ports", &[EntryKey::Exact(u128::from(flow))], action, &args);
    }

    /// A table has an entry from now on.
    fn add(&mut self, table: &str, key: &[EntryKey], action: &str, args: &[u128]) {
        for half in 0..2 {
            let operations = self.controls[half].table_add(table, key, 0, action, args).unwrap();
            for (at, operation) in operations.iter().enumerate() {
                self.operate(half, operation);
                self.commands.push_back(if at + 1 < operations.len() {
                    Command::Part(half)
                } else {
                    let (table, action) = (table.into(), action.into());
                    Command::Change(Entry { half, table, key: key.to_vec(), action, args: args.to_vec() })
                });
            }
        }
    }

    fn packet(&mut self, port: u16, bytes: Vec<u8>) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.script, "P {port:x} {}", if hex.is_empty() { "-" } else { &hex }).unwrap();
        self.packets.push_back((port, bytes));
    }

    /// A packet was taken whole. Those without bytes leave no trace, and those that are too long do not enter.
    fn is_taken(&mut self) -> Result<(), String> {
        let (port, bytes) = self.packets.pop_front().ok_or("no packet is left")?;
        if bytes.len() > LONGEST {
            self.too_long += 1;
        } else if !bytes.is_empty() {
            self.taken.push_back((port, bytes));
        }
        Ok(())
    }

    /// The generator has made a packet: `pktgen_timer_header_t`.
    fn is_generated(&mut self, batch: usize, number: usize) -> Result<(), String> {
        let [batch, number] = [batch, number].map(|value| (value as u16).to_be_bytes());
        self.taken.push_back((GENERATOR, [[0; 2], batch, number].concat()));
        Ok(())
    }

    /// Reads the first entries of all registers through AXI4-Lite.
    fn read_all(&mut self) {
        for (number, info) in self.machine.program().registers.clone().iter().enumerate() {
            for half in 0..2 {
                let Some(target) = self.controls[half].register_target(number) else { continue };
                let bits: u32 = info.words.iter().map(|ty| ty.width()).sum();
                for index in 0..ENTRIES.min(info.size) {
                    let read = self.controls[half].read(target, index);
                    self.operate(half, &read);
                    self.commands.push_back(Command::Read(half));
                    for shift in (0..bits).step_by(32) {
                        writeln!(self.script, "G {:x}", 0x200 + shift / 8).unwrap();
                        self.reads.push_back(Read { register: info.name.clone(), index, shift });
                    }
                }
            }
        }
    }

    /// Follows what the simulation did.
    fn follow(mut self, lines: &[String]) -> Result<Tally, String> {
        let mut follow = Follow::default();
        for (at, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |i: usize| usize::from_str_radix(words[i], 16).unwrap();
            match words[0] {
                "i" => self.is_taken(),
                "t" => follow.generated(&mut self, number(1), number(2)),
                "n" => follow.enters(&mut self),
                "q" => follow.comes(number(1) == 1, number(2), [number(3), number(4)]),
                "d" => follow.leaves(&mut self, number(1)),
                "c" => self.command(number(1)),
                "o" => follow.out(number(1) as u16, words[2], number(3)),
                "b" if words[1] == "0" => Ok(()),
                "g" => self.read(&words),
                "w" => Ok(()),
                _ => Err("an error".to_string()),
            }
            .map_err(|what| format!("line {at}, {line}: {what}"))?;
        }
        let left = [
            self.packets.len() + self.taken.len(),
            self.commands.len() + self.reads.len(),
            follow.sent.len(),
            follow.passed.len(),
        ];
        let waits = [follow.behind.len(), follow.copies.len(), follow.queues.iter().map(VecDeque::len).sum()];
        if left != [0; 4] || waits != [0; 3] {
            return Err(format!("not all came out: {left:?} {waits:?}"));
        }
        Ok(Tally { too_long: self.too_long, ..follow.tally })
    }

    /// A command reaches a half: what enters that half from now on meets the change.
    fn command(&mut self, halves: usize) -> Result<(), String> {
        let half = match self.commands.pop_front().ok_or("no command was given")? {
            Command::Read(half) | Command::Part(half) => half,
            Command::Change(Entry { half, table, key, action, args }) => {
                self.machine.table_add(&table, &key, 0, &action, &args).map_err(|e| e.to_string())?;
                half
            }
        };
        if halves == 1 << half { Ok(()) } else { Err(format!("another half than {half}")) }
    }

    fn read(&mut self, words: &[&str]) -> Result<(), String> {
        let Read { register, index, shift } = self.reads.pop_front().ok_or("nothing is to be read")?;
        let entry = self.machine.register_read(&register, index).map_err(|e| e.to_string())?;
        let info = self.machine.program().registers.iter().find(|info| info.name == register).unwrap();
        let mut at = 0;
        let joined: u128 = entry.iter().zip(&info.words).fold(0, |joined, (word, ty)| {
            at += ty.width();
            joined | word << (at - ty.width())
        });
        let expected = joined >> shift & 0xffff_ffff;
        let seen = u128::from_str_radix(words[2], 16).unwrap();
        if words[1] == "0" && seen == expected {
            Ok(())
        } else {
            Err(format!("entry {index} of {register} from bit {shift} on is {expected:x}"))
        }
    }
}

/// How often things happened.
#[derive(Debug, Default)]
struct Tally {
    lost: usize,
    lost_copies: usize,
    copies: usize,
    bypassed: usize,
    overtook: usize,
    sent: usize,
    generated: usize,
    too_long: usize,
    /// In which clock each left.
    left: Vec<usize>,
}

/// The interpreter's side of the traffic manager.
#[derive(Default)]
struct Follow {
    queues: [VecDeque<(usize, Queued)>; QUEUES],
    /// Out of ingress, and copies out of egress, on their way to the queues.
    behind: VecDeque<Queued>,
    copies: VecDeque<Queued>,
    sent: VecDeque<(u16, Vec<u8>)>,
    passed: VecDeque<(u16, Vec<u8>)>,
    came: usize,
    latest: usize,
    tally: Tally,
}

impl Follow {
    fn generated(&mut self, rig: &mut Rig, batch: usize, number: usize) -> Result<(), String> {
        let expected = (self.tally.generated / BATCH, self.tally.generated % BATCH);
        self.tally.generated += 1;
        if (batch, number) == expected { rig.is_generated(batch, number) } else { Err(format!("not {expected:?}")) }
    }

    fn enters(&mut self, rig: &mut Rig) -> Result<(), String> {
        let (port, bytes) = rig.taken.pop_front().ok_or("no packet was taken")?;
        let out = rig.machine.ingress(port, &bytes);
        self.behind.extend(out.queued.into_iter().chain(out.mirrored));
        Ok(())
    }

    /// `full` is whether the queue was, and how many left it in the same clock: they were still there.
    fn comes(&mut self, again: bool, queue: usize, full: [usize; 2]) -> Result<(), String> {
        let from = if again { &mut self.copies } else { &mut self.behind };
        let packet = from.pop_front().ok_or("nothing is to come")?;
        let [full, leaving] = full;
        let full = full == 1;
        let expected = (usize::from(packet.queue) % QUEUES, self.queues[queue].len() + leaving == DEPTH);
        if expected != (queue, full) {
            return Err(format!("queue and full are {expected:?}"));
        }
        self.came += 1;
        self.tally.copies += usize::from(again);
        if full {
            self.tally.lost += 1;
            self.tally.lost_copies += usize::from(again);
        } else {
            self.queues[queue].push_back((self.came, packet));
        }
        Ok(())
    }

    fn leaves(&mut self, rig: &mut Rig, queue: usize) -> Result<(), String> {
        let highest = (0..QUEUES).rev().find(|queue| !self.queues[*queue].is_empty());
        if highest != Some(queue) {
            return Err(format!("the highest queue is {highest:?}"));
        }
        let (came, packet) = self.queues[queue].pop_front().ok_or("the queue is empty")?;
        self.tally.overtook += usize::from(came < self.latest);
        self.latest = self.latest.max(came);
        let out = rig.machine.egress(&packet);
        let sent = out.sent.map(|sent| (sent.port, sent.data));
        self.tally.bypassed += usize::from(packet.bypass);
        if packet.bypass {
            self.passed.extend(sent)
        } else {
            self.sent.extend(sent)
        }
        self.copies.extend(out.mirrored);
        Ok(())
    }

    /// What passes egress by may overtake what does not.
    fn out(&mut self, port: u16, hex: &str, clock: usize) -> Result<(), String> {
        self.tally.left.push(clock);
        let bytes = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        let packet = (port, bytes);
        let from = [&mut self.sent, &mut self.passed].into_iter().find(|from| from.front() == Some(&packet));
        let Some(from) = from else {
            return Err(format!("not\n{:02x?} nor\n{:02x?}", self.sent.front(), self.passed.front()));
        };
        from.pop_front();
        self.tally.sent += 1;
        Ok(())
    }
}

/// Random packets and routes, by phases with other stalls.
fn script(rig: &mut Rig, phases: u64, random: &mut Random) {
    for phase in 0..phases {
        let stall = |random: &mut Random| [0, 0, 60, 200, 250][random.below(5) as usize];
        let [a, b] = [stall(random), stall(random)];
        writeln!(rig.script, "S {a:x} {b:x}").unwrap();
        for at in 0..40 {
            let len = [4, 12, 13, 60, 64, 65, 128, 300, 1000, LONGEST][random.below(10) as usize];
            let len = match random.below(40) {
                0 => 0,
                1 => LONGEST + 1 + random.below(300) as usize,
                _ => len + (random.below(3) as usize).min(LONGEST - len),
            };
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let flow = random.below(20) as u8;
            let head = [random.below(12) as u8 % 8, random.below(4) as u8, 0, flow];
            let number = (phase * 40 + at) as u32;
            let known = [&head[..], &number.to_be_bytes()].concat();
            let count = known.len().min(len);
            bytes[..count].copy_from_slice(&known[..count]);
            rig.packet(random.below(512) as u16, bytes);
        }
        for _ in 0..random.below(4) {
            writeln!(rig.script, "K {:x}", random.below(400)).unwrap();
            let port = (random.below(5) > 0).then(|| u128::from(random.below(512) as u16));
            rig.route(random.below(20) as u16, port);
        }
        if random.below(3) == 0 {
            rig.script.push_str("S 0 0\nW\n");
        }
    }
    rig.script.push_str("S 0 0\nW\n");
    rig.read_all();
}

fn build(name: &str, around: &Around, sizes: &[(&str, usize)], operations: usize) -> Result<Model, String> {
    let files = around.files.iter().map(|file| (format!("{}.sv", file.name), file.text.clone())).collect();
    let harness = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rtl/around.cpp"));
    let arguments: Vec<String> = sizes.iter().map(|(name, value)| format!("-G{name}={value}")).collect();
    Model::build(name, &Module { top: "top", files, harness, arguments: &arguments }, operations)
}

/// The design with another line, where one is given.
fn planted(mut around: Around, plant: Option<(&str, &str)>) -> Around {
    if let Some((from, to)) = plant {
        let file = around.files.iter_mut().find(|file| file.text.contains(from)).expect("the line stands somewhere");
        file.text = file.text.replacen(from, to, 1);
    }
    around
}

/// Runs so many phases; `plant` may change a line.
fn agrees(name: &str, phases: u64, plant: Option<(&str, &str)>) -> Result<(), String> {
    let mut around = None;
    let mut rig = Rig::new(&mut around);
    let around = planted(around.unwrap(), plant);
    script(&mut rig, phases, &mut Random(phases));
    let sizes = [("SLOT", 6), ("BEAT", 4), ("QUEUES", QUEUES), ("DEPTH", 2), ("FLIGHT", 3)];
    let model = build(name, &around, &sizes, phases as usize * 100)?;
    let lines = model.run(&rig.script)?;
    let tally = rig.follow(&lines)?;
    println!("{} packets left, {} were too long", tally.left.len(), tally.too_long);
    let all = [tally.lost, tally.lost_copies, tally.copies, tally.bypassed, tally.overtook, tally.sent, tally.too_long];
    assert!(all.iter().all(|count| *count as u64 > phases / 20), "each thing happens");
    Ok(())
}

/// Laminar in `top`: recorded segments and descriptors, and ticks of the packet generator, with stalls; entries of all
/// its tables change under traffic. Pseudo segments are copies, which its traffic manager may drop.
/// `plant` may change a line.
pub(crate) fn laminar(count: usize, plant: Option<(&str, &str)>) -> Result<(), String> {
    let mut defines = laminar_defines(&[]);
    defines[0].1 = "256".into();
    let loaded = rmt::load(&folder(LAMINAR), &defines).unwrap_or_else(|list| panic!("{}", list[0]));
    let mut around = None;
    let mut rig = Rig::of(&loaded, &mut around);
    let mut entries = Vec::new();
    laminar_entries(&[], &mut |table, keys, action, args| {
        entries.push((table.to_string(), keys.to_vec(), action.to_string(), args.to_vec()));
    });
    let mut random = Random(count as u64);
    entries.iter().for_each(|(table, keys, action, args)| rig.add(table, keys, action, args));
    writeln!(rig.script, "L 34 {:x}\nL 30 12c", BATCH | usize::from(GENERATOR) << 16).unwrap();
    for (at, (port, frame)) in laminar_segments(&mut random, &[], count).into_iter().enumerate() {
        if at % 50 == 0 {
            let stall = |random: &mut Random| [0, 0, 60, 200, 250][random.below(5) as usize];
            let [a, b] = [stall(&mut random), stall(&mut random)];
            writeln!(rig.script, "S {a:x} {b:x}").unwrap();
        }
        rig.packet(port, frame);
        if random.below(10) == 0 {
            writeln!(rig.script, "K {:x}", random.below(200)).unwrap();
            let (table, keys, action, args) = &entries[random.below(entries.len() as u64) as usize];
            let changed: Vec<u128> = args.iter().map(|arg| arg ^ u128::from(random.below(30) == 0)).collect();
            rig.add(table, keys, action, &changed);
        }
    }
    rig.script.push_str("S 0 0\nL 30 0\nW\n");
    rig.read_all();
    let sizes = [("SLOT", 6), ("BEAT", 5), ("QUEUES", QUEUES), ("DEPTH", 2), ("FLIGHT", 3)];
    let model = build("laminar-top", &planted(around.unwrap(), plant), &sizes, count * 2)?;
    let lines = model.run(&rig.script)?;
    let tally = rig.follow(&lines)?;
    println!("laminar in top: {tally:?}", tally = Tally { left: Vec::new(), ..tally });
    assert!(
        [tally.sent, tally.copies, tally.lost, tally.generated].iter().all(|n| *n > count / 100),
        "each thing happens"
    );
    Ok(())
}

/// Packets back to back, without stalls: how many clocks lie between the first that leaves and the last.
fn back_to_back(model: &Model, rig: Rig) -> Result<usize, String> {
    let lines = model.run(&rig.script)?;
    let Tally { left, sent, .. } = rig.follow(&lines)?;
    println!("{sent} packets leave within {} clocks", left[sent - 1] - left[0] + 1);
    Ok(left[sent - 1] - left[0] + 1)
}

/// Short packets, whose headers stay, grow, or go: one a clock leaves. Long ones: a beat a clock, and one more clock
/// where the first beat has bytes of two beats of the packet memory.
pub(crate) fn a_packet_each_clock() -> Result<(), String> {
    let mut around = None;
    Rig::new(&mut around);
    let sizes = [("QUEUES", QUEUES), ("DEPTH", 2)];
    let model = build("clocks", &around.unwrap(), &sizes, 0)?;
    // Bytes, the kind of the header, and clocks of a packet. Kind 3 adds 7 bytes of headers, kind 4 takes 12 away.
    for (len, kind, clocks) in [(57, 0, 1), (57, 3, 1), (24, 4, 1), (64 * 5, 0, 5), (64 * 5, 4, 6)] {
        let mut rig = Rig::new(&mut None);
        let count = 300;
        for number in 0..count as u32 {
            let mut bytes = vec![0x5a; len];
            bytes[..4].copy_from_slice(&[kind, 0, 0, number as u8 % 64]);
            bytes[4..8].copy_from_slice(&number.to_be_bytes());
            rig.packet(5, bytes);
        }
        rig.script.push_str("S 0 0\nW\n");
        let took = back_to_back(&model, rig)?;
        if took > count * clocks + 8 {
            return Err(format!("{count} packets of {len} bytes and kind {kind} took {took} clocks"));
        }
    }
    Ok(())
}

/// Sizes that make no sense are refused, with a sentence.
pub(crate) fn wrong_sizes() {
    let mut around = None;
    Rig::new(&mut around);
    let around = around.unwrap();
    for (name, value, sentence) in [
        ("QUEUES", 3, "a power of two"),
        ("QUEUES", 1, "a power of two"),
        ("SLOT", 0, "SLOT must be from 1 to 12"),
        ("BEAT", 10, "BEAT must be from 1 to 9"),
        ("DEPTH", 0, "DEPTH must be from 1 to 16"),
        ("FLIGHT", 13, "FLIGHT must be from 1 to 12"),
    ] {
        let refused = build("sizes", &around, &[(name, value)], 0).err().unwrap_or_default();
        assert!(refused.contains(sentence), "{name} {value}: {refused}");
    }
}

/// A short run.
pub(crate) fn short() {
    agrees("around", 40, None).unwrap_or_else(|what| panic!("{what}"));
}

/// A long one, and planted bugs.
pub(crate) fn long() {
    agrees("long", 2000, None).unwrap_or_else(|what| panic!("{what}"));
    for (what, from, to) in [
        ("a slot is free before its packet has left", "x_frees ? ", "(x_frees || x_pops) ? "),
        ("more packets enter a half than it has room for", "!e_flight[FLIGHT]", "!(e_flight[FLIGHT] && e_flight[0])"),
        (
            "a beat is shifted by too little",
            "assign base = (origin >>> SHIFT) +",
            "assign base = (origin >>> SHIFT) + 17'sd1 +",
        ),
        (
            "the lowest queue goes first",
            "for (i = 0; i < QUEUES; i = i + 1) if (waits[i])",
            "for (i = QUEUES - 1; i >= 0; i = i - 1) if (waits[i])",
        ),
    ] {
        let found = agrees("planted", 40, Some((from, to))).expect_err(what);
        is_a_difference(what, &found);
    }
    let what = "a generated packet within another one";
    let plant = ("in_tvalid ? out_tready && in_tlast :", "in_tvalid ? out_tready :");
    is_a_difference(what, &laminar(1500, Some(plant)).expect_err(what));
}

/// A planted bug is found by a difference, not by the compiler.
fn is_a_difference(what: &str, found: &str) {
    println!("{what}: {}", found.lines().next().unwrap_or_default());
    assert!(!found.contains("%Error"), "by a difference, not by the compiler: {found}");
}
