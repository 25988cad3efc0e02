//! The XDP program that hands an interface's frames to the socket, loaded with bpf(2). Nothing is pinned: program, map
//! and attachment go with their descriptors, also when the process is killed.
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// Of linux/bpf.h and linux/if_link.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// An attached program; detached when dropped.
pub(super) struct Program {
    _link: OwnedFd,
    /// In the driver, before the kernel has made anything of the frame; otherwise in the generic path.
    pub(super) native: bool,
}

impl Program {
    /// Attaches a program that redirects frames of `queue` to `socket`; frames of other queues go on to the kernel.
    pub(super) fn attach(interface: u32, queue: u32, socket: RawFd) -> Result<Program, String> {
        let map = make_map(queue + 1).map_err(|e| format!("cannot make the map of sockets: {e}"))?;
        set(&map, queue, socket as u32).map_err(|e| format!("cannot put the socket into the map: {e}"))?;
        let program = load(&map).map_err(|e| format!("cannot load the XDP program: {e}"))?;
        let native = link(&program, interface, XDP_FLAGS_DRV_MODE);
        let (link, native) = match native {
            Ok(link) => (link, true),
            Err(_) => (link(&program, interface, XDP_FLAGS_SKB_MODE).map_err(|e| sentence(&e))?, false),
        };
        Ok(Program { _link: link, native })
    }
}

fn sentence(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => "another XDP program is attached to it already".into(),
        _ => format!("cannot attach the XDP program: {error}"),
    }
}

fn make_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    bpf(BPF_MAP_CREATE, &Attributes { map_type: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: entries })
        .and_then(owned)
}

fn set(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        pad: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    bpf(BPF_MAP_UPDATE_ELEM, &Attributes { map: map.as_raw_fd() as u32, pad: 0, key, value, flags: 0 }).map(|_| ())
}

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`.
fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program_type: u32,
        instructions: u32,
        at: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log_at: u64,
    }
    const RX_QUEUE_INDEX: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    let code = [
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0),  // r2 = *(u32 *)(r1 + 16)
        instruction(0x18, 0x11, 0, map.as_raw_fd()), // r1 = map, in two instructions
        0,                                           //
        instruction(0xb7, 0x03, 0, XDP_PASS),        // r3 = XDP_PASS
        instruction(0x85, 0x00, 0, REDIRECT_MAP),    // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0x00, 0, 0),               // return r0
    ];
    let license = c"Dual MIT/GPL";
    let attributes = Attributes {
        program_type: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        at: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_at: 0,
    };
    bpf(BPF_PROG_LOAD, &attributes).and_then(owned)
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    bpf(BPF_LINK_CREATE, &Attributes { program, target: interface, attach_type: BPF_XDP, flags }).and_then(owned)
}

/// struct bpf_insn: operation, registers (source in the high half), offset, constant.
fn instruction(operation: u8, registers: u8, offset: i16, constant: i32) -> u64 {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = constant.to_ne_bytes();
    u64::from_ne_bytes([operation, registers, a, b, c, d, e, f])
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the attributes are a whole, initialised prefix of union bpf_attr for this command, with its size; what
    // they point at lives in the caller's frame.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor was just returned by the kernel and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
