//! Work of the control stack for verbs: rounds of the device, connections that come and go, outgoing messages.
use super::links::{CLOSING, Link, PendingLink, UNCLAIMED};
use super::{POLL_INTERVAL, RETRY, ROOM, VERBS_PORT, Verbs};
use crate::nic::{FlowId, Kind, Memory, Outgoing};
use crate::stack::{Listener, Stack};
use crate::transport::Transport;
use memory::Domain;
use rdma::{Change, Device, Letter, Naming};
use smartns::{Content, FinalMessage, Header, MessageKind};
use std::net::{Ipv4Addr, SocketAddrV4};
use verbs::QpNumber;
use wire::Nanos;

/// Messages of a connection that the peer does not have, from which on it has to wait.
const MESSAGES: usize = 4096;
/// Messages of a queue pair in a round.
const QUANTUM: usize = 64;
/// The domain of flows whose messages name their own.
const NO_DOMAIN: Domain = Domain(0);

impl<T: Transport, M: Memory> Stack<T, M> {
    /// Serves the programs of an RDMA device from now on, whose host has this address.
    ///
    /// # Errors
    /// A sentence: the port cannot be listened on.
    pub fn serve_verbs(&mut self, device: Device, address: Ipv4Addr) -> Result<(), String> {
        self.serve(VERBS_PORT, Listener { domain: NO_DOMAIN, kind: Kind::Operations })?;
        self.unit.verbs = Some(Box::new(Verbs::new(device, address)));
        Ok(())
    }

    /// Asks its RDMA device, where it has one. What the answer changed of queue pairs counts at once for their
    /// connections. The memory of one that is gone may be gone before the next round.
    pub fn with_device<R>(&mut self, now: Nanos, ask: impl FnOnce(&mut Device) -> R) -> Option<R> {
        let mut verbs = self.unit.verbs.take()?;
        (self.now, verbs.now) = (now, now);
        let answer = ask(&mut verbs.device);
        self.follow(&mut verbs);
        self.unit.verbs = Some(verbs);
        Some(answer)
    }

    /// Its RDMA device, to read.
    pub fn device_view(&self) -> Option<&Device> {
        self.unit.verbs.as_ref().map(|verbs| &verbs.device)
    }

    /// The cursor may have passed messages; `over`: nothing comes behind them.
    pub(crate) fn deliver_operations(&mut self, flow: FlowId, over: bool) {
        while let Some(finished) = self.unit.nic.take_operation(flow) {
            if let Some((domain, place, byte)) = finished.last {
                // Where its memory is gone, so is its reader.
                let _ = self.unit.memory.write(domain, place.key, place.offset, &[byte]);
            }
            if let Some(verbs) = &mut self.unit.verbs {
                verbs.take_in(flow, finished, &mut self.unit.drops);
            }
        }
        if let Some(verbs) = self.unit.verbs.as_mut().filter(|_| over) {
            verbs.ended(flow);
        }
    }

    /// A round of the device and its connections. Returns how much was done.
    pub(crate) fn verbs_round(&mut self) -> usize {
        let Some(mut verbs) = self.unit.verbs.take() else { return 0 };
        let mut done = verbs.device.poll_streams(self.now, &mut self.unit.drops) + self.follow(&mut verbs);
        if !verbs.pending.is_empty() {
            self.connect_pending(&mut verbs);
        }
        self.poll_new_link(&mut verbs);
        let mut ready = verbs.device.take_ready();
        ready.extend(std::mem::take(&mut verbs.blocked));
        ready.extend(std::mem::take(&mut verbs.again));
        for qp in ready {
            done += self.pull(&mut verbs, qp);
        }
        if self.now >= verbs.next_poll {
            verbs.next_poll = self.now + POLL_INTERVAL;
            self.poll_links(&mut verbs);
        }
        let later = match self.now >= verbs.next_retry {
            true => std::mem::take(&mut verbs.later),
            false => Default::default(),
        };
        if !later.is_empty() {
            verbs.next_retry = self.now + RETRY;
        }
        self.unit.verbs = Some(verbs);
        for flow in later {
            self.unit.retry(self.now, flow, &mut self.pool, &mut self.up);
            self.unit.advertise_more(self.now, flow, &mut self.pool);
        }
        done
    }

    /// Connections that brought their end, messages of connection management, and queue pairs that changed. Returns how
    /// many of the first two.
    fn follow(&mut self, verbs: &mut Verbs) -> usize {
        let ended = std::mem::take(&mut verbs.ended);
        let mail = verbs.device.take_mail();
        let done = ended.len() + mail.len();
        for flow in ended {
            self.link_ended(verbs, flow);
        }
        // Before the changes: the naming of a connection decides whose it is.
        for letter in mail {
            self.send_mail(verbs, letter);
        }
        for change in verbs.device.take_changes() {
            match change {
                Change::HasPeer { qp, remote, remote_qp } => verbs.has_peer(qp, remote, remote_qp),
                Change::Gone { qp, last } => self.unlink(verbs, qp, last),
            }
        }
        done
    }

