//! Lifecycle of a daemon: it opens everything, serves until it is asked to end, and leaves nothing behind.
use crate::access::Access;
use crate::applications::{Applications, Spoken};
use crate::build::{Built, HostPlace, build};
use crate::clock::Clock;
use crate::config::{Config, RdmaUsers, ThreadConfig};
use crate::confine;
use crate::datapath::{DataPath, Handle};
use crate::journal::Journal;
use crate::management::Management;
use crate::metrics::{self, Metrics};
use crate::modules::Modules;
use crate::notify::ServiceManager;
use crate::owners::Owners;
use crate::queue_programs::QueuePrograms;
use crate::rdma::{Places, Programs};
use crate::sockets::{Door, Sockets, default_socket};
use crate::takeover::{Giving, TakenHosts, Taking, give};
use crate::tickets::Seals;
use crate::tracepoints::Tracepoints;
use crate::views::Observer;
use crate::workers::pin;
use engine::ContextId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use shm::{handover, reserve};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Options of a daemon besides its configuration.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The daemon belongs to this process: it ends when that has ended and no program is attached any more.
    pub owner: Option<i32>,
    /// Programs of the same user may become owners, too; the daemon waits [`LINGER`] for the next one before it ends.
    pub shared: bool,
    /// It takes the place of a daemon with such owners that was killed.
    pub again: bool,
    /// Write a line to standard output when applications can attach.
    pub announce: bool,
    /// From then on, log to this file and keep none of the standard streams: they may be pipes with a waiting reader.
    pub log: Option<PathBuf>,
    /// Take the place of the daemon that runs at the socket, with its programs and connections.
    pub takeover: bool,
}

/// How long connections may take to end in order when the daemon ends.
const FAREWELL: Duration = Duration::from_millis(500);
/// The same for the daemon of one program, which ends by itself and disturbs no other.
const LONG_FAREWELL: Duration = Duration::from_secs(10);

/// How long a daemon that programs share is kept for the next one: commands of a script follow each other faster.
pub const LINGER: Duration = Duration::from_secs(5);

