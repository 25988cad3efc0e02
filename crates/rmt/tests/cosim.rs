//! The simulated model as an engine runs it, against native code: packets through both halves with their copies,
//! tables, registers. And what becomes of it when its process ends.
mod support;

use rmt::Pipeline;
use rmt::cosim::Model;
use rmt::interp::Session;
use rmt::ir::Gress;
use rmt::native::{EntryKey, Input, Mirrored, Native, Output};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::*;

/// A folder of one test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("cosim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether Verilator is here; a sentence where it is not.
fn verilator() -> bool {
    let here = Command::new("verilator").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let here = here.is_ok_and(|status| status.success());
    if !here {
        println!("skipped: verilator is not installed (tests/setup installs it)");
    }
    here
}

/// What came of a packet: how it ended, its headers.
#[derive(Debug, PartialEq, Eq)]
struct End {
    egress: bool,
    forwarded: bool,
    bypass: bool,
    port: u16,
    payload_at: usize,
    head: Vec<u8>,
}

fn end(egress: bool, port: u16, payload_at: usize, output: &Output, head: &[u8]) -> End {
    let Output { forwarded, bypass, .. } = *output;
    // Headers and port of a dropped packet are nothing.
    let head = if forwarded { head[..output.head_len()].to_vec() } else { Vec::new() };
    let (port, payload_at) = if forwarded { (port, payload_at) } else { (0, 0) };
    End { egress, forwarded, bypass: forwarded && bypass, port, payload_at, head }
}

fn copies(pipeline: &Pipeline, output: &Output) -> Vec<Mirrored> {
    match pipeline {
        _ if !output.has_copies() => Vec::new(),
        Pipeline::Native(native) => native.mirrored().collect(),
        Pipeline::Model(model) => model.mirrored().collect(),
    }
}

/// A packet through both halves, as a switch without queues does it, and its copies behind it.
fn switch(pipeline: &mut Pipeline, port: u16, packet: &[u8]) -> Vec<End> {
    let mut head = vec![0; pipeline.room()];
    let through = pipeline.through(Input::whole(port, packet), &mut head);
    let (output, payload_at) = (through.output, through.output.payload_at);
    let mut waiting = Vec::new();
    let mut ends = Vec::new();
    if through.crossed {
        ends.push(end(true, output.port, payload_at, &output, &head));
        waiting = copies(pipeline, &output);
    } else if !output.forwarded || output.bypass {
        ends.push(end(false, output.port, payload_at, &output, &head));
    } else {
        let between = head[..output.head_len()].to_vec();
        let length = between.len() + packet.len() - payload_at;
        let input = Input { port: output.port, queue: output.queue, bytes: &between, length };
        let second = pipeline.one(Gress::Egress, input, &mut head);
        ends.push(end(true, output.port, payload_at, &second, &head));
        waiting = copies(pipeline, &second);
    }
    for copy in waiting {
        let front = copy.front().to_vec();
        let input = Input { port: copy.port, queue: copy.queue, bytes: &front, length: front.len() };
        let output = pipeline.one(Gress::Egress, input, &mut head);
        ends.push(end(true, copy.port, 0, &output, &head));
    }
    ends
}

/// Laminar with its flows, compiled and simulated.
fn pair(folder: &Folder, extensions: &[&str]) -> [Pipeline; 2] {
    let loaded = rmt::load(&support::folder(LAMINAR), &laminar_defines(extensions)).unwrap();
    let model = Model::cached_in(&folder.0, &loaded, None).unwrap_or_else(|what| panic!("{what}"));
    let native = Native::new(loaded.program).unwrap();
    let mut both = [Pipeline::Native(native), Pipeline::Model(Box::new(model))];
    for pipeline in &mut both {
        pipeline.set_session(1, Session { port: 0, truncate: 0 });
        laminar_entries(extensions, &mut |table, keys, action, args| {
            pipeline.table_add(table, keys, 0, action, args).unwrap();
        });
    }
    both
}

