//! The XDP program that redirects an interface's frames to the socket, loaded with bpf(2). Nothing is pinned: program,
//! map and attachment go with their descriptors, also when the process is killed.
use super::code::Code;
use crate::bpf::{self, BPF_XDP, Map, MapShape, XdpProgram};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

// Of linux/bpf.h and linux/if_link.h.
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// An attached program; detached when the last process closes it.
pub(super) struct Program {
    link: OwnedFd,
    /// In the driver, before the kernel has made anything of the frame; otherwise in the generic path.
    pub(super) native: bool,
}

impl Program {
    /// Attaches a program that redirects frames of `queue` to `socket`, those that `code` chooses; all others go on to
    /// the kernel.
    pub(super) fn attach(interface: u32, queue: u32, socket: RawFd, code: &Code) -> Result<Program, String> {
        let shape = MapShape { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: queue + 1, flags: 0 };
        let map = Map::make(shape).map_err(|e| format!("cannot make the map of sockets: {e}"))?;
        map.set(&queue.to_ne_bytes(), &socket.to_ne_bytes())
            .map_err(|e| format!("cannot put the socket into the map: {e}"))?;
        let program = load(&code.with_map(map.fd())).map_err(|e| format!("cannot load the XDP program: {e}"))?;
        let native = bpf::attach(&program, interface, XDP_FLAGS_DRV_MODE);
        let (link, native) = match native {
            Ok(link) => (link, true),
            Err(_) => (bpf::attach(&program, interface, XDP_FLAGS_SKB_MODE).map_err(|e| sentence(&e))?, false),
        };
        Ok(Program { link, native })
    }

    /// The program that another process attached.
    pub(super) fn adopt(link: OwnedFd, native: bool) -> Program {
        Program { link, native }
    }

    /// The attachment, which lasts as long as a process has it.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

fn sentence(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => "another XDP program is attached to it already".into(),
        _ => format!("cannot attach the XDP program: {error}"),
    }
}

fn load(code: &[u64]) -> io::Result<OwnedFd> {
    XdpProgram { code, license: c"Dual MIT/GPL", flags: 0, attach_type: BPF_XDP }.load(&mut [])
}
