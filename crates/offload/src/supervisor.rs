//! The supervisor: the process that stays. It has the socket, keeps what was loaded and opened, and starts a worker.
//! When a worker dies, it starts another one with all of that, but without the library that the worker died in.
use crate::limits::{HOSTS, LIBRARIES, MOST_LIBRARY, Settings};
use crate::protocol::{Answer, Library, Order, Request, View, refused};
use crate::status::Status;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create, sendfile};
use shm::handover;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A worker that lived for less counts as one that cannot live: the next one is started later, and later.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Signals that a process gets for what it does itself. Any other one came from outside, and no library is to blame.
const FATAL: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGSYS];
/// The argument by which this program is a worker.
pub(crate) const WORKER: &str = "--worker";

/// A library, as it was loaded.
struct Loaded {
    name: String,
    number: u64,
    file: OwnedFd,
    stopped: Option<String>,
}

/// A host program: what it asked for, to be asked for again.
struct Opened {
    number: u32,
    pid: u32,
    requests: Vec<(Request, Vec<OwnedFd>)>,
}

#[derive(Default)]
struct State {
    worker: Option<Running>,
    restarts: u32,
    last_end: Option<String>,
    libraries: Vec<Loaded>,
    hosts: Vec<Opened>,
    numbers: u64,
}

struct Running {
    pid: u32,
    orders: OwnedFd,
    status: Status,
}

/// An offload engine, without its worker.
pub(crate) struct Supervisor {
    settings: Settings,
    state: Mutex<State>,
}

