//! Asking the kernel's own verifier about a program, where this process may: the object is loaded as the kernel would load it,
//! and let go at once. What it says is advice: OpenTOE checks programs itself, and lets in some that the kernel refuses
//! (what cannot be proved is looked at while the program runs).
#![allow(unsafe_code)]

use crate::insn::{CONSTANT, IS_MAP, IS_MAP_DATA, Raw};
use crate::object::{MapDefinition, MapKind, Object};
use engine::Stage;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// Of linux/bpf.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_MAP_FREEZE: libc::c_int = 22;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_RDONLY_PROG: u32 = 1 << 7;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_XDP_DEVMAP: u32 = 33;
/// Bytes for what the verifier says: the reason is at the end.
const LOG: usize = 16 << 20;

/// What the kernel's verifier says of a program.
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
    /// Has the kernel look at a program. Nothing stays loaded.
    pub fn ask(object: &Object) -> KernelVerdict {
        if object.raw.is_empty() {
            return KernelVerdict::NotAsked("the program was not made from an object".into());
        }
        let maps = object.maps.iter().map(|map| make_map(map).map_err(|error| (map, error)));
        let maps = match maps.collect::<Result<Vec<OwnedFd>, _>>() {
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
        Some(libc::EPERM) => "the daemon may not load BPF programs (CAP_BPF and CAP_NET_ADMIN)".into(),
        _ => "this kernel has no BPF".into(),
    }
}

/// The last thing that the verifier said before its statistics, with the instruction.
fn reason(log: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next()?).into_owned();
    let figures = ["processed ", "verification time", "stack depth", "max_states", "mark_precise", "peak_states"];
    let mut said = text.lines().filter(|line| !line.is_empty() && !figures.iter().any(|word| line.starts_with(word)));
    let last = said.next_back()?.trim().to_owned();
    let is_instruction = |line: &&str| line.split_once(": (").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
    Some(match said.rev().find(is_instruction) {
        Some(instruction) => {
            format!("{last} (instruction {})", instruction.split(" ;").next().unwrap_or_default().trim())
        }
        None => last,
    })
}

/// The instructions as the kernel reads them, with the descriptors of maps in place of their numbers.
fn code(raw: &[Raw], maps: &[OwnedFd]) -> Vec<u64> {
    let word = |insn: &Raw| {
        let refers = insn.code == CONSTANT && matches!(insn.src, IS_MAP | IS_MAP_DATA);
        let map = maps.get(insn.imm as usize).filter(|_| refers);
        let [off_low, off_high] = insn.off.to_ne_bytes();
        let [a, b, c, d] = map.map_or(insn.imm, |map| map.as_raw_fd()).to_ne_bytes();
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

fn make_map(map: &MapDefinition) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    }
    let constant = matches!(map.kind, MapKind::Data { read_only: true });
    let is_ring = map.kind == MapKind::RingBuffer;
    let made = bpf(
        BPF_MAP_CREATE,
        &Attributes {
            map_type: number(map.kind),
            key_size: if is_ring { 0 } else { map.key_size },
            value_size: if is_ring { 0 } else { map.value_size },
            max_entries: map.max_entries,
            flags: match map.kind {
                MapKind::LpmTrie => BPF_F_NO_PREALLOC,
                _ if constant => BPF_F_RDONLY_PROG,
                _ => 0,
            },
        },
    );
    let made = owned(made?);
    if constant {
        fill(&made, map)?;
    }
    Ok(made)
}

/// The verifier computes with constants that nobody can change any more.
fn fill(made: &OwnedFd, map: &MapDefinition) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let mut value = map.initial.clone();
    value.resize(map.value_size as usize, 0);
    let (number, key) = (made.as_raw_fd() as u32, 0u32);
    let (key_at, value_at) = (&raw const key as u64, value.as_ptr() as u64);
    bpf(BPF_MAP_UPDATE_ELEM, &Attributes { map: number, pad: 0, key: key_at, value: value_at, flags: 0 })?;
    bpf(BPF_MAP_FREEZE, &number).map(|_| ())
}

/// Loads the program; with a log, the verifier says why not.
fn load(object: &Object, code: &[u64], log: &mut [u8]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        instructions: u32,
        at: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_at: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let mut license = object.license.clone();
    license.push(0);
    let attributes = Attributes {
        program_type: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        at: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_at: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: if object.frags { BPF_F_XDP_HAS_FRAGS } else { 0 },
        name: [0; 16],
        interface: 0,
        attach_type: if object.stage == Stage::Egress { BPF_XDP_DEVMAP } else { BPF_XDP },
    };
    bpf(BPF_PROG_LOAD, &attributes).map(owned)
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are a whole, initialised prefix of union bpf_attr for this command, with its size; what
    // they point at (code, licence, log, key, value) lives in the caller's frame, with the sizes given beside it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the descriptor was just returned by the kernel and is owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
