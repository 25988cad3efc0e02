//! A device over streams instead of packets (docs/ZERONIC.md, "Verbs"): what it asks of whoever carries the streams,
//! and gets its events. Programs, objects and connection management are the same; so are its messages, which travel in
//! the streams themselves.
use crate::cm;
use crate::device::Device;
use crate::failure::Failure;
use crate::stream_binding::Change;
use crate::user_context::{ProgramId, UserContext};
use engine::{DropCounts, DropReason, Nanos};
use smartns::{Arrived, Header, LowerLayer, Message, ShardOutput, Steer};
use std::net::Ipv4Addr;
use verbs::connections::Request;
use verbs::{QpKind, QpNumber};
use wire::roce::cm::{CommId, MAD_LEN, Mad, Message as Management, Pair, Reason, Reject};

/// How long a queue pair waits for its connection at least.
const LEAST_TIMEOUT: Nanos = 3_000_000_000;

/// A message of connection management.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The peer.
    pub to: Ipv4Addr,
    /// As bytes.
    pub bytes: Vec<u8>,
    /// What it names; `None` for questions about queue pairs of datagrams, and answers, which are about no connection.
    pub naming: Option<Naming>,
}

/// What a message of connection management names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naming {
    /// The sender's number of the connection, and the receiver's; 0 where it has none yet.
    pub sender: CommId,
    /// See [`Naming::sender`].
    pub receiver: CommId,
    /// The sender's queue pair, where it names one.
    pub qp: Option<QpNumber>,
    /// It asks for a connection.
    pub begins: bool,
}

impl Naming {
    fn of(message: &Management) -> Option<Naming> {
        let (pair, qp) = match message {
            Management::Request(request) => (Pair { local: request.local, remote: 0 }, Some(request.qp.number)),
            Management::Reply(reply) => (reply.pair, Some(reply.qp.number)),
            Management::Wait(wait) => (wait.pair, None),
            Management::Reject(reject) => (reject.pair, None),
            Management::Ready(pair, _) | Management::Disconnect(pair, ..) | Management::Disconnected(pair, _) => {
                (*pair, None)
            }
            Management::Lookup(_) | Management::LookupReply(_) => return None,
        };
        let begins = matches!(message, Management::Request(_));
        Some(Naming { sender: pair.local, receiver: pair.remote, qp, begins })
    }

    /// What the message in these bytes names: see [`Letter::naming`].
    ///
    /// # Errors
    /// They are no message of connection management.
    pub fn parse(bytes: &[u8]) -> Result<Option<Naming>, DropReason> {
        Mad::parse(bytes).map(|mad| Naming::of(&mad.message)).map_err(|_| DropReason::MadInvalid)
    }
}

impl Device {
    /// What only packets carry.
    pub(crate) fn only_with_packets(&self, what: &str) -> Result<(), Failure> {
        match self.config.lower_layer {
            LowerLayer::Packets => Ok(()),
            LowerLayer::Stream => {
                Err(Failure::unsupported(format!("{} carries no {what}: its transport is TCP", self.config.name)))
            }
        }
    }

    /// A request of connection management can be carried out over streams, and names what the program has.
    pub(crate) fn over_streams(&self, id: ProgramId, request: &Request) -> Result<(), Failure> {
        if self.config.lower_layer == LowerLayer::Packets {
            return Ok(());
        }
        let parameters = match request {
            Request::Connect { id: number, parameters } | Request::Accept { id: number, parameters }
                if !self.connections.is_of_datagrams(id, *number) =>
            {
                parameters
            }
            _ => return Ok(()),
        };
        // The connection becomes this queue pair's.
        match self.owners.get(&parameters.qp) {
            Some(owner) if *owner == id => Ok(()),
            _ => Err(Failure::invalid("the connection needs a queue pair of the program's own")),
        }
    }

    /// One bounded round of its programs and of connection management. Returns how much was done.
    pub fn poll_streams(&mut self, now: Nanos, drops: &mut DropCounts) -> usize {
        let mut done = self.connections.round(now, &self.resolution);
        let Device { users, events, stream_binding, .. } = self;
        for user in users.values_mut() {
            let mut rx = Vec::new();
            let mut out = ShardOutput {
                tx: &mut stream_binding.scratch,
                pool: &mut stream_binding.pool,
                drops: &mut *drops,
                events: &mut *events,
            };
            done += user.shard.poll(now, &mut rx, &mut out);
            user.carry_out(events);
        }
        done
    }

