//! The worker: the process of the functions. Its first thread carries out what the supervisor orders, and manages
//! connections; the others run functions ([`crate::runner`]).
use crate::call::CALLS;
use crate::connections::Connections;
use crate::device::Device;
use crate::dma::Host;
use crate::library::{Functions, Library};
use crate::limits::{CONNECTIONS, SLOTS, Settings};
use crate::protocol::{Answer, Order, Program, Request, View, refused};
use crate::protocol::{Library as Shown, Opcode};
use crate::runner::{Runner, Thread};
use crate::status::{LOADER, Status};
use crate::wake::Wake;
use crate::watchdog::Watchdog;
use memory::{AddressSpace, Limits, MemoryTable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use shm::handover;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use verbs::control::Request as Control;
use verbs::functions::{Library as Figures, MOST_SENTENCE, Report};

/// How often it reports to the daemon what functions came to.
const REPORT_EACH: Duration = Duration::from_secs(1);

struct Worker {
    device: Arc<Device>,
    outstanding: Arc<AtomicU64>,
    status: Status,
    watchdog: Arc<Watchdog>,
    functions: Arc<RwLock<Functions>>,
    connections: Connections,
    table: Arc<MemoryTable>,
    hosts: HashMap<u32, HostProgram>,
}

struct HostProgram {
    host: Arc<Host>,
    space: Option<Arc<AddressSpace>>,
}

/// Runs the worker: orders come by this socket. It comes back when the supervisor, or the daemon, has gone.
///
/// # Errors
/// What the worker needs is not there.
pub(crate) fn run(orders: &OwnedFd) -> io::Result<()> {
    let (message, files) = handover::recv(orders.as_fd())?;
    let (Ok(Order::Begin { settings, restarts, last_end }), Some(status)) =
        (serde_json::from_slice(&message), files.into_iter().next())
    else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the supervisor's first order is none"));
    };
    let data = Rlimit { current: Some(settings.memory), maximum: Some(settings.memory) };
    setrlimit(Resource::Data, data)?;
    let status = Status::from_fd(status)?;
    status.settle(LOADER);
    let mut worker = match Worker::begin(&settings, status) {
        Ok(worker) => worker,
        Err(error) => return answer(orders, &refused(error.raw_os_error().unwrap_or(libc::EIO), error.to_string())),
    };
    answer(orders, &Answer::Done)?;
    let mut reporter = Reporter::new(Arc::clone(&worker.device), restarts, last_end);
    loop {
        reporter.report(&worker);
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(orders, PollFlags::IN)];
        fds.extend(worker.connections.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let pause = Timespec::try_from(REPORT_EACH).unwrap_or_default();
        poll(&mut fds, Some(&pause))?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1..].contains(&true) {
            worker.connections.poll()?;
        }
        if ready[0] {
            let (message, files) = handover::recv(orders.as_fd())?;
            if message.is_empty() {
                return Ok(());
            }
            let order = serde_json::from_slice(&message).map_err(io::Error::other)?;
            answer(orders, &worker.obey(order, files))?;
        }
    }
}

fn answer(orders: &OwnedFd, answer: &Answer) -> io::Result<()> {
    handover::send(orders.as_fd(), &serde_json::to_vec(answer)?, &[])
}

impl Worker {
    fn begin(settings: &Settings, status: Status) -> io::Result<Worker> {
        let device = Arc::new(Device::open(&settings.daemon, settings.host.as_deref())?);
        let control = Arc::new(Wake::new()?);
        let (gone, ended) = channel();
        let (watchdog, functions, outstanding) = (Arc::new(Watchdog::default()), Arc::default(), Arc::default());
        let mut threads = Vec::new();
        for place in 0..settings.threads {
            let events = device.channel(&Control::OpenChannel)?;
            rustix::io::ioctl_fionbio(&events.pipe, true)?;
            let entries = (CONNECTIONS * SLOTS * 2) as u32;
            let cq = device.cq(entries, events.number)?;
            let (messages, inbox) = channel();
            let wake = Arc::new(Wake::new()?);
            threads.push(Thread { cq: cq.number, links: 0, messages, wake: Arc::clone(&wake) });
            let runner = Runner {
                place,
                device: Arc::clone(&device),
                cq,
                events: events.pipe,
                messages: inbox,
                gone: gone.clone(),
                control: Arc::clone(&control),
                wake,
                functions: Arc::clone(&functions),
                status: status.clone(),
                watchdog: Arc::clone(&watchdog),
                outstanding: Arc::clone(&outstanding),
                call: settings.call,
            };
            std::thread::Builder::new().name(format!("offload-{place}")).spawn(move || runner.run())?;
        }
        watchdog.start(
            threads.iter().map(|thread| Arc::clone(&thread.wake)).collect(),
            status.clone(),
            settings.quantum,
        );
        let connections = Connections::new(Arc::clone(&device), threads, ended, control)?;
        let table = Arc::new(MemoryTable::new(Limits::default())?);
        let hosts = HashMap::new();
        Ok(Worker { device, outstanding, status, watchdog, functions, connections, table, hosts })
    }

    fn obey(&mut self, order: Order, files: Vec<OwnedFd>) -> Answer {
        let done = match order {
            Order::Load { name, number } => self.load(name, number, files),
            Order::Host(number, request) => self.host(number, request, files),
            Order::Leave(number) => {
                self.leave(number);
                Ok(())
            }
            Order::Request(Request::Unload { name }) => self.unload(&name),
            Order::Request(Request::Ls) => return Answer::View(self.view()),
            Order::Begin { .. } | Order::Request(_) => Err((libc::EINVAL, "no such order".into())),
        };
        done.map_or_else(|(errno, why)| refused(errno, why), |()| Answer::Done)
    }

