//! Verbs above the control stack (docs/ZERONIC.md, "Verbs"): queue pairs of an RDMA device whose messages go over
//! connections. The device checks and carries out; here is which connection is which queue pair's.
mod carry;
mod datagrams;
mod hosts;
mod links;
mod local;

use crate::nic::{Finished, FlowId};
use engine::{DropCounts, DropReason};
use hosts::Hosts;
use links::{Link, PendingLink, Stashed};
use rdma::{Device, Naming};
use smartns::{Arrived, Denied, HEADER_LEN, Header, MOST_DATAGRAM, MessageKind, Steer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use verbs::QpNumber;
use wire::Nanos;

/// The port on which hosts take connections of verbs: that of RoCEv2, in TCP.
pub const VERBS_PORT: u16 = 4791;

/// Bytes of a connection that the transport has not taken, from which on a queue pair has to wait.
const ROOM: u64 = 256 << 10;
/// Between two polls of what waits for a program, for which there is no notification.
const RETRY: Nanos = 200_000;
/// Between two polls of all connections that wait for something.
const POLL_INTERVAL: Nanos = 10_000_000;

/// A device, and the connections of its queue pairs.
pub(crate) struct Verbs {
    pub(crate) device: Device,
    address: Ipv4Addr,
    pub(crate) now: Nanos,
    links: BTreeMap<FlowId, Link>,
    by_qp: HashMap<QpNumber, FlowId>,
    /// Connections that this side has begun and the peer has not taken.
    connecting: Vec<FlowId>,
    /// Those that datagrams go over.
    hosts: Hosts,
    /// Queue pairs of this host that are each other's peers, and a message of each that has no place yet.
    local: BTreeMap<QpNumber, QpNumber>,
    stashed: BTreeMap<QpNumber, Stashed>,
    /// Queue pairs that have a peer, and no connection.
    pending: BTreeMap<QpNumber, PendingLink>,
    /// Since when queue pairs have something to send, and no connection that is open.
    asked: BTreeMap<QpNumber, Nanos>,
    /// Queue pairs whose connection had no room.
    blocked: BTreeSet<QpNumber>,
    /// Queue pairs that have used their quantum, and have more.
    again: Vec<QpNumber>,
    /// Connections with a message that has no place yet.
    later: BTreeSet<FlowId>,
    /// Connections whose peer sends no more, or which the transport gave up.
    ended: Vec<FlowId>,
    next_retry: Nanos,
    next_poll: Nanos,
}

impl Verbs {
    pub(crate) fn new(device: Device, address: Ipv4Addr) -> Verbs {
        Verbs {
            device,
            address,
            now: 0,
            links: BTreeMap::new(),
            by_qp: HashMap::new(),
            connecting: Vec::new(),
            hosts: Hosts::default(),
            local: BTreeMap::new(),
            stashed: BTreeMap::new(),
            pending: BTreeMap::new(),
            asked: BTreeMap::new(),
            blocked: BTreeSet::new(),
            again: Vec::new(),
            later: BTreeSet::new(),
            ended: Vec::new(),
            next_retry: 0,
            next_poll: 0,
        }
    }

    /// Connections to this port are its own.
    pub(crate) fn accepts(&self, port: u16) -> bool {
        port == VERBS_PORT
    }

    /// A peer has opened a connection.
    pub(crate) fn accepted(&mut self, flow: FlowId, peer: Ipv4Addr) {
        let unclaimed = self.links.values().filter(|link| link.is_unclaimed()).count();
        self.links.insert(flow, Link { is_open: true, ..Link::new(peer, self.now) });
        // Its first message may have come before it was accepted.
        self.later.insert(flow);
        self.next_retry = 0;
        if unclaimed >= links::MOST_UNCLAIMED {
            self.ended.push(flow);
        }
    }

    /// A connection brings nothing any more.
    pub(crate) fn ended(&mut self, flow: FlowId) {
        self.ended.push(flow);
    }

    /// There is something to do now.
    pub(crate) fn has_work(&self) -> bool {
        host_has_work(&self.device, self.now)
            || self.device.has_mail()
            || !self.ended.is_empty()
            || !self.again.is_empty()
    }

    /// When something is due by itself.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let waits = !self.later.is_empty() || !self.stashed.is_empty() || self.device.waits_for_receives();
        let retry = waits.then_some(self.now + RETRY);
        let has_no_qp = |link: &Link| link.qp.is_none() && !link.is_of_hosts;
        let is_watched = |link: &Link| has_no_qp(link) || !link.is_open || link.closing.is_some();
        let watched = !self.pending.is_empty() || !self.asked.is_empty() || self.links.values().any(is_watched);
        let poll = watched.then_some(self.next_poll);
        let hosts = self.hosts.next_deadline(self.now);
        [host::Transport::next_deadline(&self.device), retry, poll, hosts].into_iter().flatten().min()
    }

    /// Destination of the payload of a message whose header has come.
    pub(crate) fn steer(&mut self, flow: FlowId, header: &[u8; HEADER_LEN], len: u32, drops: &mut DropCounts) -> Steer {
        let nowhere = Steer::Nowhere(Denied::ACCESS);
        let Some(link) = self.links.get(&flow) else { return Steer::Later };
        let Some(header) = Header::parse(header) else { return nowhere };
        let payload = len as usize - HEADER_LEN;
        match (header.kind, link.qp) {
            (MessageKind::Hello, _) if payload == 0 => Steer::Keep,
            (MessageKind::Management, _) if payload == Device::MAIL => Steer::Keep,
            (kind, None) if kind.is_datagram() && payload <= MOST_DATAGRAM => Steer::Keep,
            (MessageKind::Hello | MessageKind::Management, _) => nowhere,
            (kind, _) if kind.is_datagram() => nowhere,
            (_, Some(qp)) => {
                let steer = self.device.steer(self.now, qp, &header, len, drops);
                if steer == Steer::Later {
                    self.later.insert(flow);
                }
                steer
            }
            // Its queue pair is gone, or it gets none.
            (_, None) if link.is_over || link.is_of_hosts => nowhere,
            (_, None) => Steer::Later,
        }
    }

    /// A message is in order.
    fn take_in(&mut self, flow: FlowId, finished: Finished, drops: &mut DropCounts) {
        let Finished { header, len, kept, denied, .. } = finished;
        let Some(link) = self.links.get_mut(&flow) else { return };
        let Some(header) = Header::parse(&header) else { return self.ended.push(flow) };
        match (header.kind, link.qp) {
            (MessageKind::Hello, None) if !link.is_named() => {
                (link.own_qp, link.peer_qp) = (Some(header.key), Some(header.number));
                self.meet(flow);
            }
            (MessageKind::Hello, _) => self.ended.push(flow),
            (MessageKind::Management, _) => self.take_in_mail(flow, kept, drops),
            (kind, _) if kind.is_datagram() => self.take_in_datagram(flow, &header, kept, drops),
            (_, Some(qp)) => self.device.deliver(self.now, qp, Arrived { header, len, kept, denied }, drops),
            (_, None) => {}
        }
    }

    /// A message of connection management came: about the connection, or between hosts.
    fn take_in_mail(&mut self, flow: FlowId, kept: Option<Vec<u8>>, drops: &mut DropCounts) {
        let mail = kept.unwrap_or_default();
        let peer = match (Naming::parse(&mail), self.links.get_mut(&flow)) {
            (Ok(Some(naming)), Some(link)) if !link.is_of_hosts => {
                link.note_peer(&naming);
                Some(link.peer)
            }
            (Ok(None), _) => self.host_of_flow(flow),
            _ => None,
        };
        let Some(peer) = peer else { return self.ended.push(flow) };
        if let Err(reason) = self.device.mail(self.now, peer, &mail) {
            drops.count(reason);
        }
    }

    /// The transport gave a connection up, with so many messages that the peer may not have.
    pub(crate) fn failed(&mut self, flow: FlowId, unsent: usize, drops: &mut DropCounts) {
        if self.links.get(&flow).is_some_and(|link| link.is_of_hosts) {
            (0..unsent).for_each(|_| drops.count(DropReason::HostUnreachable));
        }
        self.ended(flow);
    }

    /// A datagram came on a connection.
    fn take_in_datagram(&mut self, flow: FlowId, header: &Header, kept: Option<Vec<u8>>, drops: &mut DropCounts) {
        let (Some(peer), Some(payload)) = (self.host_of_flow(flow), kept) else { return self.ended.push(flow) };
        self.device.datagram(self.now, peer, header, &payload, drops);
    }

    /// A connection is one between hosts, as its datagrams show. `None` where it cannot be.
    fn host_of_flow(&mut self, flow: FlowId) -> Option<Ipv4Addr> {
        let link = self.links.get_mut(&flow)?;
        if link.qp.is_some() || link.closing.is_some() || !link.is_of_hosts && link.is_named() {
            return None;
        }
        (link.is_of_hosts, link.used) = (true, self.now);
        let peer = link.peer;
        if !link.is_begun_here {
            self.ended.extend(self.hosts.peer_uses(peer, flow));
        }
        Some(peer)
    }

    /// A peer's connection names a queue pair: it gets it, where it is for that peer and has none.
    fn meet(&mut self, flow: FlowId) {
        let Some(link) = self.links.get(&flow) else { return };
        let (Some(qp), Some(peer_qp)) = (link.own_qp, link.peer_qp) else { return };
        // It has one already, or there is none.
        if self.by_qp.contains_key(&qp) || !self.device.has_qp(qp) {
            return self.ended.push(flow);
        }
        if self.device.peer_of(qp) == Some((link.peer, peer_qp)) {
            self.adopt(flow, qp);
        }
    }

    /// A connection is this queue pair's.
    fn adopt(&mut self, flow: FlowId, qp: QpNumber) {
        let Some(link) = self.links.get_mut(&flow) else { return };
        link.qp = Some(qp);
        self.by_qp.insert(qp, flow);
        self.pending.remove(&qp);
        if link.is_open {
            self.asked.remove(&qp);
            self.device.link(qp);
        }
        // What came before has its place now.
        self.later.insert(flow);
        self.next_retry = 0;
    }

    /// A queue pair has a peer: a connection that is there becomes its own, or one is pending.
    fn has_peer(&mut self, qp: QpNumber, remote: Ipv4Addr, remote_qp: QpNumber) {
        if self.by_qp.contains_key(&qp) || self.local.contains_key(&qp) {
            return;
        }
        if remote == self.address {
            return self.has_local_peer(qp, remote_qp);
        }
        let mut between = self.links.iter().filter(|(_, link)| link.is_between(qp, remote, remote_qp));
        let found = between.find(|(_, link)| !link.is_managed() || self.device.is_of(link.own_comm, qp));
        match found.map(|(flow, _)| *flow) {
            Some(flow) => self.adopt(flow, qp),
            None => {
                // One of the two connects: whose end is the lower one.
                let connects = (self.address, qp) < (remote, remote_qp);
                self.pending.insert(qp, PendingLink::new(remote, remote_qp, connects));
            }
        }
    }
}

fn host_has_work(device: &Device, now: Nanos) -> bool {
    host::Transport::has_work(device, now)
}
