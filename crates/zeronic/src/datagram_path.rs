//! Unreliable datagrams of programs (docs/ZERONIC.md, "Datagrams"): UDP over IPv4. The transport only finds next hops.
//! A received one lands in the flow's next receive; one that is sent is copied into its frame.
use crate::datagrams::{DatagramFlow, NoDatagrams, RESOLVE_LIMIT_NS};
use crate::nic::{Arrival, FlowId, Kind, Memory, Refused, Segment};
use crate::stack::{Connection, ConnectionView, Event, Stack};
use crate::transport::{NextHop, Transport};
use crate::unit::{Moved, Unit};
use engine::DropReason;
use memory::{Domain, Fault};
use port::{Capabilities, Checksum, Frame, FramePool};
use shm::Span;
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::ip::Ends;
use wire::{EtherType, Ipv4Tuple, Mac, ethernet, ipv4, udp};

/// Where a frame of the own has its UDP header, and its payload.
const UDP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
const PAYLOAD_AT: usize = UDP_AT + udp::HEADER_LEN;
/// Ports that the host chooses.
const PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;
/// Datagrams of one flow before the next one sends, and of all flows in a round.
const QUANTUM: usize = 8;
const ROUND: usize = 64;
/// Datagrams of one flow that are read ahead out of devices' memory.
const AHEAD: usize = 32;

/// A received datagram: its ends as this host has them, and where its frame has it.
struct Received {
    tuple: Ipv4Tuple,
    /// From the UDP header on, as far as the IP packet goes.
    at: std::ops::Range<usize>,
}

/// The datagram of a frame; none where it has none, or a part of one.
fn datagram(frame: &Frame) -> Option<Received> {
    let bytes = frame.bytes();
    let ip_at = ethernet::payload_at(bytes, EtherType::Ipv4)?;
    let (ip, ip_len) = ipv4::Header::parse(&bytes[ip_at..], frame.len() - ip_at).ok()?;
    if ip.protocol != ipv4::UDP || ip.is_fragment {
        return None;
    }
    let at = ip_at + ip_len;
    let ports = bytes.get(at..at + 4)?;
    let tuple = Ipv4Tuple {
        local_ip: ip.dst,
        local_port: u16::from_be_bytes([ports[2], ports[3]]),
        remote_ip: ip.src,
        remote_port: u16::from_be_bytes([ports[0], ports[1]]),
    };
    Some(Received { tuple, at: at..at + usize::from(ip.payload_len) })
}

/// Both addresses of what this host sends.
fn ends(tuple: Ipv4Tuple) -> Ends {
    Ends { src: tuple.local_ip.into(), dst: tuple.remote_ip.into() }
}

impl<M: Memory> Unit<M> {
    /// Takes a frame in that has no segment. Gives it back where it is no flow's datagram.
    pub(crate) fn take_datagram(&mut self, mut frame: Box<Frame>, pool: &mut FramePool) -> Option<Box<Frame>> {
        if self.datagrams.is_empty() {
            return Some(frame);
        }
        let Some(Received { tuple, at }) = datagram(&frame) else { return Some(frame) };
        let Some(flow) = self.nic.find_datagrams(&tuple) else { return Some(frame) };
        pool.flatten(&mut frame);
        let verify = frame.checksum == Checksum::Complete;
        let bytes = frame.bytes().get(at).unwrap_or_default();
        match udp::Header::parse(bytes).map(|header| udp::HEADER_LEN + usize::from(header.payload_len)) {
            Ok(len) if verify && !udp::is_sound(&bytes[..len], ends(tuple.turned())) => {
                self.drop_malformed(DropReason::TcpChecksum);
            }
            Ok(len) => self.land(flow, &bytes[udp::HEADER_LEN..len]),
            Err(_) => self.drop_malformed(DropReason::TcpHeader),
        }
        pool.put(frame);
        None
    }

