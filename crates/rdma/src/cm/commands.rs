//! Commands of programs to connection management.
use super::connection::{Connection, Facts, Input, init};
use super::ids::{Id, IdKey, Role};
use super::manager::{Manager, Peer, key, port_space};
use super::timing;
use crate::address_resolution::AddressResolution;
use crate::failure::Failure;
use crate::gid;
use crate::user_context::{EventPipe, ProgramId};
use engine::Nanos;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use verbs::connections::{self, DATAGRAM_KEY, Happened, Parameters, Request, Space, room};
use verbs::control::Answer;
use verbs::{AddressVector, Number, QpAttributes, QpState};
use wire::roce::DEFAULT_PKEY;
use wire::roce::cm::{
    self, ConnectionPath, Lookup, LookupReply, LookupStatus, Mad, Message, Named, PrivateData, QueuePair, Service,
};

/// Requests that may wait for a program.
const MOST_BACKLOG: u32 = 1024;
/// A millisecond.
const MILLI: Nanos = 1_000_000;
/// Hops.
const HOP_LIMIT: u8 = 64;
/// The only GID index that paths between IPv4 addresses have.
const GID_INDEX: u8 = 1;

/// What a request needs besides the manager.
pub(crate) struct Context<'a> {
    pub(crate) now: Nanos,
    pub(crate) resolution: &'a mut AddressResolution,
}

impl Manager {
    /// Adds an event channel; `token` is the byte that stands for an event.
    ///
    /// # Errors
    /// ENOMEM: there are as many as may be.
    pub(crate) fn open_channel(
        &mut self,
        program: ProgramId,
        pipe: Arc<dyn EventPipe>,
        token: u8,
    ) -> Result<Number, Failure> {
        self.programs.entry(program).or_default().open(pipe, token)
    }

    /// Carries a request out.
    ///
    /// # Errors
    /// EINVAL: it names what the program does not have, or has no meaning now; others as `rdma_cma.h` has them.
    pub(crate) fn call(
        &mut self,
        context: &mut Context<'_>,
        program: ProgramId,
        request: &Request,
    ) -> Result<Answer, Failure> {
        let of = self.programs.entry(program).or_default();
        let at = |number: &Number| key(program, *number);
        if matches!(
            request,
            Request::Resolve { .. } | Request::Route(_) | Request::Connect { .. } | Request::Join { .. }
        ) {
            of.room_for_events()?;
        }
        match request {
            Request::OpenChannel | Request::JoinChannel { .. } => {
                return Err(Failure::invalid("the channel's pipe is missing"));
            }
            Request::CloseChannel(number) => of.close(*number)?,
            Request::Create { channel, space } => {
                let number = of.create(fresh(*channel, *space))?;
                return Ok(Answer::Number(number));
            }
            Request::Destroy(number) => {
                of.id(*number)?;
                self.destroy(context.now, at(number), context.resolution);
            }
            Request::Migrate { id, channel } => of.migrate(*id, *channel)?,
            Request::Bind { id, address, shared } => return self.bind(at(id), *address, *shared).map(bound),
            Request::Resolve { id, to, timeout } => return self.find(context, at(id), *to, *timeout).map(bound),
            Request::Route(id) => {
                require(matches!(of.id(*id)?.role, Role::Resolved), "the peer's address is not resolved")?;
                self.post(at(id), Happened::RouteResolved);
            }
            Request::Join { id, group } => {
                let joins = of.id(*id)?;
                require(joins.space == Space::Datagrams && joins.local.is_some(), "the identifier is not bound")?;
                require(group.ip().is_multicast(), "this is no multicast group's address")?;
                self.post(at(id), Happened::Joined(*group));
            }
            Request::Listen { id, backlog } => self.listen(context.now, at(id), *backlog)?,
            Request::Connect { id, parameters } => self.connect(context, at(id), parameters)?,
            Request::Accept { id, parameters } => self.accept(context.now, at(id), parameters)?,
            Request::Reject { id, data } => self.reject(context.now, at(id), data)?,
            Request::Establish(id) => self.command(context.now, at(id), Input::Establish)?,
            Request::Disconnect(id) => self.command(context.now, at(id), Input::Disconnect)?,
            Request::Attributes { id, state } => return self.attributes(at(id), *state).map(Answer::Attributes),
            Request::Event(channel) => {
                let event = of.take(*channel)?;
                return Ok(Answer::Connections(connections::Answer::Event(event)));
            }
        }
        Ok(Answer::Done)
    }

