//! A port on a Linux TAP device: the kernel's own stack is on the other end.
//!
//! With `IFF_VNET_HDR`, super-segments of up to 64 KiB cross in one system call each way and nobody computes
//! checksums. The device has the kernel side's hardware address; the host has another one.
mod vnet;

use crate::cut::make_whole;
use crate::{
    Capabilities, Frame, FramePool, Handover, Interface, MAX_SUPER_SEGMENT, Nanos, Netns, Port, PortCounters, PortDrops,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use wire::{IpAddress, Mac};

/// Frames that the kernel may queue towards the port: at the default of 1000 a TAP device drops silently.
const QUEUE_LEN: u32 = 10_000;
/// Received frames up to this length are copied out of their 64 KiB buffer, which stays in the cache for the next one.
/// So a queue of ordinary frames does not hold 64 KiB each.
const COPY_BREAK: usize = 2048;

/// A TAP device to make or to attach to.
#[derive(Debug, Clone)]
pub struct TapConfig {
    /// Its name, at most 15 characters; with `%d` in it, the kernel puts the first free number there.
    pub name: String,
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// The host's hardware address; one derived from the device's where there is none.
    pub mac: Option<Mac>,
    /// The network namespace that the device is in, by name or path; the caller's where there is none.
    pub netns: Option<String>,
    /// The kernel side's addresses and prefix lengths to set; left alone where there is none.
    pub kernel_addresses: Vec<(IpAddress, u8)>,
    /// Super-segments and checksum offload. Off, each frame is one segment with a complete checksum, as on a wire.
    pub offload: bool,
}

impl Default for TapConfig {
    fn default() -> TapConfig {
        TapConfig {
            name: "toe%d".into(),
            mtu: 1500,
            mac: None,
            netns: None,
            kernel_addresses: Vec::new(),
            offload: true,
        }
    }
}

/// An open TAP device. One that it made goes with it.
pub struct Tap {
    file: File,
    name: String,
    mac: Mac,
    capabilities: Capabilities,
    counters: PortCounters,
    /// A buffer for the next frame, whose length is known only when it is read.
    spare: Option<Box<Frame>>,
    /// The last burst was full: there is probably more.
    more: bool,
    /// Most bytes of a frame that are read.
    most: usize,
    failure: Option<String>,
}

impl Tap {
    /// Makes the device, or attaches to it where it exists, and switches it on. The error is a sentence.
    pub fn open(config: &TapConfig) -> Result<Tap, String> {
        match &config.netns {
            Some(netns) => Netns::open(netns)?.run(|| Tap::open_here(config))?,
            None => Tap::open_here(config),
        }
    }

    fn open_here(config: &TapConfig) -> Result<Tap, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|e| format!("cannot open /dev/net/tun, which TAP devices are made with: {e}"))?;
        let name = attach(&file, &config.name).map_err(|e| sentence(&config.name, &e))?;
        set_offloads(&file, config.offload).map_err(|e| format!("cannot set the offloads of {name}: {e}"))?;
        let interface = Interface::named(&name)?;
        interface.set_mtu(config.mtu)?;
        // Not needed for function, and refused to users that may only attach to a device made for them.
        let _ = interface.set_queue_len(QUEUE_LEN);
        for (address, prefix) in &config.kernel_addresses {
            interface.set_address(*address, *prefix)?;
        }
        interface.set_up()?;
        let derived = local_mac(&format!("{name} {}", interface.mac()?));
        let mac = config.mac.unwrap_or(derived);
        let super_segment = if config.offload { MAX_SUPER_SEGMENT } else { 0 };
        Ok(Tap {
            file,
            name,
            mac,
            capabilities: Capabilities { mtu: config.mtu, super_segment, checksum: config.offload },
            counters: PortCounters::default(),
            spare: None,
            more: false,
            most: usize::MAX,
            failure: None,
        })
    }

    /// A device that another process opened by `config`, with the hardware address of its host. Nothing of it is
    /// changed, so this needs no privilege.
    pub fn adopt(fd: OwnedFd, config: &TapConfig) -> Tap {
        let super_segment = if config.offload { MAX_SUPER_SEGMENT } else { 0 };
        Tap {
            file: File::from(fd),
            name: config.name.clone(),
            mac: config.mac.unwrap_or_else(|| local_mac(&config.name)),
            capabilities: Capabilities { mtu: config.mtu, super_segment, checksum: config.offload },
            counters: PortCounters::default(),
            spare: None,
            more: true,
            most: usize::MAX,
            failure: None,
        }
    }

    /// The device itself, for another process or thread to [`Tap::adopt`].
    pub fn into_fd(self) -> OwnedFd {
        self.file.into()
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.name
    }

    /// From now on, no more than the first `most` bytes of a frame are read; the kernel discards the others without
    /// copying them. For those that need headers only.
    pub fn read_at_most(&mut self, most: usize) {
        self.most = most;
    }

    /// The hardware address of the kernel's side.
    pub fn kernel_mac(&self, netns: &Netns) -> Result<Mac, String> {
        netns.run(|| Interface::named(&self.name)?.mac())?
    }

    /// Reads one frame; `false` where there is none.
    fn read(&mut self, frame: &mut Frame) -> bool {
        let mut header = [0u8; vnet::LEN];
        let bytes = frame.bytes_vec();
        bytes.clear();
        let room = bytes.spare_capacity_mut();
        let parts =
            [iovec(header.as_mut_ptr(), header.len()), iovec(room.as_mut_ptr().cast(), room.len().min(self.most))];
        // SAFETY: both parts point at memory that is borrowed here for writing, with its length.
        let got = unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        if got < vnet::LEN as isize {
            self.note_failure(got);
            return false;
        }
        // SAFETY: the kernel filled this many bytes of the spare capacity.
        unsafe { bytes.set_len(got as usize - vnet::LEN) };
        vnet::apply(&header, frame);
        true
    }

    /// Writes one frame: the vnet header, the contiguous bytes, and the payload directly from shared memory.
    fn write(&mut self, frame: &Frame) -> Result<(), crate::PortDrop> {
        let super_segment = frame.segment_size > 0 && self.capabilities.super_segment > 0;
        let most = if super_segment { u16::MAX } else { self.capabilities.mtu };
        if frame.exceeds(most) {
            return Err(crate::PortDrop::TooLong);
        }
        let mut header = vnet::header_of(frame).ok_or(crate::PortDrop::TooLong)?;
        let mut parts = [
            iovec(header.as_mut_ptr(), header.len()),
            iovec(frame.bytes().as_ptr().cast_mut(), frame.bytes().len()),
            iovec(std::ptr::null_mut(), 0),
            iovec(std::ptr::null_mut(), 0),
        ];
        if let Some(span) = frame.payload() {
            for (part, (base, len)) in parts[2..].iter_mut().zip(span.pieces()) {
                *part = iovec(base.cast_mut(), len);
            }
        }
        // SAFETY: all parts point at memory that lives until the call returns: a local, the frame's bytes, and a span
        // that the frame holds. The kernel only reads them.
        let put = unsafe { libc::writev(self.file.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
        if put >= 0 {
            return Ok(());
        }
        self.note_failure(put);
        // EAGAIN, ENOBUFS: full. EIO: switched off at this moment. EINVAL: the kernel disliked the frame.
        Err(crate::PortDrop::PortQueue)
    }

    /// Notes when the device is gone; other errors pass.
    fn note_failure(&mut self, result: isize) {
        let error = io::Error::last_os_error();
        if result < 0 && matches!(error.raw_os_error(), Some(libc::EBADFD | libc::ENODEV | libc::ENXIO)) {
            self.failure = Some(format!("the TAP device {} was deleted ({error})", self.name));
        }
    }
}

impl Port for Tap {
    fn name(&self) -> String {
        format!("tap {}", self.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn receive(&mut self, _now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        let before = into.len();
        while into.len() - before < most && self.failure.is_none() {
            let mut frame = self.spare.take().unwrap_or_else(|| pool.large());
            if !self.read(&mut frame) {
                self.spare = Some(frame);
                break;
            }
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.len() as u64;
            if frame.len() <= COPY_BREAK {
                let mut small = pool.small();
                small.bytes_vec().extend_from_slice(frame.bytes());
                (small.checksum, small.segment_size) = (frame.checksum, frame.segment_size);
                frame.clear();
                self.spare = Some(std::mem::replace(&mut frame, small));
            }
            into.push(frame);
        }
        self.more = into.len() - before == most;
        into.len() - before
    }

    fn send(&mut self, _now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        make_whole(frames, pool, drops);
        for frame in frames.drain(..) {
            match self.write(&frame) {
                Ok(()) => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.len() as u64;
                }
                Err(reason) => drops.count(reason),
            }
            pool.put(frame);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // A deleted device is always "ready": nobody is to wait for it.
        self.failure.is_none().then(|| self.file.as_fd())
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    fn has_work(&self, _now: Nanos) -> bool {
        self.more && self.failure.is_none()
    }

    fn handover(&self) -> Option<Handover<'_>> {
        Some(Handover { device: self.name.clone(), descriptors: self.wait_fd().into_iter().collect() })
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

/// A locally administered hardware address (IEEE 802, second bit of the first byte) that depends only on `seed`.
pub fn local_mac(seed: &str) -> Mac {
    // FNV-1a: spreads short texts over 64 bits.
    let hash = seed.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let [a, b, c, d, e, f, ..] = (hash ^ (hash >> 29)).to_be_bytes();
    Mac([a & 0xfc | 2, b, c, d, e, f])
}

/// Makes or attaches to the device; returns its full name.
fn attach(file: &File, name: &str) -> io::Result<String> {
    // SAFETY: ifreq is plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is longer than 15 characters"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the request is a whole ifreq, which the kernel reads and fills.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8));
    Ok(name.collect())
}

fn set_offloads(file: &File, on: bool) -> io::Result<()> {
    let len = vnet::LEN as libc::c_int;
    let offloads = if on { libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN } else { 0 };
    // SAFETY: the first call reads an int through its pointer, the second takes its argument by value.
    let done = unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) >= 0
            && libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) >= 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn sentence(name: &str, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!("no permission for the TAP device {name}: it needs root or CAP_NET_ADMIN, or a device made for you")
        }
        Some(libc::EBUSY) => format!("the TAP device {name} is in use by another program"),
        Some(libc::EINVAL) => {
            format!("{name} exists and is not a TAP device that can be attached to with vnet headers")
        }
        _ => format!("cannot make the TAP device {name}: {error}"),
    }
}

fn iovec(base: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len: len }
}
