//! A stand-in for the daemon: one host whose connections are joined by copying bytes between buffers. It speaks
//! the context's protocol only, so it tests libtoe without any TCP.
#![allow(dead_code, reason = "the example uses less of it than the tests")]
mod connections;
mod requests;
mod successor;

pub(crate) use successor::Death;

use connections::{Connection, End};
use context::attach::{Answer, Ask, Asked, Hello, Interface, Network, Welcome};
use context::{ControlEnd, EngineEnd, Geometry, IpAddress, Prefix, Reply, Request, Slot, daemon_ends};
use shm::{Doorbell, Region, handover};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use successor::Remains;

/// The host's address.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The address that lists of interfaces show beside it.
pub(crate) const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 99, 0, 0, 0, 1);

const GEOMETRY: Geometry = Geometry {
    slots: 256,
    long: context::LongPaths::NONE,
    growing: context::Growing { slots: 64, bytes: 1 << 20 },
    data_entries: 256,
    control_entries: 64,
    rx_bytes: 65536,
    tx_bytes: 65536,
    full_slots: 256,
    small_bytes: 0,
    log_bytes: 0,
    heap_bytes: 0,
};

/// A running stand-in; dropping it is the daemon's death.
pub(crate) struct LoopHost {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Host, OwnedFd)>>,
    paused: Option<(Host, OwnedFd)>,
    shown: Arc<Mutex<Shown>>,
}

/// What the host shows of itself after each of its rounds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shown {
    pub leftovers: Leftovers,
    /// Requests to rest that wait for the child of a fork, and those that such a child was waited for with.
    pub late: usize,
    pub answered_late: usize,
}

/// What was still there when the host stopped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Attached processes.
    pub contexts: usize,
    /// Open connections.
    pub connections: usize,
    /// Bindings.
    pub bindings: usize,
}

impl LoopHost {
    /// Starts it on a thread, with its socket at `path`.
    pub(crate) fn start(path: &Path) -> LoopHost {
        LoopHost::run(path, Host::default())
    }

    /// One that is slow: a request that a connection rest is answered when the child of a fork has come.
    pub(crate) fn start_late(path: &Path) -> LoopHost {
        LoopHost::run(path, Host { late: Some(Vec::new()), ..Host::default() })
    }

    /// One whose listeners come back to its successors.
    pub(crate) fn start_with_tickets(path: &Path) -> LoopHost {
        LoopHost::run(path, Host { gives_tickets: true, ..Host::default() })
    }

    /// As of its last round.
    pub(crate) fn shown(&self) -> Shown {
        *self.shown.lock().unwrap()
    }

    fn run(path: &Path, mut host: Host) -> LoopHost {
        let listener = handover::listen(path).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let shown = Arc::<Mutex<Shown>>::default();
        let shows = Arc::clone(&shown);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let busy = host.round(&listener);
                *shows.lock().unwrap() = host.shown();
                if !busy {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            (host, listener)
        });
        LoopHost { path: path.to_owned(), stop, thread: Some(thread), paused: None, shown }
    }

    /// From now on it works only when [`LoopHost::step`] is called: for measurements that are to repeat exactly.
    pub(crate) fn pause(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.paused = self.thread.take().map(|thread| thread.join().unwrap());
    }

    /// Does all that there is to do, while paused.
    pub(crate) fn step(&mut self) {
        while self.paused.as_mut().is_some_and(|(host, listener)| host.round(listener)) {}
    }

    /// One round, while paused; returns whether there was something to do.
    pub(crate) fn round(&mut self) -> bool {
        self.paused.as_mut().is_some_and(|(host, listener)| host.round(listener))
    }

    /// It dies while paused, and a successor is there at once.
    pub(crate) fn die(&mut self, death: Death) {
        self.paused.iter_mut().for_each(|(host, _)| host.die(death));
    }

    /// What there is, while paused.
    pub(crate) fn shown_now(&self) -> Leftovers {
        self.paused.as_ref().map(|(host, _)| host.leftovers()).unwrap_or_default()
    }

    /// The path of its socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stops it, as if the daemon died.
    pub(crate) fn stop(&mut self) -> Leftovers {
        let _ = std::fs::remove_file(&self.path);
        if self.thread.is_some() {
            self.pause();
        }
        self.paused.take().map(|(host, _)| host.leftovers()).unwrap_or_default()
    }
}

