//! A datagram socket: bound, connected, used, ended.
use super::endpoint::{Endpoint, Taken, is_station};
use crate::errno::{self, Result};
use crate::rsockets::named::{Named, Side};
use crate::rsockets::settings::Options;
use crate::rsockets::waiting::{State, Waiting};
use libc::{c_int, c_short, iovec, pollfd};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a socket that is closed waits until its datagrams are sent.
const TIMEOUT: Duration = Duration::from_secs(1);
/// No address yet.
const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// A datagram socket.
pub(in crate::rsockets) type Datagrams = Waiting<Inner>;

/// What a datagram socket is for its calls.
pub(in crate::rsockets) struct Inner {
    options: Options,
    /// From the first use on.
    endpoint: Option<Endpoint>,
    /// The program has named no address of its own.
    is_any: bool,
    peer: Option<SocketAddrV4>,
    shut: Shut,
    /// The descriptor that the socket has as its name.
    _name: OwnedFd,
}

// SAFETY: the pointers are objects of this library, which serve all threads.
unsafe impl Send for Inner {}

/// What the program has ended.
#[derive(Debug, Clone, Copy, Default)]
struct Shut {
    sends: bool,
    takes: bool,
    all: bool,
}

impl Datagrams {
    /// A new one.
    pub(in crate::rsockets) fn open(options: Options) -> Result<Arc<Datagrams>> {
        crate::cm::service()?;
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(errno::get());
        }
        // SAFETY: made just now, and nobody else has it.
        let name = unsafe { OwnedFd::from_raw_fd(fd) };
        let inner = Inner { options, endpoint: None, is_any: true, peer: None, shut: Shut::default(), _name: name };
        Ok(Arc::new(Datagrams::new(inner._name.as_raw_fd(), inner)))
    }

    /// `rbind`.
    pub(in crate::rsockets) fn bind(&self, address: SocketAddrV4) -> Result<()> {
        let mut inner = self.lock();
        if inner.endpoint.is_some() {
            return Err(libc::EINVAL);
        }
        inner.begin(address)?;
        inner.is_any = address.ip().is_unspecified();
        Ok(())
    }

    /// `rconnect`: the destination of datagrams that name none, and the only one whose datagrams count. `None` ends
    /// that.
    pub(in crate::rsockets) fn connect(&self, peer: Option<SocketAddrV4>) -> Result<()> {
        if peer.is_some_and(|peer| !is_station(peer)) {
            return Err(libc::ENETUNREACH);
        }
        let mut inner = self.lock();
        inner.begin(NOWHERE)?.only_from(peer);
        inner.peer = peer;
        Ok(())
    }

    /// Sends one datagram.
    ///
    /// # Safety
    /// The entries name bytes of the program.
    pub(in crate::rsockets) unsafe fn send(
        &self,
        to: Option<SocketAddrV4>,
        list: &[iovec],
        flags: c_int,
    ) -> Result<usize> {
        let wait = self.waits(flags);
        self.until(wait, |inner| {
            let to = to.or(inner.peer);
            match (inner.shut.sends, to) {
                (true, _) => Some(Err(libc::EPIPE)),
                (false, None) => Some(Err(libc::EDESTADDRREQ)),
                (false, Some(to)) if !is_station(to) => Some(Err(libc::ENETUNREACH)),
                (false, Some(to)) => match inner.begin(NOWHERE) {
                    // SAFETY: as the caller guarantees.
                    Ok(endpoint) => unsafe { endpoint.send(to, list) },
                    Err(number) => Some(Err(number)),
                },
            }
        })
    }

    /// Takes one datagram; `None` where this side takes no more.
    ///
    /// # Safety
    /// The entries name room of the program.
    pub(in crate::rsockets) unsafe fn receive(&self, list: &[iovec], flags: c_int) -> Result<Option<Taken>> {
        let (wait, keep) = (self.waits(flags), flags & libc::MSG_PEEK != 0);
        self.until(wait, |inner| {
            let shut = inner.shut;
            let endpoint = match inner.begin(NOWHERE) {
                Ok(endpoint) => endpoint,
                Err(number) => return Some(Err(number)),
            };
            // SAFETY: as the caller guarantees.
            match unsafe { endpoint.receive(list, keep) } {
                Some(taken) => Some(Ok(Some(taken))),
                None if shut.takes => Some(Ok(None)),
                None if endpoint.is_broken() => Some(Err(libc::EIO)),
                None => None,
            }
        })
    }

    fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && !self.lock().options.nonblocking
    }

    /// `rshutdown`.
    pub(in crate::rsockets) fn shut(&self, how: c_int) -> Result<()> {
        let mut inner = self.lock();
        let shut = &mut inner.shut;
        match how {
            libc::SHUT_RD => shut.takes = true,
            libc::SHUT_WR => shut.sends = true,
            libc::SHUT_RDWR => (shut.sends, shut.takes) = (true, true),
            _ => return Err(libc::EINVAL),
        }
        let connected = inner.peer.is_some();
        drop(inner);
        self.wake();
        if connected { Ok(()) } else { Err(libc::ENOTCONN) }
    }

    /// Ends it, once its datagrams are sent.
    pub(in crate::rsockets) fn close(&self) {
        let end = Instant::now() + TIMEOUT;
        let _ = self.until(true, |inner| {
            let quiet = inner.endpoint.as_ref().is_none_or(Endpoint::is_quiet);
            (quiet || Instant::now() >= end).then_some(Ok(()))
        });
        let mut inner = self.lock();
        inner.shut = Shut { sends: true, takes: true, all: true };
        inner.endpoint = None;
        drop(inner);
        self.wake();
    }
}

