//! A port on an AF_XDP socket: the frames of one queue of an interface, past the kernel's stack.
//!
//! Frames to the host's addresses go to the port, all others on to the kernel, whose own addresses on the interface
//! stay reachable. Without addresses, all frames of the queue are the port's. An interface with more queues is set to
//! one with `ethtool -L IFACE combined 1`. Zero-copy where the driver has it, a copy in the kernel otherwise. There are
//! no super-segments, and checksums are completed here.
//!
//! The other end of a veth pair must do its own checksums and segmentation, since no hardware follows:
//! [`AfXdp::prepare_peer`] sets that (`ethtool -K IFACE tx off tso off gso off gro off`).
//!
//! Some kernels' completion rings name chunks twice, or never (seen on veth). So no number of the kernel is
//! used before the owner of the chunk has been looked up: see [`umem`].
mod code;
mod program;
mod ring;
mod umem;

use crate::cut::make_whole;
use crate::frame::complete;
use crate::{
    Capabilities, Checksum, Frame, FramePool, Handover, Interface, Nanos, Netns, Offloads, Port, PortCounters,
    PortDrops,
};
use code::Code;
use program::Program;
use ring::Ring;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use umem::{CHUNK, Umem};
use wire::{IpAddress, Mac, ethernet};

/// Bytes that XDP keeps free in front of a frame (XDP_PACKET_HEADROOM).
const HEADROOM: usize = 256;
/// How long to go on trying while the kernel still releases the queue's last socket (EBUSY).
const REBIND: Duration = Duration::from_secs(3);
/// Frames handed to the kernel between two calls: what its copying path takes in one.
const SEND_BATCH: usize = 32;
/// After this time in flight, a frame that the kernel took and never completed counts as sent.
const FORGOTTEN_NS: Nanos = 1_000_000_000;
/// Empty polls of the ring between two checks whether the interface is still there.
const POLLS_A_CHECK: u32 = 4096;

/// A queue of an interface to open.
#[derive(Debug, Clone)]
pub struct AfXdpConfig {
    /// The interface.
    pub interface: String,
    /// The network namespace that it is in, by name or path; the caller's where there is none.
    pub netns: Option<String>,
    /// The queue.
    pub queue: u32,
    /// The host's hardware address; the interface's own where there is none. With another one
    /// the interface is promiscuous while the port is open.
    pub mac: Option<Mac>,
    /// The host's addresses: other frames are the kernel's. None: all frames are the host's.
    pub addresses: Vec<IpAddress>,
    /// Frames that the memory shared with the kernel holds, half of them for each direction; a power of two.
    pub frames: u32,
}

impl Default for AfXdpConfig {
    fn default() -> AfXdpConfig {
        AfXdpConfig { interface: String::new(), netns: None, queue: 0, mac: None, addresses: Vec::new(), frames: 8192 }
    }
}

impl AfXdpConfig {
    /// The queue, as [`Handover::device`] names it.
    pub fn device(&self) -> String {
        device(&self.interface, self.queue)
    }
}

fn device(interface: &str, queue: u32) -> String {
    format!("{interface} queue {queue}")
}

/// What went otherwise than it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AfXdpFigures {
    /// Completions of chunks that were not in flight: ignored.
    pub bogus_completions: u64,
    /// Frames in flight that were never completed: taken back after a second.
    pub lost_completions: u64,
    /// Received descriptors that named a chunk which was not lent: ignored.
    pub bogus_receptions: u64,
}

/// An open AF_XDP socket. Dropping it detaches the XDP program.
pub struct AfXdp {
    // In the order in which they go: the program first, the memory last.
    program: Program,
    rx: Ring<libc::xdp_desc>,
    fill: Ring<u64>,
    tx: Ring<libc::xdp_desc>,
    completion: Ring<u64>,
    socket: OwnedFd,
    umem: Umem,
    /// Open where the interface is to receive more than its own address covers: all frames, or those of all groups.
    membership: Option<OwnedFd>,
    /// Another process has used rings and memory until now, or may still do so.
    adopted: bool,
    interface: String,
    queue: u32,
    zero_copy: bool,
    mac: Mac,
    capabilities: Capabilities,
    counters: PortCounters,
    figures: AfXdpFigures,
    polls: u32,
    failure: Option<String>,
}

impl AfXdp {
    /// Opens the queue and attaches the XDP program. The error is a sentence.
    pub fn open(config: &AfXdpConfig) -> Result<AfXdp, String> {
        let opened = match &config.netns {
            Some(netns) => Netns::open(netns)?.run(|| AfXdp::open_here(config))?,
            None => AfXdp::open_here(config),
        };
        opened.map_err(|sentence| format!("AF_XDP on {}: {sentence}", config.device()))
    }

