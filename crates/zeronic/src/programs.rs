//! Programs of a ZeroNIC host: their queues of posts and completions (`context::comm`), above the control stack.
//!
//! A program is hostile: each post is copied and checked, names only its own connections, and reaches only its own
//! registrations. A program that takes no completions gets no more posts taken; others go on.
use crate::datagrams::NoDatagrams;
use crate::nic::{FlowId, Memory, Refused, Segment};
use crate::stack::{Event, Stack};
use crate::transport::Transport;
use crate::verbs::VERBS_PORT;
use context::comm::{Carries, Completion, Order, Outcome, Piece, Post};
use context::{ProgramQueues, RETRY};
use control::{Application, HostConfig};
use memory::{Devices, Domain, Key};
use port::{Port, PortDrops};
use shm::Doorbell;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use wire::Nanos;

/// Posts taken from one program in one round.
const PER_ROUND: usize = 64;
/// Rounds in which all posts are taken of a program that is gone.
const LAST_ROUNDS: usize = (context::comm::POSTS as usize).div_ceil(PER_ROUND);
/// Connections and listening ports of one program.
const MOST_CONNECTIONS: usize = 256;
const MOST_PORTS: usize = 64;
/// Programs of a host.
const MOST_PROGRAMS: usize = 128;

// Linux error numbers.
const EBADF: u64 = 9;
const EACCES: u64 = 13;
const EFAULT: u64 = 14;
const EINVAL: u64 = 22;
const EMFILE: u64 = 24;
const EMSGSIZE: u64 = 90;
const EOPNOTSUPP: u64 = 95;
const ENETUNREACH: u64 = 101;
const EADDRINUSE: u64 = 98;
const ECONNABORTED: u64 = 103;
const ENOBUFS: u64 = 105;

/// Names a program of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgramId(pub u32);

/// The host's ends of a program's queues.
pub struct NewProgram {
    /// Its process, and the command line that it gave.
    pub pid: u32,
    /// See [`NewProgram::pid`].
    pub command: String,
    /// Its user.
    pub uid: u32,
    /// Domain of the memory that it uses.
    pub domain: Domain,
    /// [`Post`]s and [`Completion`]s.
    pub queues: ProgramQueues,
}

/// A program, for people.
#[derive(Debug, Clone)]
pub struct ProgramView {
    /// It.
    pub program: ProgramId,
    /// Its process, and the command line that it gave.
    pub pid: u32,
    /// See [`ProgramView::pid`].
    pub command: String,
    /// Its connections, by its own numbers for them.
    pub connections: Vec<(u32, FlowId)>,
}

struct Program {
    ends: NewProgram,
    connections: BTreeMap<u32, FlowId>,
    last: u32,
}

/// A ZeroNIC host with programs.
pub struct Programs<T: Transport, M: Memory> {
    stack: Stack<T, M>,
    programs: HashMap<ProgramId, Program>,
    next: u32,
    owners: HashMap<FlowId, (ProgramId, u32)>,
    ports: HashMap<u16, ProgramId>,
    /// The host whose address it shares: who may have which port there.
    shared: Option<HostConfig>,
}

impl<T: Transport, M: Memory> Programs<T, M> {
    /// A host without programs.
    pub fn new(stack: Stack<T, M>) -> Programs<T, M> {
        let (programs, owners, ports) = (HashMap::new(), HashMap::new(), HashMap::new());
        Programs { stack, programs, next: 0, owners, ports, shared: None }
    }

    /// Programs listen only on ports that this host's rules give them: it has the same address.
    pub fn keep_rules_of(&mut self, host: HostConfig) {
        self.shared = Some(host);
    }

    /// Its programs, the oldest first.
    pub fn views(&self) -> Vec<ProgramView> {
        let view = |(id, program): (&ProgramId, &Program)| ProgramView {
            program: *id,
            pid: program.ends.pid,
            command: program.ends.command.clone(),
            connections: program.connections.iter().map(|(number, flow)| (*number, *flow)).collect(),
        };
        let mut all: Vec<ProgramView> = self.programs.iter().map(view).collect();
        all.sort_unstable_by_key(|view| view.program.0);
        all
    }

