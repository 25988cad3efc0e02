//! Linux' own TCP as a transport: a TAP device in a network namespace, whose kernel has a socket for each connection.
//!
//! The sockets carry dummy bytes. Outgoing, `sendfile` from a sparse memfd makes them without a copy, and of the
//! kernel's frames only the headers are read. Incoming, a header goes to the device with the same dummy pages again and
//! again, and reads with `MSG_TRUNC` discard them.
//!
//! Device and sockets are made by a helper in the namespace, a thread or a process (`linux/helper.rs`), which passes
//! them on. A connection begins without waiting for it: a few bound sockets are always there, and connecting one of
//! them is a message.
mod helper;
mod hops;
mod views;
mod words;

pub use helper::serve_linux;
pub use words::{LinuxConfig, Share};

use crate::frames::{FrameKind, kind};
use crate::transport::{InOrder, NextHop, Room, Socket, Transport};
use hops::Hops;
use port::{Frame, FramePool, Netns, Port, PortDrops, Tap, TapConfig, unacknowledged};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketFlags, accept_with, getpeername, getsockname, recv, send,
    shutdown, sockopt,
};
use shm::handover;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wire::{Ipv4Tuple, Mac, Nanos};
use words::{Answer, Asked, SPARE};

/// Bytes of a frame that are read: all headers, and frames of other protocols whole.
const READ: usize = 2048;
/// More than the longest frame has: all of its bytes are read.
const WHOLE: usize = 1 << 17;
/// Dummy bytes that one system call takes at most.
const STEP: usize = 1 << 20;
/// How long the helper may take to make the device, and to answer who listens or needs another socket. On a busy
/// machine it has to wait for a core; that it ended shows at once.
const BEGINNING: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(1);

struct Kernel {
    socket: OwnedFd,
    port: u16,
    /// Bytes that it took.
    written: u64,
    /// This host's stream, and the peer's, have ended.
    ending: bool,
    ended: bool,
    /// Why it cannot be, by the helper's word.
    failed: Option<String>,
    /// Its stream has bytes of the application's, instead of dummy ones.
    is_copied: bool,
}

impl Kernel {
    /// Written bytes that the peer has not acknowledged: all of them where the kernel does not answer.
    fn unacknowledged(&self) -> u64 {
        // A FIN that was not acknowledged counts as a byte.
        let left = unacknowledged(&self.socket).map(|left| u64::from(left).saturating_sub(u64::from(self.ending)));
        left.unwrap_or(self.written)
    }

    /// What was read. Behind the peer's FIN, reading reports the end again and again, also after a reset. A reset
    /// matters as long as the peer has not acknowledged everything.
    fn came(&mut self, came: InOrder) -> Result<InOrder, String> {
        self.ended |= came.ended;
        if self.ended && self.unacknowledged() > 0 {
            sockopt::socket_error(&self.socket).and_then(|error| error).map_err(ended)?;
        }
        Ok(came)
    }
}

/// The transport.
pub struct LinuxTcp {
    tap: Tap,
    mac: Mac,
    config: LinuxConfig,
    helper: OwnedFd,
    /// Why the helper makes no more sockets.
    unable: Option<String>,
    spare: VecDeque<(u16, OwnedFd)>,
    /// Next hops for datagrams.
    hops: Option<Hops>,
    /// Answers of the helper that somebody waits for.
    listening: HashMap<u16, Result<OwnedFd, String>>,
    listeners: HashMap<u16, OwnedFd>,
    sockets: Vec<Option<Kernel>>,
    /// Zeros without pages.
    dummy: OwnedFd,
    /// Where discarded bytes would go.
    nowhere: Vec<u8>,
    /// Bytes that are read of each frame while only headers matter.
    headers: usize,
    drops: PortDrops,
}

impl LinuxTcp {
    /// Makes the device in `netns`, with a helper thread there. The error is a sentence.
    pub fn open(netns: Netns, config: LinuxConfig) -> Result<LinuxTcp, String> {
        LinuxTcp::with(config, |helper| {
            let body = move || drop(netns.run(|| serve_linux(helper, || Ok(()), || Ok(()))));
            let thread = std::thread::Builder::new().name("zeronic linux".into()).spawn(body);
            thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
        })
    }