    fn open_here(config: &AfXdpConfig) -> Result<AfXdp, String> {
        if !config.frames.is_power_of_two() || !(64..=1 << 20).contains(&config.frames) {
            return Err(format!("the number of frames must be a power of two from 64 to 2^20, not {}", config.frames));
        }
        let interface = Interface::named(&config.interface)?;
        let mac = interface.mac()?;
        let (mtu, index) = (interface.mtu()?, interface.index()?);
        let umem = Umem::new(config.frames).map_err(|e| format!("no memory for frames: {e}"))?;
        let socket = socket().map_err(|e| format!("cannot make the socket: {e}"))?;
        let rings = set_up(&socket, &umem).map_err(|e| format!("cannot set up the rings: {e}"))?;
        bind(&socket, index, config.queue)?;
        let own = config.mac.is_none_or(|wanted| wanted == mac);
        let program = Program::attach(index, config.queue, socket.as_raw_fd(), &code(config, mac))?;
        interface.set_up()?;
        let asks_groups = config.addresses.iter().any(|address| !address.is_v4());
        let membership = match own {
            true if asks_groups => Some(interface.all_groups()?),
            true => None,
            false => Some(interface.promiscuous()?),
        };
        umem.describe(program.native, mtu);
        let parts = Parts { program, rings, socket, umem, membership };
        let mut port = parts.into_port(config, config.mac.unwrap_or(mac), mtu);
        for chunk in port.umem.receive_chunks() {
            let address = port.umem.lend_for_receiving(chunk);
            port.fill.push(address);
        }
        port.fill.publish_produced();
        Ok(port)
    }

    /// Goes on with the queue of another process ([`Port::handover`]), from the moment when this port is first used.
    /// That process must not use it from then on. The error is a sentence.
    pub fn adopt(descriptors: Vec<OwnedFd>, config: &AfXdpConfig, mac: Mac) -> Result<AfXdp, String> {
        let failed = |e: io::Error| format!("AF_XDP on {}: {e}", config.device());
        let mut descriptors = descriptors.into_iter();
        let [socket, memory, link] = std::array::from_fn(|_| descriptors.next());
        let (Some(socket), Some(memory), Some(link)) = (socket, memory, link) else {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        };
        let umem = Umem::adopt(memory).map_err(failed)?;
        let rings = map_rings(&socket, umem.chunks() / 2).map_err(failed)?;
        let (native, mtu) = umem.description();
        let program = Program::adopt(link, native);
        let parts = Parts { program, rings, socket, umem, membership: descriptors.next() };
        Ok(AfXdp { adopted: true, ..parts.into_port(config, mac, mtu) })
    }

    /// Goes on where another process has left rings and memory.
    fn go_on(&mut self) {
        self.adopted = false;
        self.fill.go_on_producing();
        self.tx.go_on_producing();
        self.rx.go_on_consuming();
        self.completion.go_on_consuming();
        self.umem.go_on();
    }

    /// Makes the interface at the other end of a veth pair (in `netns` where given) send frames as they must be on a
    /// wire: one segment each, checksums complete.
    pub fn prepare_peer(interface: &str, netns: Option<&str>) -> Result<(), String> {
        let prepare = || Interface::named(interface)?.set_offloads(Offloads::NONE);
        match netns {
            Some(netns) => Netns::open(netns)?.run(prepare)?,
            None => prepare(),
        }
    }

    /// What is still wrong with the other end of a veth pair, in a sentence with what to do.
    pub fn advice_for_peer(interface: &str, netns: Option<&str>) -> Result<Option<String>, String> {
        let read_offloads = || Interface::named(interface)?.offloads();
        let offloads = match netns {
            Some(netns) => Netns::open(netns)?.run(read_offloads)?,
            None => read_offloads(),
        }?;
        let advice = format!(
            "{interface} leaves checksums or segmentation to hardware that an AF_XDP port behind a veth pair has not: \
             run `ethtool -K {interface} tx off tso off gso off gro off`"
        );
        Ok((offloads != Offloads::NONE).then_some(advice))
    }