impl Drop for LoopHost {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Binding {
    local: context::Endpoint,
    listening: bool,
    backlog: usize,
    reuse: bool,
    /// Contexts that hold it, with their credits.
    holders: BTreeMap<u32, u32>,
    /// Forks whose child has not come yet.
    held: usize,
}

struct App {
    socket: OwnedFd,
    region: Arc<Region>,
    engine: EngineEnd,
    control: ControlEnd,
    /// Generation and use of each slot.
    slots: Vec<(u16, bool)>,
}

impl App {
    fn take_slot(&mut self) -> Option<Slot> {
        let index = self.slots.iter().position(|(_, used)| !used)?;
        let (generation, used) = &mut self.slots[index];
        (*generation, *used) = (generation.wrapping_add(1), true);
        Some(Slot { index: index as u32, generation: *generation })
    }
    fn reply(&mut self, reply: Reply) {
        // A process that has ended takes none.
        while self.control.replies.push(reply.to_words()).is_err() && !is_readable(&self.socket) {
            std::thread::yield_now();
        }
        self.control.app_bell.ring();
    }
}

/// A connection that waits for somebody to arm its listener.
#[derive(Clone, Copy)]
struct Opening {
    from: u32,
    tag: u32,
    local: context::Endpoint,
    remote: context::Endpoint,
}

#[derive(Default)]
struct Host {
    openings: Vec<Opening>,
    apps: BTreeMap<u32, App>,
    bindings: BTreeMap<u32, Binding>,
    connections: Vec<Connection>,
    /// What a token is for: the bindings and connection ends that the parent had.
    tokens: BTreeMap<u64, BTreeSet<u32>>,
    claims: u32,
    last: u32,
    /// Processes that wait to rest, where that takes long.
    late: Option<Vec<(u32, Request)>>,
    answered_late: usize,
    /// What lasts of the programs of a predecessor.
    remains: Vec<Remains>,
    /// It dies when a program asks for its connections, or for its listener.
    dies_again: Option<Death>,
    /// Its listeners have tickets for its successors.
    gives_tickets: bool,
}

impl Host {
    fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    fn shown(&self) -> Shown {
        let late = self.late.as_ref().map_or(0, Vec::len);
        Shown { leftovers: self.leftovers(), late, answered_late: self.answered_late }
    }

    fn leftovers(&self) -> Leftovers {
        Leftovers { contexts: self.apps.len(), connections: self.connections.len(), bindings: self.bindings.len() }
    }

    /// One round over everything; returns whether there was something to do.
    fn round(&mut self, listener: &OwnedFd) -> bool {
        let mut busy = false;
        if is_readable(listener) {
            let socket = handover::accept(listener.as_fd()).unwrap();
            self.welcome(socket);
            busy = true;
        }
        for id in self.apps.keys().copied().collect::<Vec<_>>() {
            while let Some(words) = self.apps.get_mut(&id).and_then(|app| app.control.requests.pop().unwrap()) {
                busy = true;
                match (Request::from_words(words).expect("a known request"), &mut self.late) {
                    (request @ Request::Reclaim { .. }, Some(late)) => late.push((id, request)),
                    (request, _) => self.request(id, request),
                }
            }
            busy |= self.take_bumps(id);
            if self.apps.get(&id).is_some_and(|app| is_readable(&app.socket)) {
                busy = true;
                match self.answer(id) {
                    Some(()) => {}
                    None if self.dies_again.is_some() => {
                        self.die(Death::Survived);
                        break;
                    }
                    None => self.gone(id),
                }
            }
        }
        busy | self.move_bytes()
    }