    fn known(&mut self, at: IdKey) -> Result<&mut Id, Failure> {
        let number = at.number;
        self.id(at).ok_or_else(|| Failure::invalid(format!("the program has no identifier {number}")))
    }

    fn bind(&mut self, at: IdKey, address: SocketAddrV4, shared: bool) -> Result<SocketAddrV4, Failure> {
        let own = self.place.address;
        let id = self.known(at)?;
        require(id.local.is_none() && matches!(id.role, Role::New), "the identifier has an address already")?;
        let space = port_space(id.space);
        if !address.ip().is_unspecified() && *address.ip() != own {
            let why = format!("{} is none of the host's addresses: it has {own}", address.ip());
            return Err(Failure::new(libc::EADDRNOTAVAIL, why));
        }
        let begin = self.draw() as u16;
        let port = self.ports.bind(Service { space, port: address.port() }, shared, begin)?;
        let local = SocketAddrV4::new(*address.ip(), port);
        let id = self.known(at)?;
        (id.local, id.port) = (Some(local), Some(Service { space, port }));
        Ok(local)
    }

    /// Resolves the next hop to a peer.
    fn find(
        &mut self,
        context: &mut Context<'_>,
        at: IdKey,
        to: SocketAddrV4,
        timeout: u32,
    ) -> Result<SocketAddrV4, Failure> {
        let own = self.place.address;
        let id = self.known(at)?;
        require(matches!(id.role, Role::New | Role::Ended), "the identifier is in use")?;
        let ip = *to.ip();
        require(!ip.is_multicast() || id.space == Space::Datagrams, "only datagrams are sent to multicast groups")?;
        require(!ip.is_unspecified() && !ip.is_broadcast(), "this is no peer's address")?;
        if ip.is_loopback() {
            return Err(Failure::new(
                libc::ENODEV,
                "the loopback interface has no RDMA device: use the host's address",
            ));
        }
        if id.local.is_none() {
            self.bind(at, SocketAddrV4::new(own, 0), false)?;
        }
        let id = self.known(at)?;
        let local = SocketAddrV4::new(own, id.local.map_or(0, |local| local.port()));
        (id.local, id.remote, id.role) = (Some(local), Some(to), Role::Resolving);
        id.until = context.now + Nanos::from(timeout) * MILLI;
        context.resolution.add(ip);
        id.way.replace(ip).into_iter().for_each(|before| context.resolution.remove(before));
        self.resolve(at);
        Ok(local)
    }