/// Runs a daemon until it is asked to end. The error is a sentence. The reserve against failing allocations is kept,
/// but it is used only where the program's allocator is [`shm::reserve::Allocator`].
pub fn run(config: &Config, options: &Options) -> Result<(), String> {
    let config = &settled(config, options)?;
    reserve::fix_thresholds();
    if !reserve::keep() {
        let mib = reserve::BYTES >> 20;
        return Err(format!("the system has no {mib} MiB of memory for bad times: end something else first"));
    }
    let failed = |e: io::Error| format!("the daemon cannot watch its sockets: {e}");
    raise_descriptor_limit();
    let signals = signals(options).map_err(|e| format!("cannot receive signals: {e}"))?;
    let path = config.service.socket.clone().unwrap_or_else(default_socket);
    let owners = options.owner.map(|first| Owners::at(&path, (!options.again).then_some(first), options.shared));
    let owners = owners.transpose()?.map(Arc::new);
    let mut taking = options.takeover.then(|| Taking::begin(&path)).transpose()?;
    let opened = if options.takeover { None } else { Some(Sockets::open(&path, &config.service)?) };
    let mut journal = journal(config, options, &path);
    let clock = clock(taking.as_ref(), journal.as_ref());
    let devices = taking.as_mut().map(Taking::devices).unwrap_or_default();
    let Built { mut paths, handles, hosts, zeronics, blocks, traces } = build(config, clock, devices)?;
    let operators = Access::to_manage(config.service.manage_group.as_deref())?;
    let listen = config.service.metrics.listen;
    let mut metrics_listener = listen.filter(|_| !options.takeover).map(metrics::listen).transpose()?;
    let seals = Seals::of(&path).map_err(failed)?;
    if config.service.confine {
        // Ports and sockets are open, and no thread runs yet that would keep what this one gives up.
        confine::drop_capabilities()?;
    }
    let tracepoints = Arc::new(Tracepoints::new(clock, &handles, &hosts, traces));
    journal.iter().for_each(|journal| keep_records(journal, &mut paths, &hosts));
    let taken = taking.map(|taking| taking.finish(&mut paths, &hosts)).transpose()?;
    journal.iter_mut().for_each(|journal| journal.publish(clock));
    let threads = start(paths, &config.service.thread)?;
    let storage = blocks.places.clone();
    let _block_sockets = blocks.start()?;
    let (sockets, peers) = settle_in(&path, opened, taken, clock)?;
    let observer = Observer::new(handles.clone(), hosts.clone(), zeronics.clone(), path.clone());
    let observer = Arc::new(observer.with_storage(storage.clone()));
    let modules = Modules::new(Arc::clone(&observer));
    match modules.load_configured() {
        // The connections that it took over are worth more than a module.
        Err(sentence) if options.takeover => tracing::error!("{sentence}"),
        loaded => loaded?,
    }
    if options.takeover {
        metrics_listener = listen.and_then(metrics::listen_patiently);
    }
    if let Some(listener) = metrics_listener {
        metrics::serve(listener, Metrics::new(Arc::clone(&observer), Arc::clone(&tracepoints)))?;
    }
    let management =
        Management::new(observer, modules, tracepoints, operators.clone(), owners.clone()).map_err(failed)?;
    let applications = Applications::new(handles.clone(), hosts, operators, seals);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let (next, config) = (FIRST_PEER, config.clone());
    let (programs, spare) = (Programs::new().map_err(failed)?, spare());
    let comm = QueuePrograms::new(zeronics, storage).map_err(failed)?;
    let mut desk =
        Desk { epoll, sockets, applications, programs, comm, management, owners, next, spare, config, clock };
    desk.watch_all(&signals).map_err(failed)?;
    desk.adopt(peers);
    let manager = ServiceManager::of_environment();
    // Before the announcement: a process that waits for it ends then, and the service manager needs its successor.
    if options.takeover {
        manager.took_over()
    } else {
        manager.ready()
    }
    announce(&desk.config, options, &path);
    if desk.config.service.confine {
        confine::filter_system_calls()?;
    }
    let ended = desk.serve();
    desk.end(&ended, &manager, &handles);
    handles.iter().for_each(Handle::stop);
    threads.into_iter().for_each(|thread| drop(thread.join()));
    if !matches!(ended, Ended::TakenOver) {
        journal.into_iter().for_each(Journal::end);
    }
    Ok(())
}

/// The clock goes on from that of the daemon whose connections may go on.
fn clock(taking: Option<&Taking>, journal: Option<&Journal>) -> Clock {
    match (taking, journal) {
        (Some(taking), _) => taking.clock,
        (None, Some(journal)) => journal.clock(),
        (None, None) => Clock::start(),
    }
}

/// Where connections have records that outlive the daemon; nowhere where that cannot be.
fn journal(config: &Config, options: &Options, path: &Path) -> Option<Journal> {
    let journal = if options.takeover { Journal::fresh(path, config) } else { Journal::of(path, config) };
    journal.inspect_err(|sentence| tracing::warn!("{sentence}")).ok()
}

/// Each host has its records there, and connections that the last daemon left wait for their programs.
fn keep_records(journal: &Journal, paths: &mut [DataPath], hosts: &[HostPlace]) {
    for place in hosts {
        let name = &place.config.stack.name;
        let records = journal.records(name);
        match records.map_or(0, |records| paths[place.thread].keep_records(place.index, records)) {
            0 => {}
            left => tracing::info!("connections of {name} that the last daemon left wait for their programs: {left}"),
        }
    }
}

