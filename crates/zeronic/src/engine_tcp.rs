//! A stream engine (FlexTOE, Laminar) and its control plane as a transport. They are a host of their own, whose only
//! application is the control stack (the paper's section 3.3). Neither is changed: they see a port on which headers
//! pass, and an application that writes dummy bytes.
//!
//! What the engine sends refers to a transmit buffer that nobody writes; the reference is dropped where the NIC's half
//! fetches the payload. What it receives, it copies to a receive buffer that nobody reads, from dummy pages that stay
//! in the cache.
use crate::transport::{InOrder, NextHop, Room, Socket, Transport};
use context::{AppEnd, Bump, Completion, Congestion, Endpoint, Reply, Request, Slot, daemon_ends};
use control::{Application, FlowView, Host, HostConfig};
use engine::stream::Stream;
use engine::{DropCounts, Engine, FramePool};
use port::{Capabilities, Frame, TcpPorts};
use shm::{ByteRing, Doorbell};
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use wire::{Ipv4Tuple, Mac, Nanos};

/// Connections of a listener that wait to be accepted.
const BACKLOG: u32 = 128;
/// Payload bytes of a super-segment: with its headers it is within an IPv4 packet.
const SUPER_SEGMENT: u32 = 65_000;
/// Rounds in which an answer of the control plane comes.
const ROUNDS: usize = 4;

/// A connection's receive and transmit buffers.
type Rings = (Arc<ByteRing>, Arc<ByteRing>);

/// What is known of a connection.
#[derive(Default)]
struct Conn {
    /// Where it is in the context: once it is open.
    slot: Option<Slot>,
    /// Bytes of its transmit buffer.
    tx_bytes: u32,
    /// Positions, modulo 2^32, as in [`Bump`] and [`Completion`].
    tx_head: u32,
    tx_tail: u32,
    rx_head: u32,
    rx_tail: u32,
    /// Bytes of the outgoing stream that are acknowledged.
    acknowledged: u64,
    ending: bool,
    peer_ended: bool,
    peer_end_reported: bool,
    /// A Linux error number.
    failed: Option<u16>,
    /// Its positions are still to be sent to the engine.
    unsent_bump: bool,
    /// Its buffers, received and sent, where their bytes are read and written.
    rings: Option<Rings>,
}

/// The transport.
pub struct EngineTcp {
    host: Host,
    end: AppEnd,
    now: Nanos,
    /// Frames that the host made.
    out: VecDeque<Box<Frame>>,
    scratch: Vec<Box<Frame>>,
    pool: FramePool,
    conns: Vec<Option<Conn>>,
    by_slot: HashMap<Slot, u32>,
    /// Connections that are being opened, by the request's tag.
    connecting: HashMap<u32, u32>,
    /// Completions that overtook the replies that open their connections: the two pairs are not ordered.
    early: HashMap<Slot, Completion>,
    accepted: VecDeque<(Socket, Ipv4Tuple)>,
    /// Answers to requests that somebody waits for.
    answers: HashMap<u32, Reply>,
    next_tag: u32,
}

impl EngineTcp {
    /// A host with this configuration and engine, whose frames bear `mac` and are at most `mtu` bytes. Its modules have
    /// to run on the caller's thread. Buffers must not grow: the control stack follows no stream into another one.
    ///
    /// # Errors
    /// A sentence: the configuration cannot be, or the system has no memory for it.
    pub fn new(
        config: HostConfig,
        engine: Box<dyn Engine<Stream>>,
        mac: Mac,
        mtu: u16,
        pool: FramePool,
        secret: [u8; 16],
    ) -> Result<EngineTcp, String> {
        let caps = Capabilities { mtu, super_segment: SUPER_SEGMENT, checksum: true };
        let links = vec![config.link(mac, caps)];
        let mut host = control::host(config, links, engine, secret)?;
        if !host.workers().is_empty() {
            return Err("an engine that decides on headers has its modules on one thread: configure no replicas".into());
        }
        let end = attach(&mut host).map_err(|error| format!("cannot make a context for ZeroNIC: {error}"))?;
        Ok(EngineTcp {
            host,
            end,
            now: 1,
            out: VecDeque::new(),
            scratch: Vec::new(),
            pool,
            conns: Vec::new(),
            by_slot: HashMap::new(),
            connecting: HashMap::new(),
            early: HashMap::new(),
            accepted: VecDeque::new(),
            answers: HashMap::new(),
            next_tag: 0,
        })
    }