    /// The same with whatever helper `start` starts: it is to call [`serve_linux`] with the descriptor, in a namespace
    /// of its own. It ends when the transport does.
    pub fn with(config: LinuxConfig, start: impl FnOnce(OwnedFd) -> Result<(), String>) -> Result<LinuxTcp, String> {
        let failed = |error| format!("cannot make a pair of sockets for the helper: {error}");
        let (helper, its) = handover::pair().map_err(failed)?;
        start(its)?;
        fcntl_getfl(&helper)
            .and_then(|flags| fcntl_setfl(&helper, flags | OFlags::NONBLOCK))
            .map_err(|error| failed(error.into()))?;
        let dummy = memfd_create(c"zeronic dummy", MemfdFlags::CLOEXEC)
            .and_then(|dummy| ftruncate(&dummy, STEP as u64).map(|()| dummy))
            .map_err(|error| format!("cannot make a sparse memfd for dummy bytes: {error}"))?;
        ask(&helper, &Asked::Begin(config.clone()))?;
        wait(&helper, BEGINNING);
        let (device, mac) = match next(&helper) {
            Next::Answered(Answer::Ready(mac), Some(device)) => (device, mac),
            Next::Answered(Answer::Failed(sentence), _) => return Err(sentence),
            _ => return Err("the helper of Linux' TCP has ended, or makes no device".into()),
        };
        let tap = TapConfig { name: config.device.clone(), mtu: config.mtu, ..TapConfig::default() };
        let mut tap = Tap::adopt(device, &tap);
        let headers = READ.max(usize::from(config.mtu) + 64);
        tap.read_at_most(headers);
        let mut made = LinuxTcp {
            tap,
            mac: Mac(mac),
            config,
            helper,
            unable: None,
            spare: VecDeque::new(),
            hops: None,
            listening: HashMap::new(),
            listeners: HashMap::new(),
            sockets: Vec::new(),
            dummy,
            nowhere: vec![0; STEP],
            headers,
            drops: PortDrops::default(),
        };
        // All of them: afterwards a round of connections finds one each.
        while made.spare.len() < SPARE && made.unable.is_none() {
            made.wait_for_helper(BEGINNING)?;
        }
        made.unable.clone().map_or(Ok(made), Err)
    }

    /// The hardware address of the kernel's side: frames to it are the host's.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Headers that the kernel did not take.
    pub fn drops(&self) -> &PortDrops {
        &self.drops
    }

    /// Why it cannot go on, where that is so: the device is gone.
    pub fn failure(&self) -> Option<String> {
        self.tap.failure()
    }

    /// Takes in the helper's answers.
    fn take_in(&mut self) {
        loop {
            match next(&self.helper) {
                Next::Nothing => return,
                Next::Answered(Answer::Hops(port), Some(socket)) => self.hops = Some(Hops::new(socket, port)),
                Next::Answered(Answer::Spare(port), Some(socket)) => self.spare.push_back((port, socket)),
                Next::Answered(Answer::Listening(port), Some(socket)) => drop(self.listening.insert(port, Ok(socket))),
                Next::Answered(Answer::NotListening(port, why), _) => drop(self.listening.insert(port, Err(why))),
                Next::Answered(Answer::Unreachable(port, why), _) => {
                    let mut kernels = self.sockets.iter_mut().flatten();
                    if let Some(kernel) = kernels.find(|kernel| kernel.port == port) {
                        kernel.failed = Some(why);
                    }
                }
                Next::Answered(Answer::Failed(why), _) => self.unable = Some(why),
                Next::Answered(..) => {}
                Next::End => {
                    self.unable = Some("the helper that makes Linux' sockets has ended: start the daemon again".into());
                    return;
                }
            }
        }
    }

    fn wait_for_helper(&mut self, most: Duration) -> Result<(), String> {
        if !wait(&self.helper, most) {
            return Err("the helper that makes Linux' sockets does not answer".into());
        }
        self.take_in();
        Ok(())
    }

    fn keep(&mut self, socket: OwnedFd, port: u16) -> Socket {
        let at = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        if at == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[at] =
            Some(Kernel { socket, port, written: 0, ending: false, ended: false, failed: None, is_copied: false });
        Socket(at as u32)
    }

    fn kernel(&mut self, socket: Socket) -> Option<&mut Kernel> {
        self.sockets.get_mut(socket.0 as usize)?.as_mut()
    }
}

