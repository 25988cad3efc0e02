//! Stream socket: the steps of connection management, and the threads that wait.
use super::named::{Named, Side};
use super::protocol::{CONNECTION_BYTES, Connection};
use super::registered::Registered;
use super::settings::Options;
use super::stream::Stream;
use super::waiting::{State, Waiting};
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel};
use crate::cm::{
    Channel, Id, SPACE_TCP, create_id, destroy_id, kind, migrate_id, next_event, rdma_accept, rdma_ack_cm_event,
    rdma_connect, rdma_destroy_qp, rdma_reject, rdma_resolve_route, read_address,
};
use crate::errno::{self, Result};
use libc::{c_int, c_short, pollfd};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use std::sync::Arc;

/// Milliseconds that resolving may take.
pub(super) const TIMEOUT: c_int = 2000;
/// A socket, named by the descriptor of its event channel.
pub(super) type Socket = Waiting<Inner>;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Made, or bound.
    Fresh,
    Listening,
    /// `rconnect` is under way.
    Connecting,
    /// Accepted; the peer has not confirmed it yet.
    Accepted,
    /// Bytes can go, or could.
    Connected,
    /// Closed, or the connection could not be made.
    Dead,
}

/// What a socket is for its calls.
pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) phase: Phase,
    pub(super) id: *mut RdmaCmId,
    channel: *mut RdmaEventChannel,
    /// There from `Connecting` (once the route is known) or `Accepted` on.
    pub(super) stream: Option<Stream>,
    /// Buffers that were mapped, by index of the peer's table where they were written.
    pub(super) mapped: Vec<(Option<u32>, Registered)>,
    /// Connections that wait to be accepted.
    waiting: VecDeque<*mut RdmaCmId>,
    /// What `SO_ERROR` gives.
    pub(super) error: c_int,
}

// SAFETY: the pointers are objects of this library, which serve all threads.
unsafe impl Send for Inner {}

impl Socket {
    /// A new one.
    pub(super) fn open(options: Options) -> Result<Arc<Socket>> {
        let channel = quiet_channel()?;
        // SAFETY: made just now.
        let made = unsafe { create_id(channel, null_mut(), SPACE_TCP) };
        let id = made.inspect_err(|_| {
            // SAFETY: nobody else has it.
            unsafe { Channel::close(channel) };
        })?;
        Ok(Socket::with(options, id, channel, Phase::Fresh))
    }

    fn with(options: Options, id: *mut RdmaCmId, channel: *mut RdmaEventChannel, phase: Phase) -> Arc<Socket> {
        // SAFETY: the channel is there as long as the socket.
        let fd = unsafe { (*channel).fd };
        let inner =
            Inner { options, phase, id, channel, stream: None, mapped: Vec::new(), waiting: VecDeque::new(), error: 0 };
        Arc::new(Socket::new(fd, inner))
    }

    /// Ends it: what was sent arrives, and the peer is notified.
    pub(super) fn close(&self) {
        if self.lock().phase == Phase::Connected {
            let _ = self.shut(libc::SHUT_RDWR);
        }
        self.lock().end(0);
        self.wake();
    }

    /// `rshutdown`.
    pub(super) fn shut(&self, how: c_int) -> Result<()> {
        let (sends, takes) = match how {
            libc::SHUT_RD => (false, true),
            libc::SHUT_WR => (true, false),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(libc::EINVAL),
        };
        let mut shut = false;
        self.until(true, |inner| {
            let Some(stream) = inner.stream.as_mut().filter(|_| inner.phase == Phase::Connected) else {
                return Some(Err(libc::ENOTCONN));
            };
            if takes {
                stream.stop_taking();
            }
            // The peer gets one report, and another only that neither way goes on.
            let news = sends && (!stream.has_shut() || takes);
            if !shut && news && !stream.is_over() {
                if !stream.can_control() {
                    return None;
                }
                stream.shut(takes);
            }
            shut = true;
            (!sends || stream.is_quiet()).then_some(Ok(()))
        })
    }

    /// The next connection of a listener.
    pub(super) fn accept(&self, wait: bool) -> Result<Arc<Socket>> {
        let (id, options) = self.until(wait, |inner| match inner.phase {
            Phase::Listening => inner.waiting.pop_front().map(|id| Ok((id, inner.options))),
            _ => Some(Err(libc::EINVAL)),
        })?;
        // SAFETY: the identifier is this socket's alone.
        unsafe {
            let channel = quiet_channel().inspect_err(|_| {
                let _ = destroy_id(id);
            })?;
            migrate_id(id, channel).inspect_err(|_| {
                let _ = destroy_id(id);
                Channel::close(channel);
            })?;
            let socket = Socket::with(options, id, channel, Phase::Accepted);
            let begun = socket.lock().answer();
            begun.inspect_err(|_| {
                rdma_reject(id, std::ptr::null(), 0);
            })?;
            Ok(socket)
        }
    }
}

