//! A UDP port of the host's address, which the daemon's device has.
use crate::cm::Service;
use crate::errno::{self, Result};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use verbs::control::{Answer, Request as Control};
use verbs::udp::{self, Datagram, Request};

/// The port.
pub(super) struct Port {
    service: &'static Service,
    /// The host's address, and the port.
    pub(super) local: SocketAddrV4,
    /// One byte for each datagram that waits.
    pipe: OwnedFd,
}

impl Port {
    /// Binds it.
    pub(super) fn bind(service: &'static Service, address: SocketAddrV4) -> Result<Port> {
        let (answer, fds) = service.attachment.ask(&Control::Udp(Request::Bind(address)))?;
        let Answer::Udp(udp::Answer::Bound(local)) = answer else { return Err(libc::EIO) };
        let pipe = fds.into_iter().next().ok_or(libc::EIO)?;
        let port = Port { service, local, pipe };
        // SAFETY: a descriptor of this process.
        match unsafe { libc::fcntl(port.fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
            0 => Ok(port),
            _ => Err(errno::get()),
        }
    }

    /// The descriptor that is readable while datagrams wait.
    pub(super) fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Sends a datagram.
    pub(super) fn send(&self, to: SocketAddrV4, payload: Vec<u8>) -> Result<()> {
        let request = Request::Send { port: self.local.port(), to, payload };
        self.service.attachment.done(&Control::Udp(request))
    }

    /// The next datagram, where there is one.
    pub(super) fn receive(&self) -> Result<Option<Datagram>> {
        let mut token = 0u8;
        // SAFETY: reads into a local byte.
        match unsafe { libc::read(self.fd(), (&raw mut token).cast(), 1) } {
            1 => {}
            // The daemon has gone.
            0 => return Err(libc::EIO),
            _ if matches!(errno::get(), libc::EAGAIN | libc::EINTR) => return Ok(None),
            _ => return Err(errno::get()),
        }
        match self.service.attachment.ask(&Control::Udp(Request::Receive(self.local.port())))? {
            (Answer::Udp(udp::Answer::Datagram(datagram)), _) => Ok(datagram),
            _ => Err(libc::EIO),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Where the daemon has gone, so has the port.
        let _ = self.service.attachment.done(&Control::Udp(Request::Release(self.local.port())));
    }
}