#[test]
fn a_model_does_what_native_code_does() {
    if !verilator() {
        return;
    }
    let (folder, extensions) = (Folder::new("same"), ["SACK", "TIMELY"]);
    let [mut native, mut model] = pair(&folder, &extensions);
    let mut random = Random(5);
    let registers = native.registers().len();
    for (at, (port, frame)) in laminar_segments(&mut random, &extensions, 600).iter().enumerate() {
        for pipeline in [&mut native, &mut model] {
            pipeline.set_time(at as u64 * 50_000);
        }
        let [expected, seen] = [&mut native, &mut model].map(|pipeline| switch(pipeline, *port, frame));
        assert_eq!(seen, expected, "packet {at} from port {port}: {frame:02x?}");
        if random.below(30) == 0 {
            let (register, index) = (random.below(registers as u64) as usize, random.below(4) as u32);
            let words = [random.value(32) as u32, random.value(32) as u32];
            for pipeline in [&mut native, &mut model] {
                pipeline.write(register, index, words);
            }
        }
        if random.below(50) == 0 {
            let key = [EntryKey::Exact(random.below(4).into())];
            let [expected, seen] = [&mut native, &mut model].map(|pipeline| pipeline.table_remove("headers", &key));
            assert_eq!(seen, expected);
        }
    }
    for register in 0..registers {
        for index in 0..8 {
            let name = &native.registers()[register].name;
            assert_eq!(model.read(register, index), native.read(register, index), "{name}[{index}]");
        }
    }
    assert_eq!(model.read(0, u32::MAX), [0, 0]);
    // What was built is found again.
    let built = |folder: &Folder| std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(built(&folder), 1);
    let Pipeline::Model(first) = &model else { panic!("the second one is a model") };
    let process = format!("/proc/{}", first.process());
    assert!(std::path::Path::new(&process).exists());
    // It has one thread, which strict mode confines.
    assert_eq!(std::fs::read_dir(format!("{process}/task")).unwrap().count(), 1);
    let begun = std::fs::read_to_string(format!("{process}/status")).unwrap();
    assert!(begun.contains("Seccomp:\t1\n"), "strict mode: {begun}");
    drop(model);
    assert!(!std::path::Path::new(&process).exists(), "it ends with its model");
    ends_with_its_process(pair(&folder, &extensions));
    assert_eq!(built(&folder), 1);
}

/// The process of a model is killed: that is reported, and packets are dropped.
fn ends_with_its_process([_, mut pipeline]: [Pipeline; 2]) {
    let Pipeline::Model(model) = &pipeline else { panic!("the second one is a model") };
    assert_eq!(pipeline.failure(), None);
    let process = model.process().to_string();
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    let ends = switch(&mut pipeline, 8, &[0; 60]);
    assert!(ends.len() == 1 && !ends[0].forwarded, "{ends:?}");
    assert_eq!(pipeline.read(0, 0), [0, 0]);
    let failure = pipeline.failure().expect("it has failed");
    assert!(failure.contains(&process) && failure.contains("has ended"), "{failure}");
}

#[test]
fn a_waveform_has_the_signals_of_the_program_and_all_clocks() {
    if !verilator() {
        return;
    }
    let folder = Folder::new("waveform");
    let file = folder.0.join("wave.vcd");
    let loaded = small_program("action go() { hdr.seg.port = 7; }", "go();");
    let mut model = Model::cached_in(&folder.0, &loaded, Some(&file)).unwrap_or_else(|what| panic!("{what}"));
    let mut head = vec![0; model.room()];
    for _ in 0..20 {
        model.through(Input::whole(0, &[0; 60]), &mut head);
    }
    assert_eq!(model.failure(), None);
    drop(model);
    let waveform = std::fs::read_to_string(&file).unwrap();
    let (names, changes) = waveform.split_once("$enddefinitions").expect("a VCD has definitions");
    for name in ["ingress", "egress", "clk", "hdr_seg_port"] {
        assert!(names.contains(&format!(" {name} ")), "no signal or module {name}:\n{names}");
    }
    let times = changes.lines().filter(|line| line.starts_with('#')).count();
    assert!(times >= 80, "20 packets through both halves are more than {times} edges of the clock");
}

#[test]
fn what_cannot_be_rtl_is_refused_with_its_place() {
    let folder = Folder::new("refused");
    let decls = "Random<bit<16>>() r; action go() { hdr.seg.port = r.get(); }";
    let refused = Model::cached_in(&folder.0, &small_program(decls, "go();"), None);
    let what = refused.err().expect("it is refused");
    assert!(what.contains("case.p4:") && what.contains("a random number"), "{what}");
}