    /// A datagram's payload goes to the flow's next receive, or is dropped by name.
    fn land(&mut self, id: FlowId, payload: &[u8]) {
        let reason = match self.nic.place_datagram(id, payload, &self.memory) {
            Arrival::Placed { len, .. } | Arrival::Placing { len, .. } => {
                self.counters.placed_bytes += u64::from(len);
                let copy = self.nic.take_started().pop();
                return self.datagrams.landed(id, u64::from(len), copy);
            }
            Arrival::TooLong => DropReason::MessageLength,
            Arrival::Fault(Fault::Busy) => return self.drop_for_device(),
            Arrival::Fault(Fault::Lost) => return self.datagrams.failed.push(id),
            Arrival::Fault(_) => {
                self.counters.faults += 1;
                DropReason::PlaceFault
            }
            _ => {
                self.counters.without_place += 1;
                DropReason::NoPlace
            }
        };
        self.drops.count(reason);
    }

    /// Starts to read what a flow sends next, where that is a device's.
    fn read_ahead(&mut self, id: FlowId) {
        let Some(flow) = self.datagrams.flows.get_mut(&id).filter(|flow| flow.from_device) else { return };
        while flow.reads.len() < flow.sends.len().min(AHEAD) {
            match self.nic.start_datagram(id, flow.reads.len(), &self.memory) {
                Ok(copy) => flow.reads.push_back(copy),
                Err(Fault::Busy) => {
                    self.datagrams.lacks_room = true;
                    break;
                }
                Err(_) => {
                    self.datagrams.failed.push(id);
                    break;
                }
            }
        }
    }

    /// The frame of a flow's next datagram, whose bytes are those that came out of a device's memory where there are
    /// some. `None` where its memory cannot be read any more.
    fn next_datagram(
        &mut self,
        id: FlowId,
        tuple: Ipv4Tuple,
        link: [Mac; 2],
        staged: Option<Span>,
        pool: &mut FramePool,
    ) -> Option<Box<Frame>> {
        let mut frame = pool.large();
        frame.resize(PAYLOAD_AT);
        let fetched = match staged {
            Some(span) => {
                self.nic.skip_datagram(id);
                span.append(frame.bytes_vec());
                Ok(())
            }
            None => self.nic.fetch_datagram(id, frame.bytes_vec(), &self.memory)?,
        };
        if fetched.is_err() {
            self.counters.faults += 1;
            self.drops.count(DropReason::PlaceFault);
            pool.put(frame);
            return None;
        }
        let len = frame.len() - PAYLOAD_AT;
        let bytes = frame.bytes_mut();
        let [src, dst] = link;
        ethernet::Header { dst, src, ethertype: EtherType::Ipv4 }.emit(bytes);
        let udp_len = (udp::HEADER_LEN + len) as u16;
        ipv4::Header::new(ipv4::UDP, (tuple.local_ip, tuple.remote_ip), udp_len)
            .emit(&mut bytes[ethernet::HEADER_LEN..]);
        let (src_port, dst_port) = (tuple.local_port, tuple.remote_port);
        udp::Header { src_port, dst_port, payload_len: len as u16 }.emit(ends(tuple), &mut bytes[UDP_AT..]);
        frame.checksum = Checksum::Partial { start: UDP_AT as u16, field: (UDP_AT + udp::CHECKSUM_AT) as u16 };
        self.counters.fetched_bytes += len as u64;
        self.counters.copied_out_bytes += len as u64;
        self.counters.frames_out += 1;
        if let Some(flow) = self.datagrams.flows.get_mut(&id) {
            flow.sent += len as u64;
        }
        Some(frame)
    }
}