    /// A connection has as many messages as it may, or more bytes than the transport has taken.
    pub(super) fn is_full(&self, flow: FlowId) -> bool {
        let waits = self.talks.get(&flow).is_none_or(|talk| talk.unsent >= ROOM);
        waits || self.unit.nic.operations_out(flow) >= MESSAGES
    }

    /// A message goes out on a connection. False where there are too many.
    pub(super) fn post_operation(&mut self, flow: FlowId, header: &Header, content: Content) -> bool {
        let message = Outgoing { header: header.bytes(), content };
        let len = message.len();
        let Some(talk) = self.talks.get_mut(&flow).filter(|talk| !talk.ending) else { return false };
        if self.unit.nic.post_operation(flow, message).is_err() {
            return false;
        }
        talk.unsent += len;
        self.unit.touch(flow);
        true
    }

    /// Sends what a queue pair has, as far as its connection has room. Returns how many messages.
    fn pull(&mut self, verbs: &mut Verbs, qp: QpNumber) -> usize {
        if let Some(peer) = verbs.local.get(&qp).copied() {
            return verbs.carry_local(qp, peer, &self.unit.memory, &mut self.unit.drops);
        }
        if verbs.device.is_of_datagrams(qp) {
            return self.pull_datagrams(verbs, qp);
        }
        let open = verbs.by_qp.get(&qp).copied();
        let open = open.filter(|flow| verbs.links.get(flow).is_some_and(|link| link.is_open));
        let Some(flow) = open else {
            verbs.asked.entry(qp).or_insert(self.now);
            return 0;
        };
        for done in 0..QUANTUM {
            if self.is_full(flow) {
                verbs.blocked.insert(qp);
                return done;
            }
            let Some(message) = verbs.device.next_message(self.now, qp, &mut self.unit.drops) else { return done };
            self.post_operation(flow, &message.header, message.content);
        }
        verbs.again.push(qp);
        QUANTUM
    }

    pub(super) fn open_link(&mut self, verbs: &mut Verbs, to: Ipv4Addr) -> Result<FlowId, String> {
        let flow = self.open(SocketAddrV4::new(to, VERBS_PORT), NO_DOMAIN, Kind::Operations)?;
        verbs.links.insert(flow, Link { is_begun_here: true, ..Link::new(to, self.now) });
        verbs.connecting.push(flow);
        Ok(flow)
    }

    /// Connects queue pairs whose attempt is due.
    fn connect_pending(&mut self, verbs: &mut Verbs) {
        let due = |pending: &PendingLink| pending.connects && pending.attempts.next <= self.now;
        let due: Vec<QpNumber> = verbs.pending.iter().filter(|(_, of)| due(of)).map(|(qp, _)| *qp).collect();
        for qp in due {
            let Some(pending) = verbs.pending.get(&qp).copied() else { continue };
            let Ok(flow) = self.open_link(verbs, pending.remote) else {
                verbs.pending.entry(qp).and_modify(|pending| pending.attempts.failed(self.now));
                continue;
            };
            if let Some(link) = verbs.links.get_mut(&flow) {
                (link.own_qp, link.peer_qp) = (Some(qp), Some(pending.remote_qp));
                link.attempts = pending.attempts;
            }
            verbs.adopt(flow, qp);
            let mut hello = Header::new(MessageKind::Hello);
            (hello.number, hello.key) = (qp, pending.remote_qp);
            self.post_operation(flow, &hello, Content::Bytes(Vec::new()));
        }
    }

    /// Connections that this side opened, and that the peer has taken.
    fn poll_new_link(&mut self, verbs: &mut Verbs) {
        let Verbs { links, device, asked, connecting, .. } = verbs;
        connecting.retain(|flow| {
            let Some(link) = links.get_mut(flow).filter(|link| link.closing.is_none()) else { return false };
            link.is_open = self.unit.header_state(*flow).is_some_and(|way| way.incoming.is_some());
            if let Some(qp) = link.qp.filter(|_| link.is_open) {
                asked.remove(&qp);
                device.link(qp);
            }
            !link.is_open
        });
    }

    /// A message of connection management goes over its connection, or begins one.
    fn send_mail(&mut self, verbs: &mut Verbs, letter: Letter) {
        let Letter { to, bytes, naming } = letter;
        if to == verbs.address {
            if let Err(reason) = verbs.device.mail(self.now, to, &bytes) {
                self.unit.drops.count(reason);
            }
            return;
        }
        match naming {
            Some(naming) => self.send_named(verbs, to, &naming, bytes),
            None => self.send_host_mail(verbs, to, bytes),
        }
    }

    fn send_named(&mut self, verbs: &mut Verbs, to: Ipv4Addr, naming: &Naming, bytes: Vec<u8>) {
        let known = verbs.links.iter().find(|(_, link)| link.carries(to, naming)).map(|(flow, _)| *flow);
        let flow = match known {
            Some(flow) => flow,
            None if naming.begins => match self.open_link(verbs, to) {
                Ok(flow) => flow,
                // It is sent again.
                Err(_) => return,
            },
            None => return,
        };
        if let Some(link) = verbs.links.get_mut(&flow) {
            link.note_own(naming);
        }
        self.post_operation(flow, &Header::new(MessageKind::Management), Content::Bytes(bytes));
    }

