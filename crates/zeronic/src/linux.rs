//! Linux' own TCP as a transport: a TAP device in a network namespace, whose kernel has a socket for each connection.
//!
//! The sockets carry dummy bytes. Outgoing, `sendfile` from a sparse memfd makes them without a copy, and of the
//! kernel's frames only the headers are read. Incoming, a header goes to the device with the same dummy pages again and
//! again, and reads with `MSG_TRUNC` discard them.
use crate::transport::{InOrder, Socket, Transport};
use port::{Frame, FramePool, Netns, Port, PortDrops, Tap, TapConfig, unacknowledged};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, connect,
    getpeername, getsockname, ipproto, listen, recv, shutdown, socket_with, sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::{Ipv4Tuple, Mac, Nanos};

/// Bytes of a frame that are read: all headers, and frames of other protocols whole.
const READ: usize = 2048;
/// Dummy bytes that one system call takes at most.
const STEP: usize = 1 << 20;
const BACKLOG: i32 = 128;

/// Where the kernel's TCP is.
#[derive(Debug, Clone)]
pub struct LinuxConfig {
    /// The device's name.
    pub device: String,
    /// The host's address, and the prefix length of its network.
    pub address: (Ipv4Addr, u8),
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// The kernel's congestion control.
    pub congestion: String,
}

struct Kernel {
    socket: OwnedFd,
    /// Bytes that it took.
    written: u64,
    /// This host's stream, and the peer's, have ended.
    ending: bool,
    ended: bool,
}

/// The transport.
pub struct LinuxTcp {
    netns: Netns,
    tap: Tap,
    config: LinuxConfig,
    listeners: Vec<OwnedFd>,
    sockets: Vec<Option<Kernel>>,
    /// Zeros without pages.
    dummy: OwnedFd,
    /// Where discarded bytes would go.
    nowhere: Vec<u8>,
    drops: PortDrops,
}

impl LinuxTcp {
    /// Makes the device in `netns`. The error is a sentence.
    pub fn open(netns: Netns, config: LinuxConfig) -> Result<LinuxTcp, String> {
        let mut tap = Tap::open(&TapConfig {
            name: config.device.clone(),
            mtu: config.mtu,
            netns: Some(netns.path()),
            kernel_address: Some(config.address),
            ..TapConfig::default()
        })?;
        tap.read_at_most(READ.max(usize::from(config.mtu) + 64));
        let dummy = memfd_create(c"zeronic dummy", MemfdFlags::CLOEXEC)
            .and_then(|dummy| ftruncate(&dummy, STEP as u64).map(|()| dummy))
            .map_err(|error| format!("cannot make a sparse memfd for dummy bytes: {error}"))?;
        let (listeners, sockets, nowhere) = (Vec::new(), Vec::new(), vec![0; STEP]);
        Ok(LinuxTcp { netns, tap, config, listeners, sockets, dummy, nowhere, drops: PortDrops::default() })
    }

    /// The hardware address of the kernel's side: frames to it are the host's.
    pub fn mac(&self) -> Result<Mac, String> {
        self.tap.kernel_mac(&self.netns)
    }

    /// Headers that the kernel did not take.
    pub fn drops(&self) -> &PortDrops {
        &self.drops
    }

    fn make(&self) -> Result<OwnedFd, String> {
        let made = self.netns.run(|| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
            sockopt::set_tcp_congestion(&socket, &self.config.congestion)?;
            Ok::<_, Errno>(socket)
        })?;
        let congestion = &self.config.congestion;
        made.map_err(|error| format!("cannot make a TCP socket with congestion control `{congestion}`: {error}"))
    }

    fn keep(&mut self, socket: OwnedFd) -> Socket {
        let at = self.sockets.iter().position(Option::is_none).unwrap_or(self.sockets.len());
        if at == self.sockets.len() {
            self.sockets.push(None);
        }
        self.sockets[at] = Some(Kernel { socket, written: 0, ending: false, ended: false });
        Socket(at as u32)
    }

    fn kernel(&mut self, socket: Socket) -> Option<&mut Kernel> {
        self.sockets.get_mut(socket.0 as usize)?.as_mut()
    }
}