impl<T: Transport, M: Memory> Stack<T, M> {
    /// Opens a flow of datagrams between a port of this host's (0: one that it chooses) and a peer's. `domain` is whose
    /// memory it uses.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn open_datagrams(&mut self, from: u16, to: SocketAddrV4, domain: Domain) -> Result<Connection, NoDatagrams> {
        let remote = *to.ip();
        if to.port() == 0 || remote.is_unspecified() || remote.is_multicast() || remote.is_broadcast() {
            return Err(NoDatagrams::Peer);
        }
        let local_ip = self.transport.source_of(remote).filter(|_| self.shared.is_none());
        let local_ip: Ipv4Addr = local_ip.ok_or(NoDatagrams::Unsupported)?;
        let tuple_of = |local_port| Ipv4Tuple { local_ip, local_port, remote_ip: remote, remote_port: to.port() };
        let nic = &mut self.unit.nic;
        let is_free = |port: &u16| nic.find_datagrams(&tuple_of(*port)).is_none();
        let local_port = if from > 0 { Some(from).filter(is_free) } else { PORTS.into_iter().find(is_free) };
        let tuple = tuple_of(local_port.ok_or(NoDatagrams::InUse)?);
        let Some(id) = nic.add(tuple, domain, Kind::Datagrams) else {
            self.unit.refuse();
            return Err(NoDatagrams::Full);
        };
        self.unit.datagrams.flows.insert(id, DatagramFlow::new(tuple));
        Ok(id)
    }

    /// It is a flow of datagrams.
    pub fn is_datagrams(&self, id: Connection) -> bool {
        self.unit.datagrams.flows.contains_key(&id)
    }

    pub(crate) fn post_datagram_receive(&mut self, id: FlowId, post: u64, segment: Segment) -> Result<(), Refused> {
        let flow = self.unit.datagrams.flows.get_mut(&id).ok_or(Refused::Flow)?;
        self.unit.nic.post_receive(id, segment)?;
        flow.receives.push_back(post);
        Ok(())
    }

    pub(crate) fn post_datagram(&mut self, id: FlowId, post: u64, segment: Segment) -> Result<(), Refused> {
        let datagrams = &mut self.unit.datagrams;
        if segment.len > datagrams.most() as u64 {
            return Err(Refused::Long);
        }
        let flow = datagrams.flows.get_mut(&id).ok_or(Refused::Flow)?;
        self.unit.nic.post_send(id, segment)?;
        flow.sends.push_back(post);
        let domain = self.unit.nic.domain(id);
        flow.from_device |= domain.is_some_and(|domain| self.unit.memory.is_device(domain, segment.key));
        if !flow.is_listed {
            flow.is_listed = true;
            datagrams.ready.push_back(id);
        }
        Ok(())
    }

    /// Forgets a flow of datagrams. From now on none of its memory is read or written.
    pub(crate) fn close_datagrams(&mut self, id: FlowId) {
        if self.unit.datagrams.flows.remove(&id).is_some() {
            self.unit.nic.remove(id);
            self.unit.datagrams.ready.retain(|other| *other != id);
            self.unit.datagrams.waiting.retain(|other| *other != id);
            self.unit.datagrams.landing.retain(|other| *other != id);
        }
    }

    /// Receives that datagrams have filled, and flows that cannot go on.
    pub(crate) fn report_datagrams(&mut self) {
        let events = &mut self.events;
        let received = |(connection, id, bytes)| Event::Received { connection, id, bytes };
        events.extend(self.unit.datagrams.done.drain(..).map(received));
        for connection in std::mem::take(&mut self.unit.datagrams.failed) {
            if self.is_datagrams(connection) {
                self.unit.counters.faults += 1;
                self.unit.drops.count(DropReason::PlaceFault);
                self.close_datagrams(connection);
                let why = "the device of its memory is gone, or did not do what it was to do".into();
                self.events.push_back(Event::Failed { connection, why });
            }
        }
    }

    /// Sends what is posted, round robin. Where a next hop is not known, the transport asks for it.
    pub(crate) fn send_datagrams(&mut self, wire: Capabilities, out: &mut Vec<Box<Frame>>) {
        let waiting = std::mem::take(&mut self.unit.datagrams.waiting);
        self.unit.datagrams.ready.extend(waiting);
        self.unit.datagrams.lacks_room = false;
        let (mut left, mut bytes) = (ROUND, self.round_bytes());
        for _ in 0..self.unit.datagrams.ready.len() {
            if left == 0 || bytes == 0 {
                break;
            }
            let Some(id) = self.unit.datagrams.ready.pop_front() else { break };
            let before = out.len();
            self.send_quantum(id, left.min(QUANTUM), wire, out);
            left -= (out.len() - before).min(left);
            bytes = bytes.saturating_sub(out[before..].iter().map(|frame| frame.len()).sum());
        }
        self.report_datagrams();
    }

    /// A quantum of a flow: at most `most` datagrams.
    fn send_quantum(&mut self, id: FlowId, most: usize, wire: Capabilities, out: &mut Vec<Box<Frame>>) {
        let Some(flow) = self.unit.datagrams.flows.get_mut(&id) else { return };
        let tuple = flow.tuple;
        let link = match self.transport.next_hop(self.now, tuple.remote_ip) {
            NextHop::Known(link) => link,
            NextHop::Asked if self.now < flow.asks_since.unwrap_or(self.now) + RESOLVE_LIMIT_NS => {
                flow.asks_since.get_or_insert(self.now);
                return self.unit.datagrams.waiting.push(id);
            }
            NextHop::Asked => return self.drop_posted(id, DropReason::NeighbourUnresolved),
            NextHop::None => return self.drop_posted(id, DropReason::NoRoute),
        };
        flow.asks_since = None;
        self.unit.read_ahead(id);
        let mut waits = false;
        for _ in 0..most {
            let Some(flow) = self.unit.datagrams.flows.get_mut(&id).filter(|flow| !flow.sends.is_empty()) else {
                break;
            };
            let staged = match flow.next_read() {
                Some(Ok(staged)) => staged,
                Some(Err(_)) => return self.unit.datagrams.failed.push(id),
                None => {
                    waits = true;
                    break;
                }
            };
            let Some(post) = flow.sends.pop_front() else { break };
            self.events.push_back(Event::Sent { connection: id, id: post });
            let Some(mut frame) = self.unit.next_datagram(id, tuple, link, staged, &mut self.pool) else { continue };
            if frame.len() - PAYLOAD_AT > self.unit.datagrams.most() {
                // It was posted before the port's MTU was known.
                self.unit.drops.count(DropReason::MessageLength);
                self.pool.put(frame);
            } else if tuple.remote_ip == tuple.local_ip {
                frame.checksum = Checksum::Verified;
                self.unit.datagrams.looped.push(frame);
            } else {
                if !wire.checksum {
                    udp::complete(&mut frame.bytes_mut()[UDP_AT..]);
                    frame.checksum = Checksum::Complete;
                }
                out.push(frame);
            }
        }
        let datagrams = &mut self.unit.datagrams;
        let Some(flow) = datagrams.flows.get_mut(&id) else { return };
        flow.is_listed = !flow.sends.is_empty();
        match flow.is_listed {
            true if waits => datagrams.waiting.push(id),
            true => datagrams.ready.push_back(id),
            false => {}
        }
    }

    /// Nothing that is posted can leave: it is dropped, as a network drops it, and its memory is the program's again.
    fn drop_posted(&mut self, id: FlowId, reason: DropReason) {
        let Some(flow) = self.unit.datagrams.flows.get_mut(&id) else { return };
        (flow.is_listed, flow.asks_since) = (false, None);
        flow.reads.clear();
        for post in flow.sends.drain(..) {
            self.unit.nic.skip_datagram(id);
            self.unit.drops.count(reason);
            self.events.push_back(Event::Sent { connection: id, id: post });
        }
    }

    /// Flows of datagrams, for people.
    pub(crate) fn datagram_views(&self) -> impl Iterator<Item = ConnectionView> + '_ {
        self.unit.datagrams.flows.iter().map(|(id, flow)| ConnectionView {
            connection: *id,
            tuple: flow.tuple,
            carries: "datagrams",
            has_line: true,
            moved: Moved { placed: flow.received, fetched: flow.sent, copied_out: flow.sent, ..Moved::default() },
            kept: 0,
            received: flow.received,
            receives: flow.receives.len() + flow.landing.len(),
            sends: flow.sends.len(),
            unsent: 0,
            ended: false,
        })
    }
}
