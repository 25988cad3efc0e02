//! Maps and programs of the kernel's BPF, by bpf(2). Everything goes with its descriptor; nothing is pinned.
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

// Of linux/bpf.h.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_MAP_FREEZE: libc::c_int = 22;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
/// Where an XDP program runs: on what an interface receives.
pub const BPF_XDP: u32 = 37;
/// On what leaves through a device map.
pub const BPF_XDP_DEVMAP: u32 = 33;

/// What a map is to be, as `BPF_MAP_CREATE` has it.
#[derive(Debug, Clone, Copy)]
pub struct MapShape {
    /// `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Bytes of a key; 0 where the kind has none.
    pub key_size: u32,
    /// Bytes of a value; 0 where the kind has none.
    pub value_size: u32,
    /// Most entries; bytes of a ring.
    pub entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
}

/// A map of the kernel.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    shape: MapShape,
}

impl Map {
    /// Makes a map. `EPERM` where this process may not.
    pub fn make(shape: MapShape) -> io::Result<Map> {
        bpf(BPF_MAP_CREATE, &shape_words(shape)).map(|fd| Map { fd: owned(fd), shape })
    }

    /// Sets an entry. `EINVAL` where key or value have another size than the map's.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            pad: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        if (key.len(), value.len()) != (self.shape.key_size as usize, self.shape.value_size as usize) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (key, value) = (key.as_ptr() as u64, value.as_ptr() as u64);
        bpf(BPF_MAP_UPDATE_ELEM, &Attributes { map: self.fd() as u32, pad: 0, key, value, flags: 0 }).map(drop)
    }

    /// Nobody can change it from now on: the verifier computes with what is in it.
    pub fn freeze(&self) -> io::Result<()> {
        bpf(BPF_MAP_FREEZE, &self.fd()).map(drop)
    }

    /// Its descriptor, which instructions name it by.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn shape_words(MapShape { kind, key_size, value_size, entries, flags }: MapShape) -> [u32; 5] {
    [kind, key_size, value_size, entries, flags]
}

/// An XDP program that is to be loaded.
#[derive(Debug)]
pub struct XdpProgram<'a> {
    /// Instructions, as `struct bpf_insn` has them.
    pub code: &'a [u64],
    /// Its licence: some helpers are for GPL programs only.
    pub license: &'a CStr,
    /// `BPF_F_XDP_*`.
    pub flags: u32,
    /// [`BPF_XDP`] or [`BPF_XDP_DEVMAP`].
    pub attach_type: u32,
}

impl XdpProgram<'_> {
    /// Has it verified, and loads it. The verifier's messages go into `log`, where that has room.
    pub fn load(&self, log: &mut [u8]) -> io::Result<OwnedFd> {
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
        let attributes = Attributes {
            program_type: BPF_PROG_TYPE_XDP,
            instructions: self.code.len() as u32,
            at: self.code.as_ptr() as u64,
            license: self.license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log_at: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: self.flags,
            name: [0; 16],
            interface: 0,
            attach_type: self.attach_type,
        };
        bpf(BPF_PROG_LOAD, &attributes).map(owned)
    }
}

/// Attaches a loaded program to an interface, by its number, until the descriptor is closed. `flags` are `XDP_FLAGS_*`.
pub(crate) fn attach(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    bpf(BPF_LINK_CREATE, &[program.as_raw_fd() as u32, interface, BPF_XDP, flags]).map(owned)
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