/// The configuration, with what depends on whose daemon it is. A sentence where the machine cannot serve it.
fn settled(config: &Config, options: &Options) -> Result<Config, String> {
    crate::config::cores(config)?;
    let mut config = config.clone();
    let rdma = if options.owner.is_some() { RdmaUsers::Own } else { RdmaUsers::Off };
    for host in &mut config.hosts {
        host.rdma = host.rdma.or(Some(rdma));
        host.rdma_raw_packets = host.rdma_raw_packets.or(Some(options.owner.is_some()));
    }
    Ok(config)
}

/// Attached processes: their connections, index of the host, context.
type Peers = Vec<(OwnedFd, usize, ContextId)>;

/// The sockets that a daemon has opened, or those of the one that it took over, with whoever is attached.
fn settle_in(
    path: &Path,
    opened: Option<Sockets>,
    taken: Option<TakenHosts>,
    clock: Clock,
) -> Result<(Sockets, Peers), String> {
    match (opened, taken) {
        (Some(sockets), _) => Ok((sockets, Vec::new())),
        (None, Some(taken)) => {
            let TakenHosts { listeners, peers, connections, stopped } = taken;
            let pause = clock.now().saturating_sub(stopped) as f64 / 1e6;
            let plural = |count: usize| if count == 1 { "" } else { "s" };
            let (programs, one) = (peers.len(), if connections == 1 { "it" } else { "they" });
            tracing::info!(
                "took over {connections} connection{} of {programs} program{}; {one} stood still for {pause:.2} ms",
                plural(connections),
                plural(programs)
            );
            Ok((Sockets::adopt(path, listeners), peers))
        }
        (None, None) => Err("there is no socket".into()),
    }
}

/// Why a daemon ends.
enum Ended {
    Requested,
    OwnerGone,
    TakenOver,
}

/// Whether a daemon goes on.
enum Lingers {
    /// Until somebody comes, or this time is over.
    For(Option<Timespec>),
    NoMore,
}

/// The main thread's place: it waits for connections.
struct Desk {
    epoll: OwnedFd,
    sockets: Sockets,
    applications: Applications,
    programs: Programs,
    comm: QueuePrograms,
    management: Management,
    /// The processes that the daemon belongs to.
    owners: Option<Arc<Owners>>,
    /// Number of the next connection.
    next: u64,
    /// Given up for a moment where there is no other descriptor left.
    spare: Option<OwnedFd>,
    config: Config,
    clock: Clock,
}

// What a descriptor in the main thread's epoll set is.
const SIGNAL: u64 = 0;
const ATTACH: u64 = 1;
const MANAGE: u64 = 2;
const OWNERS: u64 = 3;
const STOP: u64 = 4;
const PROGRAMS: u64 = 5;
const COMM: u64 = 6;
const RETURN: u64 = 7;
const FIRST_PEER: u64 = 16;

impl Desk {
    fn watch_all(&self, signals: &UnixStream) -> io::Result<()> {
        self.watch(signals.as_fd(), SIGNAL)?;
        self.watch(self.sockets.attach.as_fd(), ATTACH)?;
        self.watch(self.sockets.management.as_fd(), MANAGE)?;
        self.sockets.returning.as_ref().map_or(Ok(()), |socket| self.watch(socket.as_fd(), RETURN))?;
        self.watch(self.management.stop_fd(), STOP)?;
        self.watch(self.programs.wake_fd(), PROGRAMS)?;
        self.watch(self.comm.wake_fd(), COMM)?;
        self.owners.as_ref().map_or(Ok(()), |owners| self.watch(owners.fd(), OWNERS))
    }