impl Transport for LinuxTcp {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        if let Some(sentence) = self.failure() {
            return Err(sentence);
        }
        self.take_in();
        if self.spare.is_empty() && self.unable.is_none() {
            self.wait_for_helper(ANSWER)?;
        }
        let unable = || self.unable.clone().unwrap_or_else(|| "no socket is ready: try again".into());
        let (port, socket) = self.spare.pop_front().ok_or_else(unable)?;
        ask(&self.helper, &Asked::Connect(port, remote))?;
        let local_ip = self.config.address.0;
        let tuple = Ipv4Tuple { local_ip, local_port: port, remote_ip: *remote.ip(), remote_port: remote.port() };
        Ok((self.keep(socket, port), tuple))
    }

    fn listen(&mut self, port: u16) -> Result<(), String> {
        if self.listeners.contains_key(&port) {
            return Ok(());
        }
        ask(&self.helper, &Asked::Listen(port))?;
        let socket = loop {
            if let Some(answer) = self.listening.remove(&port) {
                break answer?;
            }
            if let Some(sentence) = &self.unable {
                return Err(sentence.clone());
            }
            self.wait_for_helper(ANSWER)?;
        };
        self.listeners.insert(port, socket);
        Ok(())
    }

    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = self.listeners.values().find_map(|listener| accept_with(listener, flags).ok())?;
        let tuple = tuple_of(&socket).ok()?;
        Some((self.keep(socket, tuple.local_port), tuple))
    }

    fn send(&mut self, socket: Socket, bytes: u64) -> Result<u64, String> {
        let Some(Some(kernel)) = self.sockets.get_mut(socket.0 as usize) else { return Ok(0) };
        let mut taken = 0;
        while taken < bytes {
            let mut offset = 0;
            let count = (bytes - taken).min(STEP as u64) as usize;
            match sendfile(&kernel.socket, &self.dummy, Some(&mut offset), count) {
                Ok(0) | Err(Errno::AGAIN | Errno::NOTCONN) => break,
                Ok(count) => taken += count as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(ended(error)),
            }
        }
        kernel.written += taken;
        Ok(taken)
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        self.kernel(socket).map_or(0, |kernel| kernel.written.saturating_sub(kernel.unacknowledged()))
    }

    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String> {
        if let Some(sentence) = self.failure() {
            return Err(sentence);
        }
        let Some(Some(kernel)) = self.sockets.get_mut(socket.0 as usize) else { return Ok(InOrder::default()) };
        let came = match discard(&kernel.socket, &mut self.nowhere)? {
            Discarded::Came(came) => came,
            Discarded::NotConnected => {
                // It is not connected yet, or cannot be.
                self.take_in();
                let failed = self.kernel(socket).and_then(|kernel| kernel.failed.clone());
                return failed.map_or(Ok(InOrder::default()), Err);
            }
        };
        kernel.came(came)
    }

    fn read(&mut self, socket: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        if let Some(sentence) = self.failure() {
            return Err(sentence);
        }
        let Some(Some(kernel)) = self.sockets.get_mut(socket.0 as usize) else { return Ok(InOrder::default()) };
        match receive(&kernel.socket, into) {
            Ok(came) => kernel.came(came),
            Err(Errno::AGAIN | Errno::INTR) => Ok(InOrder::default()),
            Err(Errno::NOTCONN) => {
                self.take_in();
                let failed = self.kernel(socket).and_then(|kernel| kernel.failed.clone());
                failed.map_or(Ok(InOrder::default()), Err)
            }
            Err(error) => Err(ended(error)),
        }
    }

    fn write(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, String> {
        let Some(Some(kernel)) = self.sockets.get_mut(socket.0 as usize) else { return Ok(0) };
        if !std::mem::replace(&mut kernel.is_copied, true) {
            // From now on, frames are read whole.
            self.tap.read_at_most(WHOLE);
        }
        let taken = match send(&kernel.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::NOTCONN | Errno::INTR) => 0,
            Err(error) => return Err(ended(error)),
        };
        kernel.written += taken as u64;
        Ok(taken)
    }

    fn end(&mut self, socket: Socket) {
        if let Some(kernel) = self.kernel(socket).filter(|kernel| !kernel.ending) {
            kernel.ending = true;
            // An error shows that the connection is gone, which reading reports as well.
            let _ = shutdown(&kernel.socket, Shutdown::Write);
        }
    }

    fn close(&mut self, socket: Socket) {
        let Some(kernel) = self.sockets.get_mut(socket.0 as usize).and_then(Option::take) else { return };
        // The kernel goes on sending a FIN.
        let done = kernel.ending && kernel.ended && kernel.unacknowledged() == 0;
        if !done {
            // Dummy bytes that are still to be sent must not be: a reset, at once.
            let _ = sockopt::set_socket_linger(&kernel.socket, Some(std::time::Duration::ZERO));
        }
        if kernel.is_copied && !self.sockets.iter().flatten().any(|other| other.is_copied) {
            self.tap.read_at_most(self.headers);
        }
    }

    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        self.tap.send(now, frames, pool, &mut self.drops);
    }

    fn headers_out(&mut self, now: Nanos, room: Room, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        // One by one: how long a frame is shows once its headers were read.
        let (from, mut bytes) = (into.len(), 0);
        while into.len() - from < room.frames && bytes < room.bytes && self.tap.receive(now, 1, pool, into) > 0 {
            let Some(frame) = into.last() else { break };
            bytes += match kind(frame, usize::MAX) {
                FrameKind::Segment(segment) => segment.payload_len,
                _ if self.hops.as_mut().is_some_and(|hops| hops.takes(now, frame)) => {
                    into.pop().into_iter().for_each(|question| pool.put(question));
                    0
                }
                _ => frame.len(),
            };
        }
        into.len() - from
    }

    fn source_of(&self, _: Ipv4Addr) -> Option<Ipv4Addr> {
        Some(self.config.address.0)
    }

    fn next_hop(&mut self, now: Nanos, remote: Ipv4Addr) -> NextHop {
        self.hops.as_mut().map_or(NextHop::None, |hops| hops.find(now, remote))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tap.wait_fd()
    }
}