    /// Its control stack.
    pub fn stack(&mut self) -> &mut Stack<T, M> {
        &mut self.stack
    }

    /// A program comes.
    ///
    /// # Errors
    /// A sentence: there are too many.
    pub fn attach(&mut self, ends: NewProgram) -> Result<ProgramId, String> {
        if self.programs.len() >= MOST_PROGRAMS {
            return Err(format!("the ZeroNIC host has {MOST_PROGRAMS} programs already: end some first"));
        }
        self.next += 1;
        let id = ProgramId(self.next);
        let program = Program { ends, connections: BTreeMap::new(), last: 0 };
        self.programs.insert(id, program);
        Ok(id)
    }

    /// A program is gone. What it posted last is carried out, its connections are closed, and its memory is neither
    /// read nor written from now on.
    pub fn detach(&mut self, id: ProgramId) {
        for _ in 0..LAST_ROUNDS {
            if self.take_posts(id) == 0 {
                break;
            }
        }
        let Some(program) = self.programs.remove(&id) else { return };
        for flow in program.connections.into_values() {
            self.owners.remove(&flow);
            self.stack.close(flow);
        }
        let stack = &mut self.stack;
        self.ports.retain(|port, owner| {
            let stays = *owner != id;
            if !stays {
                stack.unlisten(*port);
            }
            stays
        });
    }

    /// One bounded round. Returns how much was done; 0 means idle.
    pub fn poll(&mut self, now: Nanos, wire: &mut dyn Port, drops: &mut PortDrops) -> usize {
        let ids: Vec<ProgramId> = self.programs.keys().copied().collect();
        let mut done: usize = ids.into_iter().map(|id| self.take_posts(id)).sum();
        done += self.stack.poll(now, wire, drops);
        while let Some(event) = self.stack.next_event() {
            self.on_event(event);
            done += 1;
        }
        self.programs.values_mut().for_each(|program| program.ends.queues.ring());
        done
    }

    fn take_posts(&mut self, id: ProgramId) -> usize {
        let mut done = 0;
        while done < PER_ROUND {
            let Some(program) = self.programs.get_mut(&id) else { break };
            let Some(words) = program.ends.queues.next_post() else { break };
            done += 1;
            if let Some(post) = Post::from_words(words) {
                self.carry_out(id, post);
            }
        }
        done
    }

    fn carry_out(&mut self, id: ProgramId, post: Post) {
        let Some(program) = self.programs.get(&id) else { return };
        let (domain, flow) = (program.ends.domain, program.connections.get(&post.connection).copied());
        let done = match (post.order, flow) {
            (Order::Connect(remote, carries), _) => self.connect(id, remote, carries, post.id),
            (Order::Listen(port, carries), _) => self.listen(id, port, carries, post.id),
            (Order::Datagrams(from, remote), _) => self.open_datagrams(id, from, remote, post.id),
            (_, None) => Err(EBADF),
            (Order::Send(piece) | Order::Receive(piece), Some(flow)) if self.is_out_of_reach(domain, flow, piece) => {
                Err(EOPNOTSUPP)
            }
            (Order::End, Some(flow)) if self.stack.is_datagrams(flow) => Err(EINVAL),
            (Order::Send(piece), Some(flow)) => {
                self.segment(domain, piece).and_then(|part| errno(self.stack.post_send(flow, post.id, part)))
            }
            (Order::Receive(piece), Some(flow)) => {
                self.segment(domain, piece).and_then(|part| errno(self.stack.post_receive(flow, post.id, part)))
            }
            (Order::End, Some(flow)) => {
                self.stack.end(flow);
                Ok(())
            }
            (Order::Close, Some(flow)) => {
                self.forget(flow);
                self.stack.close(flow);
                Ok(())
            }
        };
        if let Err(errno) = done {
            self.report(id, completion(Outcome::Failed, post.id, post.connection, errno));
        }
    }