    /// How the socket works, for people: `zero-copy, native XDP`.
    pub fn mode(&self) -> &'static str {
        match (self.zero_copy, self.program.native) {
            (true, _) => "zero-copy, native XDP",
            (false, true) => "copy, native XDP",
            (false, false) => "copy, generic XDP",
        }
    }

    /// What went otherwise than it should.
    pub fn figures(&self) -> AfXdpFigures {
        self.figures
    }

    /// Takes back what the kernel has sent.
    fn reclaim(&mut self, now: Nanos) {
        while let Some(address) = self.completion.pop() {
            if !self.umem.complete(address) {
                self.figures.bogus_completions += 1;
            }
        }
        self.completion.publish_consumed();
        if self.umem.next_to_send().is_none() && self.tx.is_drained() {
            let lost = self.umem.reclaim_lost(now.saturating_sub(FORGOTTEN_NS));
            self.figures.lost_completions += lost as u64;
        }
    }

    /// Writes one frame into the memory and the transmit ring.
    fn queue(&mut self, now: Nanos, frame: &Frame) -> Result<(), crate::PortDrop> {
        let len = frame.len();
        if len > CHUNK || frame.exceeds(self.capabilities.mtu) {
            return Err(crate::PortDrop::TooLong);
        }
        let (chunk, room) = self.umem.next_to_send().ok_or(crate::PortDrop::PortQueue)?;
        let (head, payload) = room[..len].split_at_mut(frame.bytes().len());
        head.copy_from_slice(frame.bytes());
        if let Some(span) = frame.payload() {
            span.read(payload);
        }
        if let Checksum::Partial { start, field } = frame.checksum {
            complete(&mut room[..len], start, field);
        }
        let addr = u64::from(chunk) * CHUNK as u64;
        if !self.tx.push(libc::xdp_desc { addr, len: len as u32, options: 0 }) {
            return Err(crate::PortDrop::PortQueue);
        }
        self.umem.lend_for_sending(now);
        Ok(())
    }

    /// Hands queued frames to the kernel. In copy mode it sends a batch per call, within the call.
    fn kick(&mut self) {
        self.tx.publish_produced();
        for _ in 0..4 {
            if self.tx.is_drained() || !self.tx.needs_wakeup() {
                return;
            }
            // SAFETY: a send without data on an owned descriptor: the wake-up call of AF_XDP.
            let sent = unsafe {
                libc::sendto(self.socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            if sent < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // EAGAIN, EBUSY, ENOBUFS: more to send, or full for the moment. What stays in the ring is tried
                    // again with the next call.
                    Some(libc::ENXIO | libc::ENODEV | libc::EBADF) => return self.fail(&error),
                    _ => continue,
                }
            }
        }
    }

    /// Returns a chunk for reception.
    fn refill(&mut self, chunk: u32) {
        let address = self.umem.lend_for_receiving(chunk);
        // There are as many places in the ring as chunks for it.
        self.fill.push(address);
    }

    /// Asks the kernel, now and then, whether the interface is still there: an empty ring does not show that.
    fn check_interface(&mut self) {
        self.polls += 1;
        if self.polls < POLLS_A_CHECK {
            return;
        }
        self.polls = 0;
        let error: i32 = option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
        if error != 0 {
            self.fail(&io::Error::from_raw_os_error(error));
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.failure = Some(format!("the interface {} was deleted ({error})", self.interface));
    }
}

impl Port for AfXdp {
    fn name(&self) -> String {
        format!("afxdp {}", self.interface)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn receive(&mut self, _now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        if self.adopted {
            self.go_on();
        }
        let before = into.len();
        while into.len() - before < most {
            let Some(descriptor) = self.rx.pop() else { break };
            let Some((chunk, bytes)) = self.umem.take_received(descriptor.addr, descriptor.len) else {
                self.figures.bogus_receptions += 1;
                continue;
            };
            let mut frame = pool.small();
            frame.bytes_vec().extend_from_slice(bytes);
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += bytes.len() as u64;
            into.push(frame);
            self.refill(chunk);
        }
        let received = into.len() - before;
        if received == 0 {
            self.check_interface();
        } else {
            self.rx.publish_consumed();
            self.fill.publish_produced();
        }
        if self.fill.needs_wakeup() {
            wake_receiver(&self.socket);
        }
        received
    }

    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        if self.adopted {
            self.go_on();
        }
        make_whole(frames, pool, drops);
        self.reclaim(now);
        for (i, frame) in frames.drain(..).enumerate() {
            let queued = if self.failure.is_some() { Err(crate::PortDrop::PortQueue) } else { self.queue(now, &frame) };
            match queued {
                Ok(()) => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.len() as u64;
                }
                Err(reason) => drops.count(reason),
            }
            pool.put(frame);
            if i % SEND_BATCH == SEND_BATCH - 1 {
                self.kick();
                self.reclaim(now);
            }
        }
        self.kick();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.failure.is_none().then(|| self.socket.as_fd())
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    fn has_work(&self, _now: Nanos) -> bool {
        !self.rx.is_empty()
    }

