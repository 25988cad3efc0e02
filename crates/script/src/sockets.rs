//! Socket calls on the only application's context. A call that would wait returns `EAGAIN`; who waits calls it again.
use crate::changes::Changes;
use crate::connection::Connection;
use crate::early::Early;
use crate::event_set::Set;
use crate::flags::FastOpen;
use crate::stack::Stack;
use context::{
    Bump, Completion, Congestion, EarlyData, Endpoint, IpAddress, OptionName, Reply, Request, Slot, Unaccelerated,
};
use libc::{
    EADDRINUSE, EAFNOSUPPORT, EAGAIN, EALREADY, EBADF, ECONNABORTED, EINPROGRESS, EINVAL, EISCONN, EMFILE, ENOTCONN,
    EPIPE, EPROTONOSUPPORT,
};
use shm::Doorbell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

/// A Linux error number.
pub type Errno = i32;

/// Descriptors at once.
const MOST: usize = 1024;

/// What a socket is.
#[derive(Debug)]
pub(crate) enum Kind {
    Fresh,
    Bound {
        binding: u32,
    },
    Listening {
        binding: u32,
        backlog: u32,
        waiting: VecDeque<(Slot, Endpoint)>,
        /// Connections so far.
        arrived: u64,
    },
    Connecting {
        tag: u32,
        early: Early,
    },
    Open(Slot),
    /// A connection attempt that failed, or a listener that was shut down.
    Dead,
}

/// One descriptor.
#[derive(Debug)]
pub(crate) struct Socket {
    /// A descriptor of the kernel that stays idle and gives the socket its number. Runners close what a script leaves
    /// open themselves, as they would any descriptor.
    number: OwnedFd,
    /// `AF_INET6`.
    pub is_v6: bool,
    pub kind: Kind,
    pub nonblocking: bool,
    pub local: Option<Endpoint>,
    pub peer: Option<Endpoint>,
    /// `SO_ERROR`.
    pub error: Option<Errno>,
    /// Linger with time 0: close resets.
    pub abort: bool,
    /// Options as they were set: level, name.
    pub options: BTreeMap<(i32, i32), Vec<u8>>,
}

/// What `accept` gives.
pub struct Accepted {
    /// The connection's descriptor.
    pub fd: i32,
    /// Who has connected.
    pub peer: Endpoint,
    /// Its address is of an `AF_INET6` socket.
    pub is_v6: bool,
}

/// All sockets, and the host below them.
pub struct Sockets {
    /// The host.
    pub stack: Stack,
    pub(crate) table: BTreeMap<i32, Socket>,
    pub(crate) connections: BTreeMap<u32, Connection>,
    pub(crate) sets: BTreeMap<i32, Set>,
    pub(crate) fast_open: FastOpen,
    pub(crate) changes: Changes,
    answers: BTreeMap<u32, Reply>,
    /// Completions that overtook the replies that open their connections: the two pairs are not ordered.
    early: BTreeMap<u32, Completion>,
    next_tag: u32,
}

