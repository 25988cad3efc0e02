//! Generated RTL, simulated by Verilator, against the interpreter: outputs packet by packet, then registers.
#[path = "../support/mod.rs"]
mod support;

mod around;
mod simulation;
mod verilated;

use rmt::interp::{EntryKey, Queued};
use rmt::ir::Gress;
use rmt::rtl::Timing;
use simulation::Pair;
use std::path::Path;
use support::*;
use verilated::verilator;

/// Changes of tables and registers at random.
fn disturb(pair: &mut Pair, random: &mut Random) {
    let program = pair.machine.program().clone();
    for table in &program.tables {
        let Change { keys, removes, priority, action, args } = Change::of(&program, table, random);
        match keys {
            None => pair.set_default(&table.name, &action, &args),
            Some(keys) if removes => pair.remove(&table.name, &keys),
            Some(keys) => pair.add(&table.name, &keys, priority, &action, &args),
        }
    }
    for info in &program.registers {
        let index = random.below(u64::from(info.size.min(8))) as u32;
        let words: Vec<u128> = info.words.iter().map(|ty| random.value(ty.width())).collect();
        pair.write(&info.name, index, &words);
    }
}

/// Random packets, table entries and register values, back to back and with gaps.
fn accept_program(path: &Path, steps: u64) -> Result<usize, String> {
    let name = path.file_stem().unwrap().to_str().unwrap().to_string();
    let loaded = load(path);
    let mut pair = Pair::new(&loaded, &[Gress::Egress], Timing::Split)?;
    let mut random = Random(steps);
    for _ in 0..steps {
        if random.below(4) == 0 {
            disturb(&mut pair, &mut random);
        }
        pair.idle = random.below(3).saturating_sub(1);
        let queued = Queued { port: 1, queue: 2, bypass: false, data: bytes(&mut random, 60) };
        pair.egress(&queued);
    }
    pair.run(&name)
}

/// Laminar with its flows, for these halves.
fn laminar(extensions: &[&str], halves: &[Gress], timing: Timing) -> Pair {
    let mut defines = laminar_defines(extensions);
    // More flows than are compared at once: their tables become memories.
    defines[0].1 = "256".into();
    let loaded = rmt::load(&folder(LAMINAR), &defines).unwrap_or_else(|list| panic!("{}", list[0]));
    let mut pair = Pair::new(&loaded, halves, timing).unwrap_or_else(|what| panic!("{what}"));
    laminar_entries(extensions, &mut |table, keys, action, args| pair.add(table, keys, 0, action, args));
    pair
}

/// Flow of a frame of `laminar_segments`.
fn flow_of(port: u16, frame: &[u8]) -> Option<u8> {
    let at = match (port, frame.get(12)) {
        (8, Some(8)) => 35,
        (8, Some(0x86)) => 55,
        (64 | 65, _) => 5,
        _ => return frame.get(5).copied().filter(|_| port == 6),
    };
    frame.get(at).map(|low| low.wrapping_sub(if port == 8 { 4000u16 as u8 } else { 0 }))
}

/// Recorded segments, descriptors and ticks through both halves of Laminar, and noise; then those of one flow, which
/// egress meets every clock.
fn laminar_agrees(extensions: &[&str], timing: Timing, count: usize, seed: u64) -> Result<usize, String> {
    let mut pair = laminar(extensions, &[Gress::Ingress, Gress::Egress], timing);
    let mut random = Random(seed);
    for (at, (port, frame)) in laminar_segments(&mut random, extensions, count).iter().enumerate() {
        pair.set_time(at as u64 * 50_000);
        pair.idle = random.below(8).saturating_sub(6);
        pair.process(*port, frame);
        if random.below(20) == 0 {
            let noise = bytes(&mut random, 120);
            pair.process([8, 64, 65, 66, 6][random.below(5) as usize], &noise);
            let queued = Queued { port: 8, queue: 0, bypass: false, data: bytes(&mut random, 60) };
            pair.egress(&queued);
        }
        if random.below(100) == 0 {
            disturb(&mut pair, &mut random);
        }
    }
    pair.idle = 0;
    let frames = laminar_segments(&mut random, extensions, count);
    frames.iter().filter(|(port, frame)| flow_of(*port, frame) == Some(0)).for_each(|(p, f)| pair.process(*p, f));
    pair.run(&format!("laminar{}", extensions.join("-")))
}

