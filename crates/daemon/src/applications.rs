//! Attach socket: a process that connects gets a context, which ends with its connection.
use crate::access::{Access, shares_network};
use crate::attaching::{find, printable};
use crate::build::HostPlace;
use crate::datapath::{DataPath, Handle};
use crate::queue_programs;
use crate::rdma;
use crate::returning;
use crate::sockets::Door;
use crate::takeover::{self, Wish};
use crate::tickets::Seals;
use context::attach::{Answer, Ask, Asked, Hello, Ticket, Welcome};
use context::daemon_ends;
use control::{Application, ShownTicket};
use engine::ContextId;
use shm::handover::{self, Credentials};
use shm::{Doorbell, Region, reserve};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Connections to the attach socket that have not sent their hello yet.
const MAX_GREETING: usize = 256;

/// A connection to the attach socket.
struct Peer {
    socket: OwnedFd,
    door: Door,
    place: Option<Attached>,
}

/// Where its context is.
struct Attached {
    thread: usize,
    host: usize,
    context: ContextId,
}

/// What came of a message on the attach socket.
pub(crate) enum Spoken {
    /// It is done.
    Done,
    /// A new daemon asks to take over: its socket.
    TakeOver(OwnedFd),
    /// A program asks for a ZeroNIC host: its socket, and its request.
    Comm(OwnedFd, Vec<u8>),
    /// A verbs library's hello: its socket, and the message.
    Verbs(OwnedFd, Vec<u8>),
}

/// All connections to the attach socket, by a number of the daemon's choice.
pub(crate) struct Applications {
    peers: HashMap<u64, Peer>,
    handles: Vec<Handle>,
    hosts: Vec<HostPlace>,
    /// Users who may take over.
    operators: Access,
    seals: Seals,
}

impl Applications {
    pub(crate) fn new(handles: Vec<Handle>, hosts: Vec<HostPlace>, operators: Access, seals: Seals) -> Applications {
        Applications { peers: HashMap::new(), handles, hosts, operators, seals }
    }

    /// Contexts of live processes.
    pub(crate) fn attached(&self) -> usize {
        self.peers.values().filter(|peer| peer.place.is_some()).count()
    }

    /// Takes a new connection. Where too many peers are unattached, the oldest is closed. A library sends its hello at
    /// once, and peers that never do must not keep others out.
    pub(crate) fn add(&mut self, number: u64, socket: OwnedFd, door: Door) {
        if self.peers.len() - self.attached() >= MAX_GREETING {
            let unattached = self.peers.iter().filter(|(_, peer)| peer.place.is_none());
            if let Some(oldest) = unattached.map(|(number, _)| *number).min() {
                self.remove(oldest);
            }
        }
        self.peers.insert(number, Peer { socket, door, place: None });
    }