    /// What a program names, where it lies within one of its registrations.
    fn segment(&self, domain: Domain, piece: Piece) -> Result<Segment, u64> {
        let key = Key(piece.key);
        self.stack.memory().check(domain, key, piece.offset, piece.len).map_err(|_| EFAULT)?;
        Ok(Segment { key, offset: piece.offset, len: piece.len })
    }

    fn connect(&mut self, id: ProgramId, remote: SocketAddrV4, carries: Carries, number: u64) -> Result<(), u64> {
        let program = self.programs.get(&id).ok_or(EBADF)?;
        if program.connections.len() >= MOST_CONNECTIONS {
            return Err(EMFILE);
        }
        // Peers take what this host sends there for its RDMA device's.
        if remote.port() == VERBS_PORT {
            return Err(EACCES);
        }
        let flow = self.stack.connect(remote, program.ends.domain, carries).map_err(|_| ENETUNREACH)?;
        let connection = self.own(id, flow).ok_or(EBADF)?;
        self.report(id, completion(Outcome::Connected, number, connection, 0));
        Ok(())
    }

    /// A device's memory has no part in connections that are copied.
    fn is_out_of_reach(&self, domain: Domain, flow: FlowId, piece: Piece) -> bool {
        self.stack.is_copied(flow) && self.stack.memory().is_device(domain, Key(piece.key))
    }

    fn open_datagrams(&mut self, id: ProgramId, from: u16, remote: SocketAddrV4, number: u64) -> Result<(), u64> {
        let program = self.programs.get(&id).ok_or(EBADF)?;
        if program.connections.len() >= MOST_CONNECTIONS {
            return Err(EMFILE);
        }
        // RDMA devices take what this host sends there for its own device's.
        if remote.port() == VERBS_PORT || from == VERBS_PORT {
            return Err(EACCES);
        }
        let opened = self.stack.open_datagrams(from, remote, program.ends.domain);
        let flow = opened.map_err(|refused| match refused {
            NoDatagrams::Unsupported => EOPNOTSUPP,
            NoDatagrams::Peer => EINVAL,
            NoDatagrams::InUse => EADDRINUSE,
            NoDatagrams::Full => ENOBUFS,
        })?;
        let connection = self.own(id, flow).ok_or(EBADF)?;
        self.report(id, completion(Outcome::Connected, number, connection, 0));
        Ok(())
    }

    fn listen(&mut self, id: ProgramId, port: u16, carries: Carries, number: u64) -> Result<(), u64> {
        let program = self.programs.get(&id).ok_or(EBADF)?;
        if port == 0 {
            return Err(EINVAL);
        }
        let NewProgram { pid, uid, command, .. } = &program.ends;
        let (pid, uid, command) = (*pid, *uid, command.clone());
        let application = Application { pid, uid, gid: uid, command, loopback: true };
        if self.shared.as_ref().is_some_and(|host| !host.may_bind(&application, port)) {
            return Err(EACCES);
        }
        if self.ports.contains_key(&port) || self.stack.is_bound(port) {
            return Err(EADDRINUSE);
        }
        if self.ports.values().filter(|owner| **owner == id).count() >= MOST_PORTS {
            return Err(EMFILE);
        }
        self.stack.listen(port, program.ends.domain, carries).map_err(|_| EACCES)?;
        self.ports.insert(port, id);
        self.report(id, completion(Outcome::Listening, number, 0, port.into()));
        Ok(())
    }

    /// A connection is this program's; returns its number there.
    fn own(&mut self, id: ProgramId, flow: FlowId) -> Option<u32> {
        let program = self.programs.get_mut(&id)?;
        let number = loop {
            program.last = program.last.wrapping_add(1).max(1);
            if !program.connections.contains_key(&program.last) {
                break program.last;
            }
        };
        program.connections.insert(number, flow);
        self.owners.insert(flow, (id, number));
        Some(number)
    }

