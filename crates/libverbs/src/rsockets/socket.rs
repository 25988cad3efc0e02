//! A stream socket: the steps of connection management, and who waits for what.
use super::protocol::{CONNECTION_BYTES, Connection};
use super::registered::Registered;
use super::stream::{Sizes, Stream};
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel};
use crate::cm::{
    Channel, Id, SPACE_TCP, Service, create_id, destroy_id, kind, migrate_id, next_event, rdma_accept,
    rdma_ack_cm_event, rdma_connect, rdma_destroy_qp, rdma_reject, rdma_resolve_route, service,
};
use crate::errno::{self, Result};
use libc::{c_int, pollfd};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Milliseconds that resolving may take.
pub(super) const PATIENCE: c_int = 2000;
/// Looks at the queue before a thread sleeps; the queue yields between them.
const LOOKS: u32 = 1000;
/// Two threads may take the same event: so who sleeps looks again after so many milliseconds.
pub(super) const AGAIN: c_int = 100;

/// A socket.
pub(super) struct Socket {
    /// Its descriptor: that of its event channel.
    pub(super) fd: RawFd,
    inner: Mutex<Inner>,
    /// Somebody looked at the queues.
    looked: Condvar,
}

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
    /// Buffers that were mapped, by index of the peer's table where they were told.
    pub(super) mapped: Vec<(Option<u32>, Registered)>,
    /// Connections that wait to be accepted.
    waiting: VecDeque<*mut RdmaCmId>,
    /// What `SO_ERROR` gives.
    pub(super) error: c_int,
    /// A thread sleeps on the descriptors.
    sleeps: bool,
}

// SAFETY: the pointers are objects of this library, which serve all threads.
unsafe impl Send for Inner {}

/// What `rsetsockopt` and `rfcntl` set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) sizes: Sizes,
    pub(super) nonblocking: bool,
    pub(super) family: c_int,
    /// Flags and values that are remembered for who asks: `SO_KEEPALIVE`, `SO_OOBINLINE`, `SO_LINGER`, `TCP_NODELAY`.
    pub(super) keepalive: c_int,
    pub(super) inline_urgent: c_int,
    pub(super) no_delay: c_int,
    pub(super) linger: [c_int; 2],
    pub(super) reuse: c_int,
}

impl Socket {
    /// A new one.
    pub(super) fn open(options: Options) -> Result<Arc<Socket>> {
        let service = service()?;
        let channel = quiet_channel(service)?;
        // SAFETY: made just now.
        let made = unsafe { create_id(service, channel, null_mut(), SPACE_TCP) };
        let id = made.inspect_err(|_| {
            // SAFETY: nobody else has it.
            unsafe { Channel::close(service, channel) };
        })?;
        Ok(Socket::with(options, id, channel, Phase::Fresh))
    }

    fn with(options: Options, id: *mut RdmaCmId, channel: *mut RdmaEventChannel, phase: Phase) -> Arc<Socket> {
        // SAFETY: the channel is there as long as the socket.
        let fd = unsafe { (*channel).fd };
        let inner = Inner {
            options,
            phase,
            id,
            channel,
            stream: None,
            mapped: Vec::new(),
            waiting: VecDeque::new(),
            error: 0,
            sleeps: false,
        };
        Arc::new(Socket { fd, inner: Mutex::new(inner), looked: Condvar::new() })
    }

    /// What it is now.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries until there is a result; EAGAIN at once where that is not to be waited for.
    pub(super) fn until<T>(&self, wait: bool, mut attempt: impl FnMut(&mut Inner) -> Option<Result<T>>) -> Result<T> {
        let mut looks = 0;
        loop {
            let mut inner = self.lock();
            inner.progress();
            if let Some(result) = attempt(&mut inner) {
                return result;
            }
            looks += 1;
            if looks < LOOKS && wait && inner.stream.is_some() {
                continue;
            }
            inner.arm();
            if let Some(result) = attempt(&mut inner) {
                return result;
            }
            if !wait {
                return Err(libc::EAGAIN);
            }
            self.sleep(inner);
        }
    }

    /// Sleeps until something has happened. One thread sleeps on the descriptors, and wakes the others.
    fn sleep(&self, mut inner: MutexGuard<'_, Inner>) {
        if inner.sleeps {
            let waited = self.looked.wait_timeout(inner, Duration::from_millis(AGAIN as u64));
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            return;
        }
        inner.sleeps = true;
        let mut fds = inner.fds();
        drop(inner);
        // SAFETY: valid entries of descriptors that stay open as long as the socket.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, AGAIN) };
        let mut inner = self.lock();
        inner.sleeps = false;
        inner.drain();
        self.looked.notify_all();
    }

    /// Ends it: what was sent arrives, and the peer is told.
    pub(super) fn close(&self) {
        if self.lock().phase == Phase::Connected {
            let _ = self.shut(libc::SHUT_RDWR);
        }
        self.lock().end(0);
        self.looked.notify_all();
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
            // The peer is told once, and again only that neither way goes on.
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
        let service = service()?;
        // SAFETY: the identifier is this socket's alone.
        unsafe {
            let channel = quiet_channel(service).inspect_err(|_| {
                let _ = destroy_id(service, id);
            })?;
            migrate_id(service, id, channel).inspect_err(|_| {
                let _ = destroy_id(service, id);
                Channel::close(service, channel);
            })?;
            let socket = Socket::with(options, id, channel, Phase::Accepted);
            let begun = socket.lock().answer(service);
            begun.inspect_err(|_| {
                rdma_reject(id, std::ptr::null(), 0);
            })?;
            Ok(socket)
        }
    }
}

