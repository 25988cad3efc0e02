//! The control stack: between applications, the NIC's half and a transport (the paper's section 3.3).
use crate::counters::Counters;
use crate::merge::Leave;
use crate::nic::{FlowId, Kind, Limits, Memory, Nic, Refused, Segment};
use crate::transport::{Room, Socket, Transport};
use crate::unit::{Moved, Shortage, Unit};
use context::comm::Carries;
use engine::{DropCounts, ROUND_BYTES};
use memory::{Devices, Domain};
use port::{Frame, FramePool, Port, PortDrops, Recorder, TcpPorts};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{Ipv4Tuple, Nanos, Seq};

/// Frames of one round.
const BURST: usize = 64;
/// Each connection is polled this often.
const POLL_NS: Nanos = 100_000_000;
/// While a window is closed although a little memory is posted, its next poll is not later than this.
const SQUEEZE_POLL_NS: Nanos = 1_000_000;

/// Names a connection.
pub type Connection = FlowId;

/// Events for an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A listener has a new connection.
    Accepted {
        /// It.
        connection: Connection,
        /// Its addresses and ports.
        tuple: Ipv4Tuple,
    },
    /// A receive is done: its bytes, or those of its message, are in memory, in order.
    Received {
        /// The connection.
        connection: Connection,
        /// The number that the application gave the receive.
        id: u64,
        /// Bytes: of a stream, fewer than posted only where it ended; of messages, those of its message, or none where
        /// the peer sends no more.
        bytes: u64,
    },
    /// A send is done: the peer has its bytes, and the memory is the application's again.
    Sent {
        /// The connection.
        connection: Connection,
        /// The number that the application gave the send.
        id: u64,
    },
    /// The peer's stream ended; all of it was reported.
    Ended {
        /// The connection.
        connection: Connection,
    },
    /// The transport gave the connection up. What was not reported before will not come.
    Failed {
        /// The connection.
        connection: Connection,
        /// Why.
        why: String,
    },
}

/// A connection, for people.
#[derive(Debug, Clone)]
pub struct ConnectionView {
    /// It.
    pub connection: Connection,
    /// Its addresses and ports.
    pub tuple: Ipv4Tuple,
    /// What it carries: `stream`, `messages` or `datagrams`.
    pub carries: &'static str,
    /// It has a line of the flow table: its payload is placed.
    pub has_line: bool,
    /// Payload bytes.
    pub moved: Moved,
    /// Bytes that wait for a receive.
    pub kept: u64,
    /// Bytes that the program was notified of.
    pub received: u64,
    /// Receives and sends that are under way.
    pub receives: usize,
    /// See [`ConnectionView::receives`].
    pub sends: usize,
    /// Bytes that were posted and that the transport has not taken.
    pub unsent: u64,
    /// The peer's stream has ended.
    pub ended: bool,
}

/// A send or a receive that is under way.
pub(crate) struct Post {
    pub(crate) id: u64,
    pub(crate) bytes: u64,
    pub(crate) done: u64,
}

/// Listener on a port.
#[derive(Clone, Copy)]
pub(crate) struct Listener {
    /// Domain of the memory that they use.
    pub(crate) domain: Domain,
    pub(crate) kind: Kind,
}

/// A connection as the control stack keeps it.
pub(crate) struct Talk {
    pub(crate) socket: Socket,
    pub(crate) receives: VecDeque<Post>,
    pub(crate) sends: VecDeque<Post>,
    /// Bytes that were posted and the transport has not taken.
    pub(crate) unsent: u64,
    /// Bytes of the incoming stream that the transport has in order, and that were reported.
    pub(crate) in_order: u64,
    pub(crate) reported: u64,
    /// The application ends its stream behind what it posted; the transport got that.
    pub(crate) ending: bool,
    pub(crate) end_sent: bool,
    /// The transport reports that the peer's stream has ended; the application was notified.
    pub(crate) ended: bool,
    pub(crate) end_reported: bool,
}