    /// The host, to read.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Views of at most `most` connections of the engine and its control plane.
    pub fn views(&self, most: usize) -> Vec<FlowView> {
        self.host.base().flow_page(0, most).flows
    }

    fn tag(&mut self) -> u32 {
        self.next_tag = self.next_tag.wrapping_add(1);
        self.next_tag
    }

    /// One round of the host on frames that came in.
    fn round(&mut self, received: &mut Vec<Box<Frame>>) {
        self.host.poll(self.now, received, &mut self.scratch, &mut self.pool);
        self.out.extend(self.scratch.drain(..));
        self.take_in();
    }

    fn request(&mut self, request: Request) {
        while self.end.requests.push(request.to_words()).is_err() {
            self.round(&mut Vec::new());
        }
    }

    /// Asks the control plane, which answers within a few rounds.
    fn ask(&mut self, tag: u32, request: Request) -> Result<Reply, String> {
        self.request(request);
        for _ in 0..ROUNDS {
            self.round(&mut Vec::new());
            match self.answers.remove(&tag) {
                Some(Reply::Failed { errno, .. }) => return Err(sentence(errno)),
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
        Err("the control plane does not answer: it has more requests than it takes".into())
    }

    /// Notifies the engine of a connection's positions; later, where its ring is full.
    fn bump(&mut self, at: u32) {
        let Some(conn) = self.conns[at as usize].as_mut() else { return };
        let Some(slot) = conn.slot else { return };
        let bump = Bump { slot, tx_head: conn.tx_head, rx_head: conn.rx_head, fin: conn.ending, ring: u8::MAX };
        conn.unsent_bump = self.end.bumps.push(bump.to_words()).is_err();
    }

    fn conn(&mut self, socket: Socket) -> Option<&mut Conn> {
        self.conns.get_mut(socket.0 as usize)?.as_mut()
    }

    /// The buffers of a connection that is open: their bytes are read and written.
    fn rings(&mut self, socket: Socket) -> Result<Option<Rings>, String> {
        let EngineTcp { conns, end, .. } = self;
        let Some(conn) = conns.get_mut(socket.0 as usize).and_then(Option::as_mut) else { return Ok(None) };
        let Some(slot) = conn.slot else { return Ok(None) };
        if conn.rings.is_none() {
            let (rx, tx) = end.map_buffers(slot).map_err(|error| format!("no memory for its buffers: {error}"))?;
            conn.rings = Some((Arc::new(rx), Arc::new(tx)));
        }
        Ok(conn.rings.clone())
    }

    fn keep(&mut self, conn: Conn) -> u32 {
        let at = self.conns.iter().position(Option::is_none).unwrap_or(self.conns.len());
        if at == self.conns.len() {
            self.conns.push(None);
        }
        self.conns[at] = Some(conn);
        at as u32
    }

    /// Takes replies and completions in.
    fn take_in(&mut self) {
        while let Ok(Some(words)) = self.end.replies.pop() {
            if let Some(reply) = Reply::from_words(words) {
                self.on_reply(reply);
            }
        }
        while let Ok(Some(words)) = self.end.completions.pop() {
            let completion = Completion::from_words(words);
            match self.by_slot.get(&completion.slot).copied() {
                Some(at) => self.on_completion(at, completion),
                None => drop(self.early.insert(completion.slot, completion)),
            }
        }
    }

    fn on_completion(&mut self, at: u32, completion: Completion) {
        let Some(conn) = self.conns[at as usize].as_mut() else { return };
        conn.rx_tail = completion.rx_tail;
        conn.acknowledged += u64::from(completion.tx_tail.wrapping_sub(conn.tx_tail));
        conn.tx_tail = completion.tx_tail;
        conn.peer_ended |= completion.fin;
    }

    fn on_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Accept { slot, local, remote, .. } => {
                let tuple = tuple(local, remote);
                let at = self.keep(Conn::default());
                if self.open(at, slot) {
                    self.accepted.extend(tuple.map(|tuple| (Socket(at), tuple)));
                }
            }
            Reply::Unaccept { slot, .. } => {
                if let Some(at) = self.forget(slot) {
                    self.accepted.retain(|(socket, _)| socket.0 != at);
                    self.conns[at as usize] = None;
                }
            }
            Reply::Connected { tag, slot, .. } => match self.connecting.remove(&tag) {
                Some(at) => drop(self.open(at, slot)),
                // It was closed meanwhile.
                None => self.request(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true }),
            },
            Reply::Failed { tag, errno } if self.connecting.contains_key(&tag) => {
                let at = self.connecting.remove(&tag).unwrap_or_default();
                if let Some(conn) = self.conns.get_mut(at as usize).and_then(Option::as_mut) {
                    conn.failed = Some(errno);
                }
                self.answers.insert(tag, reply);
            }
            Reply::Error { slot, errno } => {
                let at = self.by_slot.get(&slot).copied();
                if let Some(conn) = at.and_then(|at| self.conns[at as usize].as_mut()) {
                    conn.failed = Some(errno);
                }
            }
            Reply::Freed { slot } => {
                self.early.remove(&slot);
            }
            Reply::Failed { tag, .. }
            | Reply::Done { tag }
            | Reply::Bound { tag, .. }
            | Reply::Connecting { tag, .. } => drop(self.answers.insert(tag, reply)),
            _ => {}
        }
    }

    /// A connection has a slot from now on. False, and it is reset, where the system has no memory for its buffers.
    fn open(&mut self, at: u32, slot: Slot) -> bool {
        let Ok((_, tx)) = self.end.map_buffers(slot) else {
            self.conns[at as usize] = None;
            self.request(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true });
            return false;
        };
        self.by_slot.insert(slot, at);
        if let Some(conn) = self.conns[at as usize].as_mut() {
            (conn.slot, conn.tx_bytes) = (Some(slot), tx.most());
        }
        if let Some(completion) = self.early.remove(&slot) {
            self.on_completion(at, completion);
        }
        self.bump(at);
        true
    }

    fn forget(&mut self, slot: Slot) -> Option<u32> {
        self.by_slot.remove(&slot)
    }
}