/// An event channel that never waits.
fn quiet_channel(service: &Service) -> Result<*mut RdmaEventChannel> {
    let channel = Channel::open(service)?;
    // SAFETY: made just now.
    if unsafe { libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK) } == 0 {
        return Ok(channel);
    }
    let number = errno::get();
    // SAFETY: nobody else has it.
    unsafe { Channel::close(service, channel) };
    Err(number)
}

impl Inner {
    /// Goes on with whatever has happened.
    pub(super) fn progress(&mut self) {
        match &mut self.stream {
            Some(stream) if self.phase == Phase::Connected => stream.progress(),
            _ => self.events(),
        }
    }

    /// A connection waits to be accepted.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes events of connection management.
    fn events(&mut self) {
        if self.phase == Phase::Dead || self.channel.is_null() {
            return;
        }
        let Ok(service) = service() else { return };
        loop {
            // SAFETY: the channel is this socket's, and never waits.
            match unsafe { next_event(service, self.channel) } {
                // SAFETY: an event that was given just now.
                Ok(event) => unsafe { self.event(service, event) },
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
    unsafe fn event(&mut self, service: &Service, event: *mut RdmaCmEvent) {
        // SAFETY: as the caller says; the identifier of a request is nobody's yet.
        let (what, status, id) = unsafe { ((*event).event, (*event).status, (*event).id) };
        // SAFETY: as the caller says.
        unsafe { rdma_ack_cm_event(event) };
        match (what, self.phase) {
            (kind::CONNECT_REQUEST, _) => self.waiting.push_back(id),
            (kind::ADDR_RESOLVED, Phase::Connecting) => {
                // SAFETY: the socket's identifier.
                let asked = unsafe { rdma_resolve_route(self.id, PATIENCE) };
                self.went(if asked == 0 { Ok(()) } else { Err(errno::get()) });
            }
            (kind::ROUTE_RESOLVED, Phase::Connecting) => {
                let asked = self.ask(service);
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

    /// What the peer has told with its request or reply.
    fn peer(&self) -> Result<Connection> {
        // SAFETY: the socket's identifier.
        Connection::decode(&unsafe { Id::of(self.id) }.private().told.data)
    }

    /// Makes the stream, and asks the peer for a connection.
    fn ask(&mut self, service: &Service) -> Result<()> {
        // SAFETY: the socket's identifier, which goes after the stream.
        let stream = unsafe { Stream::new(service, self.id, service.domain()?, self.options.sizes)? };
        let told = stream.told().encode();
        self.stream = Some(stream);
        let mut parameters = parameters(&told);
        // SAFETY: the identifier is the socket's, and the parameters are local.
        let done = unsafe { rdma_connect(self.id, &raw mut parameters) };
        if done == 0 { Ok(()) } else { Err(errno::get()) }
    }

    /// Makes the stream, and accepts what the peer has asked for.
    fn answer(&mut self, service: &Service) -> Result<()> {
        let peer = self.peer()?;
        // SAFETY: as in `ask`.
        let mut stream = unsafe { Stream::new(service, self.id, service.domain()?, self.options.sizes)? };
        stream.begin(peer);
        let told = stream.told().encode();
        self.stream = Some(stream);
        let mut parameters = parameters(&told);
        // SAFETY: as in `ask`.
        let done = unsafe { rdma_accept(self.id, &raw mut parameters) };
        if done == 0 { Ok(()) } else { Err(errno::get()) }
    }

    /// What a thread that sleeps waits for.
    pub(super) fn fds(&self) -> Vec<pollfd> {
        // SAFETY: the channel is there as long as the phase is another one.
        let channel = (self.phase != Phase::Dead).then(|| unsafe { (*self.channel).fd });
        let fds = channel.into_iter().chain(self.stream.as_ref().map(Stream::fd));
        fds.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 }).collect()
    }

    /// The descriptors become readable with what happens next; what has happened is looked at.
    pub(super) fn arm(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.arm();
        }
        self.events();
    }

    /// Takes what the descriptors have.
    pub(super) fn drain(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.drain();
        }
        self.events();
    }

    /// Ends everything; `number` is what `SO_ERROR` gives.
    pub(super) fn end(&mut self, number: c_int) {
        if self.phase == Phase::Dead {
            return;
        }
        (self.phase, self.error) = (Phase::Dead, number);
        self.mapped.clear();
        self.stream = None;
        let Ok(service) = service() else { return };
        // SAFETY: the identifiers and the channel are the socket's, and are used no more.
        unsafe {
            for id in self.waiting.drain(..) {
                rdma_reject(id, std::ptr::null(), 0);
                let _ = destroy_id(service, id);
            }
            rdma_destroy_qp(self.id);
            let _ = destroy_id(service, self.id);
        }
        self.id = null_mut();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end(0);
        if let Ok(service) = service() {
            // SAFETY: the socket's, which nobody uses any more. Its descriptor was the socket's name until now.
            unsafe { Channel::close(service, self.channel) };
        }
    }
}

/// Parameters of a connection, with these private data.
fn parameters(told: &[u8; CONNECTION_BYTES]) -> RdmaConnParam {
    RdmaConnParam {
        private_data: told.as_ptr().cast(),
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
