//! Input from peers: datagrams for the general services interface.
use super::connection::{Connection, Facts, Input};
use super::ids::{Asker, Id, IdKey, Role};
use super::manager::{Held, Manager, port_space, refusal};
use super::outbox::{Letter, Sender};
use super::timing;
use engine::{DropReason, Nanos};
use std::net::{Ipv4Addr, SocketAddrV4};
use verbs::Mtu;
use verbs::connections::{Happened, Parameters, Space};
use wire::Mac;
use wire::roce::cm::{
    About, CommId, GSI_KEY, Lookup, LookupStatus, Mad, Message, Named, Pair, Reason, Reject, Request, Service,
};
use wire::roce::{GSI_QP, Packet, icrc_is_right};

impl Manager {
    /// A frame for the general services interface. The error is the reason of the drop.
    ///
    /// # Errors
    /// It is malformed, or it is about what is not there.
    pub(crate) fn receive(&mut self, now: Nanos, frame: &[u8]) -> Result<(), DropReason> {
        let packet = Packet::parse(frame).map_err(|_| DropReason::RoceHeader)?;
        if !icrc_is_right(frame) {
            return Err(DropReason::RoceIcrc);
        }
        // Only general services interfaces may use its key (IBTA 1.3, 10.2.5).
        let known = packet.datagram().is_some_and(|datagram| {
            datagram.deth.key == GSI_KEY && datagram.deth.source == GSI_QP && datagram.immediate.is_none()
        });
        if !known || packet.source_mac.is_group() {
            return Err(DropReason::MadInvalid);
        }
        let mad = Mad::parse(packet.payload).map_err(|_| DropReason::MadInvalid)?;
        let from = Sender { address: packet.ip.src, mac: packet.source_mac };
        self.deliver(now, from, mad)
    }

    /// A message that came over a stream.
    ///
    /// # Errors
    /// It is about what is not there.
    pub(crate) fn deliver_from(&mut self, now: Nanos, address: Ipv4Addr, mad: Mad) -> Result<(), DropReason> {
        self.deliver(now, Sender { address, mac: Mac::default() }, mad)
    }

    pub(crate) fn deliver(&mut self, now: Nanos, from: Sender, mad: Mad) -> Result<(), DropReason> {
        let pair = match &mad.message {
            Message::Request(request) => return self.requested(now, from, mad.transaction, request),
            Message::Lookup(lookup) => return self.asked_for_qp(now, from, mad.transaction, lookup),
            Message::LookupReply(reply) => {
                let known = self.end_lookup(from.address, (**reply).clone());
                return if known { Ok(()) } else { Err(DropReason::MadUnknown) };
            }
            Message::Wait(wait) => wait.pair,
            Message::Reject(reject) => reject.pair,
            Message::Reply(reply) => reply.pair,
            Message::Ready(pair, _) | Message::Disconnect(pair, ..) | Message::Disconnected(pair, _) => *pair,
        };
        // The receiver's number names the connection; where the peer had none yet, its own does.
        let number = match pair.remote {
            0 => self.asked.get(&(from.address, pair.local)).copied().unwrap_or_default(),
            number => number,
        };
        let held = self.connections.get_mut(&number).filter(|held| held.fits(from.address, pair.local));
        let Some(held) = held else { return self.answer_unknown_peer(now, from, mad.transaction, pair, &mad.message) };
        held.next_hop = Some(from.mac);
        self.step(now, number, Input::Message(&mad.message));
        Ok(())
    }

    /// A message about a connection that is not there. A peer that ends it is notified that it has ended; of others,
    /// nothing is reported.
    fn answer_unknown_peer(
        &mut self,
        now: Nanos,
        from: Sender,
        transaction: u64,
        pair: Pair,
        message: &Message,
    ) -> Result<(), DropReason> {
        if matches!(message, Message::Disconnect(..)) && self.answers.take(now) {
            let pair = Pair { local: pair.remote, remote: pair.local };
            self.send(from, transaction, Message::Disconnected(pair, Default::default()));
            return Ok(());
        }
        Err(DropReason::MadUnknown)
    }

    fn send(&mut self, to: Sender, transaction: u64, message: Message) {
        let mad = Mad { transaction, message };
        self.outbox.letters.push(Letter { to: to.address, next_hop: Some(to.mac), mad });
    }

