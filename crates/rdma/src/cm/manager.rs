//! The general services interface of a device: all connections, and the identifiers of all programs.
use super::connection::{Connection, Facts, Input, News, State, Step};
use super::ids::{Asker, Id, IdKey, Program, Role};
use super::lookup::Question;
use super::outbox::{Letter, Outbox};
use super::ports::Ports;
use super::reopening::{GRACE, Reopening};
use crate::address_resolution::{AddressResolution, Reach};
use crate::user_context::ProgramId;
use crate::view::IdView;
use engine::Nanos;
use host::{Budget, Deadlines};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hasher;
use std::net::Ipv4Addr;
use verbs::connections::{Happened, Parameters, Space};
use verbs::{Mtu, Number};
use wire::Mac;
use wire::roce::cm::{CommId, Lookup, LookupReply, LookupStatus, Mad, Message, Pair, PortSpace, Request, Service};

/// Connections of a device, those included that only wait for late packets.
const MOST_CONNECTIONS: usize = 16_384;
/// Answers a second to unknown peers: to requests for what there is not.
const ANSWERS: u32 = 1000;

/// What is due by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Connection(CommId),
    Question(u32),
    /// Requests for a closed listener have waited long enough.
    Reopening(u16),
}

/// A connection, with whose it is.
pub(crate) struct Held {
    pub(crate) connection: Connection,
    pub(crate) remote: Ipv4Addr,
    pub(crate) next_hop: Option<Mac>,
    /// Nobody, once the program has destroyed the identifier.
    pub(crate) owner: Option<IdKey>,
    /// The peer asked for it.
    pub(crate) is_passive: bool,
}

/// A question for a queue pair of datagrams.
struct Asking {
    question: Question,
    remote: Ipv4Addr,
    next_hop: Option<Mac>,
    owner: IdKey,
}

/// A peer, and the next hop to it where it is known.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) address: Ipv4Addr,
    pub(crate) next_hop: Option<Mac>,
}

/// What is reported to the manager of its device.
#[derive(Clone)]
pub(crate) struct DeviceIdentity {
    pub(crate) address: Ipv4Addr,
    pub(crate) guid: u64,
    pub(crate) mtu: Mtu,
    pub(crate) secret: [u8; 16],
}

/// See the module's page.
pub(crate) struct Manager {
    pub(crate) place: DeviceIdentity,
    drawn: u64,
    pub(crate) programs: BTreeMap<ProgramId, Program>,
    pub(crate) connections: HashMap<CommId, Held>,
    /// Connections that peers asked for: by address and number of the peer.
    pub(crate) asked: HashMap<(Ipv4Addr, CommId), CommId>,
    /// Lookups that peers sent: by address and number of the peer.
    pub(crate) askers: HashMap<(Ipv4Addr, u32), IdKey>,
    questions: HashMap<u32, Asking>,
    pub(crate) listeners: HashMap<Service, IdKey>,
    pub(crate) ports: Ports,
    pub(crate) reopening: Reopening,
    due: Deadlines<Due>,
    /// Identifiers that wait for a next hop.
    resolving: BTreeSet<IdKey>,
    pub(crate) outbox: Outbox,
    /// Answers to unknown peers.
    pub(crate) answers: Budget,
}

/// The port space of an identifier.
pub(crate) fn port_space(space: Space) -> PortSpace {
    match space {
        Space::Connections => PortSpace::Tcp,
        Space::Datagrams => PortSpace::Udp,
    }
}

impl Manager {
    pub(crate) fn new(place: DeviceIdentity) -> Manager {
        Manager {
            place,
            drawn: 0,
            programs: BTreeMap::new(),
            connections: HashMap::new(),
            asked: HashMap::new(),
            askers: HashMap::new(),
            questions: HashMap::new(),
            listeners: HashMap::new(),
            ports: Ports::default(),
            reopening: Reopening::default(),
            due: Deadlines::default(),
            resolving: BTreeSet::new(),
            outbox: Outbox::default(),
            answers: Budget::new(ANSWERS),
        }
    }

