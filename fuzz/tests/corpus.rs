//! Every kept input, and each of them changed in a few ways that are the same each time.
use std::fs;
use std::path::{Path, PathBuf};

/// Changes of each input.
const CHANGES: u64 = 4;
/// Inputs of a target that are also changed.
const CHANGED: usize = 60;

fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Another input: some bytes changed, taken out, or repeated.
fn changed(input: &[u8], mut seed: u64) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    for _ in 0..1 + random(4) {
        let at = random(bytes.len());
        match random(4) {
            _ if bytes.is_empty() => bytes.push(random(256) as u8),
            0 => bytes[at] ^= 1 << random(8),
            1 => bytes[at] = random(256) as u8,
            2 => drop(bytes.drain(at..(at + random(8)).min(input.len()).max(at).min(bytes.len()))),
            _ => {
                let part = bytes[at..(at + random(16)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

fn replay(name: &str) {
    let target = fuzz::target(name).unwrap();
    let inputs = inputs(name);
    assert!(!inputs.is_empty(), "no inputs are kept for {name}");
    inputs.iter().for_each(|input| target(input));
    let step = inputs.len().div_ceil(CHANGED);
    for (number, input) in inputs.iter().enumerate().step_by(step) {
        for change in 0..CHANGES {
            target(&changed(input, number as u64 * CHANGES + change));
        }
    }
}

#[test]
fn frames() {
    replay("frames");
}

#[test]
fn ipv6() {
    replay("ipv6");
}

#[test]
fn application() {
    replay("application");
}

#[test]
fn management() {
    replay("management");
}

#[test]
fn configuration() {
    replay("configuration");
}

#[test]
fn xdp() {
    replay("xdp");
}

#[test]
fn p4() {
    replay("p4");
}

#[test]
fn roce() {
    replay("roce");
}

#[test]
fn cm() {
    replay("cm");
}

#[test]
fn region() {
    replay("region");
}