    /// A connection is nobody's any more.
    fn forget(&mut self, flow: FlowId) -> Option<(ProgramId, u32)> {
        let (id, number) = self.owners.remove(&flow)?;
        if let Some(program) = self.programs.get_mut(&id) {
            program.connections.remove(&number);
        }
        Some((id, number))
    }

    fn on_event(&mut self, event: Event) {
        let of = |owners: &HashMap<FlowId, _>, connection| owners.get(&connection).copied();
        match event {
            Event::Accepted { connection, tuple } => self.accepted(connection, tuple.local_port),
            Event::Received { connection, id: post, bytes } => {
                if let Some((id, number)) = of(&self.owners, connection) {
                    self.report(id, completion(Outcome::Received, post, number, bytes));
                }
            }
            Event::Sent { connection, id: post } => {
                if let Some((id, number)) = of(&self.owners, connection) {
                    self.report(id, completion(Outcome::Sent, post, number, 0));
                }
            }
            Event::Ended { connection } => {
                if let Some((id, number)) = of(&self.owners, connection) {
                    self.report(id, completion(Outcome::Ended, 0, number, 0));
                }
            }
            Event::Failed { connection, .. } => {
                if let Some((id, number)) = self.forget(connection) {
                    self.report(id, completion(Outcome::Lost, 0, number, ECONNABORTED));
                }
            }
        }
    }

    /// A peer has opened a connection to a port: it is its program's, or is refused.
    fn accepted(&mut self, flow: FlowId, port: u16) {
        let owner = self.ports.get(&port).copied();
        let room =
            |id: &ProgramId| self.programs.get(id).is_some_and(|program| program.connections.len() < MOST_CONNECTIONS);
        match owner.filter(room).and_then(|id| Some((id, self.own(id, flow)?))) {
            Some((id, number)) => self.report(id, completion(Outcome::Accepted, 0, number, port.into())),
            None => self.stack.close(flow),
        }
    }

    fn report(&mut self, id: ProgramId, completion: Completion) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.ends.queues.complete(completion.to_words());
        }
    }

    /// There is something to do now. Checked before sleeping.
    pub fn has_work(&self) -> bool {
        self.stack.has_work() || self.programs.values().any(|program| program.ends.queues.has_posts())
    }

    /// When something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let waits = self.programs.values().any(|program| program.ends.queues.is_late());
        let retry = waits.then(|| self.stack.now() + RETRY);
        [self.stack.next_deadline(), retry].into_iter().flatten().min()
    }

    /// The caller is about to sleep: programs must ring from now on. Ask [`Programs::has_work`] once more.
    pub fn prepare_to_sleep(&self) {
        let bells: Vec<&Doorbell> = self.programs.values().map(|program| program.ends.queues.bell()).collect();
        Doorbell::prepare_all(bells.iter().copied());
        self.stack.memory().devices().into_iter().for_each(Devices::prepare_to_sleep);
        self.stack.device_view().into_iter().for_each(host::Transport::prepare_to_sleep);
    }

    /// The caller polls again.
    pub fn awake(&self) {
        self.programs.values().for_each(|program| program.ends.queues.bell().reset());
        self.stack.memory().devices().into_iter().for_each(Devices::awake);
        self.stack.device_view().into_iter().for_each(host::Transport::awake);
    }
}

fn completion(outcome: Outcome, id: u64, connection: u32, value: u64) -> Completion {
    Completion { outcome, id, connection, value }
}

fn errno(posted: Result<(), Refused>) -> Result<(), u64> {
    posted.map_err(|refused| match refused {
        Refused::Flow => EBADF,
        Refused::Segment => EINVAL,
        Refused::Long => EMSGSIZE,
        Refused::Full => ENOBUFS,
    })
}