    /// A number that nobody can guess.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = SipHasher13::new_with_key(&self.place.secret);
        hasher.write(b"connections");
        hasher.write_u64(self.drawn);
        hasher.finish()
    }

    /// A number for a connection, or for a question.
    pub(crate) fn draw_number(&mut self) -> u32 {
        loop {
            let number = self.draw() as u32;
            if number != 0 && !self.connections.contains_key(&number) && !self.questions.contains_key(&number) {
                return number;
            }
        }
    }

    /// There is room for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.connections.len() + self.questions.len() < MOST_CONNECTIONS
    }

    /// A connection that this side asks for.
    pub(crate) fn ask(&mut self, now: Nanos, owner: IdKey, facts: Facts, request: Request, next_hop: Option<Mac>) {
        let (number, transaction, remote) = (request.local, self.draw(), address(&request.way.remote));
        let (connection, step) = Connection::ask(now, facts, request, transaction);
        let held = Held { connection, remote, next_hop, owner: Some(owner), is_passive: false };
        self.connections.insert(number, held);
        self.settle(number, step);
    }

    /// A connection that a peer asks for.
    pub(crate) fn hold(&mut self, held: Held, step: Step) {
        let Pair { local, remote } = held.connection.pair();
        self.asked.insert((held.remote, remote), local);
        self.connections.insert(local, held);
        self.settle(local, step);
    }

    /// A question for a queue pair of datagrams.
    pub(crate) fn start_lookup(&mut self, now: Nanos, owner: IdKey, lookup: Lookup, peer: Peer) {
        let (number, transaction) = (lookup.request, self.draw());
        let (question, mad) = Question::new(now, lookup, transaction);
        let Peer { address: remote, next_hop } = peer;
        self.due.set(Due::Question(number), question.due());
        self.outbox.letters.push(Letter { to: remote, next_hop, mad });
        self.questions.insert(number, Asking { question, remote, next_hop, owner });
    }

    /// A step of a connection. False: it means nothing now, or there is no such connection.
    pub(crate) fn step(&mut self, now: Nanos, number: CommId, input: Input<'_>) -> bool {
        let Some(held) = self.connections.get_mut(&number) else { return false };
        let mut step = Step::default();
        let done = held.connection.step(now, input, &mut step);
        self.settle(number, step);
        done
    }

    /// What a step led to.
    fn settle(&mut self, number: CommId, step: Step) {
        let Some(held) = self.connections.get(&number) else { return };
        let (to, next_hop, owner) = (held.remote, held.next_hop, held.owner);
        self.outbox.letters.extend(step.mads.into_iter().map(|mad| Letter { to, next_hop, mad }));
        match held.connection.due() {
            Some(at) => self.due.set(Due::Connection(number), at),
            None => self.due.cancel(Due::Connection(number)),
        }
        let is_idle = held.connection.state() == State::Idle;
        if let Some(owner) = owner {
            step.news.into_iter().for_each(|news| self.post(owner, happened(news)));
        }
        if is_idle {
            self.forget(number);
        }
    }

    /// A connection of which nothing is left.
    fn forget(&mut self, number: CommId) {
        self.due.cancel(Due::Connection(number));
        let Some(held) = self.connections.remove(&number) else { return };
        if held.is_passive {
            self.asked.remove(&(held.remote, held.connection.pair().remote));
        }
        if let Some(id) = held.owner.and_then(|owner| self.id(owner)) {
            id.role = Role::Ended;
        }
    }

    /// An event for an identifier.
    pub(crate) fn post(&mut self, key: IdKey, what: Happened) {
        if let Some(program) = self.programs.get_mut(&key.program) {
            program.post(key.number, what);
        }
    }

    pub(crate) fn id(&mut self, key: IdKey) -> Option<&mut Id> {
        self.programs.get_mut(&key.program)?.ids.get_mut(&key.number)
    }

    /// An identifier waits for a next hop.
    pub(crate) fn resolve(&mut self, key: IdKey) {
        self.resolving.insert(key);
    }

    /// An identifier is destroyed: what it had ends, and the peer is notified.
    pub(crate) fn destroy(&mut self, now: Nanos, key: IdKey, resolution: &mut AddressResolution) {
        let Some(program) = self.programs.get_mut(&key.program) else { return };
        let orphans = program.purge(key.number);
        let Some(id) = program.ids.remove(&key.number) else { return };
        self.resolving.remove(&key);
        if let Some(service) = id.port {
            self.ports.release(service);
            if self.listeners.get(&service) == Some(&key) {
                self.listeners.remove(&service);
                self.reopening.close(service.port);
                self.due.set(Due::Reopening(service.port), now + GRACE);
            }
        }
        let next_hop = id.way.and_then(|remote| resolution.mac(remote));
        id.way.into_iter().for_each(|remote| resolution.remove(remote));
        match id.role {
            Role::Connection(number) => {
                if let Some(held) = self.connections.get_mut(&number) {
                    (held.owner, held.next_hop) = (None, next_hop.or(held.next_hop));
                }
                self.step(now, number, Input::Disconnect);
            }
            Role::Asking(number) => {
                self.due.cancel(Due::Question(number));
                self.questions.remove(&number);
            }
            Role::Asked(asker) => {
                self.askers.remove(&(asker.peer, asker.request));
                if asker.answer.is_none() {
                    self.answer(&asker, refusal(&asker, LookupStatus::REJECTED));
                }
            }
            _ => {}
        }
        for number in orphans {
            self.destroy(now, IdKey { program: key.program, number }, resolution);
        }
    }

    /// A program is gone, and all that it had.
    pub(crate) fn detach(&mut self, now: Nanos, program: ProgramId, resolution: &mut AddressResolution) {
        let own = self.listeners.iter().filter(|(_, listener)| listener.program == program);
        let ports: Vec<u16> = own.map(|(service, _)| service.port).collect();
        let numbers = |manager: &Manager| manager.programs.get(&program)?.ids.keys().next().copied();
        while let Some(number) = numbers(self) {
            self.destroy(now, IdKey { program, number }, resolution);
        }
        self.programs.remove(&program);
        ports.into_iter().for_each(|port| self.end_waiting(now, port));
    }

    /// Requests for a listener that was closed wait no more: one is there again, or they are refused.
    pub(crate) fn end_waiting(&mut self, now: Nanos, port: u16) {
        self.due.cancel(Due::Reopening(port));
        for (from, mad) in self.reopening.end(port) {
            // What is refused now is answered. A reason to drop it is that of a peer's request, which it sends again.
            let _ = self.deliver(now, from, mad);
        }
    }

    /// Sends the answer to a lookup.
    pub(crate) fn answer(&mut self, asker: &Asker, mad: Mad) {
        self.outbox.letters.push(Letter { to: asker.peer, next_hop: Some(asker.next_hop), mad });
    }

    /// An answer to a lookup came.
    pub(crate) fn end_lookup(&mut self, from: Ipv4Addr, reply: LookupReply) -> bool {
        let known = self.questions.get(&reply.request).is_some_and(|asking| asking.remote == from);
        let Some(asking) = known.then(|| self.questions.remove(&reply.request)).flatten() else { return false };
        self.due.cancel(Due::Question(reply.request));
        let data = reply.data.0;
        let what = match reply.status {
            LookupStatus::VALID => Happened::Found { qp: reply.qp, key: reply.key, data },
            LookupStatus(status) => Happened::NotFound { status, data },
        };
        self.end_question(asking.owner, what);
        true
    }

    fn end_question(&mut self, owner: IdKey, what: Happened) {
        if let Some(id) = self.id(owner) {
            id.role = Role::Ended;
        }
        self.post(owner, what);
    }

    /// What is due, and next hops that were found. Returns how much was done.
    pub(crate) fn round(&mut self, now: Nanos, resolution: &AddressResolution) -> usize {
        let mut done = 0;
        while let Some((_, due)) = self.due.pop(now) {
            done += 1;
            match due {
                Due::Connection(number) => drop(self.step(now, number, Input::Timer)),
                Due::Question(number) => self.ask_again(now, number),
                Due::Reopening(port) => self.end_waiting(now, port),
            }
        }
        if !self.resolving.is_empty() {
            let waiting: Vec<IdKey> = self.resolving.iter().copied().collect();
            done += waiting.into_iter().filter(|key| self.check_next_hop(now, *key, resolution)).count();
        }
        done
    }

    fn ask_again(&mut self, now: Nanos, number: u32) {
        let Some(asking) = self.questions.get_mut(&number) else { return };
        match asking.question.fire(now) {
            Some(mad) => {
                let (to, next_hop) = (asking.remote, asking.next_hop);
                self.due.set(Due::Question(number), asking.question.due());
                self.outbox.letters.push(Letter { to, next_hop, mad });
            }
            None => {
                let owner = asking.owner;
                self.questions.remove(&number);
                self.end_question(owner, Happened::TimedOut);
            }
        }
    }

    /// Checks whether an identifier's next hop is known, or will not be. Returns whether it waits no more.
    fn check_next_hop(&mut self, now: Nanos, key: IdKey, resolution: &AddressResolution) -> bool {
        let Some(id) = self.id(key) else { return self.resolving.remove(&key) };
        let reach = id.way.map_or(Reach::NoRoute, |remote| resolution.reach(remote));
        let (role, what) = match reach {
            Reach::Known => (Role::Resolved, Happened::AddressResolved),
            Reach::NoRoute => (Role::New, Happened::AddressError(libc::ENETUNREACH)),
            Reach::Asked if now >= id.until => (Role::New, Happened::AddressError(libc::ETIMEDOUT)),
            Reach::Asked => return false,
        };
        id.role = role;
        self.resolving.remove(&key);
        self.post(key, what);
        true
    }

    /// What people see of a program's identifiers: how many there are, and the first of them.
    pub(crate) fn view(&self, program: ProgramId, most: usize) -> (usize, Vec<IdView>) {
        let Some(program) = self.programs.get(&program) else { return (0, Vec::new()) };
        let ids = program.ids.values().take(most).map(|id| IdView {
            space: if id.space == Space::Connections { "TCP" } else { "UDP" },
            state: self.state_of(id),
            local: id.local.map(|local| local.to_string()),
            remote: id.remote.map(|remote| remote.to_string()),
        });
        (program.ids.len(), ids.collect())
    }

    fn state_of(&self, id: &Id) -> &'static str {
        match &id.role {
            Role::New => "NEW",
            Role::Resolving => "RESOLVING",
            Role::Resolved => "RESOLVED",
            Role::Listening { .. } => "LISTEN",
            Role::Connection(number) => {
                self.connections.get(number).map_or("IDLE", |held| held.connection.state().name())
            }
            Role::Asking(_) => "SIDR-REQ-SENT",
            Role::Asked(_) => "SIDR-REQ-RCVD",
            Role::Ended => "IDLE",
        }
    }

    /// An identifier is of the port space of datagrams.
    pub(crate) fn is_of_datagrams(&self, program: ProgramId, number: Number) -> bool {
        let id = self.programs.get(&program).and_then(|program| program.ids.get(&number));
        id.is_some_and(|id| id.space == Space::Datagrams)
    }

    /// Whose a connection is.
    pub(crate) fn owner(&self, number: CommId) -> Option<ProgramId> {
        self.connections.get(&number)?.owner.map(|owner| owner.program)
    }

    /// A connection has not ended.
    pub(crate) fn goes_on(&self, number: CommId) -> bool {
        let state = self.connections.get(&number).map(|held| held.connection.state());
        state.is_some_and(|state| !matches!(state, State::TimeWait | State::Idle))
    }

    /// What waits to be sent.
    pub(crate) fn take_letters(&mut self) -> Vec<Letter> {
        std::mem::take(&mut self.outbox.letters)
    }

    /// There is something to do now.
    pub(crate) fn has_work(&self, now: Nanos) -> bool {
        !self.outbox.letters.is_empty() || self.due.first().is_some_and(|(at, _)| at <= now)
    }

    /// Nothing waits, and nothing is due by itself.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbox.letters.is_empty() && self.due.is_empty() && self.resolving.is_empty()
    }

    /// When something is due by itself.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let until = |key: &IdKey| Some(self.programs.get(&key.program)?.ids.get(&key.number)?.until);
        let resolving = self.resolving.iter().filter_map(until);
        resolving.chain(self.due.first().map(|(at, _)| at)).min()
    }
}

/// The IPv4 address of a mapped GID.
pub(crate) fn address(gid: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(gid[12], gid[13], gid[14], gid[15])
}

/// An answer to a lookup that names no queue pair.
pub(crate) fn refusal(asker: &Asker, status: LookupStatus) -> Mad {
    let reply =
        LookupReply { request: asker.request, status, qp: 0, service: asker.service, key: 0, data: Default::default() };
    Mad { transaction: asker.transaction, message: Message::LookupReply(Box::new(reply)) }
}

/// News of a connection, as reported to its program.
fn happened(news: News) -> Happened {
    match news {
        News::Replied(parameters) => Happened::Replied(parameters),
        News::Ready(data) => Happened::Established(Parameters { data, ..Parameters::default() }),
        News::Rejected { reason, data } => Happened::Rejected { reason, data },
        News::TimedOut => Happened::TimedOut,
        News::Disconnected => Happened::Disconnected,
        News::TimeWaitOver => Happened::TimeWaitOver,
    }
}

/// The number of an identifier among those of its program.
pub(crate) fn key(program: ProgramId, number: Number) -> IdKey {
    IdKey { program, number }
}