    /// A peer asks for a connection.
    fn requested(&mut self, now: Nanos, from: Sender, transaction: u64, request: &Request) -> Result<(), DropReason> {
        if let Some(number) = self.asked.get(&(from.address, request.local)).copied() {
            self.step(now, number, Input::Message(&Message::Request(Box::new(request.clone()))));
            return Ok(());
        }
        let found = self.listener(from, request.service, &request.data.0, Space::Connections);
        let message = || Message::Request(Box::new(request.clone()));
        if found.is_err_and(|reason| reason == Reason::INVALID_SERVICE)
            && self.reopening.keep(request.service, from, transaction, message)
        {
            return Ok(());
        }
        let (listener, named) = match found {
            Ok(found) => found,
            Err(reason) => return self.refuse_unasked(now, from, transaction, no(request.local, reason, Vec::new())),
        };
        let mtu = Mtu::from_code(request.mtu).filter(|mtu| mtu.bytes() <= self.place.mtu.bytes());
        let Some(mtu) = mtu else {
            let detail = vec![self.place.mtu.code()];
            return self.refuse_unasked(now, from, transaction, no(request.local, Reason::INVALID_MTU, detail));
        };
        if request.has_alternate && request.way.local == [0; 16] {
            return Err(DropReason::MadInvalid);
        }
        let parameters = parameters_of(request);
        let owner = self.new_id(listener, from, named, parameters)?;
        let facts = self.facts_of(request, mtu);
        let pair = Pair { local: self.draw_number(), remote: request.local };
        let (connection, step) = Connection::asked(facts, pair, transaction);
        if let Some(id) = self.id(owner) {
            id.role = Role::Connection(pair.local);
        }
        let (remote, next_hop) = (from.address, Some(from.mac));
        self.hold(Held { connection, remote, next_hop, owner: Some(owner), is_passive: true }, step);
        Ok(())
    }

    fn facts_of(&mut self, request: &Request, mtu: Mtu) -> Facts {
        Facts {
            local_qp: 0,
            remote_qp: request.qp.number,
            send_psn: request.qp.first_psn,
            receive_psn: self.draw() as u32 & 0xff_ffff,
            mtu,
            responder_resources: request.qp.initiator_depth,
            initiator_depth: request.qp.responder_resources,
            retries: request.retries,
            rnr_retries: request.qp.rnr_retries,
            // Never, and hours, are no time-outs for a connection.
            ack_timeout: match request.way.ack_timeout {
                0 => timing::ACKNOWLEDGEMENT,
                code => code.min(timing::RESPONSE),
            },
            peer_timeout: request.local_timeout,
            cm_retries: request.cm_retries,
            unreliable: request.transport == 1,
            guid: self.place.guid,
        }
    }

    /// The listener for a service, and both ends of the request; otherwise the reason why there is none.
    fn listener(&self, from: Sender, service: u64, data: &[u8], space: Space) -> Result<(IdKey, Peers), Reason> {
        let service = Service::from_name(service).ok_or(Reason::INVALID_SERVICE)?;
        let named = Named::parse(data).ok_or(Reason::UNSUPPORTED)?;
        let listener = self.listeners.get(&service).ok_or(Reason::INVALID_SERVICE)?;
        if service.space != port_space(space) {
            return Err(Reason::INVALID_TRANSPORT);
        }
        // The path is between these addresses, and only they are believed.
        if named.source != from.address || named.destination != self.place.address {
            return Err(Reason::UNSUPPORTED);
        }
        let local = SocketAddrV4::new(named.destination, service.port);
        Ok((*listener, Peers { local, remote: SocketAddrV4::new(named.source, named.port) }))
    }