#[test]
fn laminar_agrees_with_the_interpreter() {
    if verilator() {
        let count = laminar_agrees(&[], Timing::Split, 3000, 1).unwrap_or_else(|what| panic!("{what}"));
        println!("laminar: {count} operations agree");
    }
}

/// Not compared with a bound: machines differ.
#[test]
#[ignore = "a minute, and a core: make rtl prints it"]
fn how_fast_the_model_is() {
    assert!(verilator(), "Verilator is needed");
    for timing in [Timing::Merged, Timing::Split] {
        let mut pair = laminar(&[], &[Gress::Ingress, Gress::Egress], timing);
        for (port, frame) in laminar_segments(&mut Random(1), &[], 2000) {
            pair.process(port, &frame);
        }
        for (half, packets) in pair.speed("speed", 200) {
            println!("{timing:?}, {}: {packets} packets a second", half.name());
            assert!(packets > 0);
        }
    }
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn every_extension_of_laminar_agrees() {
    assert!(verilator(), "Verilator is needed");
    for (seed, extensions) in EXTENSIONS.iter().enumerate() {
        let segments = if extensions.is_empty() { 500_000 } else { 5_000 };
        for timing in [Timing::Split, Timing::Merged] {
            let count = laminar_agrees(extensions, timing, segments, seed as u64 + 2);
            let count = count.unwrap_or_else(|what| panic!("{what}"));
            println!("laminar with {extensions:?}, {timing:?}: {count} operations agree");
        }
    }
}

/// What the RTL subset leaves out: the sum of the payload, which passes by.
const REFUSED: &[&str] = &["parser_checksum"];

#[test]
#[ignore = "minutes: make rtl runs it"]
fn every_accepted_program_agrees() {
    assert!(verilator(), "Verilator is needed");
    let mut refused = Vec::new();
    for path in accepted() {
        match accept_program(&path, 5000) {
            Ok(count) => println!("{}: {count} operations agree", path.display()),
            Err(what) if what.contains("cannot be made RTL") => refused.push(path.file_stem().unwrap().to_owned()),
            Err(what) => panic!("{what}"),
        }
    }
    assert_eq!(refused, REFUSED);
}

#[test]
fn a_few_accepted_programs_agree() {
    if verilator() {
        for name in ["ooo_insert", "math_unit"] {
            let path = folder(&format!("tests/p4/accept/{name}.p4"));
            accept_program(&path, 1000).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

const KINDS: &str = "
    action set(bit<32> v) { hdr.seg.word = v; }
    action low(bit<8> v) { hdr.seg.seq[7:0] = v; }
    action port(bit<16> v) { hdr.seg.port = v; }
    Hash<bit<16>>(HashAlgorithm_t.CRC16) crc16;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) crc32;
    Counter<bit<32>, bit<16>>(100, CounterType_t.PACKETS) packets;
    action sums() { hdr.seg.port = crc16.get({ hdr.seg.seq, hdr.seg.small, 3w5 }); packets.count(hdr.seg.flow); }
    Register<bit<32>, bit<16>>(50, 77) sums_of;
    RegisterAction<bit<32>, bit<16>, bit<32>>(sums_of) bump = {
        void apply(inout bit<32> v, out bit<32> r) { r = v; v = v + hdr.seg.seq_end; }
    };
    action bumps() { hdr.seg.word = bump.execute(hdr.seg.flow); }
    action sum() { hdr.seg.ack = crc32.get({ hdr.seg.seq, hdr.seg.seq_end }); }
    table many { key = { hdr.seg.seq: exact; hdr.seg.kind: exact; } actions = { set; NoAction; }
        default_action = set(9); size = 200; }
    table few { key = { hdr.seg.flow: exact; } actions = { port; NoAction; } default_action = NoAction(); size = 20; }
    table masks { key = { hdr.seg.seq_end: ternary; hdr.seg.small: exact; } actions = { low; NoAction; }
        default_action = NoAction(); size = 40; }
    table prefixes { key = { hdr.seg.ack: lpm; } actions = { NoAction; sum; } default_action = NoAction(); size = 40; }
    table ranges { key = { hdr.seg.len: range; } actions = { port; NoAction; } default_action = NoAction(); size = 40; }
";

const KINDS_APPLY: &str = "
    many.apply();
    masks.apply();
    if (prefixes.apply().hit) { hdr.seg.kind = 1; } else { few.apply(); }
    switch (ranges.apply().action_run) { port: { hdr.seg.len = 3; } default: { exit; } }
    sums();
    bumps();
";

/// Tables of all kinds with entries that come and go between the packets; a register that does not begin as zero.
fn tables(plant: impl Fn(&mut Pair)) -> Result<usize, String> {
    let mut pair = Pair::new(&small_program(KINDS, KINDS_APPLY), &[Gress::Ingress], Timing::Split)?;
    plant(&mut pair);
    let mut random = Random(3);
    // Enough entries that some have to make room for others.
    for i in 0..180u32 {
        pair.add("many", &[EntryKey::Exact(u128::from(i) * 7), EntryKey::Exact(0)], 0, "set", &[u128::from(i)]);
    }
    for _ in 0..1500 {
        disturb(&mut pair, &mut random);
        for _ in 0..4 {
            let mut packet = bytes(&mut random, 40);
            if let (Some(seq), 0) = (packet.get_mut(0..12), random.below(2)) {
                seq.copy_from_slice(&[0; 12]);
                seq[8..12].copy_from_slice(&(random.below(180) as u32 * 7).to_be_bytes());
            }
            pair.ingress(3, &packet);
        }
    }
    pair.run("tables")
}

#[test]
fn tables_of_all_kinds_agree() {
    if verilator() {
        tables(|_| {}).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Changes a line of a half's files, which must be there.
fn plant(pair: &mut Pair, gress: Gress, from: &str, to: &str) {
    let mut found = false;
    for file in &mut pair.design(gress).files {
        found |= file.text.contains(from);
        file.text = file.text.replacen(from, to, 1);
    }
    assert!(found, "{from} stands somewhere");
}

/// Packets of so many flows in turn meet registers from which a way of forwarding was taken.
fn without_forwarding(timing: Timing, flows: u8, [from, to]: [&str; 2]) {
    let loaded = load(&folder("tests/p4/accept/two_updates.p4"));
    let mut pair = Pair::new(&loaded, &[Gress::Egress], timing).unwrap();
    plant(&mut pair, Gress::Egress, from, to);
    let mut random = Random(9);
    for packet in 0..500 {
        let mut data = bytes(&mut random, 60);
        data.resize(60, 0);
        data[2..4].copy_from_slice(&[0, (packet % u32::from(flows)) as u8]);
        pair.egress(&Queued { port: 1, queue: 2, bypass: false, data });
    }
    let what = pair.run("forwarding").expect_err("the bug is found");
    assert!(what.contains("operation"), "by a difference, not by the compiler: {what}");
}

#[test]
fn a_register_without_forwarding_is_found() {
    if verilator() {
        let last = ["forward ? last : read", "(forward && 1'b0) ? last : read"];
        without_forwarding(Timing::Merged, 1, last);
        // The entry of the packet two in front, and of the one in front.
        without_forwarding(Timing::Split, 2, last);
        without_forwarding(Timing::Split, 1, ["index_w == index_q ? changed", "index_w != index_w ? changed"]);
    }
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn a_table_with_another_hash_is_found() {
    assert!(verilator(), "Verilator is needed");
    let hash = |pair: &mut Pair| plant(pair, Gress::Ingress, "32'h82f63b78", "32'h82f63b79");
    let what = tables(hash).expect_err("the bug is found");
    assert!(what.contains("operation"), "by a difference, not by the compiler: {what}");
    let crc = |pair: &mut Pair| plant(pair, Gress::Ingress, "(crc >> 1) ^ 16'ha001", "(crc >> 1) ^ 16'ha003");
    let what = tables(crc).expect_err("the bug is found");
    assert!(what.contains("operation"), "by a difference, not by the compiler: {what}");
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn headers_in_another_order_are_found() {
    assert!(verilator(), "Verilator is needed");
    let mut pair = laminar(&[], &[Gress::Egress], Timing::Split);
    // Ethernet and IPv4 change places: the second clock puts the last header first.
    let files = &mut pair.design(Gress::Egress).files;
    let deparser = files.iter_mut().find(|file| file.name == "egress_deparser").unwrap();
    let at = |header: usize| deparser.text.find(&format!("if (emit_{header}_q) data")).unwrap();
    let (ipv4, ethernet, dma) = (at(2), at(1), at(0));
    let text = &deparser.text;
    deparser.text = [&text[..ipv4], &text[ethernet..dma], &text[ipv4..ethernet], &text[dma..]].concat();
    let mut random = Random(4);
    for (port, frame) in laminar_segments(&mut random, &[], 1000) {
        pair.process(port, &frame);
    }
    let what = pair.run("order").expect_err("the bug is found");
    assert!(what.contains("operation"), "by a difference, not by the compiler: {what}");
}

#[test]
fn both_halves_and_what_stands_around_them_agree() {
    if verilator() {
        around::short();
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    if verilator() {
        around::wrong_sizes();
    }
}

#[test]
fn laminar_agrees_with_all_around_it() {
    if verilator() {
        around::laminar(1500, None).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_packet_leaves_each_clock() {
    if verilator() {
        around::a_packet_each_clock().unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
#[ignore = "minutes: make rtl runs it"]
fn both_halves_and_what_stands_around_them_agree_at_length() {
    assert!(verilator(), "Verilator is needed");
    around::long();
    around::laminar(50_000, None).unwrap_or_else(|what| panic!("{what}"));
}

/// What is outside the subset is named, with its place.
#[test]
fn what_cannot_be_rtl_is_refused() {
    let cases = [
        ("Random<bit<16>>() r; action go() { hdr.seg.port = r.get(); }", "go();", "a random number"),
        (
            "Meter<bit<16>>(64, MeterType_t.BYTES) m; action go() { hdr.seg.kind = m.execute(hdr.seg.flow); }",
            "go();",
            "a meter",
        ),
        (
            "table t { key = { hdr.seg.seq: ternary; } actions = { NoAction; } size = 1000; }",
            "t.apply();",
            "1000 entries that have masks",
        ),
    ];
    for (decls, apply, expected) in cases {
        let list =
            rmt::rtl::generate(&small_program(decls, apply), Gress::Ingress, Timing::Split).expect_err("it is refused");
        let text = list[0].to_string();
        assert!(text.contains(expected) && text.contains("case.p4:") && text.contains("docs/RTL.md"), "{text}");
    }
    let loaded = load(&folder("tests/p4/accept/parser_checksum.p4"));
    let list = rmt::rtl::generate(&loaded, Gress::Egress, Timing::Split).expect_err("it is refused");
    assert!(list[0].to_string().contains("the sum of the payload"), "{}", list[0]);
}

#[test]
fn a_signal_is_explained_by_lines_of_the_program() {
    let loaded = rmt::load(&folder(LAMINAR), &laminar_defines(&[])).unwrap();
    let design = rmt::rtl::generate(&loaded, Gress::Egress, Timing::Split).unwrap();
    let explain = |name: &str| rmt::rtl::explain(&loaded, &design, name);
    let edge = explain("hdr.seg.ack_edge").expect("it is a field of the program");
    assert_eq!(edge, explain("hdr_seg_ack_edge").unwrap());
    assert_eq!(edge.field.as_deref(), Some("hdr.seg.ack_edge"));
    let setter =
        edge.set.iter().find(|set| set.text.contains("meta_snd_una")).expect("the table `usable_edge` sets it");
    let [program, action] = [&setter.program, &setter.action].map(|place| place.clone().unwrap_or_default());
    assert!(program.starts_with("transmission.p4:"), "{setter:?}");
    assert!(action.starts_with("transmit_window.forget_edge (transmission.p4:"), "{setter:?}");
    let line = |place: &str| place.trim_end_matches(')').rsplit(':').next().unwrap().parse::<usize>().unwrap();
    let text = std::fs::read_to_string(folder("../../p4/transmission.p4")).unwrap();
    assert!(text.lines().nth(line(&program) - 1).unwrap().contains("usable_edge"), "the table is applied at {program}");
    assert!(text.lines().nth(line(&action) - 1).unwrap().contains("forget_edge"), "the action stands at {action}");
    assert_eq!(explain("hdr_seg_nothing"), None);
}