impl Sockets {
    /// No sockets yet.
    pub fn new(stack: Stack) -> Sockets {
        let (table, connections, sets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (fast_open, answers, early) = (FastOpen::default(), BTreeMap::new(), BTreeMap::new());
        let changes = Changes::default();
        Sockets { stack, table, connections, sets, fast_open, changes, answers, early, next_tag: 1 }
    }

    /// The runner is done, and closed what was open.
    pub fn abandon(&mut self) {
        for socket in std::mem::take(&mut self.table).into_values() {
            let _ = socket.number.into_raw_fd();
        }
        std::mem::take(&mut self.sets).into_values().for_each(Set::abandon);
    }

    /// `socket`.
    pub fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
        let nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        match (domain, kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                let fd = self.add(Kind::Fresh, domain == libc::AF_INET6)?;
                self.get(fd)?.nonblocking = nonblocking;
                Ok(fd)
            }
            (libc::AF_INET | libc::AF_INET6, ..) => Err(EPROTONOSUPPORT),
            _ => Err(EAFNOSUPPORT),
        }
    }

    fn add(&mut self, kind: Kind, is_v6: bool) -> Result<i32, Errno> {
        if self.table.len() >= MOST {
            return Err(EMFILE);
        }
        let number = Doorbell::eventfd().map_err(|_| EMFILE)?;
        let (fd, options) = (number.as_raw_fd(), BTreeMap::new());
        let (local, peer, error) = (None, None, None);
        let socket = Socket { number, is_v6, kind, nonblocking: false, local, peer, error, abort: false, options };
        self.table.insert(fd, socket);
        Ok(fd)
    }

    pub(crate) fn get(&mut self, fd: i32) -> Result<&mut Socket, Errno> {
        self.table.get_mut(&fd).ok_or(EBADF)
    }

    /// The descriptor waits in its calls.
    pub fn blocks(&self, fd: i32) -> bool {
        self.table.get(&fd).is_some_and(|socket| !socket.nonblocking)
    }

    /// `bind`.
    pub fn bind(&mut self, fd: i32, to: Endpoint) -> Result<(), Errno> {
        let socket = self.get(fd)?;
        if !matches!(socket.kind, Kind::Fresh) {
            return Err(EINVAL);
        }
        socket.may_have(to)?;
        let is_set = |level, name| socket.options.get(&(level, name)).is_some_and(|value| value.first() == Some(&1));
        let reuse_address = is_set(libc::SOL_SOCKET, libc::SO_REUSEADDR);
        let reuse_port = is_set(libc::SOL_SOCKET, libc::SO_REUSEPORT);
        let dual_stack = socket.is_v6 && !is_set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        let tag = self.tag();
        match self.ask(tag, Request::Bind { tag, local: to, reuse_address, reuse_port, dual_stack })? {
            Reply::Bound { binding, local, .. } => {
                let socket = self.get(fd)?;
                socket.local = Some(local);
                socket.kind = Kind::Bound { binding };
                Ok(())
            }
            _ => Err(EADDRINUSE),
        }
    }

    /// `listen`.
    pub fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), Errno> {
        if matches!(self.get(fd)?.kind, Kind::Fresh) {
            let any = any(self.get(fd)?.is_v6, 0);
            self.bind(fd, any)?;
        }
        let backlog = backlog.clamp(1, 4096) as u32;
        let binding = match self.get(fd)?.kind {
            Kind::Bound { binding } | Kind::Listening { binding, .. } => binding,
            _ => return Err(EINVAL),
        };
        let tag = self.tag();
        self.ask(tag, Request::Listen { tag, binding, backlog })?;
        let socket = self.get(fd)?;
        if let Kind::Bound { .. } = socket.kind {
            socket.kind = Kind::Listening { binding, backlog, waiting: VecDeque::new(), arrived: 0 };
        }
        self.arm(binding, backlog);
        self.send_segment_size(fd)?;
        self.send_fast_open(fd)
    }

    /// As many may wait here as the backlog allows, and no more.
    fn arm(&mut self, binding: u32, credits: u32) {
        self.send(Request::Arm { binding, credits: credits.min(48) });
        self.settle();
    }

    /// `accept`.
    pub fn accept(&mut self, fd: i32) -> Result<Accepted, Errno> {
        self.settle();
        let Kind::Listening { binding, backlog, waiting, .. } = &mut self.get(fd)?.kind else { return Err(EINVAL) };
        let (binding, left) = (*binding, backlog.saturating_sub(waiting.len() as u32) + 1);
        let (slot, peer) = waiting.pop_front().ok_or(EAGAIN)?;
        let Socket { local, is_v6, .. } = *self.get(fd)?;
        let options = self.get(fd)?.options.clone();
        self.arm(binding, left);
        if !self.connections.contains_key(&slot.index) {
            return Err(ECONNABORTED);
        }
        let accepted = self.add(Kind::Open(slot), is_v6)?;
        let socket = self.get(accepted)?;
        socket.peer = Some(peer);
        socket.local = local.map(|local| any(is_v6, local.port));
        // The connection's own descriptor shows that it was accepted: it outlives the listener.
        self.send(Request::Label { fd: accepted as u32, reason: Unaccelerated::No, slot: Some(slot), binding: 0 });
        self.settle();
        self.inherit(accepted, options)?;
        Ok(Accepted { fd: accepted, peer, is_v6 })
    }

    /// `connect`; `EINPROGRESS` the first time, then what came of it ([`Sockets::connect_result`]).
    pub fn connect(&mut self, fd: i32, to: Endpoint) -> Result<(), Errno> {
        let early = self.early_data(fd, false);
        self.connect_with(fd, to, early)
    }

    /// The same with data for the SYN: it succeeds where the SYN waits for that data.
    pub(crate) fn connect_with(&mut self, fd: i32, to: Endpoint, early: EarlyData) -> Result<(), Errno> {
        let binding = match self.get(fd)?.kind {
            Kind::Fresh | Kind::Dead => 0,
            Kind::Bound { binding } => binding,
            Kind::Connecting { early: Early::Awaited(..), .. } | Kind::Open(_) => return Err(EISCONN),
            Kind::Connecting { .. } => return Err(EALREADY),
            Kind::Listening { .. } => return Err(EISCONN),
        };
        self.get(fd)?.may_have(to)?;
        let tag = self.tag();
        let socket = self.get(fd)?;
        let mss = socket.number_option(libc::IPPROTO_TCP, libc::TCP_MAXSEG).unwrap_or(0) as u16;
        (socket.kind, socket.peer, socket.error) = (Kind::Connecting { tag, early: Early::No }, Some(to), None);
        let congestion = Congestion::DEFAULT;
        let retries = socket.number_option(libc::IPPROTO_TCP, libc::TCP_SYNCNT);
        self.send(Request::Connect { tag, binding, remote: to, congestion, mss, early });
        if let Some(most) = retries.and_then(|most| most.try_into().ok()) {
            self.send(Request::SynRetries { tag, most });
        }
        self.settle();
        if self.awaits_data(fd) { Ok(()) } else { Err(EINPROGRESS) }
    }

    /// What came of an attempt: `EAGAIN` while nothing did.
    pub fn connect_result(&mut self, fd: i32) -> Result<(), Errno> {
        self.settle();
        let socket = self.get(fd)?;
        match socket.kind {
            Kind::Open(_) => Ok(()),
            Kind::Connecting { .. } => Err(EAGAIN),
            _ => Err(socket.error.take().unwrap_or(ECONNABORTED)),
        }
    }

    pub(crate) fn connection(&mut self, fd: i32) -> Result<&mut Connection, Errno> {
        let kind = &self.get(fd)?.kind;
        let Kind::Open(slot) = kind else {
            return Err(if matches!(kind, Kind::Connecting { .. }) { EAGAIN } else { ENOTCONN });
        };
        let index = slot.index;
        self.connections.get_mut(&index).ok_or(ENOTCONN)
    }

    /// `recv`: at most `most` bytes; with `peek`, they stay.
    pub fn receive(&mut self, fd: i32, most: usize, peek: bool) -> Result<Vec<u8>, Errno> {
        self.settle();
        if let Some(error) = self.failed_attempt(fd)? {
            return Err(error);
        }
        let connection = self.connection(fd)?;
        let there = connection.unread() as usize;
        if there == 0 {
            let over = connection.peer_fin || connection.read_shut || connection.broken;
            return match connection.error.take() {
                Some(error) => Err(error),
                None if over || most == 0 => Ok(Vec::new()),
                None => Err(EAGAIN),
            };
        }
        let mut bytes = vec![0; there.min(most)];
        if let Some(grown) = connection.rx.grown() {
            connection.rx = grown;
        }
        connection.rx.read(connection.rx_head, &mut bytes);
        if !peek {
            connection.rx_head = connection.rx_head.wrapping_add(bytes.len() as u32);
            let slot = connection.slot.index;
            self.bump(slot);
        }
        Ok(bytes)
    }

    /// `send`: as many of the bytes as there is room for. All of them end a record with `MSG_EOR` among the flags.
    pub fn transmit(&mut self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        self.settle();
        if let Some(error) = self.failed_attempt(fd)? {
            return Err(error);
        }
        let connection = self.connection(fd).map_err(|error| if error == ENOTCONN { EPIPE } else { error })?;
        if let Some(error) = connection.error.take() {
            return Err(error);
        }
        if connection.fin || connection.broken {
            return Err(EPIPE);
        }
        let len = bytes.len().min(connection.room() as usize);
        connection.waits_for_room |= len < bytes.len();
        if len == 0 && !bytes.is_empty() {
            return Err(EAGAIN);
        }
        let head = connection.tx_head.wrapping_add(len as u32);
        connection.tx = connection.tx.holding(connection.tx_tail, head);
        connection.tx.write(connection.tx_head, &bytes[..len]);
        connection.tx_head = head;
        let slot = connection.slot.index;
        if flags & libc::MSG_EOR != 0 && len == bytes.len() {
            self.end_record(slot);
        }
        self.bump(slot);
        Ok(len)
    }

    /// The error of an attempt that failed, once.
    fn failed_attempt(&mut self, fd: i32) -> Result<Option<Errno>, Errno> {
        Ok(self.get(fd)?.error.take())
    }

    /// `shutdown`.
    pub fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), Errno> {
        if !(libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
            return Err(EINVAL);
        }
        if let Kind::Listening { binding, .. } = self.get(fd)?.kind {
            self.get(fd)?.kind = Kind::Dead;
            self.send(Request::Unbind { binding });
            self.settle();
            return Ok(());
        }
        let connection = self.connection(fd).map_err(|_| ENOTCONN)?;
        connection.read_shut |= how != libc::SHUT_WR;
        connection.fin |= how != libc::SHUT_RD;
        let slot = connection.slot.index;
        self.bump(slot);
        Ok(())
    }

    /// `close`.
    pub fn close(&mut self, fd: i32) -> Result<(), Errno> {
        self.settle();
        if self.forget_in_sets(fd) {
            return Ok(());
        }
        let socket = self.table.remove(&fd).ok_or(EBADF)?;
        match socket.kind {
            Kind::Fresh | Kind::Dead => {}
            Kind::Bound { binding } => self.send(Request::Unbind { binding }),
            Kind::Listening { binding, waiting, .. } => {
                self.send(Request::Unbind { binding });
                waiting.into_iter().for_each(|(slot, _)| self.end(slot, true));
            }
            Kind::Connecting { tag, .. } => self.send(Request::CancelConnect { tag }),
            Kind::Open(slot) => self.end(slot, socket.abort),
        }
        self.settle();
        Ok(())
    }

    fn end(&mut self, slot: Slot, abort: bool) {
        let Some(Connection { tx_head, rx_head, .. }) = self.connections.remove(&slot.index) else { return };
        self.send(Request::Close { slot, tx_head, rx_head, abort });
    }

    /// What `poll` returns for a descriptor, all bits.
    pub fn readiness(&mut self, fd: i32) -> Result<i16, Errno> {
        self.settle();
        let socket = self.get(fd)?;
        let failed = socket.error.is_some();
        let slot = match &socket.kind {
            Kind::Open(slot) => slot.index,
            Kind::Listening { waiting, .. } => return Ok(if waiting.is_empty() { 0 } else { libc::POLLIN }),
            Kind::Connecting { early: Early::Awaited(..), .. } => return Ok(libc::POLLOUT | libc::POLLWRNORM),
            Kind::Connecting { .. } => return Ok(0),
            Kind::Fresh | Kind::Bound { .. } | Kind::Dead => {
                let error = if failed { libc::POLLERR | libc::POLLIN } else { 0 };
                return Ok(libc::POLLOUT | libc::POLLHUP | error);
            }
        };
        let Some(connection) = self.connections.get(&slot) else { return Ok(libc::POLLHUP) };
        let mut bits = 0;
        let mut set = |condition: bool, more: i16| bits |= if condition { more } else { 0 };
        let no_more = connection.peer_fin || connection.read_shut || connection.broken;
        let room = connection.room() > 0;
        set(connection.unread() > 0 || no_more, libc::POLLIN | libc::POLLRDNORM);
        set(no_more, libc::POLLRDHUP);
        set(room || connection.broken || connection.fin, libc::POLLOUT | libc::POLLWRNORM);
        set(connection.broken || (connection.fin && connection.peer_fin), libc::POLLHUP);
        set(connection.error.is_some() || !connection.notifications.is_empty(), libc::POLLERR);
        Ok(bits)
    }

    /// Bytes that wait to be read, and those that wait for acknowledgement.
    pub fn waiting(&mut self, fd: i32) -> Result<(u32, u32), Errno> {
        self.settle();
        let connection = self.connection(fd).map_err(|_| EINVAL)?;
        Ok((connection.unread(), connection.in_flight()))
    }

    /// A connection's option, for the control plane.
    pub(crate) fn set(&mut self, fd: i32, option: OptionName, value: u64) {
        if let Ok(Kind::Open(slot)) = self.get(fd).map(|socket| &socket.kind) {
            let slot = *slot;
            self.send(Request::Set { slot, option, value });
            self.settle();
        }
    }

    pub(crate) fn tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    pub(crate) fn send(&mut self, request: Request) {
        while self.stack.end.requests.push(request.to_words()).is_err() {
            self.stack.settle();
        }
    }

    /// Asks, and takes the answer, which comes without time passing.
    pub(crate) fn ask(&mut self, tag: u32, request: Request) -> Result<Reply, Errno> {
        self.send(request);
        self.settle();
        match self.answers.remove(&tag) {
            Some(Reply::Failed { errno, .. }) => Err(errno.into()),
            Some(reply) => Ok(reply),
            None => Err(EINVAL),
        }
    }

    /// Reports to the engine where the application is.
    pub(crate) fn bump(&mut self, index: u32) {
        let Some(connection) = self.connections.get(&index) else { return };
        let Connection { slot, tx_head, rx_head, fin, ref tx, .. } = *connection;
        self.push(Bump { slot, tx_head, rx_head, fin, ring: tx.number() });
    }

    /// A record ends with what was written, which a later bump reports.
    fn end_record(&mut self, index: u32) {
        if !self.stack.has_urgent_data() {
            return;
        }
        let Some(Connection { slot, tx_head, rx_head, .. }) = self.connections.get(&index) else { return };
        self.push(Bump { slot: *slot, tx_head: *tx_head, rx_head: *rx_head, fin: false, ring: Bump::RECORD });
    }

    fn push(&mut self, bump: Bump) {
        while self.stack.end.bumps.push(bump.to_words()).is_err() {
            self.stack.settle();
        }
        self.settle();
    }

    /// Runs the host to rest, and takes its replies.
    pub fn settle(&mut self) {
        self.stack.settle();
        self.take_in();
    }

    /// Takes replies and completions in.
    pub fn take_in(&mut self) {
        while let Ok(Some(words)) = self.stack.end.replies.pop() {
            if let Some(reply) = Reply::from_words(words) {
                self.reply(reply);
            }
        }
        while let Ok(Some(words)) = self.stack.end.completions.pop() {
            let completion = Completion::from_words(words);
            let known = self.connections.get_mut(&completion.slot.index);
            match known.filter(|connection| connection.slot == completion.slot) {
                Some(connection) => connection.apply(completion),
                None => drop(self.early.insert(completion.slot.index, completion)),
            }
        }
    }

    fn reply(&mut self, reply: Reply) {
        match reply {
            Reply::Accept { binding, slot, remote, .. } => {
                let peer = remote;
                let listener = self.table.values_mut().find_map(|socket| match &mut socket.kind {
                    Kind::Listening { binding: own, waiting, arrived, .. } if *own == binding => {
                        *arrived += 1;
                        Some(waiting)
                    }
                    _ => None,
                });
                match listener {
                    Some(waiting) => {
                        waiting.push_back((slot, peer));
                        self.open(slot);
                    }
                    None => self.send(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true }),
                }
            }
            Reply::Unaccept { slot, .. } => {
                self.connections.remove(&slot.index);
            }
            Reply::Connecting { tag, local, slot, room } => {
                if let Some(socket) = self.connecting(tag) {
                    let early = if room > 0 { Early::Awaited(slot, room) } else { Early::No };
                    (socket.local, socket.kind) = (Some(local), Kind::Connecting { tag, early });
                }
            }
            Reply::Connected { tag, slot, early: acknowledged, .. } => match self.connecting(tag) {
                Some(socket) => {
                    let Kind::Connecting { early, .. } = socket.kind else { return };
                    socket.kind = Kind::Open(slot);
                    self.open(slot);
                    self.count_early(slot, early, acknowledged);
                }
                None => self.send(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true }),
            },
            Reply::Failed { tag, errno } if self.connecting(tag).is_some() => {
                if let Some(socket) = self.connecting(tag) {
                    (socket.kind, socket.error) = (Kind::Dead, Some(errno.into()));
                }
            }
            Reply::Error { slot, errno } => {
                if let Some(connection) = self.connections.get_mut(&slot.index) {
                    connection.fail(errno.into());
                }
            }
            Reply::Failed { tag, .. } | Reply::Done { tag } | Reply::Bound { tag, .. } | Reply::Info { tag, .. } => {
                self.answers.insert(tag, reply);
            }
            _ => {}
        }
    }

    fn connecting(&mut self, tag: u32) -> Option<&mut Socket> {
        self.table.values_mut().find(|socket| matches!(socket.kind, Kind::Connecting { tag: own, .. } if own == tag))
    }

    fn open(&mut self, slot: Slot) {
        // Without memory for its buffers there is nothing to try: the runner sees a connection that is reset.
        let Ok((rx, tx)) = self.stack.end.map_buffers(slot) else {
            return self.send(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true });
        };
        let mut connection = Connection::new(slot, rx, tx);
        if let Some(completion) = self.early.remove(&slot.index).filter(|completion| completion.slot == slot) {
            connection.apply(completion);
        }
        self.connections.insert(slot.index, connection);
    }
}

impl Socket {
    /// An address of this family may be the socket's, or its peer's.
    fn may_have(&self, address: Endpoint) -> Result<(), Errno> {
        if self.is_v6 || address.ip.is_v4() { Ok(()) } else { Err(EAFNOSUPPORT) }
    }
}

/// The unspecified address of a family.
fn any(is_v6: bool, port: u16) -> Endpoint {
    match is_v6 {
        true => Endpoint::new(IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0), port),
        false => Endpoint::v4(Ipv4Addr::UNSPECIFIED, port),
    }
}