    fn handover(&self) -> Option<Handover<'_>> {
        let mut descriptors = Vec::new();
        if self.failure.is_none() {
            descriptors.extend([self.socket.as_fd(), self.umem.fd(), self.program.fd()]);
            descriptors.extend(self.membership.as_ref().map(AsFd::as_fd));
        }
        Some(Handover { device: device(&self.interface, self.queue), descriptors })
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

/// Most bytes of an IP packet that fit a chunk behind the headroom.
const LARGEST_MTU: u16 = (CHUNK - HEADROOM - ethernet::HEADER_LEN) as u16;

struct Rings {
    /// Reception and transmission.
    frames: [Ring<libc::xdp_desc>; 2],
    /// Fill and completion.
    chunks: [Ring<u64>; 2],
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; the result is checked and owned at once.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd is fresh and valid.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which frames are the host's. Its link-local address follows from its hardware address, where that is its own: the
/// interface's is the kernel's, too.
fn code(config: &AfXdpConfig, interface: Mac) -> Code {
    if config.addresses.is_empty() {
        return Code::all();
    }
    let own = config.mac.filter(|mac| *mac != interface && config.addresses.iter().any(|address| !address.is_v4()));
    let link_local = own.map(|mac| IpAddress::link_local(mac, 0));
    Code::of(&config.addresses.iter().copied().chain(link_local).collect::<Vec<_>>())
}

/// What a port is made of.
struct Parts {
    program: Program,
    rings: Rings,
    socket: OwnedFd,
    umem: Umem,
    membership: Option<OwnedFd>,
}

impl Parts {
    fn into_port(self, config: &AfXdpConfig, mac: Mac, mtu: u16) -> AfXdp {
        let Parts { program, rings, socket, umem, membership } = self;
        let ([rx, tx], [fill, completion]) = (rings.frames, rings.chunks);
        AfXdp {
            program,
            rx,
            fill,
            tx,
            completion,
            zero_copy: is_zero_copy(&socket),
            socket,
            umem,
            membership,
            adopted: false,
            interface: config.interface.clone(),
            queue: config.queue,
            mac,
            capabilities: Capabilities { mtu: mtu.min(LARGEST_MTU), super_segment: 0, checksum: false },
            counters: PortCounters::default(),
            figures: AfXdpFigures::default(),
            polls: 0,
            failure: None,
        }
    }
}

/// Registers the memory and makes and maps the four rings.
fn set_up(socket: &OwnedFd, umem: &Umem) -> io::Result<Rings> {
    let entries = umem.chunks() / 2;
    let registration = libc::xdp_umem_reg {
        addr: umem.address(),
        len: umem.bytes(),
        chunk_size: CHUNK as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &registration)?;
    for name in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
        set_option(socket, name, &entries)?;
    }
    map_rings(socket, entries)
}

/// Maps the four rings of a socket that has them.
fn map_rings(socket: &OwnedFd, entries: u32) -> io::Result<Rings> {
    let at: [[u64; 4]; 4] = option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
    let [rx, tx, fill, completion] =
        at.map(|[producer, consumer, desc, flags]| libc::xdp_ring_offset { producer, consumer, desc, flags });
    Ok(Rings {
        frames: [
            Ring::map(socket, libc::XDP_PGOFF_RX_RING, entries, &rx)?,
            Ring::map(socket, libc::XDP_PGOFF_TX_RING, entries, &tx)?,
        ],
        chunks: [
            Ring::map(socket, libc::XDP_UMEM_PGOFF_FILL_RING as i64, entries, &fill)?,
            Ring::map(socket, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, entries, &completion)?,
        ],
    })
}

/// Binds to a queue; the kernel picks zero-copy where the driver has it. A queue whose last socket was closed a moment
/// ago stays busy until the kernel has cleaned up: that is waited for.
fn bind(socket: &OwnedFd, interface: u32, queue: u32) -> Result<(), String> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let until = Instant::now() + REBIND;
    loop {
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: an owned descriptor and a whole sockaddr_xdp with its length.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EBUSY) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Some(libc::EBUSY) => return Err("another program has this queue".into()),
            Some(libc::EINVAL) => return Err("the interface has no such queue".into()),
            _ => return Err(format!("cannot bind: {error}")),
        }
    }
}

fn is_zero_copy(socket: &OwnedFd) -> bool {
    option::<u32>(socket, libc::SOL_XDP, libc::XDP_OPTIONS).is_ok_and(|flags| flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Wakes the kernel: there is room to receive into again.
fn wake_receiver(socket: &OwnedFd) {
    // SAFETY: a receive without data on an owned descriptor: the wake-up call of AF_XDP.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

fn set_option<T>(socket: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: reads a whole value of the option's type, with its size.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, std::ptr::from_ref(value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is made of integers only.
fn option<T: Copy + Default>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: fills at most the value's size, any bytes of which are valid integers.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, std::ptr::from_mut(&mut value).cast(), &mut len) };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