impl Transport for LinuxTcp {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        let socket = self.make()?;
        let begun = match connect(&socket, &remote) {
            Ok(()) | Err(Errno::INPROGRESS) => tuple_of(&socket, Some(remote)),
            Err(error) => Err(error),
        };
        let tuple = begun.map_err(|error| format!("cannot connect to {remote}: {error}"))?;
        Ok((self.keep(socket), tuple))
    }

    fn listen(&mut self, port: u16) -> Result<(), String> {
        let socket = self.make()?;
        let at = SocketAddrV4::new(self.config.address.0, port);
        sockopt::set_socket_reuseaddr(&socket, true)
            .and_then(|()| bind(&socket, &at))
            .and_then(|()| listen(&socket, BACKLOG))
            .map_err(|error| format!("cannot listen on {at}: {error}"))?;
        self.listeners.push(socket);
        Ok(())
    }

    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = self.listeners.iter().find_map(|listener| accept_with(listener, flags).ok())?;
        let tuple = tuple_of(&socket, None).ok()?;
        Some((self.keep(socket), tuple))
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
                Err(error) => return Err(format!("the kernel's TCP ended the connection: {error}")),
            }
        }
        kernel.written += taken;
        Ok(taken)
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        let Some(kernel) = self.kernel(socket) else { return 0 };
        let Ok(left) = unacknowledged(&kernel.socket) else { return 0 };
        // A FIN that was not acknowledged counts as a byte.
        let left = u64::from(left).saturating_sub(u64::from(kernel.ending));
        kernel.written.saturating_sub(left)
    }

    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String> {
        let Some(Some(kernel)) = self.sockets.get_mut(socket.0 as usize) else { return Ok(InOrder::default()) };
        let came = discard(&kernel.socket, &mut self.nowhere)?;
        kernel.ended |= came.ended;
        Ok(came)
    }

    fn end(&mut self, socket: Socket) {
        if let Some(kernel) = self.kernel(socket).filter(|kernel| !kernel.ending) {
            kernel.ending = true;
            // An error says that the connection is gone, which reading tells as well.
            let _ = shutdown(&kernel.socket, Shutdown::Write);
        }
    }

    fn close(&mut self, socket: Socket) {
        let Some(kernel) = self.sockets.get_mut(socket.0 as usize).and_then(Option::take) else { return };
        // A FIN counts as a byte: the kernel goes on sending it.
        let done = kernel.ending && kernel.ended && unacknowledged(&kernel.socket).is_ok_and(|left| left <= 1);
        if !done {
            // Dummy bytes that are still to be sent must not be: a reset, at once.
            let _ = sockopt::set_socket_linger(&kernel.socket, Some(std::time::Duration::ZERO));
        }
    }

    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        self.tap.send(now, frames, pool, &mut self.drops);
    }

    fn headers_out(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        self.tap.receive(now, most, pool, into)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.tap.wait_fd()
    }
}

/// Reads dummy bytes without copying them.
fn discard(socket: &OwnedFd, nowhere: &mut [u8]) -> Result<InOrder, String> {
    let mut came = InOrder::default();
    loop {
        match recv(socket, &mut *nowhere, RecvFlags::TRUNC | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                came.ended = true;
                return Ok(came);
            }
            Ok((_, count)) => came.bytes += count as u64,
            Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(came),
            Err(Errno::INTR) => {}
            Err(error) => return Err(format!("the kernel's TCP ended the connection: {error}")),
        }
    }
}

fn tuple_of(socket: impl AsFd, remote: Option<SocketAddrV4>) -> Result<Ipv4Tuple, Errno> {
    let v4 = |address: SocketAddrAny| SocketAddrV4::try_from(address);
    let local = v4(getsockname(&socket)?)?;
    let remote = match remote {
        Some(remote) => remote,
        None => v4(getpeername(&socket)?.ok_or(Errno::NOTCONN)?)?,
    };
    Ok(Ipv4Tuple {
        local_ip: *local.ip(),
        local_port: local.port(),
        remote_ip: *remote.ip(),
        remote_port: remote.port(),
    })
}