/// The control stack of a host. `T` decides on headers, `M` is registered memory.
pub struct Stack<T: Transport, M: Memory> {
    pub(crate) unit: Unit<M>,
    pub(crate) transport: T,
    /// In an order that is the same each time.
    pub(crate) talks: BTreeMap<FlowId, Talk>,
    /// Ports that the transport listens on, and who accepts there; none where nobody does any more.
    pub(crate) listeners: HashMap<u16, Option<Listener>>,
    /// Another stack has the same address.
    pub(crate) shared: Option<Arc<TcpPorts>>,
    /// Connections that peers have begun, the oldest first.
    pub(crate) begun: VecDeque<FlowId>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) pool: FramePool,
    pub(crate) received: Vec<Box<Frame>>,
    pub(crate) up: Vec<Box<Frame>>,
    out: Vec<Box<Frame>>,
    pub(crate) now: Nanos,
    /// Until then, the transport may accept connections that are to be reset.
    pub(crate) strays_until: Nanos,
    /// When all connections are polled.
    next_poll: Nanos,
    /// Bytes that may go out in one round.
    round_bytes: usize,
}

impl<T: Transport, M: Memory> Stack<T, M> {
    /// A stack without connections.
    pub fn new(transport: T, memory: M, limits: Limits, shortage: Shortage, pool: FramePool) -> io::Result<Self> {
        Ok(Stack {
            unit: Unit::new(limits, memory, shortage)?,
            transport,
            talks: BTreeMap::new(),
            listeners: HashMap::new(),
            shared: None,
            begun: VecDeque::new(),
            events: VecDeque::new(),
            pool,
            received: Vec::new(),
            up: Vec::new(),
            out: Vec::new(),
            now: 0,
            strays_until: 0,
            next_poll: 0,
            round_bytes: ROUND_BYTES as usize,
        })
    }

    pub(crate) fn round_bytes(&self) -> usize {
        self.round_bytes
    }

    /// How much goes out in one round, instead of [`engine::ROUND_BYTES`].
    pub fn set_round_bytes(&mut self, bytes: usize) {
        self.round_bytes = bytes;
    }

    /// Begins to connect. Sends and receives may be posted at once. `domain` is whose memory it uses.
    /// Both ends carry the same, or the connection fails.
    pub fn connect(&mut self, remote: SocketAddrV4, domain: Domain, carries: Carries) -> Result<Connection, String> {
        self.open(remote, domain, kind(carries))
    }

    pub(crate) fn open(&mut self, remote: SocketAddrV4, domain: Domain, kind: Kind) -> Result<Connection, String> {
        let (socket, tuple) = self.transport.connect(remote)?;
        let Some(flow) = self.unit.add_flow(tuple, domain, kind) else {
            self.transport.close(socket);
            self.unit.refuse();
            return Err("the flow table is full: close a connection first".into());
        };
        self.talks.insert(flow, Talk::new(socket));
        Ok(flow)
    }