impl Supervisor {
    /// Starts the first worker, and serves the socket. It comes back only where that fails.
    ///
    /// # Errors
    /// A sentence: the socket cannot be, or the first worker cannot work.
    pub(crate) fn run(settings: Settings, socket: &Path, ready: impl FnOnce()) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let listener = handover::listen(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(socket, mode).map_err(failed)?;
        let supervisor = Arc::new(Supervisor { settings, state: Mutex::default() });
        let (mut child, running) = supervisor.spawn().map_err(failed)?;
        supervisor.state().worker = Some(running);
        let serving = Arc::clone(&supervisor);
        std::thread::spawn(move || serving.serve(&listener));
        ready();
        let mut pause = FIRST_PAUSE;
        loop {
            let begin = Instant::now();
            let ended = child.wait().map_err(failed)?;
            supervisor.worker_ended(ended);
            pause = if begin.elapsed() < SHORT_LIFE { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
            child = supervisor.another(pause);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a worker, and waits until it works.
    fn spawn(&self) -> io::Result<(Child, Running)> {
        let (orders, theirs) = handover::pair()?;
        let status = Status::new()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("opentoe-offload");
        let mut child = command.arg(WORKER).stdin(Stdio::from(theirs)).stdout(Stdio::null()).spawn()?;
        rustix::net::sockopt::set_socket_timeout(&orders, rustix::net::sockopt::Timeout::Recv, Some(TIMEOUT))?;
        let running = Running { pid: child.id(), orders, status };
        let begin = {
            let state = self.state();
            Order::Begin { settings: self.settings.clone(), restarts: state.restarts, last_end: state.last_end.clone() }
        };
        let error = match running.order(&begin, &[running.status.fd()]) {
            Ok(Answer::Done) => return Ok((child, running)),
            Ok(Answer::Refused { why, .. }) => io::Error::other(why),
            Ok(Answer::View(_)) => io::ErrorKind::InvalidData.into(),
            Err(error) => error,
        };
        let _ = child.kill();
        let _ = child.wait();
        Err(error)
    }

    /// Another worker with all that there was; tries until there is one.
    fn another(&self, mut pause: Duration) -> Child {
        loop {
            std::thread::sleep(pause);
            match self.spawn() {
                Ok((child, running)) => {
                    let mut state = self.state();
                    state.begin_again(&running);
                    state.worker = Some(running);
                    return child;
                }
                Err(error) => {
                    let why = format!("no worker can be started: {error}");
                    let mut state = self.state();
                    if state.last_end.as_ref() != Some(&why) {
                        eprintln!("opentoe-offload: {why}; it is tried again");
                        state.last_end = Some(why);
                    }
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Finds out what a worker died of, and stops that library.
    fn worker_ended(&self, ended: ExitStatus) {
        let mut state = self.state();
        let Some(Running { pid, status, .. }) = state.worker.take() else { return };
        let quantum = self.settings.quantum.as_millis();
        let (blamed, why) = match (status.blamed(), ended.signal()) {
            (Some(library), _) => (vec![library], format!("it ran for more than {quantum} ms without waiting")),
            (None, Some(signal)) if FATAL.contains(&signal) => {
                (status.running(), format!("its process ended by signal {signal}"))
            }
            _ => (Vec::new(), format!("the worker ended: {ended}")),
        };
        for library in state.libraries.iter_mut().filter(|library| blamed.contains(&library.number)) {
            library.stopped = Some(why.clone());
            eprintln!("opentoe-offload: library {} is stopped: {why}", library.name);
        }
        eprintln!("opentoe-offload: worker {pid} has ended ({why}); another one is started");
        state.restarts += 1;
        state.last_end = Some(why);
    }

    fn serve(self: Arc<Self>, listener: &OwnedFd) {
        loop {
            use rustix::event::{PollFd, PollFlags, poll};
            let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], None);
            let Ok(client) = handover::accept(listener.as_fd()) else {
                // Without a descriptor for whoever knocks, the socket stays readable.
                std::thread::sleep(FIRST_PAUSE);
                continue;
            };
            let supervisor = Arc::clone(&self);
            std::thread::spawn(move || supervisor.talk(&client));
        }
    }

    /// Serves a client until it goes.
    fn talk(&self, client: &OwnedFd) {
        let Ok(who) = handover::credentials(client.as_fd()) else { return };
        let allowed = who.uid == 0 || who.uid == rustix::process::getuid().as_raw();
        let mut opened = None;
        while let Ok((message, files)) = handover::recv(client.as_fd()) {
            if message.is_empty() {
                break;
            }
            let answer = match serde_json::from_slice(&message) {
                _ if !allowed => refused(libc::EPERM, "the offload engine is another user's"),
                Ok(request) => self.answer(request, files, &mut opened, who.pid as u32),
                Err(error) => refused(libc::EINVAL, format!("no such request: {error}")),
            };
            let Ok(answer) = serde_json::to_vec(&answer) else { break };
            if handover::send(client.as_fd(), &answer, &[]).is_err() {
                break;
            }
        }
        if let Some(number) = opened {
            let mut state = self.state();
            state.hosts.retain(|host| host.number != number);
            let _ = state.order(&Order::Leave(number), &[]);
        }
    }

    fn answer(&self, request: Request, files: Vec<OwnedFd>, opened: &mut Option<u32>, pid: u32) -> Answer {
        let mut state = self.state();
        let done = match request {
            Request::Load { name } => state.load(name, files),
            Request::Unload { name } => state.unload(name),
            Request::Ls => return Answer::View(state.view()),
            Request::Open { .. } | Request::Space | Request::Region(_) => state.host(request, files, opened, pid),
        };
        done.unwrap_or_else(|error| refused(error.raw_os_error().unwrap_or(libc::EIO), error.to_string()))
    }
}

impl Running {
    fn order(&self, order: &Order, files: &[BorrowedFd<'_>]) -> io::Result<Answer> {
        handover::send(self.orders.as_fd(), &serde_json::to_vec(order)?, files)?;
        let (message, _) = handover::recv(self.orders.as_fd())?;
        if message.is_empty() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the worker ended"));
        }
        Ok(serde_json::from_slice(&message)?)
    }
}

impl State {
    fn order(&self, order: &Order, files: &[BorrowedFd<'_>]) -> io::Result<Answer> {
        let worker = self.worker.as_ref();
        worker.ok_or_else(|| io::Error::new(io::ErrorKind::WouldBlock, "no worker runs now"))?.order(order, files)
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn load(&mut self, name: String, files: Vec<OwnedFd>) -> io::Result<Answer> {
        let others = self.libraries.iter().filter(|library| library.name != name).count();
        if name.is_empty() || name.len() > 64 || others >= LIBRARIES {
            return Ok(refused(
                libc::EINVAL,
                format!("a name has 1 to 64 bytes, and there are {LIBRARIES} libraries at most"),
            ));
        }
        let file = files.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
        let file = copy(&file)?;
        let number = self.next_number();
        let answer = self.order(&Order::Load { name: name.clone(), number }, &[file.as_fd()]);
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => io::Error::other("it crashed when it was loaded (or never returned)"),
            _ => error,
        })?;
        if answer == Answer::Done {
            self.libraries.retain(|library| library.name != name);
            self.libraries.push(Loaded { name, number, file, stopped: None });
        }
        Ok(answer)
    }

    fn unload(&mut self, name: String) -> io::Result<Answer> {
        let known = self.libraries.iter().find(|library| library.name == name).map(|library| library.stopped.is_some());
        self.libraries.retain(|library| library.name != name);
        match known {
            None => Ok(refused(libc::ENOENT, format!("no library is called {name}"))),
            // The worker does not have it.
            Some(true) => Ok(Answer::Done),
            Some(false) => self.order(&Order::Request(Request::Unload { name }), &[]),
        }
    }

    fn host(
        &mut self,
        request: Request,
        files: Vec<OwnedFd>,
        opened: &mut Option<u32>,
        pid: u32,
    ) -> io::Result<Answer> {
        let opens = matches!(request, Request::Open { .. });
        if opens == opened.is_some() || self.hosts.len() >= HOSTS + usize::from(!opens) {
            return Ok(refused(libc::EINVAL, "a program opens one port, first; 64 programs at most"));
        }
        let number = match *opened {
            Some(number) => number,
            None => self.next_number() as u32,
        };
        let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        let answer = self.order(&Order::Host(number, request.clone()), &borrowed)?;
        if answer == Answer::Done {
            if opens {
                *opened = Some(number);
                self.hosts.push(Opened { number, pid, requests: Vec::new() });
            }
            if let Some(of) = self.hosts.iter_mut().find(|host| host.number == number) {
                of.requests.push((request, files));
            }
        }
        Ok(answer)
    }

    /// A new worker gets all that there was.
    fn begin_again(&mut self, worker: &Running) {
        for host in &self.hosts {
            for (request, files) in &host.requests {
                let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                let order = Order::Host(host.number, request.clone());
                report_refusal(retried(|| worker.order(&order, &files)), "a host program");
            }
        }
        for library in self.libraries.iter().filter(|library| library.stopped.is_none()) {
            let order = Order::Load { name: library.name.clone(), number: library.number };
            report_refusal(worker.order(&order, &[library.file.as_fd()]), &format!("library {}", library.name));
        }
    }

    fn view(&self) -> View {
        let mut view = match self.order(&Order::Request(Request::Ls), &[]) {
            Ok(Answer::View(view)) => view,
            _ => View::default(),
        };
        for program in &mut view.hosts {
            let of = self.hosts.iter().find(|host| host.number == program.pid);
            program.pid = of.map_or(0, |host| host.pid);
        }
        let stopped = self.libraries.iter().filter(|library| library.stopped.is_some());
        view.libraries.extend(stopped.map(|library| Library {
            name: library.name.clone(),
            number: library.number,
            stopped: library.stopped.clone(),
            ..Library::default()
        }));
        view.libraries.sort_by(|one, other| one.name.cmp(&other.name));
        let worker = self.worker.as_ref().map(|worker| worker.pid);
        View { worker, restarts: self.restarts, last_end: self.last_end.clone(), ..view }
    }
}

/// The daemon may still have the port of the worker that has died.
fn retried(mut order: impl FnMut() -> io::Result<Answer>) -> io::Result<Answer> {
    let begin = Instant::now();
    loop {
        match order() {
            Ok(Answer::Refused { errno: libc::EADDRINUSE, .. }) if begin.elapsed() < TIMEOUT => {
                std::thread::sleep(FIRST_PAUSE);
            }
            answer => return answer,
        }
    }
}

fn report_refusal(answer: io::Result<Answer>, what: &str) {
    match answer {
        Ok(Answer::Refused { why, .. }) => eprintln!("opentoe-offload: {what} is not there any more: {why}"),
        Err(error) => eprintln!("opentoe-offload: {what} is not there any more: {error}"),
        Ok(_) => {}
    }
}

/// A copy of a file in memory that nobody changes any more.
fn copy(file: &OwnedFd) -> io::Result<OwnedFd> {
    let len = fstat(file)?.st_size as u64;
    if len > MOST_LIBRARY {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the library is too large"));
    }
    let copy = memfd_create(c"offload-library", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut at = 0;
    while at < len {
        let left = (len - at) as usize;
        let sent = sendfile(&copy, file, Some(&mut at), left)?;
        if sent == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the library became shorter"));
        }
    }
    fcntl_add_seals(&copy, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(copy)
}
