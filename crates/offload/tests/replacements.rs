//! Replacement of two functions, again and again, while a client calls them. The old version or the new one answers
//! each call, and nothing is left of the removed ones.
//!
//! `OFFLOAD_REPLACEMENTS=1000 cargo test --profile bench -p offload --test replacements` replaces each a thousand
//! times.
mod fixture;

use fixture::{Fixture, library_of, until};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Opcodes of the two functions.
const OPCODES: [u32; 2] = [0x90, 0x91];
/// Replacements before anything is counted: allocators and caches have grown by then.
const BEFORE: usize = 20;
/// What the worker's own memory may grow by, KiB: less than a page for each of a thousand libraries.
const GROWTH_KIB: u64 = 3 << 10;

/// A version of a function: it reads the host's memory, so that calls wait in it while it is replaced.
fn version(opcode: u32, version: u32) -> PathBuf {
    let text = format!(
        "#include <string.h>
static int answer(offload_context *c) {{
    uint64_t request[2], *response = alloc_resp(c, 24);
    if (c->request_size != sizeof request || !response) return -1;
    memcpy(request, c->request, sizeof request);
    if (wait_dma_finish(c, submit_dma(c, DMA_READ, request[0], response + 2, 8))) return -1;
    response[0] = {version};
    response[1] = {version} * 1000003ull + request[1] * c->opcode;
    return submit_resp(c, response, 24);
}}
int offload_init(void) {{ return register_opcode({opcode:#x}, OFFLOAD_EVERY_QP, answer); }}"
    );
    library_of(&format!("replaced-{opcode:x}-{version}"), &text)
}

/// How often each function is replaced.
fn replacements() -> usize {
    std::env::var("OFFLOAD_REPLACEMENTS").map_or(100, |text| text.parse().expect("OFFLOAD_REPLACEMENTS is a number"))
}

/// What a process has.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    threads: usize,
    descriptors: usize,
    /// Mappings of libraries of functions.
    libraries: usize,
}

fn held(pid: u32) -> Held {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let libraries = maps.lines().filter(|line| line.contains("offload-library") && line.contains("r-xp")).count();
    Held { threads: count("task"), descriptors: count("fd"), libraries }
}

/// Its own memory, KiB.
fn private_kib(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let private = text.lines().filter_map(|line| line.strip_prefix("Private_Dirty:"));
    private.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

/// Ends a client by the end of its input: its answers of each function, refused, by version 1 and by version 2.
fn answers(mut client: Child, mut output: impl Read) -> Vec<Vec<u64>> {
    drop(client.stdin.take());
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(client.wait().unwrap().success(), "a wrong answer: {text}");
    text.lines().map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect()
}

#[test]
fn two_functions_are_replaced_again_and_again_under_load() {
    let fixture = Fixture::new(&[]);
    let host = fixture.host(7000, &[]);
    let versions = OPCODES.map(|opcode| [1, 2].map(|number| version(opcode, number)));
    let replace = |round: usize| {
        for (opcode, files) in OPCODES.iter().zip(&versions) {
            fixture.load(&format!("replaced-{opcode:x}"), &files[round % 2]);
        }
    };
    replace(0);
    let [a, b] = OPCODES.map(|opcode| opcode.to_string());
    let mut command = fixture.client(&host, &["versions", &a, &b]);
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(client.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let calls = || fixture.view().libraries.iter().map(|library| library.calls).min().unwrap();
    let processes = || [fixture.daemon.id(), fixture.engine.id(), fixture.view().worker.unwrap()];
    let mut before = None;
    for round in 1..=replacements() + BEFORE {
        // Each version is called before the next one comes.
        until("calls of both functions", || calls() > 0);
        if round == BEFORE {
            before = Some((processes().map(held), private_kib(processes()[2])));
        }
        replace(round);
    }
    until("calls of the last versions", || calls() > 0);
    let (counted, kib) = before.unwrap();
    // A version that calls are still in is unloaded with the last of them.
    until("nothing more than at the beginning", || processes().map(held) == counted);
    let grown = private_kib(processes()[2]).saturating_sub(kib);
    assert!(grown < GROWTH_KIB, "{grown} KiB more");
    let answered = answers(client, output);
    println!("{} replacements of each, {grown} KiB more; refused, version 1, version 2: {answered:?}", replacements());
    for of in &answered {
        assert!(of[0] == 0 && of[1] >= replacements() as u64 / 2 && of[2] >= replacements() as u64 / 2, "{answered:?}");
    }
    let view = fixture.view();
    assert_eq!((view.restarts, view.libraries.len()), (0, OPCODES.len()));
    assert!(view.libraries.iter().all(|library| library.failed == 0 && library.stopped.is_none()), "{view:?}");
}