    /// The time of the last round.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// When something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let squeezed = (!self.unit.squeezed.is_empty()).then_some(self.now + SQUEEZE_POLL_NS);
        let poll = (!self.talks.is_empty()).then_some(self.next_poll);
        let device = self.unit.memory.devices().and_then(Devices::next_deadline);
        let verbs = self.unit.verbs.as_ref().and_then(|verbs| verbs.next_deadline());
        let datagrams = self.unit.datagrams.next_deadline(self.now);
        [self.transport.next_deadline(), squeezed, poll, device, verbs, datagrams].into_iter().flatten().min()
    }

    /// A round would do something, whatever the wire has.
    pub fn has_work(&self) -> bool {
        let waits = !self.unit.touched.is_empty() || !self.unit.own.is_empty() || !self.up.is_empty();
        let verbs = self.unit.verbs.as_ref().is_some_and(|verbs| verbs.has_work());
        let datagrams = self.unit.datagrams.has_work();
        waits
            || verbs
            || datagrams
            || !self.events.is_empty()
            || self.unit.memory.devices().is_some_and(Devices::have_news)
    }

    /// Posts memory to receive into. [`Event::Received`] with this number follows.
    pub fn post_receive(&mut self, connection: Connection, id: u64, segment: Segment) -> Result<(), Refused> {
        if self.is_datagrams(connection) {
            return self.post_datagram_receive(connection, id, segment);
        }
        let talk = self.talks.get_mut(&connection).ok_or(Refused::Flow)?;
        if talk.end_reported {
            // Nothing will come.
            self.events.push_back(Event::Received { connection, id, bytes: 0 });
            return Ok(());
        }
        if self.unit.copying.has_stream(connection) {
            return self.post_copied_receive(connection, id, segment);
        }
        self.unit.nic.post_receive(connection, segment)?;
        talk.receives.push_back(Post { id, bytes: segment.len, done: 0 });
        if self.unit.copying.has(connection) {
            // The transport may have its message.
            self.unit.touch(connection);
            return Ok(());
        }
        self.unit.retry(self.now, connection, &mut self.pool, &mut self.up);
        self.unit.advertise_more(self.now, connection, &mut self.pool);
        Ok(())
    }

    /// Posts memory to send. It must not change until [`Event::Sent`] with this number follows.
    pub fn post_send(&mut self, connection: Connection, id: u64, segment: Segment) -> Result<(), Refused> {
        if self.is_datagrams(connection) {
            return self.post_datagram(connection, id, segment);
        }
        let talk = self.talks.get_mut(&connection).filter(|talk| !talk.ending).ok_or(Refused::Flow)?;
        if self.unit.copying.has_stream(connection) {
            return self.post_copied_send(connection, id, segment);
        }
        self.unit.nic.post_send(connection, segment)?;
        let domain = self.unit.nic.domain(connection);
        let from_device = domain.is_some_and(|domain| self.unit.memory.is_device(domain, segment.key));
        if let Some(way) = self.unit.header_state(connection).filter(|_| from_device) {
            way.from_device = true;
        }
        talk.sends.push_back(Post { id, bytes: segment.len, done: 0 });
        talk.unsent += segment.len;
        self.unit.touch(connection);
        Ok(())
    }

    /// The application sends no more: the stream ends behind what it posted.
    pub fn end(&mut self, connection: Connection) {
        if let Some(talk) = self.talks.get_mut(&connection) {
            talk.ending = true;
            self.unit.touch(connection);
        }
    }

    /// Forgets a connection. From now on none of its memory is read or written.
    pub fn close(&mut self, connection: Connection) {
        if self.is_datagrams(connection) {
            return self.close_datagrams(connection);
        }
        if let Some(talk) = self.talks.remove(&connection) {
            if talk.ending && talk.unsent == 0 && !talk.end_sent {
                self.transport.end(talk.socket);
            }
            self.transport.close(talk.socket);
        }
        self.unit.remove_header_state(connection);
        self.leave_ports();
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Its connections, for people; at most `most`.
    pub fn views(&mut self, most: usize) -> Vec<ConnectionView> {
        let unit = &mut self.unit;
        let view = |(flow, talk): (&FlowId, &Talk)| {
            let has_line = !unit.copying.has(*flow);
            let way = unit.header_state(*flow)?;
            Some(ConnectionView {
                connection: *flow,
                tuple: way.tuple,
                carries: way.carries(),
                has_line,
                moved: way.moved,
                kept: way.deferred_bytes() as u64,
                received: talk.reported,
                receives: talk.receives.len(),
                sends: talk.sends.len(),
                unsent: talk.unsent,
                ended: talk.ended,
            })
        };
        let mut views: Vec<ConnectionView> = self.talks.iter().filter_map(view).take(most).collect();
        let left = most - views.len();
        views.extend(self.datagram_views().take(left));
        views
    }

    /// Drop counters of the NIC's half and of the transport.
    pub fn drops(&self) -> DropCounts {
        let mut drops = self.unit.drops.clone();
        drops.merge(&self.transport.drops());
        drops
    }

    /// Ports on which a program accepts.
    pub fn listening(&self) -> Vec<u16> {
        let is_programs = |listener: &Option<Listener>| listener.is_some_and(|held| held.kind != Kind::Operations);
        self.listeners.iter().filter(|(_, listener)| is_programs(listener)).map(|(port, _)| *port).collect()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.unit.counters
    }

    /// The NIC's half, to read.
    pub fn nic(&self) -> &Nic {
        &self.unit.nic
    }

    /// The registered memory.
    pub fn memory(&self) -> &M {
        &self.unit.memory
    }

    /// The transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Recorder of frames for captures.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.unit.recorder
    }

    /// One bounded round: frames from the wire, what the transport makes of them, frames to the wire. Returns how many
    /// frames moved: 0 means that there was nothing to do.
    pub fn poll(&mut self, now: Nanos, wire: &mut dyn Port, drops: &mut PortDrops) -> usize {
        self.now = now;
        self.unit.verbs.iter_mut().for_each(|verbs| verbs.now = now);
        wire.receive(now, BURST, &mut self.pool, &mut self.received);
        if !self.unit.datagrams.is_empty() {
            self.unit.datagrams.begin_round(wire.capabilities(), &mut self.received);
        }
        self.begin_connections();
        let ended = self.unit.poll_devices(now, &mut self.pool, &mut self.up);
        self.unit.received(now, &mut self.received, &mut self.pool, &mut self.up);
        self.report_datagrams();
        let mut moved = self.up.len() + ended;
        if !self.up.is_empty() {
            self.transport.headers_in(now, &mut self.up, &mut self.pool);
        }
        if !self.begun.is_empty() || now < self.strays_until {
            self.accept();
        }
        if now >= self.next_poll {
            // A transport that gives a connection up may report it in no header.
            self.next_poll = now + POLL_NS;
            self.talks.keys().for_each(|flow| self.unit.touch(*flow));
        }
        self.poll_touched();
        if self.unit.verbs.is_some() {
            moved += self.verbs_round();
            self.poll_touched();
        }
        // Before the transport's round, which asks for next hops.
        let mut datagrams = Vec::new();
        if self.unit.datagrams.is_sending() {
            self.send_datagrams(wire.capabilities(), &mut datagrams);
            moved += datagrams.len();
        }
        moved += self.transport.headers_out(
            now,
            Room { frames: BURST, bytes: self.round_bytes },
            &mut self.pool,
            &mut self.received,
        );
        if !self.unit.squeezed.is_empty() {
            self.unit.squeeze(now, &mut self.pool);
        }
        moved += self.unit.own.len();
        let mut leave = Leave { pool: &mut self.pool, out: &mut self.out };
        self.unit.outgoing(now, wire.capabilities(), &mut self.received, &mut leave);
        self.out.append(&mut datagrams);
        self.unit.record_sent(now, &self.out);
        self.unit.recorder.hand_over(moved == 0);
        if !self.out.is_empty() {
            wire.send(now, &mut self.out, &mut self.pool, drops);
        }
        // Outgoing acknowledgment numbers move cursors, too.
        self.poll_touched();
        self.unit.memory.devices().into_iter().for_each(Devices::flush);
        moved
    }

    fn poll_touched(&mut self) {
        // What is touched meanwhile is polled in the next round.
        let mut touched = std::mem::take(&mut self.unit.touched);
        for flow in touched.drain(..) {
            if let Some(way) = self.unit.header_state(flow) {
                way.touched = false;
            }
            if let Err(why) = self.poll_after(flow) {
                self.fail(flow, why);
            }
        }
        if self.unit.touched.is_empty() {
            self.unit.touched = touched;
        }
    }

    fn poll_after(&mut self, flow: FlowId) -> Result<(), String> {
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(()) };
        if self.unit.copying.has_stream(flow) {
            return self.poll_copied(flow);
        }
        let Some(way) = self.unit.header_state(flow) else { return Ok(()) };
        if let Some(why) = way.broken.take() {
            return Err(why);
        }
        let (incoming, outgoing, acked, kind) = (way.incoming, way.outgoing, way.acked, way.kind);
        let floor = way.held.floor();
        let is_copied = self.unit.copying.has(flow);
        let came = if is_copied { self.copy_marked_in(flow)? } else { self.transport.in_order(talk.socket)? };
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(()) };
        talk.in_order += came.bytes;
        talk.ended |= came.ended;
        if let Some(begin) = incoming {
            // Both are the transport's word that the stream is in order so far.
            let read = begin + talk.in_order as u32;
            let in_order = acked.map_or(read, |acked| acked.max(read));
            let moved = self.unit.nic.advance(flow, floor.filter(|floor| floor.before(in_order)).unwrap_or(in_order));
            talk.reported += u64::from(moved);
            match kind {
                Kind::Stream | Kind::Datagrams => finish(&mut talk.receives, u64::from(moved), |id, bytes| {
                    self.events.push_back(Event::Received { connection: flow, id, bytes });
                }),
                // Once the peer's acknowledgements were checked, below.
                Kind::Operations => {}
                Kind::Messages => {
                    while let Some(bytes) = self.unit.nic.take_message(flow).map(u64::from) {
                        let Some(post) = talk.receives.pop_front() else { break };
                        self.unit.header_state(flow).into_iter().for_each(|way| way.lengths.came(bytes as u32));
                        self.events.push_back(Event::Received { connection: flow, id: post.id, bytes });
                    }
                }
            }
            if moved > 0 {
                // A hole was filled: what was kept beyond one hole too many may have its place now.
                self.unit.retry(self.now, flow, &mut self.pool, &mut self.up);
            }
        }
        if let Some(begin) = outgoing {
            self.poll_outgoing(flow, begin)?;
        }
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(()) };
        let over = talk.ended && !talk.end_reported && talk.reported == talk.in_order;
        if kind == Kind::Operations {
            talk.end_reported |= over;
            self.deliver_operations(flow, over);
            return Ok(());
        }
        if over {
            talk.end_reported = true;
            // The receive in which the stream ended is done, with what it has; those behind it have nothing.
            for post in talk.receives.drain(..) {
                self.events.push_back(Event::Received { connection: flow, id: post.id, bytes: post.done });
            }
            self.events.push_back(Event::Ended { connection: flow });
        }
        Ok(())
    }

    /// What the peer has acknowledged is done, and the transport gets what was posted since.
    fn poll_outgoing(&mut self, flow: FlowId, begin: Seq) -> Result<(), String> {
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(()) };
        let (socket, unsent, copied) = (talk.socket, talk.unsent, self.unit.copying.flows.get(&flow));
        // A transport that acknowledges what it never took ends no send.
        let most = copied.map_or(u64::MAX, |copied| copied.written);
        let (is_copied, acknowledged) = (copied.is_some(), self.transport.acknowledged(socket).min(most));
        let moved = self.unit.nic.acknowledged(flow, begin + acknowledged as u32);
        finish(&mut talk.sends, u64::from(moved), |id, _| {
            self.events.push_back(Event::Sent { connection: flow, id });
        });
        let taken = match is_copied {
            _ if unsent == 0 => 0,
            true => self.copy_marked_out(flow, begin)?,
            false => self.transport.send(socket, unsent)?,
        };
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(()) };
        talk.unsent -= taken;
        if talk.ending && talk.unsent == 0 && !talk.end_sent {
            talk.end_sent = true;
            self.transport.end(talk.socket);
        }
        Ok(())
    }

    fn fail(&mut self, flow: FlowId, why: String) {
        let is_verbs = self.unit.kind(flow) == Some(Kind::Operations);
        let unsent = self.unit.nic.operations_out(flow);
        self.close(flow);
        match &mut self.unit.verbs {
            Some(verbs) if is_verbs => verbs.failed(flow, unsent, &mut self.unit.drops),
            _ => self.events.push_back(Event::Failed { connection: flow, why }),
        }
    }
}

impl Talk {
    pub(crate) fn new(socket: Socket) -> Talk {
        Talk {
            socket,
            receives: VecDeque::new(),
            sends: VecDeque::new(),
            unsent: 0,
            in_order: 0,
            reported: 0,
            ending: false,
            end_sent: false,
            ended: false,
            end_reported: false,
        }
    }
}

/// As the NIC's half has it.
pub(crate) fn kind(carries: Carries) -> Kind {
    match carries {
        Carries::Stream => Kind::Stream,
        Carries::Messages => Kind::Messages,
    }
}

/// `moved` bytes more are done: reports the posts that are done with them.
pub(crate) fn finish(posts: &mut VecDeque<Post>, mut moved: u64, mut report: impl FnMut(u64, u64)) {
    while let Some(post) = posts.front_mut().filter(|_| moved > 0) {
        let count = moved.min(post.bytes - post.done);
        post.done += count;
        moved -= count;
        if post.done == post.bytes {
            report(post.id, post.bytes);
            posts.pop_front();
        }
    }
}