    /// A new identifier for what a peer asks a listener, and its event.
    fn new_id(
        &mut self,
        listener: IdKey,
        from: Sender,
        Peers { local, remote }: Peers,
        parameters: Parameters,
    ) -> Result<IdKey, DropReason> {
        if !self.has_room() {
            return Err(DropReason::Backlog);
        }
        debug_assert_eq!(*remote.ip(), from.address);
        let program = self.programs.get_mut(&listener.program).ok_or(DropReason::MadUnknown)?;
        program.room_for_events().map_err(|_| DropReason::Backlog)?;
        let of = program.ids.get_mut(&listener.number).ok_or(DropReason::MadUnknown)?;
        let (channel, space) = (of.channel, of.space);
        let Role::Listening { backlog, waiting } = &mut of.role else { return Err(DropReason::MadUnknown) };
        if *waiting >= *backlog {
            return Err(DropReason::Backlog);
        }
        *waiting += 1;
        let (local_end, remote_end) = (Some(local), Some(remote));
        let id = Id {
            channel,
            space,
            local: local_end,
            remote: remote_end,
            port: None,
            way: None,
            until: 0,
            role: Role::New,
        };
        let created = program.create(id);
        let Ok(number) = created else {
            if let Some(Id { role: Role::Listening { waiting, .. }, .. }) = program.ids.get_mut(&listener.number) {
                *waiting -= 1;
            }
            return Err(DropReason::Backlog);
        };
        program.post(number, Happened::Requested { listener: listener.number, local, remote, parameters });
        Ok(IdKey { program: listener.program, number })
    }

    /// REJ to a request that no program is asked about.
    fn refuse_unasked(&mut self, now: Nanos, from: Sender, transaction: u64, reject: Reject) -> Result<(), DropReason> {
        if !self.answers.take(now) {
            return Err(DropReason::MadUnknown);
        }
        self.send(from, transaction, Message::Reject(Box::new(reject)));
        Ok(())
    }

    /// A peer asks for the queue pair of a service of datagrams.
    fn asked_for_qp(&mut self, now: Nanos, from: Sender, transaction: u64, lookup: &Lookup) -> Result<(), DropReason> {
        if let Some(key) = self.askers.get(&(from.address, lookup.request)).copied() {
            let asker = self.id(key).and_then(|id| match &id.role {
                Role::Asked(asker) => Some((**asker).clone()),
                _ => None,
            });
            // Asked again: the program has not answered, or the answer was lost.
            if let Some((asker, answer)) = asker.and_then(|asker| Some((asker.clone(), asker.answer?))) {
                self.answer(&asker, answer);
            }
            return Ok(());
        }
        let asker = Asker {
            request: lookup.request,
            transaction,
            service: lookup.service,
            peer: from.address,
            next_hop: from.mac,
            answer: None,
        };
        let Ok((listener, named)) = self.listener(from, lookup.service, &lookup.data.0, Space::Datagrams) else {
            if self.reopening.keep(lookup.service, from, transaction, || Message::Lookup(lookup.clone())) {
                return Ok(());
            }
            if !self.answers.take(now) {
                return Err(DropReason::MadUnknown);
            }
            self.answer(&asker, refusal(&asker, LookupStatus::NO_SERVICE));
            return Ok(());
        };
        let data = lookup.data.0.get(Named::LEN..).unwrap_or_default().to_vec();
        let owner = self.new_id(listener, from, named, Parameters { data, ..Parameters::default() })?;
        self.askers.insert((from.address, lookup.request), owner);
        if let Some(id) = self.id(owner) {
            id.role = Role::Asked(Box::new(asker));
        }
        Ok(())
    }
}

/// REJ of the request with this number.
// Meets IBTA: 12.6.7-a.
fn no(number: CommId, reason: Reason, detail: Vec<u8>) -> Reject {
    let pair = Pair { local: 0, remote: number };
    Reject { pair, about: About::Request, reason, detail, data: Default::default() }
}

/// Both ends of a request.
#[derive(Clone, Copy)]
struct Peers {
    local: SocketAddrV4,
    remote: SocketAddrV4,
}

impl Held {
    /// A message of this peer, with this number of its, belongs to the connection.
    fn fits(&self, from: Ipv4Addr, number: CommId) -> bool {
        let known = self.connection.pair().remote;
        self.remote == from && (known == 0 || known == number)
    }
}

/// What a request reports to the program: what the peer may have outstanding is what this side takes.
fn parameters_of(request: &Request) -> Parameters {
    Parameters {
        data: request.data.0.get(Named::LEN..).unwrap_or_default().to_vec(),
        responder_resources: request.qp.initiator_depth,
        initiator_depth: request.qp.responder_resources,
        flow_control: request.qp.flow_control,
        retries: request.retries,
        rnr_retries: request.qp.rnr_retries,
        srq: request.qp.srq,
        qp: request.qp.number,
        unreliable: request.transport == 1,
    }
}
