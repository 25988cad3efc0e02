//! Asking the kernel's own verifier about a program, where this process may. The object is loaded as the kernel would
//! load it, and closed at once. What it reports is advice: OpenTOE checks programs itself. It lets in some that the
//! kernel refuses, since what cannot be proved is tested while the program runs.
use crate::insn::{CONSTANT, IS_MAP, IS_MAP_DATA, Raw};
use crate::object::{MapDefinition, MapKind, Object};
use engine::Stage;
use port::bpf::{BPF_XDP, BPF_XDP_DEVMAP, Map, MapShape, XdpProgram};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;

// Of linux/bpf.h.
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_RDONLY_PROG: u32 = 1 << 7;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// Bytes for the verifier's log: the reason is at the end.
const LOG: usize = 16 << 20;

/// The kernel verifier's verdict on a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelVerdict {
    /// It would load it.
    Accepted,
    /// It would not: its reason.
    Refused(String),
    /// It could not be asked: why.
    NotAsked(String),
}

impl KernelVerdict {
    /// Has the kernel verify a program. Nothing stays loaded.
    pub fn ask(object: &Object) -> KernelVerdict {
        if object.raw.is_empty() {
            return KernelVerdict::NotAsked("the program was not made from an object".into());
        }
        let maps = object.maps.iter().map(|map| make_map(map).map_err(|error| (map, error)));
        let maps = match maps.collect::<Result<Vec<Map>, _>>() {
            Ok(maps) => maps,
            Err((_, error)) if not_permitted(&error) => return KernelVerdict::NotAsked(why(&error)),
            Err((map, error)) => return KernelVerdict::Refused(format!("its map \"{}\": {error}", map.name)),
        };
        let code: Vec<u64> = code(&object.raw, &maps);
        match load(object, &code, &mut []) {
            Ok(_) => KernelVerdict::Accepted,
            Err(error) if not_permitted(&error) => KernelVerdict::NotAsked(why(&error)),
            Err(_) => {
                let mut log = vec![0; LOG];
                match load(object, &code, &mut log) {
                    Ok(_) => KernelVerdict::Accepted,
                    Err(error) => KernelVerdict::Refused(reason(&log).unwrap_or_else(|| error.to_string())),
                }
            }
        }
    }
}

fn not_permitted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}

fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "the daemon may not load BPF programs: it gave its capabilities up at its start (confine = false keeps them), or had none".into(),
        _ => "this kernel has no BPF".into(),
    }
}

/// The last line of the verifier before its statistics, with the instruction.
fn reason(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next()?).into_owned();
    let figures = ["processed ", "verification time", "stack depth", "max_states", "mark_precise", "peak_states"];
    let mut lines = text.lines().filter(|line| !line.is_empty() && !figures.iter().any(|word| line.starts_with(word)));
    let last = lines.next_back()?.trim().to_owned();
    let is_instruction = |line: &&str| line.split_once(": (").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
    Some(match lines.rev().find(is_instruction) {
        Some(instruction) => {
            format!("{last} (instruction {})", instruction.split(" ;").next().unwrap_or_default().trim())
        }
        None => last,
    })
}

/// The instructions as the kernel reads them, with the descriptors of maps in place of their numbers.
fn code(raw: &[Raw], maps: &[Map]) -> Vec<u64> {
    let word = |insn: &Raw| {
        let refers = insn.code == CONSTANT && matches!(insn.src, IS_MAP | IS_MAP_DATA);
        let map = maps.get(insn.imm as usize).filter(|_| refers);
        let [off_low, off_high] = insn.off.to_ne_bytes();
        let [a, b, c, d] = map.map_or(insn.imm, Map::fd).to_ne_bytes();
        u64::from_ne_bytes([insn.code, insn.dst | insn.src << 4, off_low, off_high, a, b, c, d])
    };
    raw.iter().map(word).collect()
}

fn number(kind: MapKind) -> u32 {
    match kind {
        MapKind::Hash => 1,
        MapKind::Array | MapKind::Data { .. } => 2,
        MapKind::PerCpuHash => 5,
        MapKind::PerCpuArray => 6,
        MapKind::LruHash => 9,
        MapKind::LruPerCpuHash => 10,
        MapKind::LpmTrie => 11,
        MapKind::RingBuffer => 27,
    }
}

fn make_map(map: &MapDefinition) -> io::Result<Map> {
    let constant = matches!(map.kind, MapKind::Data { read_only: true });
    let sized = |bytes| if map.kind == MapKind::RingBuffer { 0 } else { bytes };
    let made = Map::make(MapShape {
        kind: number(map.kind),
        key_size: sized(map.key_size),
        value_size: sized(map.value_size),
        entries: map.max_entries,
        flags: match map.kind {
            MapKind::LpmTrie => BPF_F_NO_PREALLOC,
            _ if constant => BPF_F_RDONLY_PROG,
            _ => 0,
        },
    })?;
    if constant {
        // The verifier computes with constants that nobody can change any more.
        let mut value = map.initial.clone();
        value.resize(map.value_size as usize, 0);
        made.set(&[0; 4], &value)?;
        made.freeze()?;
    }
    Ok(made)
}

/// Loads the program; with a log, the verifier has the reason why not.
fn load(object: &Object, code: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = CString::new(object.license.clone())?;
    let flags = if object.frags { BPF_F_XDP_HAS_FRAGS } else { 0 };
    let attach_type = if object.stage == Stage::Egress { BPF_XDP_DEVMAP } else { BPF_XDP };
    XdpProgram { code, license: &license, flags, attach_type }.load(log)
}