impl Transport for EngineTcp {
    fn connect(&mut self, remote: SocketAddrV4) -> Result<(Socket, Ipv4Tuple), String> {
        let at = self.keep(Conn::default());
        let tag = self.tag();
        self.connecting.insert(tag, at);
        let remote = Endpoint::from(remote);
        let request = Request::Connect {
            tag,
            binding: 0,
            remote,
            congestion: Congestion::DEFAULT,
            mss: 0,
            early: context::EarlyData::No,
        };
        let local = match self.ask(tag, request) {
            Ok(Reply::Connecting { local, .. }) => Ok(local),
            Ok(_) => Err("the control plane's answer has another form".to_string()),
            Err(why) => Err(why),
        };
        match local.and_then(|local| tuple(local, remote).ok_or("only IPv4 is there".into())) {
            Ok(tuple) => Ok((Socket(at), tuple)),
            Err(why) => {
                self.connecting.remove(&tag);
                self.conns[at as usize] = None;
                Err(format!("cannot connect to {remote}: {why}"))
            }
        }
    }

    fn listen(&mut self, port: u16) -> Result<(), String> {
        let failed = |why: String| format!("cannot listen on port {port}: {why}");
        let tag = self.tag();
        let local = Endpoint::v4(std::net::Ipv4Addr::UNSPECIFIED, port);
        let bound = self
            .ask(tag, Request::Bind { tag, local, reuse_address: true, reuse_port: false, dual_stack: false })
            .map_err(failed)?;
        let Reply::Bound { binding, .. } = bound else { return Err(failed("no binding came".into())) };
        let tag = self.tag();
        self.ask(tag, Request::Listen { tag, binding, backlog: BACKLOG }).map_err(failed)?;
        // Who waits here is accepted at once: more than these never wait.
        self.request(Request::Arm { binding, credits: u32::MAX });
        Ok(())
    }