/// Reads bytes of a stream; with no room for any, looks whether it has ended.
fn receive(socket: &OwnedFd, into: &mut [u8]) -> Result<InOrder, Errno> {
    let mut one = [0];
    let (into, peek) = if into.is_empty() { (&mut one[..], RecvFlags::PEEK) } else { (into, RecvFlags::empty()) };
    let (_, count) = recv(socket, into, RecvFlags::DONTWAIT | peek)?;
    Ok(InOrder { bytes: if peek.is_empty() { count as u64 } else { 0 }, ended: count == 0 })
}

fn ended(error: Errno) -> String {
    format!("the kernel's TCP ended the connection: {error}")
}

enum Discarded {
    Came(InOrder),
    NotConnected,
}

/// Reads dummy bytes without copying them.
fn discard(socket: &OwnedFd, nowhere: &mut [u8]) -> Result<Discarded, String> {
    let mut came = InOrder::default();
    loop {
        match recv(socket, &mut *nowhere, RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                came.ended = true;
                return Ok(Discarded::Came(came));
            }
            Ok((_, count)) => came.bytes += count as u64,
            Err(Errno::NOTCONN) if came.bytes == 0 => return Ok(Discarded::NotConnected),
            Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(Discarded::Came(came)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(ended(error)),
        }
    }
}

fn tuple_of(socket: &OwnedFd) -> Result<Ipv4Tuple, Errno> {
    let v4 = |address: SocketAddrAny| SocketAddrV4::try_from(address);
    let (local, remote) = (v4(getsockname(socket)?)?, v4(getpeername(socket)?.ok_or(Errno::NOTCONN)?)?);
    Ok(Ipv4Tuple {
        local_ip: *local.ip(),
        local_port: local.port(),
        remote_ip: *remote.ip(),
        remote_port: remote.port(),
    })
}

fn ask(helper: &OwnedFd, asked: &Asked) -> Result<(), String> {
    let message = serde_json::to_vec(asked).map_err(|error| error.to_string())?;
    handover::send(helper.as_fd(), &message, &[])
        .map_err(|error| format!("the helper that makes Linux' sockets takes no requests: {error}"))
}

/// The helper's next answer.
enum Next {
    Answered(Answer, Option<OwnedFd>),
    Nothing,
    End,
}

fn next(helper: &OwnedFd) -> Next {
    match handover::recv(helper.as_fd()) {
        Ok((message, _)) if message.is_empty() => Next::End,
        Ok((message, mut descriptors)) => match serde_json::from_slice(&message) {
            Ok(answer) => Next::Answered(answer, descriptors.pop()),
            Err(_) => Next::End,
        },
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Next::Nothing,
        Err(_) => Next::End,
    }
}

/// Waits until the helper has answered, or is gone; `false` after the time.
fn wait(helper: &OwnedFd, most: Duration) -> bool {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    let mut fds = [PollFd::new(helper, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&most)), Ok(0))
}