    fn listen(&mut self, now: Nanos, at: IdKey, backlog: u32) -> Result<(), Failure> {
        if self.known(at)?.local.is_none() {
            self.bind(at, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), false)?;
        }
        let id = self.known(at)?;
        require(matches!(id.role, Role::New | Role::Listening { .. }), "the identifier is in use")?;
        let service = id.port.ok_or_else(|| Failure::invalid("the identifier is not bound"))?;
        if self.listeners.get(&service).is_some_and(|other| *other != at) {
            return Err(Failure::new(libc::EADDRINUSE, format!("another identifier listens on port {}", service.port)));
        }
        self.listeners.insert(service, at);
        let backlog = if backlog == 0 { MOST_BACKLOG } else { backlog.min(MOST_BACKLOG) };
        self.known(at)?.role = Role::Listening { backlog, waiting: 0 };
        self.end_waiting(now, service.port);
        Ok(())
    }

    fn connect(&mut self, context: &mut Context<'_>, at: IdKey, parameters: &Parameters) -> Result<(), Failure> {
        let id = self.known(at)?;
        require(matches!(id.role, Role::Resolved), "the peer's address is not resolved")?;
        let (space, local, remote) = (id.space, id.local, id.remote);
        let (Some(local), Some(remote)) = (local, remote) else { return Err(Failure::invalid("no peer is named")) };
        require(!remote.ip().is_multicast(), "a multicast group is joined, not connected to")?;
        let most = if space == Space::Connections { room::CONNECT } else { room::LOOKUP };
        fits(&parameters.data, most)?;
        if !self.has_room() {
            return Err(Failure::limit("the device has as many connections as it may"));
        }
        let named = Named { port: local.port(), source: *local.ip(), destination: *remote.ip() };
        let service = Service { space: port_space(space), port: remote.port() }.name();
        let number = self.draw_number();
        let next_hop = context.resolution.mac(*remote.ip());
        match space {
            Space::Connections => {
                let facts = self.facts(parameters);
                let request = self.request(number, service, &facts, parameters, &named);
                self.ask(context.now, at, facts, request, next_hop);
                self.known(at)?.role = Role::Connection(number);
            }
            Space::Datagrams => {
                let data = PrivateData(named.with(&parameters.data));
                let lookup = Lookup { request: number, pkey: DEFAULT_PKEY, service, data };
                self.start_lookup(context.now, at, lookup, Peer { address: *remote.ip(), next_hop });
                self.known(at)?.role = Role::Asking(number);
            }
        }
        Ok(())
    }

    /// What is known of a connection before the peer has answered.
    fn facts(&mut self, parameters: &Parameters) -> Facts {
        Facts {
            local_qp: parameters.qp,
            remote_qp: 0,
            send_psn: 0,
            receive_psn: self.draw() as u32 & 0xff_ffff,
            mtu: self.place.mtu,
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            retries: parameters.retries.min(7),
            rnr_retries: 0,
            ack_timeout: timing::ACKNOWLEDGEMENT,
            peer_timeout: timing::RESPONSE,
            cm_retries: timing::RETRIES,
            unreliable: parameters.unreliable,
            guid: self.place.guid,
        }
    }

    fn request(&self, local: u32, service: u64, facts: &Facts, parameters: &Parameters, named: &Named) -> cm::Request {
        let gid_of = |address: Ipv4Addr| gid::of_address(address.into()).0;
        cm::Request {
            local,
            service,
            qp: QueuePair {
                number: facts.local_qp,
                first_psn: facts.receive_psn,
                responder_resources: facts.responder_resources,
                initiator_depth: facts.initiator_depth,
                rnr_retries: parameters.rnr_retries.min(7),
                srq: parameters.srq,
                flow_control: parameters.flow_control,
                guid: facts.guid,
            },
            transport: facts.unreliable.into(),
            remote_timeout: timing::RESPONSE,
            local_timeout: timing::RESPONSE,
            retries: facts.retries,
            cm_retries: timing::RETRIES,
            pkey: DEFAULT_PKEY,
            mtu: facts.mtu.code(),
            way: ConnectionPath {
                local: gid_of(named.source),
                remote: gid_of(named.destination),
                hop_limit: HOP_LIMIT,
                ack_timeout: facts.ack_timeout,
                ..ConnectionPath::default()
            },
            has_alternate: false,
            data: PrivateData(named.with(&parameters.data)),
        }
    }

    fn accept(&mut self, now: Nanos, at: IdKey, parameters: &Parameters) -> Result<(), Failure> {
        let asker = match &mut self.known(at)?.role {
            Role::Asked(asker) => asker,
            _ => {
                fits(&parameters.data, room::ACCEPT)?;
                return self.command(now, at, Input::Accept(parameters));
            }
        };
        fits(&parameters.data, room::LOOKUP_REPLY)?;
        let reply = LookupReply {
            request: asker.request,
            status: LookupStatus::VALID,
            qp: parameters.qp,
            service: asker.service,
            key: DATAGRAM_KEY,
            data: PrivateData(parameters.data.clone()),
        };
        let mad = Mad { transaction: asker.transaction, message: Message::LookupReply(Box::new(reply)) };
        asker.answer = Some(mad.clone());
        let asker = asker.clone();
        self.answer(&asker, mad);
        Ok(())
    }

    fn reject(&mut self, now: Nanos, at: IdKey, data: &[u8]) -> Result<(), Failure> {
        let asker = match &mut self.known(at)?.role {
            Role::Asked(asker) => asker,
            _ => {
                fits(data, room::REJECT)?;
                return self.command(now, at, Input::Reject(data));
            }
        };
        fits(data, room::LOOKUP_REPLY)?;
        let mut mad = super::manager::refusal(asker, LookupStatus::REJECTED);
        if let Message::LookupReply(reply) = &mut mad.message {
            reply.data = PrivateData(data.to_vec());
        }
        asker.answer = Some(mad.clone());
        let asker = asker.clone();
        self.answer(&asker, mad);
        Ok(())
    }

    /// A command for the connection of an identifier.
    fn command(&mut self, now: Nanos, at: IdKey, input: Input<'_>) -> Result<(), Failure> {
        let number = match self.known(at)?.role {
            Role::Connection(number) => number,
            // What it had has ended by itself.
            Role::Ended if matches!(input, Input::Disconnect | Input::Reject(_)) => return Ok(()),
            _ => return Err(Failure::invalid("the identifier has no connection")),
        };
        require(self.step(now, number, input), "the connection is not in a state for this call")
    }

    /// The attributes by which an identifier's queue pair goes to a state.
    fn attributes(&mut self, at: IdKey, state: QpState) -> Result<QpAttributes, Failure> {
        let unknown = || Failure::invalid("the attributes are not known before the two sides have agreed");
        let id = self.known(at)?;
        let (space, role) = (id.space, &id.role);
        if space == Space::Datagrams {
            return datagrams(state).ok_or_else(unknown);
        }
        let held = match role {
            Role::Connection(number) => *number,
            _ if state == QpState::Init => return Ok(init(None)),
            _ => return Err(unknown()),
        };
        let held = self.connections.get(&held).ok_or_else(unknown)?;
        let known = Connection::attributes(&held.connection, state).ok_or_else(unknown)?;
        let path = (state == QpState::ReadyToReceive).then(|| AddressVector {
            gid: gid::of_address(held.remote.into()),
            gid_index: GID_INDEX,
            hop_limit: HOP_LIMIT,
            ..AddressVector::default()
        });
        Ok(QpAttributes { path, ..known })
    }
}

/// The attributes of a queue pair of datagrams.
fn datagrams(state: QpState) -> Option<QpAttributes> {
    let none = QpAttributes { state: Some(state), ..QpAttributes::default() };
    match state {
        QpState::Init => {
            let (partition_index, port) = (Some(0), Some(1));
            Some(QpAttributes { partition_index, port, queue_key: Some(DATAGRAM_KEY), ..none })
        }
        QpState::ReadyToReceive => Some(none),
        QpState::ReadyToSend => Some(QpAttributes { send_psn: Some(0), ..none }),
        _ => None,
    }
}

fn fresh(channel: Number, space: Space) -> Id {
    Id { channel, space, local: None, remote: None, port: None, way: None, until: 0, role: Role::New }
}

fn bound(local: SocketAddrV4) -> Answer {
    Answer::Connections(connections::Answer::Bound(local))
}

fn require(holds: bool, why: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::invalid(why)) }
}

fn fits(data: &[u8], most: usize) -> Result<(), Failure> {
    let len = data.len();
    require(len <= most, &format!("{len} bytes of private data are more than the {most} that there is room for"))
}