    /// The socket of a connection.
    pub(crate) fn socket(&self, number: u64) -> Option<BorrowedFd<'_>> {
        self.peers.get(&number).map(|peer| peer.socket.as_fd())
    }

    /// A connection's socket is readable: a hello, or the end. The sockets of verbs libraries and of a new daemon are
    /// given back.
    pub(crate) fn readable(&mut self, number: u64) -> Spoken {
        let Some(peer) = self.peers.get(&number) else { return Spoken::Done };
        let unattached = peer.place.is_none();
        if let Some((hello, region)) = returning::hello(peer.socket.as_fd()).filter(|_| unattached) {
            return self.settle(number, self.greet(&peer.socket, peer.door, &hello, region));
        }
        let attached = match (&peer.place, handover::recv_bytes(peer.socket.as_fd())) {
            (None, Ok(message)) if !message.is_empty() && peer.door == Door::Return => {
                self.greet(&peer.socket, peer.door, &message, None)
            }
            (None, Ok(message)) if !message.is_empty() => match serde_json::from_slice::<Wish>(&message) {
                Ok(wish) => match self.may_take_over(&peer.socket, &wish) {
                    Ok(()) => return self.give(number, Spoken::TakeOver),
                    Err(sentence) => {
                        takeover::refuse(&peer.socket, sentence);
                        None
                    }
                },
                Err(_) if rdma::is_hello(&message) => {
                    return self.give(number, |socket| Spoken::Verbs(socket, message));
                }
                Err(_) if queue_programs::is_hello(&message) => {
                    return self.give(number, |socket| Spoken::Comm(socket, message));
                }
                Err(_) => self.greet(&peer.socket, peer.door, &message, None),
            },
            (Some(place), Ok(message)) if !message.is_empty() => match self.answer(place, &peer.socket, &message) {
                Some(()) => return Spoken::Done,
                None => None,
            },
            // The end of the process.
            _ => None,
        };
        self.settle(number, attached)
    }

    /// What came of a hello, or of a question.
    fn settle(&mut self, number: u64, attached: Option<Attached>) -> Spoken {
        match (attached, self.peers.get_mut(&number)) {
            (Some(place), Some(peer)) => peer.place = Some(place),
            _ => self.remove(number),
        }
        Spoken::Done
    }

    /// Answers an attached application. `None` where its message is no library's, or where it reads no answers.
    fn answer(&self, place: &Attached, socket: &OwnedFd, message: &[u8]) -> Option<()> {
        let (host, asks, handle) = (place.host, place.context, &self.handles[place.thread]);
        let (answer, region) = match serde_json::from_slice(message).ok()? {
            Ask::Region { context: of } => {
                match handle.ask(move |path| path.region_for(host, asks, ContextId(of))).ok()? {
                    Ok((region, geometry)) => (Asked::Region(geometry), Some(region)),
                    Err(_) => (Asked::Refused, None),
                }
            }
            Ask::Ticket { binding } => {
                let ticket = handle.ask(move |path| path.ticket(host, asks, binding)).ok()?;
                let sealed = |ticket| Asked::Ticket(self.seals.seal(self.name_of(place), ticket));
                (ticket.map_or(Asked::Refused, sealed), None)
            }
            Ask::Listen { ticket, backlog } => (self.listen_again(place, ticket, backlog)?, None),
            Ask::Resume { connections } => {
                let count = connections.len();
                let go_on = handle.ask(move |path| path.go_on_with(host, asks, &connections)).ok()?;
                let (name, left) = (self.name_of(place), go_on.len());
                tracing::info!(context = asks.0, host = name, "connections go on: {left} of {count}");
                (Asked::Resumed(go_on), None)
            }
        };
        let regions: Vec<BorrowedFd<'_>> = region.iter().map(|region| region.as_fd()).collect();
        handover::send_at_once(socket.as_fd(), &serde_json::to_vec(&answer).ok()?, &regions).ok()
    }

    /// A listener of an earlier daemon comes back.
    fn listen_again(&self, place: &Attached, ticket: Ticket, backlog: u32) -> Option<Asked> {
        let (host, context, name) = (place.host, place.context, self.name_of(place));
        let (sealed, local) = (self.seals.is_right(name, &ticket), ticket.local);
        let ticket = ShownTicket { ticket, sealed };
        let again = move |path: &mut DataPath| path.listen_again(host, context, &ticket, backlog);
        Some(match self.handles[place.thread].ask(again).ok()? {
            Ok(binding) => {
                tracing::info!(context = context.0, host = name, "an application listens on {local} again");
                Asked::Listens(binding)
            }
            Err(errno) => {
                let why = std::io::Error::from_raw_os_error(errno);
                tracing::warn!(context = context.0, host = name, "{local} is not listened on again: {why}");
                Asked::Failed(errno)
            }
        })
    }

    /// The name of a context's host.
    fn name_of(&self, place: &Attached) -> &str {
        let mut hosts = self.hosts.iter().filter(|host| (host.thread, host.index) == (place.thread, place.host));
        hosts.next().map_or("", |host| &host.config.stack.name)
    }

    /// A connection that is somebody else's from now on.
    fn give(&mut self, number: u64, to: impl FnOnce(OwnedFd) -> Spoken) -> Spoken {
        self.peers.remove(&number).map_or(Spoken::Done, |peer| to(peer.socket))
    }

    fn may_take_over(&self, socket: &OwnedFd, wish: &Wish) -> Result<(), String> {
        if !self.operators.may_manage(socket.as_fd()) {
            return Err("only root, the daemon's own user and manage_group may take a daemon over".into());
        }
        let version = takeover::VERSION;
        match wish.takeover == version {
            true => Ok(()),
            false => Err(format!("the daemon that runs hands over in version {version}, not {}", wish.takeover)),
        }
    }

    /// A process that was attached to a daemon which this one took over.
    pub(crate) fn adopt(&mut self, number: u64, socket: OwnedFd, host: usize, context: ContextId) {
        let place = &self.hosts[host];
        let place = Attached { thread: place.thread, host: place.index, context };
        self.peers.insert(number, Peer { socket, door: Door::Attach, place: Some(place) });
    }

    /// The connection to the process of a context, once more.
    pub(crate) fn peer(&self, place: &HostPlace, context: ContextId) -> Option<OwnedFd> {
        let mut found = self.peers.values().filter(|peer| {
            let at = peer.place.as_ref();
            at.is_some_and(|at| (at.thread, at.host, at.context) == (place.thread, place.index, context))
        });
        found.next()?.socket.try_clone().ok()
    }

    /// What is to be given to a daemon that takes over.
    pub(crate) fn places(&self) -> (&[Handle], &[HostPlace]) {
        (&self.handles, &self.hosts)
    }

    /// Ends a connection; its context goes with it.
    pub(crate) fn remove(&mut self, number: u64) {
        // Its socket ends after its context: a process that lives sees that it was let go.
        let Some(Peer { place: Some(place), socket: _socket, .. }) = self.peers.remove(&number) else { return };
        let Attached { thread, host, context } = place;
        tracing::debug!(context = context.0, "an application is gone");
        // Where the thread has ended, the daemon is ending.
        let _ = self.handles[thread].ask(move |path| path.detach(host, context));
    }

    /// Ends all connections.
    pub(crate) fn remove_all(&mut self) {
        self.seals.end(self.attached());
        let numbers: Vec<u64> = self.peers.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.remove(number));
    }

    fn greet(&self, socket: &OwnedFd, door: Door, message: &[u8], region: Option<Region>) -> Option<Attached> {
        let refuse = |sentence: String| {
            tracing::warn!("an application was refused: {sentence}");
            let answer = serde_json::to_vec(&Answer::Refused(sentence)).unwrap_or_default();
            // It may be gone already.
            let _ = handover::send(socket.as_fd(), &answer, &[]);
        };
        let attached = hello(message).and_then(|hello| {
            let peer = handover::credentials(socket.as_fd())
                .map_err(|e| format!("the credentials of the peer cannot be read: {e}"))?;
            self.attach(socket, door, &hello, peer, region)
        });
        attached.map_err(refuse).ok()
    }

    fn attach(
        &self,
        socket: &OwnedFd,
        door: Door,
        hello: &Hello,
        peer: Credentials,
        region: Option<Region>,
    ) -> Result<Attached, String> {
        let place = find(&self.hosts, hello.host.as_deref())?;
        let ticket = hello.ticket.as_ref();
        let reusable = region.and_then(|region| self.usable(place, region));
        // Only an attached process, and those that it passed it to, have that region.
        let returns =
            reusable.is_some() || ticket.is_some_and(|ticket| self.seals.is_right(&place.config.stack.name, ticket));
        if !returns && (door == Door::Return || !place.access.may_attach(socket.as_fd())) {
            let (name, uid) = (&place.config.stack.name, peer.uid);
            return Err(format!("user {uid} may not attach to host `{name}`: its users and groups do not name them"));
        }
        if reserve::is_short() {
            return Err(
                "the daemon gets no more memory: it serves the attached programs, and no new one until it gets some"
                    .into(),
            );
        }
        let stack = &place.config.stack;
        let geometry = stack.memory.geometry();
        let broken = |e: std::io::Error| format!("the daemon cannot make shared memory: {e}");
        let returned = reusable.is_some();
        let region = reusable.map_or_else(|| geometry.create_region("opentoe").map_err(broken), Ok).map(Arc::new)?;
        let (app_bell, to_app) = Doorbell::pair().map_err(broken)?;
        let daemon_bell = Doorbell::eventfd().map_err(broken)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(broken);
        let ends = daemon_ends(&region, geometry, to_app, copy(&daemon_bell)?);
        let command = printable(&hello.command);
        let loopback = stack.loopback && shares_network(peer.pid);
        let (pid, uid, gid) = (peer.pid.unsigned_abs(), peer.uid, peer.gid);
        let application = Application { pid, uid, gid, command, loopback };
        let (host, token, watched) = (place.index, hello.token, copy(&daemon_bell)?);
        let context =
            self.handles[place.thread].ask(move |path| path.attach(host, application, ends, token, watched))??;
        tracing::debug!(
            context = context.0,
            host = stack.name,
            pid = peer.pid,
            "attached: {}",
            printable(&hello.command)
        );
        let attached = Attached { thread: place.thread, host, context };
        let answer = Answer::Welcome(Welcome { returned, ..welcome(context, place, loopback) });
        let answer = serde_json::to_vec(&answer).map_err(|e| e.to_string())?;
        if handover::send(socket.as_fd(), &answer, &[region.fd(), app_bell.as_fd(), daemon_bell.as_fd()]).is_err() {
            self.handles[place.thread].ask(move |path| path.detach(host, context))?;
            return Err("the application is gone already".into());
        }
        Ok(attached)
    }
}