/// An event channel that never waits.
fn quiet_channel() -> Result<*mut RdmaEventChannel> {
    let channel = Channel::open()?;
    // SAFETY: made just now.
    if unsafe { libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK) } == 0 {
        return Ok(channel);
    }
    let number = errno::get();
    // SAFETY: nobody else has it.
    unsafe { Channel::close(channel) };
    Err(number)
}

impl Inner {
    /// Takes events of connection management.
    fn events(&mut self) {
        if self.phase == Phase::Dead || self.channel.is_null() {
            return;
        }
        loop {
            // SAFETY: the channel is this socket's, and never waits.
            match unsafe { next_event(self.channel) } {
                // SAFETY: an event that was given just now.
                Ok(event) => unsafe { self.event(event) },
                Err(libc::EAGAIN | libc::EINTR) => break,
                Err(number) => {
                    self.lost(number);
                    break;
                }
            }
        }
        // A confirmation may be late: the peer's first message is one as well.
        if let Some(stream) = self.stream.as_mut().filter(|_| self.phase == Phase::Accepted) {
            stream.progress();
            if stream.arrived() > 0 || stream.is_at_end() {
                self.phase = Phase::Connected;
            }
        }
    }

    /// # Safety
    /// The event was given to nobody else.
    unsafe fn event(&mut self, event: *mut RdmaCmEvent) {
        // SAFETY: as the caller guarantees; the identifier of a request is nobody's yet.
        let (what, status, id) = unsafe { ((*event).event, (*event).status, (*event).id) };
        // SAFETY: as the caller guarantees.
        unsafe { rdma_ack_cm_event(event) };
        match (what, self.phase) {
            (kind::CONNECT_REQUEST, _) => self.waiting.push_back(id),
            (kind::ADDR_RESOLVED, Phase::Connecting) => {
                // SAFETY: the socket's identifier.
                let asked = unsafe { rdma_resolve_route(self.id, TIMEOUT) };
                self.went(if asked == 0 { Ok(()) } else { Err(errno::get()) });
            }
            (kind::ROUTE_RESOLVED, Phase::Connecting) => {
                let asked = self.ask();
                self.went(asked);
            }
            (kind::ESTABLISHED, Phase::Connecting) => match self.peer() {
                Ok(peer) => {
                    self.stream.iter_mut().for_each(|stream| stream.begin(peer));
                    self.phase = Phase::Connected;
                }
                Err(number) => self.lost(number),
            },
            (kind::ESTABLISHED, Phase::Accepted) => self.phase = Phase::Connected,
            (kind::REJECTED, _) => self.lost(libc::ECONNREFUSED),
            (kind::ADDR_ERROR | kind::UNREACHABLE | kind::CONNECT_ERROR, _) if status < 0 => self.lost(-status),
            (kind::ADDR_ERROR | kind::UNREACHABLE | kind::CONNECT_ERROR, _) => self.lost(libc::EHOSTUNREACH),
            (kind::DISCONNECTED, _) => self.disconnected(),
            _ => {}
        }
    }

    /// A step of making a connection was taken, or failed.
    fn went(&mut self, step: Result<()>) {
        if let Err(number) = step {
            self.lost(number);
        }
    }