impl Inner {
    /// What it is bound to: to this address, where it was not bound before.
    fn begin(&mut self, address: SocketAddrV4) -> Result<&mut Endpoint> {
        if self.shut.all {
            return Err(libc::EBADF);
        }
        match &mut self.endpoint {
            Some(endpoint) => Ok(endpoint),
            none => Ok(none.insert(Endpoint::bind(address, &self.options.sizes)?)),
        }
    }
}

impl State for Inner {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn is_fixed(&self) -> bool {
        self.endpoint.is_some()
    }

    fn take_error(&mut self) -> c_int {
        let broken = self.endpoint.as_ref().is_some_and(Endpoint::is_broken);
        if broken { libc::EIO } else { 0 }
    }

    fn address(&self, side: Side) -> Result<Named> {
        let local = self.endpoint.as_ref().map_or(NOWHERE, Endpoint::local);
        let address = match side {
            Side::Own if self.is_any && self.peer.is_none() => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, local.port()),
            Side::Own => local,
            Side::Peer => self.peer.ok_or(libc::ENOTCONN)?,
        };
        Ok(Named::new(self.options.family, address))
    }

    fn progress(&mut self) {
        self.endpoint.iter_mut().for_each(Endpoint::progress);
    }

    fn ready(&self) -> c_short {
        let Some(endpoint) = &self.endpoint else { return libc::POLLOUT };
        let mut events = 0;
        if endpoint.has_arrived() || self.shut.takes {
            events |= libc::POLLIN;
        }
        if endpoint.can_send() || self.shut.sends {
            events |= libc::POLLOUT;
        }
        if endpoint.is_broken() {
            events |= libc::POLLERR;
        }
        events
    }

    fn arm(&mut self) {
        self.endpoint.iter_mut().for_each(Endpoint::arm);
    }

    fn fds(&self) -> Vec<pollfd> {
        self.endpoint.as_ref().map_or_else(Vec::new, Endpoint::fds)
    }

    fn drain(&mut self) {
        self.endpoint.iter_mut().for_each(Endpoint::drain);
    }

    fn has_queue(&self) -> bool {
        self.endpoint.is_some()
    }
}