impl Applications {
    /// The region of a process that comes back, where connections are in it that the last daemon left, made ready.
    fn usable(&self, place: &HostPlace, region: Region) -> Option<Region> {
        let (host, number) = (place.index, region.number());
        let has = self.handles[place.thread].ask(move |path| path.has_survivors_in(host, number)).ok()?;
        let geometry = place.config.stack.memory.geometry();
        (has && context::begin_anew(&region, &geometry).is_ok()).then_some(region)
    }
}

/// The hello of a library of this version. Of a library of another version, only the version is read.
fn hello(message: &[u8]) -> Result<Hello, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: u32,
    }
    let strange = |_| "this is no hello of a libtoe".to_string();
    let Version { version } = serde_json::from_slice(message).map_err(strange)?;
    if version != context::VERSION {
        return Err(format!(
            "libtoe has version {version} of the attach protocol and the daemon version {}: use the libtoe.so that \
             came with this daemon, or start a daemon of the library's version",
            context::VERSION
        ));
    }
    serde_json::from_slice(message).map_err(strange)
}

fn welcome(context: ContextId, place: &HostPlace, loopback: bool) -> Welcome {
    let stack = &place.config.stack;
    Welcome {
        context: context.0,
        geometry: stack.memory.geometry(),
        returned: false,
        host: stack.name.clone(),
        addresses: [stack.address].into_iter().chain(stack.ipv6.address).collect(),
        v6: place.v6,
        routes: place.routes.clone(),
        loopback,
        nagle: stack.limits.nagle,
        urgent: place.urgent,
        congestion: stack.default_congestion().to_string(),
        interfaces: place.interfaces.clone(),
    }
}