    fn watch(&self, fd: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?)
    }

    /// Serves until the daemon is to end.
    fn serve(&mut self) -> Ended {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
        let mut unused_since = None;
        loop {
            let timeout = match self.lingers(&mut unused_since) {
                Lingers::For(timeout) => timeout,
                Lingers::NoMore => return Ended::OwnerGone,
            };
            let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
            for event in &events[..count] {
                match event.data.u64() {
                    SIGNAL | STOP => return Ended::Requested,
                    ATTACH => self.admit(Door::Attach),
                    RETURN => self.admit(Door::Return),
                    MANAGE => self.answer(),
                    OWNERS => self.owners.iter().for_each(|owners| owners.reap()),
                    PROGRAMS => self.programs.reap(),
                    COMM => self.comm.reap(),
                    number => match self.applications.readable(number) {
                        Spoken::Done => {}
                        Spoken::TakeOver(socket) => {
                            if self.hand_over(socket) {
                                return Ended::TakenOver;
                            }
                        }
                        Spoken::Verbs(socket, hello) => self.serve_program(socket, &hello),
                        Spoken::Comm(socket, hello) => {
                            let _ = epoll::delete(&self.epoll, &socket);
                            self.comm.start(socket, &hello);
                        }
                    },
                }
            }
        }
    }

    /// How long to wait for whoever comes, where `unused_since` is when the last owner and program left.
    fn lingers(&self, unused_since: &mut Option<Instant>) -> Lingers {
        let Some(owners) = self.owners.as_ref().filter(|owners| self.attached() == 0 && owners.none()) else {
            *unused_since = None;
            return Lingers::For(None);
        };
        let linger = if owners.shared() { LINGER } else { Duration::ZERO };
        let left = linger.saturating_sub(unused_since.get_or_insert_with(Instant::now).elapsed());
        if left.is_zero() && owners.close_if_none() {
            return Lingers::NoMore;
        }
        // A process that joins meanwhile does not wake this thread: it polls again then.
        Lingers::For(Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }))
    }

    /// Detaches all programs, and connections end in order, unless another daemon goes on with them.
    fn end(&mut self, ended: &Ended, manager: &ServiceManager, handles: &[Handle]) {
        let timeout = match ended {
            Ended::TakenOver => return,
            Ended::OwnerGone => LONG_FAREWELL,
            Ended::Requested => FAREWELL,
        };
        manager.stopping();
        if matches!(ended, Ended::Requested) {
            tracing::info!("the daemon ends by request; programs that are attached: {}", self.attached());
        }
        self.applications.remove_all();
        self.programs.remove_all();
        farewell(handles, timeout);
    }

    /// Attached programs of all kinds.
    fn attached(&self) -> usize {
        self.applications.attached() + self.programs.count() + self.comm.count()
    }

    /// A verbs library's hello: from now on a thread of its program's own has its socket.
    fn serve_program(&mut self, socket: OwnedFd, hello: &[u8]) {
        let _ = epoll::delete(&self.epoll, &socket);
        let (handles, hosts) = self.applications.places();
        let places = Places { hosts, handles, zeronics: self.comm.zeronics() };
        self.programs.start(socket, hello, places);
    }

    /// Goes on with processes that were attached to another daemon.
    fn adopt(&mut self, peers: Peers) {
        for (socket, host, context) in peers {
            let number = self.next;
            self.next += 1;
            let watched = self.watch(socket.as_fd(), number);
            self.applications.adopt(number, socket, host, context);
            if watched.is_err() {
                self.applications.remove(number);
            }
        }
    }

    /// A new daemon asks to take over; returns whether it did.
    fn hand_over(&mut self, socket: OwnedFd) -> bool {
        let _ = epoll::delete(&self.epoll, &socket);
        let (handles, hosts) = self.applications.places();
        let giving = Giving {
            handles,
            hosts,
            listeners: [self.sockets.attach.as_fd(), self.sockets.management.as_fd()],
            peer: &|place, context| self.applications.peer(place, context),
        };
        match give(&giving, socket, self.clock) {
            Ok(()) => {
                tracing::info!("another daemon took over");
                self.sockets.keep();
                true
            }
            Err(sentence) => {
                tracing::warn!("a takeover came to nothing: {sentence}");
                false
            }
        }
    }

    /// Somebody connected to the attach socket, or to the one for processes with tickets.
    fn admit(&mut self, door: Door) {
        let socket = match handover::accept(self.sockets.behind(door)) {
            Ok(socket) => socket,
            Err(error) => return self.refuse(door, &error),
        };
        let number = self.next;
        self.next += 1;
        self.applications.add(number, socket, door);
        let watched = self.applications.socket(number).map(|socket| self.watch(socket, number));
        if !matches!(watched, Some(Ok(()))) {
            self.applications.remove(number);
        }
    }

    /// Without a descriptor for a new connection, the socket would stay readable and this thread would spin. The
    /// spare one lets them in, and out again at once. Where even that one is gone, because the limit was lowered, it
    /// turns slowly.
    fn refuse(&mut self, door: Door, error: &io::Error) {
        if !matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
            return;
        }
        drop(self.spare.take());
        match handover::accept(self.sockets.behind(door)) {
            Ok(_) => {
                tracing::warn!("an application was turned away: the daemon has no descriptor left (LimitNOFILE)");
            }
            Err(_) => std::thread::sleep(BREATH),
        }
        self.spare = spare();
    }

    /// Somebody connected to the management socket.
    fn answer(&mut self) {
        if let Ok((stream, _)) = self.sockets.management.accept() {
            self.management.serve(stream);
        }
    }
}