    fn load(&mut self, name: String, number: u64, files: Vec<OwnedFd>) -> Result<(), (i32, String)> {
        let file = files.into_iter().next().ok_or_else(|| (libc::EINVAL, "the library is missing".to_string()))?;
        // Its constructors and its offload_init run here.
        self.status.enter(LOADER, number);
        self.watchdog.wake();
        let loaded = Library::load(name, number, file, &CALLS);
        self.status.leave(LOADER);
        let library = loaded.map_err(|why| (libc::ENOEXEC, why))?;
        let next = self.functions().with(library).map_err(|why| (libc::EBUSY, why))?;
        self.replace(next);
        Ok(())
    }

    fn unload(&mut self, name: &str) -> Result<(), (i32, String)> {
        let next = self.functions().without(name);
        self.replace(next.ok_or_else(|| (libc::ENOENT, format!("no library is called {name}")))?);
        Ok(())
    }

    fn functions(&self) -> Functions {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, next: Functions) {
        let before = std::mem::replace(&mut *self.functions.write().unwrap_or_else(PoisonError::into_inner), next);
        // A library that is unloaded here runs its destructors, without the lock.
        drop(before);
    }

    fn host(&mut self, number: u32, request: Request, files: Vec<OwnedFd>) -> Result<(), (i32, String)> {
        if let Request::Open { port } = request {
            let host = Arc::new(Host::new(port, number, &self.table));
            self.connections.listen(&host).map_err(of_io)?;
            self.hosts.insert(number, HostProgram { host, space: None });
            return Ok(());
        }
        let of = self.hosts.get_mut(&number).ok_or_else(|| (libc::EINVAL, "the program opened no port".to_string()))?;
        match request {
            Request::Space => {
                let file = files.into_iter().next().ok_or_else(|| (libc::EINVAL, "a descriptor is missing".into()))?;
                let space = AddressSpace::from_fd(file).map_err(|refusal| (refusal.errno(), refusal.to_string()))?;
                of.space = Some(Arc::new(space));
                Ok(())
            }
            Request::Region(description) => {
                let done = of.host.register(&description, &files, of.space.as_ref());
                done.map_err(|errno| (errno, "the DMA region is refused".into()))
            }
            _ => Err((libc::EINVAL, "no request of a host program".into())),
        }
    }

    fn leave(&mut self, number: u32) {
        if let Some(HostProgram { host, .. }) = self.hosts.remove(&number) {
            host.remove();
            self.connections.stop(&host);
        }
    }

    fn view(&self) -> View {
        let show = |library: &Arc<Library>| Shown {
            name: library.name.clone(),
            number: library.number,
            opcodes: library.functions.iter().map(|(opcode, _)| *opcode).collect::<Vec<Opcode>>(),
            calls: library.counts.calls.load(Relaxed),
            failed: library.counts.failed.load(Relaxed),
            timed_out: library.counts.timed_out.load(Relaxed),
            busy_ns: library.counts.busy_ns.load(Relaxed),
            dma: library.counts.dma.load(Relaxed),
            stopped: None,
        };
        let program = |(number, of): (&u32, &HostProgram)| {
            let ((regions, bytes), connections) = (of.host.usage(), of.host.connections.load(Relaxed));
            // The supervisor has the process.
            Program { pid: *number, port: of.host.port, regions, bytes, connections }
        };
        let libraries = self.functions().libraries().iter().map(show).collect();
        View { libraries, hosts: self.hosts.iter().map(program).collect(), ..View::default() }
    }
}

/// Reports figures of functions to the daemon, for `opentoe stats` and metrics.
struct Reporter {
    device: Arc<Device>,
    restarts: u32,
    last_end: Option<String>,
    last: Option<(Instant, Report)>,
}

impl Reporter {
    fn new(device: Arc<Device>, restarts: u32, last_end: Option<String>) -> Reporter {
        // A character has four bytes at most.
        let last_end = last_end.map(|why| why.chars().take(MOST_SENTENCE / 4).collect());
        Reporter { device, restarts, last_end, last: None }
    }

    /// Reports where something has changed, from time to time.
    fn report(&mut self, worker: &Worker) {
        if self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < REPORT_EACH) {
            return;
        }
        let libraries = worker.view().libraries.into_iter().map(|library| Figures {
            name: library.name,
            calls: library.calls,
            failed: library.failed,
            timed_out: library.timed_out,
            busy_ns: library.busy_ns,
            dma: library.dma,
        });
        let report = Report {
            restarts: self.restarts,
            last_end: self.last_end.clone(),
            outstanding_dma: worker.outstanding.load(Relaxed),
            libraries: libraries.collect(),
        };
        if self.last.as_ref().is_none_or(|(_, last)| *last != report) {
            // That a daemon has gone is noticed elsewhere.
            let _ = self.device.ask(&Control::Report(report.clone()), &[]);
        }
        self.last = Some((Instant::now(), report));
    }
}

fn of_io(error: io::Error) -> (i32, String) {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::AddrInUse => libc::EADDRINUSE,
        _ => libc::EIO,
    });
    (errno, error.to_string())
}
