//! The XDP program that hands an interface's frames to the socket, loaded with bpf(2). Nothing is pinned: program, map
//! and attachment go with their descriptors, also when the process is killed.
use crate::bpf::{self, BPF_XDP, Map, MapShape, XdpProgram};
use std::io;
use std::os::fd::{OwnedFd, RawFd};

// Of linux/bpf.h and linux/if_link.h.
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
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
        let shape = MapShape { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: queue + 1, flags: 0 };
        let map = Map::make(shape).map_err(|e| format!("cannot make the map of sockets: {e}"))?;
        map.set(&queue.to_ne_bytes(), &socket.to_ne_bytes())
            .map_err(|e| format!("cannot put the socket into the map: {e}"))?;
        let program = load(&map).map_err(|e| format!("cannot load the XDP program: {e}"))?;
        let native = bpf::attach(&program, interface, XDP_FLAGS_DRV_MODE);
        let (link, native) = match native {
            Ok(link) => (link, true),
            Err(_) => (bpf::attach(&program, interface, XDP_FLAGS_SKB_MODE).map_err(|e| sentence(&e))?, false),
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

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`.
fn load(map: &Map) -> io::Result<OwnedFd> {
    const RX_QUEUE_INDEX: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    let code = [
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r1 + 16)
        instruction(0x18, 0x11, 0, map.fd()),       // r1 = map, in two instructions
        0,                                          //
        instruction(0xb7, 0x03, 0, XDP_PASS),       // r3 = XDP_PASS
        instruction(0x85, 0x00, 0, REDIRECT_MAP),   // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0x00, 0, 0),              // return r0
    ];
    XdpProgram { code: &code, license: c"Dual MIT/GPL", flags: 0, attach_type: BPF_XDP }.load(&mut [])
}

/// struct bpf_insn: operation, registers (source in the high half), offset, constant.
fn instruction(operation: u8, registers: u8, offset: i16, constant: i32) -> u64 {
    let [a, b] = offset.to_ne_bytes();
    let [c, d, e, f] = constant.to_ne_bytes();
    u64::from_ne_bytes([operation, registers, a, b, c, d, e, f])
}