/// Between two tries to accept, while there is no descriptor for it.
const BREATH: Duration = Duration::from_millis(50);

fn spare() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

/// As many descriptors as the system allows this process: each application takes several.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A stream that becomes readable when the daemon is asked to end by a signal.
fn signals(options: &Options) -> io::Result<UnixStream> {
    if options.owner.is_some() {
        // A session of its own: Ctrl-C is for the program, whose end the daemon sees anyway.
        let _ = rustix::process::setsid();
    }
    let (sender, receiver) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    Ok(receiver)
}

/// Starts the data-path threads, each on its core where one is asked for.
fn start(paths: Vec<DataPath>, configs: &[ThreadConfig]) -> Result<Vec<JoinHandle<()>>, String> {
    let mut threads = Vec::new();
    for (index, path) in paths.into_iter().enumerate() {
        let core = configs.get(index).and_then(|config| config.core);
        let body = move || {
            if let Some(core) = core {
                pin(core);
            }
            path.run();
        };
        let thread = thread::Builder::new().name(format!("datapath {index}")).spawn(body);
        threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
    }
    Ok(threads)
}

fn announce(config: &Config, options: &Options, path: &Path) {
    for host in &config.hosts {
        let (stack, ports) = (&host.stack, host.ports.iter().map(|port| port.kind.name()).collect::<Vec<_>>());
        let v6 =
            stack.ipv6.address.map(|address| format!(" and {address}/{}", stack.ipv6.prefix_len)).unwrap_or_default();
        let (name, address, prefix_len, engine) = (&stack.name, stack.address, stack.prefix_len, host.engine.name());
        tracing::info!("host {name} is {address}/{prefix_len}{v6} ({engine}, {})", ports.join(", "));
    }
    tracing::info!("applications attach at {}", path.display());
    if options.announce {
        // The receiver may be gone; then nothing waits for it.
        let _ = writeln!(io::stdout(), "ready");
    }
    if let Some(log) = &options.log {
        if let Err(error) = leave_streams(log) {
            tracing::warn!("cannot log to {}: {error}", log.display());
        }
    }
}

/// Standard error goes to a file from now on, standard output nowhere: they may be pipes whose end a reader waits for.
pub fn leave_streams(log: &Path) -> io::Result<()> {
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    rustix::stdio::dup2_stderr(File::options().create(true).append(true).open(log)?)?;
    Ok(())
}

/// Serves on until all connections have ended in order, within limits: the applications are gone, but what they wrote
/// last may be on its way.
fn farewell(handles: &[Handle], timeout: Duration) {
    let begin = Instant::now();
    let busy = || handles.iter().any(|handle| handle.ask(|path| path.open_flows() > 0).unwrap_or(false));
    while busy() && begin.elapsed() < timeout {
        thread::sleep(Duration::from_millis(5));
    }
}