    /// Answers what an application asks over its socket; `None` where it is gone.
    fn answer(&mut self, id: u32) -> Option<()> {
        let message = handover::recv_bytes(self.apps[&id].socket.as_fd()).ok().filter(|message| !message.is_empty())?;
        let mut home = None;
        let answer = match serde_json::from_slice(&message).unwrap() {
            Ask::Region { context } => {
                home = self.apps.get(&context).map(|app| app.control.descriptors()[0]);
                home.map_or(Asked::Refused, |_| Asked::Region(GEOMETRY))
            }
            Ask::Resume { .. } if self.dies_again == Some(Death::ResumingToo) => return None,
            Ask::Resume { connections } => Asked::Resumed(self.resume(id, &connections)),
            Ask::Ticket { binding } if self.gives_tickets => self.ticket(binding).map_or(Asked::Refused, Asked::Ticket),
            Ask::Ticket { .. } => Asked::Refused,
            Ask::Listen { .. } if self.dies_again == Some(Death::ListeningToo) => return None,
            Ask::Listen { ticket, backlog } => self.listen_again(id, &ticket, backlog),
        };
        let regions: Vec<_> = home.into_iter().collect();
        handover::send(self.apps[&id].socket.as_fd(), &serde_json::to_vec(&answer).unwrap(), &regions).ok()
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let (hello, descriptors) = handover::recv(socket.as_fd()).unwrap();
        let hello: Hello = serde_json::from_slice(&hello).unwrap();
        if hello.host.as_deref() == Some("nowhere") {
            let answer = Answer::Refused("there is no host nowhere".into());
            handover::send(socket.as_fd(), &serde_json::to_vec(&answer).unwrap(), &[]).unwrap();
            return;
        }
        let (app_bell, daemon_bell) = (Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let (context, remains) = (self.number(), self.take_remains(descriptors));
        let returned = remains.is_some();
        let (region, slots) = match remains {
            Some(remains) => self.rename(remains, context),
            None => (GEOMETRY.create_region("loop").unwrap().into(), vec![(0, false); GEOMETRY.slots as usize]),
        };
        let welcome = Answer::Welcome(Welcome {
            loopback: false,
            nagle: false,
            urgent: true,
            returned,
            context,
            geometry: GEOMETRY,
            host: "loop".into(),
            addresses: vec![ADDRESS.into()],
            v6: false,
            routes: vec![Prefix::new(ADDRESS.into(), 24)],
            congestion: "cubic".into(),
            interfaces: vec![Interface {
                address: ADDRESS.into(),
                prefix_len: 24,
                ipv6: Some(Network { address: IpAddress::v6(ADDRESS_V6, 0), prefix_len: 64 }),
                mac: [2, 0, 0, 0, 0, 9],
                mtu: 1400,
            }],
        });
        let fds = [region.fd(), app_bell.as_fd(), daemon_bell.as_fd()];
        handover::send(socket.as_fd(), &serde_json::to_vec(&welcome).unwrap(), &fds).unwrap();
        let (engine, control) = daemon_ends(&region, GEOMETRY, app_bell, daemon_bell);
        self.apps.insert(context, App { socket, region, engine, control, slots });
        if let Some((token, bindings)) = hello.token.and_then(|token| self.tokens.remove_entry(&token)) {
            self.share(token, context, &bindings);
        }
    }

    /// The child of a fork holds what its parent held when it forked.
    pub(crate) fn share(&mut self, token: u64, child: u32, bindings: &BTreeSet<u32>) {
        for (_, binding) in self.bindings.iter_mut().filter(|(id, _)| bindings.contains(id)) {
            binding.holders.entry(child).or_insert(0);
            binding.held -= 1;
        }
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            if end.held_for_child.remove(&token) {
                end.holders.insert(child);
            }
        }
        for (from, request) in self.late.as_mut().map(std::mem::take).unwrap_or_default() {
            self.answered_late += 1;
            self.request(from, request);
        }
    }

    /// A process ended: what it held, it holds no more.
    fn gone(&mut self, id: u32) {
        self.take_bumps(id);
        for binding in self.bindings.keys().copied().collect::<Vec<_>>() {
            self.unbind(id, binding);
        }
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            if end.holders.remove(&id) && end.is_unshared() {
                (end.closed, end.fin) = (true, true);
                let (home, slot) = end.names[0];
                let read = self.apps.get(&home).and_then(|app| app.control.read_of(slot));
                end.aborted |= read.is_some_and(|read| end.rx_tail.wrapping_sub(read) as i32 > 0);
            }
        }
        self.apps.remove(&id);
    }

    fn end_named(&mut self, context: u32, slot: Slot) -> Option<&mut End> {
        self.connections
            .iter_mut()
            .flat_map(|connection| &mut connection.ends)
            .find(|end| end.names.contains(&(context, slot)))
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    // SAFETY: polls one descriptor without waiting.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) > 0 }
}