    fn accept(&mut self) -> Option<(Socket, Ipv4Tuple)> {
        let (socket, tuple) = self.accepted.pop_front()?;
        // Naming the connection shows that it was accepted.
        self.bump(socket.0);
        Some((socket, tuple))
    }

    fn send(&mut self, socket: Socket, bytes: u64) -> Result<u64, String> {
        let Some(conn) = self.conn(socket).filter(|conn| conn.slot.is_some() && !conn.ending) else { return Ok(0) };
        let room = conn.tx_bytes - conn.tx_head.wrapping_sub(conn.tx_tail);
        let count = bytes.min(u64::from(room)) as u32;
        if count > 0 {
            conn.tx_head = conn.tx_head.wrapping_add(count);
            self.bump(socket.0);
        }
        Ok(count.into())
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        self.conn(socket).map_or(0, |conn| conn.acknowledged)
    }

    fn in_order(&mut self, socket: Socket) -> Result<InOrder, String> {
        let Some(conn) = self.conn(socket) else { return Ok(InOrder::default()) };
        let bytes = conn.rx_tail.wrapping_sub(conn.rx_head);
        conn.rx_head = conn.rx_tail;
        let ended = conn.peer_ended && !conn.peer_end_reported;
        conn.peer_end_reported |= ended;
        let (failed, late) = (conn.failed, conn.unsent_bump);
        if bytes > 0 || late {
            self.bump(socket.0);
        }
        match failed {
            Some(errno) if bytes == 0 && !ended => Err(sentence(errno)),
            _ => Ok(InOrder { bytes: bytes.into(), ended }),
        }
    }

    fn read(&mut self, socket: Socket, into: &mut [u8]) -> Result<InOrder, String> {
        let rings = self.rings(socket)?;
        let Some(conn) = self.conn(socket) else { return Ok(InOrder::default()) };
        let left = conn.rx_tail.wrapping_sub(conn.rx_head);
        let bytes = left.min(into.len() as u32);
        if let Some((rx, _)) = rings.filter(|_| bytes > 0) {
            rx.read(conn.rx_head, &mut into[..bytes as usize]);
            conn.rx_head = conn.rx_head.wrapping_add(bytes);
        }
        let ended = conn.peer_ended && conn.rx_head == conn.rx_tail;
        let (failed, late) = (conn.failed, conn.unsent_bump);
        if bytes > 0 || late {
            self.bump(socket.0);
        }
        match failed {
            Some(errno) if left == 0 && !ended => Err(sentence(errno)),
            _ => Ok(InOrder { bytes: bytes.into(), ended }),
        }
    }

    fn write(&mut self, socket: Socket, bytes: &[u8]) -> Result<usize, String> {
        let rings = self.rings(socket)?;
        let Some((conn, (_, tx))) = self.conn(socket).filter(|conn| !conn.ending).zip(rings) else { return Ok(0) };
        let room = tx.size().saturating_sub(conn.tx_head.wrapping_sub(conn.tx_tail));
        let count = bytes.len().min(room as usize);
        if count > 0 {
            tx.write(conn.tx_head, &bytes[..count]);
            conn.tx_head = conn.tx_head.wrapping_add(count as u32);
            self.bump(socket.0);
        }
        Ok(count)
    }

