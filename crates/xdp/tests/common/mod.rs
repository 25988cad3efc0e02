//! For the tests: objects made with clang, frames, and running a module on them.
#![allow(dead_code)]
use engine::{Module, Packet, Verdict};
use port::{Frame, FramePool};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use xdp::{Limits, Object, Program};

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A name in the tests' own folder that nobody else uses.
pub(crate) fn temporary(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("opentoe-xdp-{}-{count}-{name}", std::process::id()))
}

/// Compiles a file as `make xdp` does; `more` are further options.
pub(crate) fn compile_file(source: &Path, more: &[&str]) -> Vec<u8> {
    let output = temporary("module.o");
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let status = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", &include, "-c", "-o"])
        .arg(&output)
        .args(more)
        .arg(source)
        .status()
        .expect("clang is installed by tests/setup");
    assert!(status.success(), "clang refuses {}", source.display());
    let bytes = std::fs::read(&output).expect("clang wrote it");
    let _ = std::fs::remove_file(&output);
    bytes
}

/// Compiles C; `#include`s of all usual headers stand before it, and a licence behind.
pub(crate) fn compile(body: &str) -> Vec<u8> {
    compile_with(body, &[])
}

pub(crate) fn compile_with(body: &str, more: &[&str]) -> Vec<u8> {
    let source = temporary("module.c");
    let text = format!("#include \"packet.h\"\n{body}\nchar LICENSE[] SEC(\"license\") = \"Dual MIT/GPL\";\n");
    std::fs::write(&source, text).expect("the temporary folder can be written");
    let include = format!("-I{}", root().join("xdp").display());
    let mut options = vec![include.as_str(), "-Wno-unused-function"];
    options.extend(more);
    let bytes = compile_file(&source, &options);
    let _ = std::fs::remove_file(&source);
    bytes
}

/// The object of a shipped module.
pub(crate) fn shipped(name: &str) -> Vec<u8> {
    compile_file(&root().join("xdp").join(format!("{name}.c")), &[])
}

pub(crate) fn limits() -> Limits {
    Limits { seed: 7, replicas: 4, ..Limits::default() }
}

pub(crate) fn load(bytes: &[u8]) -> Result<Arc<Program>, String> {
    Program::load(Object::parse(bytes)?, &limits())
}

/// Loads C that is right.
pub(crate) fn program(body: &str) -> Arc<Program> {
    load(&compile(body)).unwrap_or_else(|why| panic!("{why}"))
}

/// The sentence with which C is refused.
pub(crate) fn refused(body: &str) -> String {
    load(&compile(body)).err().unwrap_or_else(|| panic!("it was let in: {body}"))
}

pub(crate) fn frame(bytes: &[u8]) -> Box<Frame> {
    let mut frame = FramePool::new(4).large();
    frame.resize(bytes.len());
    frame.bytes_mut().copy_from_slice(bytes);
    frame
}

pub(crate) fn run(module: &mut dyn Module, frame: &mut Frame) -> Verdict {
    module.process(Packet { frame, flow: None, now: 1_000 })
}

/// An IPv4 frame with TCP or UDP ports, and a SYN where it is TCP.
pub(crate) fn packet(protocol: u8, source: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    bytes.extend(source);
    bytes.extend([10, 0, 0, 1]);
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x10, 0, 0, 0, 0, 0]);
    bytes.extend(*b"123456");
    bytes
}

/// A frame of IPv4 and TCP or UDP, tagged or not, cut short or broken somewhere, by a number.
pub(crate) fn noisy(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let protocol = [6, 6, 17, 1][next(4) as usize];
    let mut bytes = packet(protocol, [10, 0, 0, next(4) as u8], (next(100) as u16, 80));
    if next(3) == 0 {
        let tag = [0x81, 0, next(16) as u8, next(256) as u8];
        bytes.splice(12..12, tag);
    }
    if next(3) == 0 {
        let at = 12 + next(bytes.len() as u64 - 12) as usize;
        bytes[at] = next(256) as u8;
    }
    if next(4) == 0 {
        bytes.truncate(14 + next(bytes.len() as u64 - 14) as usize);
    }
    bytes
}