    /// A queue pair is gone: none of its memory is read or written any more.
    fn unlink(&mut self, verbs: &mut Verbs, qp: QpNumber, last: Option<FinalMessage>) {
        verbs.pending.remove(&qp);
        verbs.asked.remove(&qp);
        verbs.blocked.remove(&qp);
        verbs.leave_local(qp, last, &mut self.unit.drops);
        let Some(flow) = verbs.by_qp.remove(&qp) else { return };
        if let Some(FinalMessage { message, acknowledged }) = last {
            self.unit.nic.release_operations(flow, acknowledged, &self.unit.memory);
            if let Some(header) = message {
                self.post_operation(flow, &header, Content::Bytes(Vec::new()));
            }
        }
        let Some(link) = verbs.links.get_mut(&flow) else { return };
        (link.qp, link.is_over) = (None, true);
        let is_managed = link.own_comm != 0 && verbs.device.is_managed(link.own_comm);
        if self.unit.nic.stop_operations(flow) || !is_managed {
            self.end_link(verbs, flow);
        }
    }

    /// A connection brings nothing any more.
    fn link_ended(&mut self, verbs: &mut Verbs, flow: FlowId) {
        self.leave_host(verbs, flow);
        let Some(link) = verbs.links.get_mut(&flow) else { return };
        let (peer, own, peers) = (link.peer, link.own_comm, link.peer_comm);
        if let Some(qp) = link.qp.take() {
            link.is_over = true;
            verbs.by_qp.remove(&qp);
            match (link.is_open, link.peer_qp) {
                // The peer does not listen yet, or nobody is there.
                (false, Some(remote_qp)) => {
                    let mut pending =
                        PendingLink { attempts: link.attempts, ..PendingLink::new(peer, remote_qp, true) };
                    pending.attempts.failed(self.now);
                    verbs.pending.insert(qp, pending);
                }
                _ => verbs.device.lost(self.now, qp, &mut self.unit.drops),
            }
        }
        if own != 0 {
            verbs.device.cut_off(self.now, peer, own, peers);
        }
        self.end_link(verbs, flow);
    }

    /// This side sends no more on a connection. It is forgotten once both sides have everything; at once where bytes
    /// that are still to be sent are a program's memory.
    pub(super) fn end_link(&mut self, verbs: &mut Verbs, flow: FlowId) {
        let Some(link) = verbs.links.get_mut(&flow) else { return };
        link.closing.get_or_insert(self.now + CLOSING);
        let (is_open, is_talk) = (link.is_open, self.talks.contains_key(&flow));
        if !is_open || !is_talk || self.unit.nic.stop_operations(flow) {
            return self.forget(verbs, flow);
        }
        self.end(flow);
        self.close_if_over(verbs, flow);
    }

    fn close_if_over(&mut self, verbs: &mut Verbs, flow: FlowId) {
        let all_sent = self.unit.nic.operations_out(flow) == 0;
        let over = self.talks.get(&flow).is_none_or(|talk| talk.ended && talk.unsent == 0 && all_sent);
        let late = verbs.links.get(&flow).and_then(|link| link.closing).is_some_and(|until| self.now >= until);
        if over || late {
            self.forget(verbs, flow);
        }
    }

    fn forget(&mut self, verbs: &mut Verbs, flow: FlowId) {
        verbs.links.remove(&flow);
        verbs.later.remove(&flow);
        self.close(flow);
    }

    /// Connections that wait for something, and queue pairs that wait for a connection.
    fn poll_links(&mut self, verbs: &mut Verbs) {
        let flows: Vec<FlowId> = verbs.links.keys().copied().collect();
        for flow in flows {
            let Some(link) = verbs.links.get(&flow) else { continue };
            let is_managed = link.own_comm != 0 && verbs.device.is_managed(link.own_comm);
            if link.closing.is_some() {
                self.close_if_over(verbs, flow);
            } else if link.is_of_hosts {
                self.poll_host(verbs, flow);
            } else if link.qp.is_none() && !is_managed {
                // Nothing was agreed on it any more, or nothing was for a long time.
                let is_old = self.now >= link.since + UNCLAIMED;
                if link.is_over || link.own_comm != 0 || is_old {
                    self.end_link(verbs, flow);
                }
            }
        }
        verbs.hosts.tidy(self.now);
        // Those that have got one meanwhile wait for the peer alone.
        let Verbs { asked, by_qp, links, .. } = &mut *verbs;
        let is_open = |flow: &FlowId| links.get(flow).is_some_and(|link| link.is_open);
        asked.retain(|qp, _| !by_qp.get(qp).is_some_and(is_open));
        let given_up = |(qp, since): (&QpNumber, &Nanos)| {
            let timeout = verbs.device.timeout(*qp);
            timeout.is_some_and(|timeout| self.now >= since + timeout).then_some(*qp)
        };
        let given_up: Vec<QpNumber> = verbs.asked.iter().filter_map(given_up).collect();
        for qp in given_up {
            self.unlink(verbs, qp, None);
            verbs.device.lost(self.now, qp, &mut self.unit.drops);
        }
    }
}
