//! Helper in the namespace: it makes the device and sockets, and passes them on. A descriptor stays attached to the
//! namespace that it was made in, so nobody else has to enter.
use super::words::{Answer, Asked, LinuxConfig, SPARE};
use port::{Interface, Tap, TapConfig};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, connect, getsockname, ipproto, listen, socket_with,
    sockopt,
};
use shm::handover;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Mac;

const BACKLOG: i32 = 128;

/// Makes the device in the namespace that `enter` goes to, and serves until the transport is gone. Between the two,
/// `confine` gives up what is not needed any more.
pub fn serve_linux(
    to: OwnedFd,
    enter: impl FnOnce() -> Result<(), String>,
    confine: impl FnOnce() -> Result<(), String>,
) {
    let Ok((message, _)) = handover::recv(to.as_fd()) else { return };
    let Ok(Asked::Begin(config)) = serde_json::from_slice(&message) else { return };
    let begun = enter().and_then(|()| make_device(&config)).and_then(|device| confine().map(|()| device));
    let done = match begun {
        Ok((device, mac)) => answer(to.as_fd(), &Answer::Ready(mac), Some(device.as_fd()))
            .and_then(|()| Helper { to: &to, config, spare: HashMap::new(), next: 0 }.serve()),
        Err(sentence) => answer(to.as_fd(), &Answer::Failed(sentence), None),
    };
    // The transport is gone, and nobody is left for a report.
    let _ = done;
}

fn make_device(config: &LinuxConfig) -> Result<(OwnedFd, [u8; 6]), String> {
    let made = Tap::open(&TapConfig {
        name: config.device.clone(),
        mtu: config.mtu,
        kernel_addresses: vec![(config.address.0.into(), config.address.1)],
        ..TapConfig::default()
    })?;
    let interface = Interface::named(made.device())?;
    if let Some(gateway) = config.gateway {
        interface.add_route(Ipv4Addr::UNSPECIFIED, 0, Some(gateway))?;
    }
    if let Some(shared) = &config.shared {
        interface.set_mac(Mac(shared.mac))?;
    }
    let mac = interface.mac()?;
    Ok((made.into_fd(), mac.0))
}

fn answer(to: BorrowedFd<'_>, answer: &Answer, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let message = serde_json::to_vec(answer)?;
    handover::send(to, &message, descriptor.as_slice())
}

struct Helper<'a> {
    to: &'a OwnedFd,
    config: LinuxConfig,
    /// Those that were passed on and are not connected yet, by port.
    spare: HashMap<u16, OwnedFd>,
    /// Where the search of the next port begins, in the range of a shared address.
    next: u32,
}

impl Helper<'_> {
    /// The error shows that the transport is gone.
    fn serve(&mut self) -> io::Result<()> {
        self.pass_hops()?;
        for _ in 0..SPARE {
            self.pass_spare()?;
        }
        loop {
            let (message, _) = handover::recv(self.to.as_fd())?;
            if message.is_empty() {
                return Ok(());
            }
            match serde_json::from_slice(&message)? {
                Asked::Connect(port, remote) => {
                    self.connect(port, remote)?;
                    self.pass_spare()?;
                }
                Asked::Listen(port) => self.listen(port)?,
                Asked::Begin(_) => return Ok(()),
            }
        }
    }

    /// A socket that is bound to a port of its own, and the port.
    fn spare_socket(&mut self) -> Result<(u16, OwnedFd), Errno> {
        let Some((first, last)) = self.config.shared.as_ref().map(|shared| shared.ports) else {
            // The ports of spare sockets may be listened on.
            let socket = self.socket(0, true)?;
            return Ok((port_of(&socket)?, socket));
        };
        let count = u32::from(last - first) + 1;
        for _ in 0..count {
            let port = first + (self.next % count) as u16;
            self.next += 1;
            match self.socket(port, false) {
                Err(Errno::ADDRINUSE) => {}
                made => return made.map(|socket| (port, socket)),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    fn socket(&self, port: u16, reuse_address: bool) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        // A message leaves as soon as it is posted, as on the other transports; accepted sockets inherit it.
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_tcp_congestion(&socket, &self.config.congestion)?;
        sockopt::set_socket_reuseaddr(&socket, reuse_address)?;
        bind(&socket, &SocketAddrV4::new(self.config.address.0, port))?;
        Ok(socket)
    }

    /// The socket whose frames name next hops.
    fn pass_hops(&self) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        bind(&socket, &SocketAddrV4::new(self.config.address.0, 0))?;
        answer(self.to.as_fd(), &Answer::Hops(port_of(&socket)?), Some(socket.as_fd()))
    }

    fn pass_spare(&mut self) -> io::Result<()> {
        let (port, socket) = match self.spare_socket() {
            Ok(made) => made,
            Err(error) => {
                let congestion = &self.config.congestion;
                let why = format!("no TCP socket with congestion control `{congestion}`: {error}");
                return answer(self.to.as_fd(), &Answer::Failed(why), None);
            }
        };
        answer(self.to.as_fd(), &Answer::Spare(port), Some(socket.as_fd()))?;
        self.spare.insert(port, socket);
        Ok(())
    }

    fn connect(&mut self, port: u16, remote: SocketAddrV4) -> io::Result<()> {
        let begun = self.spare.remove(&port).ok_or(Errno::BADF).and_then(|socket| connect(&socket, &remote));
        match begun {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(error) => answer(
                self.to.as_fd(),
                &Answer::Unreachable(port, format!("cannot connect to {remote}: {error}")),
                None,
            ),
        }
    }

    fn listen(&self, port: u16) -> io::Result<()> {
        let made = self.socket(port, true).and_then(|socket| listen(&socket, BACKLOG).map(|()| socket));
        match made {
            Ok(socket) => answer(self.to.as_fd(), &Answer::Listening(port), Some(socket.as_fd())),
            Err(error) => {
                let why = format!("cannot listen on {}:{port}: {error}", self.config.address.0);
                answer(self.to.as_fd(), &Answer::NotListening(port, why), None)
            }
        }
    }
}

fn port_of(socket: &OwnedFd) -> Result<u16, Errno> {
    let local: SocketAddrAny = getsockname(socket)?;
    SocketAddrV4::try_from(local).map(|local| local.port())
}