    /// The peer's side has ended: what has come before can still be read.
    fn disconnected(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.progress();
            if !stream.is_over() {
                stream.lost();
            }
        }
    }

    /// The connection is not there, or not any more.
    fn lost(&mut self, number: c_int) {
        match self.phase {
            Phase::Connected => self.disconnected(),
            Phase::Dead => {}
            _ => self.end(number),
        }
    }

    /// What the peer has sent with its request or reply.
    fn peer(&self) -> Result<Connection> {
        // SAFETY: the socket's identifier.
        Connection::decode(&unsafe { Id::of(self.id) }.private().peer_parameters.data)
    }

    /// Makes the stream, and asks the peer for a connection.
    fn ask(&mut self) -> Result<()> {
        // SAFETY: the socket's identifier, which goes after the stream.
        let stream = unsafe { Stream::new(self.id, self.options.sizes)? };
        let bytes = stream.offered().encode();
        self.stream = Some(stream);
        let mut parameters = parameters(&bytes);
        // SAFETY: the identifier is the socket's, and the parameters are local.
        let done = unsafe { rdma_connect(self.id, &raw mut parameters) };
        if done == 0 { Ok(()) } else { Err(errno::get()) }
    }

    /// Makes the stream, and accepts what the peer has asked for.
    fn answer(&mut self) -> Result<()> {
        let peer = self.peer()?;
        // SAFETY: as in `ask`.
        let mut stream = unsafe { Stream::new(self.id, self.options.sizes)? };
        stream.begin(peer);
        let bytes = stream.offered().encode();
        self.stream = Some(stream);
        let mut parameters = parameters(&bytes);
        // SAFETY: as in `ask`.
        let done = unsafe { rdma_accept(self.id, &raw mut parameters) };
        if done == 0 { Ok(()) } else { Err(errno::get()) }
    }

    /// Ends everything; `number` is what `SO_ERROR` gives.
    pub(super) fn end(&mut self, number: c_int) {
        if self.phase == Phase::Dead {
            return;
        }
        (self.phase, self.error) = (Phase::Dead, number);
        self.mapped.clear();
        self.stream = None;
        // SAFETY: the identifiers and the channel are the socket's, and are used no more.
        unsafe {
            for id in self.waiting.drain(..) {
                rdma_reject(id, std::ptr::null(), 0);
                let _ = destroy_id(id);
            }
            rdma_destroy_qp(self.id);
            let _ = destroy_id(self.id);
        }
        self.id = null_mut();
    }
}

impl State for Inner {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn is_fixed(&self) -> bool {
        !matches!(self.phase, Phase::Fresh | Phase::Listening)
    }

    fn take_error(&mut self) -> c_int {
        std::mem::take(&mut self.error)
    }

    fn address(&self, side: Side) -> Result<Named> {
        if self.id.is_null() {
            return Err(libc::ENOTCONN);
        }
        // SAFETY: the socket's identifier, whose addresses have the size of all families.
        let found = unsafe {
            let addresses = &raw const (*self.id).route.addr;
            match side {
                Side::Own => read_address((&raw const (*addresses).src).cast()),
                Side::Peer => read_address((&raw const (*addresses).dst).cast()),
            }
        };
        let address = match (side, found) {
            (_, Ok(address)) => address,
            (Side::Own, Err(_)) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            (Side::Peer, Err(_)) => return Err(libc::ENOTCONN),
        };
        Ok(Named::new(self.options.family, address))
    }

    fn progress(&mut self) {
        match &mut self.stream {
            Some(stream) if self.phase == Phase::Connected => stream.progress(),
            _ => self.events(),
        }
    }

    fn ready(&self) -> c_short {
        let mut events = 0;
        match (self.phase, &self.stream) {
            (Phase::Listening, _) if !self.waiting.is_empty() => events |= libc::POLLIN,
            (Phase::Connected, Some(stream)) => {
                if stream.arrived() > 0 || stream.is_at_end() {
                    events |= libc::POLLIN;
                }
                if stream.can_send() || stream.is_over() {
                    events |= libc::POLLOUT;
                }
                // What has come is read first, as with TCP.
                if stream.is_over() && stream.arrived() == 0 {
                    events |= libc::POLLHUP;
                }
                if stream.is_broken() {
                    events |= libc::POLLERR;
                }
            }
            (Phase::Dead, _) => events |= libc::POLLIN | libc::POLLOUT | libc::POLLHUP,
            _ => {}
        }
        if self.error != 0 {
            events |= libc::POLLERR;
        }
        events
    }

    fn fds(&self) -> Vec<pollfd> {
        // SAFETY: the channel is there as long as the phase is another one.
        let channel = (self.phase != Phase::Dead).then(|| unsafe { (*self.channel).fd });
        let fds = channel.into_iter().chain(self.stream.as_ref().map(Stream::fd));
        fds.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 }).collect()
    }

    fn arm(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.arm();
        }
        self.events();
    }

    fn drain(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.drain();
        }
        self.events();
    }

    fn has_queue(&self) -> bool {
        self.stream.is_some()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end(0);
        // SAFETY: the socket's, which nobody uses any more. Its descriptor was the socket's name until now.
        unsafe { Channel::close(self.channel) };
    }
}

/// Parameters of a connection, with these private data.
fn parameters(bytes: &[u8; CONNECTION_BYTES]) -> RdmaConnParam {
    RdmaConnParam {
        private_data: bytes.as_ptr().cast(),
        private_data_len: CONNECTION_BYTES as u8,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: 0,
    }
}