    fn end(&mut self, socket: Socket) {
        if let Some(conn) = self.conn(socket).filter(|conn| !conn.ending) {
            conn.ending = true;
            self.bump(socket.0);
        }
    }

    fn close(&mut self, socket: Socket) {
        let Some(conn) = self.conns.get_mut(socket.0 as usize).and_then(Option::take) else { return };
        let connecting = self.connecting.iter().find(|(_, at)| **at == socket.0).map(|(tag, _)| *tag);
        if let Some(tag) = connecting {
            self.connecting.remove(&tag);
            self.request(Request::CancelConnect { tag });
        }
        let Some(slot) = conn.slot else { return };
        self.forget(slot);
        // Dummy bytes that are still to be sent must not be: a reset, at once.
        let done = conn.ending && conn.peer_ended && conn.tx_head == conn.tx_tail;
        self.request(Request::Close { slot, tx_head: conn.tx_head, rx_head: conn.rx_head, abort: !done });
    }

    fn headers_in(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, _: &mut FramePool) {
        self.now = now;
        self.round(frames);
    }

    fn headers_out(&mut self, now: Nanos, room: Room, _: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        self.now = now;
        self.round(&mut Vec::new());
        // There are several rounds of the engine's to one of this host's, so they do not bound it.
        let mut bytes = 0;
        let mut fits = |frame: &Frame| {
            let is_first = bytes == 0;
            bytes += frame.len();
            is_first || bytes <= room.bytes
        };
        let count = self.out.iter().take(room.frames).take_while(|frame| fits(frame)).count();
        into.extend(self.out.drain(..count));
        count
    }

    fn source_of(&self, remote: Ipv4Addr) -> Option<Ipv4Addr> {
        self.host.net().source(remote.into()).as_v4()
    }

    fn next_hop(&mut self, now: Nanos, remote: Ipv4Addr) -> NextHop {
        let remote = remote.into();
        self.host.use_base(now, |_, context| {
            let Some(hop) = context.net.hop(remote) else { return NextHop::None };
            let from = context.net.link_towards(remote).mac;
            context.net.resolve(now, hop).map_or(NextHop::Asked, |to| NextHop::Known([from, to]))
        })
    }

    fn share_ports(&mut self, ports: &Arc<TcpPorts>) {
        self.host.share(Arc::clone(ports), true);
        ports.meet();
    }

    fn drops(&self) -> DropCounts {
        self.host.drops().clone()
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.out.is_empty() && !self.host.has_work(self.now) { self.host.next_deadline() } else { Some(self.now) }
    }
}

/// The context, made as the daemon makes it.
fn attach(host: &mut Host) -> Result<AppEnd, String> {
    let geometry = host.base().geometry();
    let make = || -> std::io::Result<_> {
        let region = Arc::new(geometry.create_region("zeronic headers")?);
        let (app, daemon) = (Doorbell::eventfd()?, Doorbell::eventfd()?);
        let (app_too, daemon_too) = (app.try_clone()?, daemon.try_clone()?);
        let ends = daemon_ends(&region, geometry, app, daemon);
        Ok((ends, AppEnd::new(region, geometry, app_too, daemon_too)?))
    };
    let (ends, end) = make().map_err(|error| error.to_string())?;
    let application =
        Application { pid: std::process::id(), uid: 0, gid: 0, command: "zeronic".into(), loopback: true };
    host.use_base(0, |tcp, context| tcp.attach(context, application, ends, None))?;
    Ok(end)
}

fn tuple(local: Endpoint, remote: Endpoint) -> Option<Ipv4Tuple> {
    Some(Ipv4Tuple {
        local_ip: local.ip.as_v4()?,
        local_port: local.port,
        remote_ip: remote.ip.as_v4()?,
        remote_port: remote.port,
    })
}

fn sentence(errno: u16) -> String {
    format!("the connection ended: {}", std::io::Error::from_raw_os_error(errno.into()))
}