    /// What happened to queue pairs since it was asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.stream_binding.changes)
    }

    /// Queue pairs that may have messages.
    pub fn take_ready(&mut self) -> Vec<QpNumber> {
        self.users.values_mut().flat_map(|user| std::mem::take(&mut user.ready)).collect()
    }

    /// Messages of connection management for peers.
    pub fn take_mail(&mut self) -> Vec<Letter> {
        let letter =
            |cm::Letter { to, mad, .. }| Letter { to, bytes: mad.bytes().to_vec(), naming: Naming::of(&mad.message) };
        self.connections.take_letters().into_iter().map(letter).collect()
    }

    /// A message of connection management came from a peer.
    ///
    /// # Errors
    /// It is malformed, or about what is not there.
    pub fn mail(&mut self, now: Nanos, from: Ipv4Addr, bytes: &[u8]) -> Result<(), DropReason> {
        let mad = Mad::parse(bytes).map_err(|_| DropReason::MadInvalid)?;
        self.connections.deliver_from(now, from, mad)
    }

    /// The stream of a connection is gone: it is as if the peer had forgotten the connection.
    pub fn cut_off(&mut self, now: Nanos, from: Ipv4Addr, own: CommId, peers: CommId) {
        let pair = Pair { local: peers, remote: own };
        let about = wire::roce::cm::About::Other;
        let reject = Reject { pair, about, reason: Reason::TIMEOUT, detail: Vec::new(), data: Default::default() };
        let mad = Mad { transaction: 0, message: Management::Reject(Box::new(reject)) };
        // Where there is no such connection, nobody is to be notified.
        let _ = self.connections.deliver_from(now, from, mad);
    }

    /// A connection of this number is of the program that has this queue pair.
    pub fn is_of(&self, own: CommId, qp: QpNumber) -> bool {
        self.owners.get(&qp).is_some_and(|owner| self.connections.owner(own) == Some(*owner))
    }

    /// There is a queue pair of this number.
    pub fn has_qp(&self, qp: QpNumber) -> bool {
        self.owners.contains_key(&qp)
    }

    /// How long a queue pair waits for an answer; `None`: for ever.
    pub fn timeout(&self, qp: QpNumber) -> Option<Nanos> {
        let user = self.users.get(self.owners.get(&qp)?)?;
        let attributes = user.shard.query_qp(qp).ok()?;
        let code = attributes.timeout.filter(|code| *code > 0)?;
        let tries = Nanos::from(attributes.retries.unwrap_or(0)) + 1;
        // IBTA 1.3, 9.7.6.1.3; a connection takes a while to be opened, which packets have no need of.
        Some(((4096 << code.min(31)) * tries).max(LEAST_TIMEOUT))
    }

    /// A connection of this number goes on: messages about it may still follow.
    pub fn is_managed(&self, own: CommId) -> bool {
        self.connections.goes_on(own)
    }

    /// Bytes of a message of connection management.
    pub const MAIL: usize = MAD_LEN;

    fn with<T>(
        &mut self,
        qp: QpNumber,
        drops: &mut DropCounts,
        act: impl FnOnce(&mut UserContext, &mut ShardOutput<'_>) -> T,
    ) -> Option<T> {
        let Device { users, owners, events, stream_binding, .. } = self;
        let user = users.get_mut(owners.get(&qp)?)?;
        let mut out = ShardOutput { tx: &mut stream_binding.scratch, pool: &mut stream_binding.pool, drops, events };
        let result = act(user, &mut out);
        user.carry_out(events);
        Some(result)
    }

    /// A queue pair has a connection from now on.
    pub fn link(&mut self, qp: QpNumber) {
        if let Some(user) = self.owners.get(&qp).and_then(|owner| self.users.get_mut(owner)) {
            user.shard.link(qp);
        }
    }

    /// A queue pair's connection is gone, or there will be none.
    pub fn lost(&mut self, now: Nanos, qp: QpNumber, drops: &mut DropCounts) {
        self.with(qp, drops, |user, out| user.shard.lost(now, qp, out));
    }

    /// The next message of a queue pair.
    pub fn next_message(&mut self, now: Nanos, qp: QpNumber, drops: &mut DropCounts) -> Option<Message> {
        self.with(qp, drops, |user, out| user.shard.next_message(now, qp, out)).flatten()
    }

    /// Where the payload of a message for a queue pair goes, which has `len` bytes with its header.
    pub fn steer(&mut self, now: Nanos, qp: QpNumber, header: &Header, len: u32, drops: &mut DropCounts) -> Steer {
        self.with(qp, drops, |user, out| user.shard.steer(now, qp, header, len, out)).unwrap_or(Steer::Later)
    }

    /// A message for a queue pair is in order.
    pub fn deliver(&mut self, now: Nanos, qp: QpNumber, arrived: Arrived, drops: &mut DropCounts) {
        self.with(qp, drops, |user, out| user.shard.arrived(now, qp, arrived, out));
    }

    /// A queue pair is one of datagrams.
    pub fn is_of_datagrams(&self, qp: QpNumber) -> bool {
        let user = self.owners.get(&qp).and_then(|owner| self.users.get(owner));
        user.is_some_and(|user| user.kinds.get(&qp) == Some(&QpKind::Ud))
    }

    /// The host that the next datagram of a queue pair is for.
    pub fn datagram_to(&mut self, now: Nanos, qp: QpNumber, drops: &mut DropCounts) -> Option<Ipv4Addr> {
        self.with(qp, drops, |user, out| user.shard.datagram_to(now, qp, out)).flatten()
    }

    /// The next datagram of a queue pair. Its work request has ended.
    pub fn next_datagram(&mut self, now: Nanos, qp: QpNumber, drops: &mut DropCounts) -> Option<Message> {
        self.with(qp, drops, |user, out| user.shard.next_datagram(now, qp, out)).flatten()
    }

    /// A datagram came from a host.
    pub fn datagram(&mut self, now: Nanos, from: Ipv4Addr, header: &Header, payload: &[u8], drops: &mut DropCounts) {
        let to = self.config.address;
        let known =
            self.with(header.receive, drops, |user, out| user.shard.datagram(now, from, to, header, payload, out));
        if known.is_none() {
            drops.count(DropReason::QpUnknown);
        }
    }

    /// The peer that a queue pair of this program was given.
    pub fn peer_of(&self, qp: QpNumber) -> Option<(Ipv4Addr, QpNumber)> {
        let user = self.users.get(self.owners.get(&qp)?)?;
        let remote_qp = user.shard.query_qp(qp).ok()?.remote_qp?;
        Some((user.peer_of(qp)?, remote_qp))
    }

    /// Messages wait until their program posts receives, for which there is no notification.
    pub fn waits_for_receives(&self) -> bool {
        self.users.values().any(|user| user.shard.waits_for_receives())
    }

    /// Nothing of a round is left over.
    pub fn has_mail(&self) -> bool {
        !self.stream_binding.changes.is_empty() || self.users.values().any(|user| !user.ready.is_empty())
    }
}
