//! Attaching the process to the daemon.
use crate::lock::Guard;
use crate::state::context_side::Context;
use crate::state::heap;
use crate::state::mapped_region::MappedRegion;
use crate::state::{Lib, Link};
use crate::system::address_space;
use crate::system::own_fd::out_of_the_way;
use crate::table;
use context::attach::{
    Answer, Ask, Asked, HOST_VARIABLE, Hello, SOCKET_VARIABLE, SurvivingConnection, Ticket, Welcome, return_path,
};
use context::{AppEnd, Geometry, Slot};
use shm::{Region, handover};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Whether the process was started to run on OpenTOE.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// The daemon's socket and the host, as the environment named them when the library was loaded. A program may clear it
/// before its first socket, as dovecot does.
static NAMED: OnceLock<(PathBuf, Option<String>)> = OnceLock::new();

/// Reads the environment, once, when the library is loaded.
pub(crate) fn read_environment() {
    let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default());
    let host = std::env::var(HOST_VARIABLE).ok().filter(|host| !host.is_empty());
    ENABLED.store(!path.as_os_str().is_empty(), Relaxed);
    let _ = NAMED.set((path, host));
}

/// True where the library is active in this process.
#[inline]
pub(crate) fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Attaches where that was not done yet. A process that cannot attach ends here, with a sentence: a program is
/// never run half-accelerated.
pub(crate) fn ensure(lib: &mut Guard) {
    match lib.link {
        Link::Detached => match attach(None) {
            Ok(context) => lib.attached(context),
            Err(failure) => refuse(failure.sentence()),
        },
        Link::Lost(..) => lib.come_back(),
        Link::Attached(_) | Link::Dead => {}
    }
}

/// Attaches where that was not done yet and can be: for calls that go on without.
pub(crate) fn if_possible(lib: &mut Guard) {
    if matches!(lib.link, Link::Detached) {
        if let Ok(context) = attach(None) {
            lib.attached(context);
        }
    }
}

/// Ends the process with a sentence on standard error.
pub(crate) fn refuse(sentence: &str) -> ! {
    let line = format!("libtoe: {sentence}\n");
    // SAFETY: writes a local buffer; then the process ends, without running the program's exit handlers.
    unsafe {
        crate::system::real::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(1)
    }
}

/// In the child of a fork: a context of its own, that has what the parent had. A child that cannot attach goes on,
/// with its OpenTOE sockets reset: it may never use them.
pub(crate) fn again_in_child(lib: &mut Lib, token: u64) {
    match attach(Some(token)) {
        Ok(context) => lib.attached(context),
        Err(_) => lib.link = Link::Dead,
    }
}

/// Why a process is not attached: a sentence.
pub(crate) enum Failure {
    /// No daemon is there, or it ended just now.
    Absent(String),
    /// The daemon refuses, or what it offers cannot be used.
    Refused(String),
}

impl Failure {
    /// The sentence.
    pub(crate) fn sentence(&self) -> &str {
        match self {
            Failure::Absent(sentence) | Failure::Refused(sentence) => sentence,
        }
    }
}

/// Attaches with or without a token.
pub(crate) fn attach(token: Option<u64>) -> Result<Context, Failure> {
    attach_within(token, None, None, None)
}

/// How long the answer of a daemon may take that a program with other things to do attaches to.
const TIMEOUT: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

/// Attaches again with the ticket of a listener and the region of an earlier context, where the daemon answers soon.
/// The program may have other things to do.
pub(crate) fn attach_again(ticket: Option<Ticket>, home: Option<&Arc<MappedRegion>>) -> Result<Context, Failure> {
    attach_within(None, ticket, home, Some(TIMEOUT))
}

fn attach_within(
    token: Option<u64>,
    ticket: Option<Ticket>,
    home: Option<&Arc<MappedRegion>>,
    limit: Option<libc::timespec>,
) -> Result<Context, Failure> {
    let (path, host) = NAMED.get().cloned().unwrap_or_default();
    let absent = |e: io::Error| {
        let path = path.display();
        Failure::Absent(format!("no daemon answers at {path} ({e}); start toed, or use `opentoe run`"))
    };
    let comes_back = ticket.is_some() || home.is_some();
    let connected = handover::connect(&path).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied if comes_back => handover::connect(&return_path(&path)),
        _ => Err(error),
    });
    let socket = keep(connected.map_err(absent)?);
    let hello =
        Hello { version: context::VERSION, host, command: command_line(), token, ticket, returns: home.is_some() };
    let greeted =
        introduce(&socket, &hello, home, limit).map_err(absent).and_then(|(answer, fds)| match serde_json::from_slice(
            &answer,
        ) {
            Ok(Answer::Welcome(welcome)) => Ok((welcome, fds)),
            Ok(Answer::Refused(sentence)) => Err(Failure::Refused(sentence)),
            Err(e) => Err(Failure::Refused(format!("the daemon at {} did not answer properly ({e})", path.display()))),
        });
    // The number may be the program's next.
    let (welcome, fds) = greeted.inspect_err(|_| table::clear(socket.as_raw_fd()))?;
    let bytes = welcome.geometry.region_len();
    let home = home.filter(|_| welcome.returned);
    if home.is_none() {
        address_space::before_mapping(bytes);
    }
    map(welcome, fds, socket, home).map_err(|e| {
        let room = address_space::explain(bytes as u64);
        Failure::Refused(format!("cannot use the memory that the daemon offers ({e}){room}"))
    })
}

fn introduce(
    socket: &OwnedFd,
    hello: &Hello,
    home: Option<&Arc<MappedRegion>>,
    limit: Option<libc::timespec>,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let region: Vec<BorrowedFd<'_>> = home.iter().map(|home| home.region.fd()).collect();
    handover::send(socket.as_fd(), &serde_json::to_vec(hello)?, &region)?;
    if let Some(limit) = limit {
        let mut answered = [libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        // SAFETY: polls one descriptor of ours.
        if unsafe { crate::system::real::ppoll_raw(&mut answered, &limit, std::ptr::null()) } <= 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    match receive(socket.as_fd())? {
        (answer, _) if answer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        answer => Ok(answer),
    }
}

/// The region of another context, in which this process has a share of a connection. The daemon's word, not that of
/// whoever passed the connection, is what decides.
pub(crate) fn region_of(socket: BorrowedFd<'_>, context: u32) -> Option<(OwnedFd, Geometry)> {
    match ask(socket, &Ask::Region { context })? {
        (Asked::Region(geometry), region) => Some((region?, geometry)),
        _ => None,
    }
}

/// The ticket of a listener.
pub(crate) fn ticket(socket: BorrowedFd<'_>, binding: u32) -> Option<Ticket> {
    match ask(socket, &Ask::Ticket { binding })? {
        (Asked::Ticket(ticket), _) => Some(ticket),
        _ => None,
    }
}

/// Listens as at an earlier daemon; gives the binding, or an error number.
pub(crate) fn listen(socket: BorrowedFd<'_>, ticket: Ticket, backlog: u32) -> Result<u32, i32> {
    match ask(socket, &Ask::Listen { ticket, backlog }) {
        Some((Asked::Listens(binding), _)) => Ok(binding),
        Some((Asked::Failed(errno), _)) => Err(errno),
        _ => Err(libc::EPROTO),
    }
}

/// Goes on with connections of an earlier daemon; returns which do.
pub(crate) fn resume(socket: BorrowedFd<'_>, connections: Vec<SurvivingConnection>) -> Option<Vec<Slot>> {
    match ask(socket, &Ask::Resume { connections })? {
        (Asked::Resumed(slots), _) => Some(slots),
        _ => None,
    }
}

/// Asks the daemon something, and waits for the answer.
fn ask(socket: BorrowedFd<'_>, question: &Ask) -> Option<(Asked, Option<OwnedFd>)> {
    handover::send(socket, &serde_json::to_vec(question).ok()?, &[]).ok()?;
    let (answer, fds) = receive(socket).ok()?;
    Some((serde_json::from_slice(&answer).ok()?, fds.into_iter().next()))
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    loop {
        match handover::recv(socket) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// With a `home`, the process goes on in the region that it has.
fn map(welcome: Welcome, fds: Vec<OwnedFd>, socket: OwnedFd, home: Option<&Arc<MappedRegion>>) -> io::Result<Context> {
    let fds: [OwnedFd; 3] = fds.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let [region, app_bell, daemon_bell] = fds;
    let home = match home {
        Some(home) => Arc::clone(home),
        None => {
            let region = Arc::new(Region::from_fd(keep(region))?);
            Arc::new(MappedRegion::new(region, welcome.geometry, welcome.context))
        }
    };
    heap::begin(&home);
    let end = AppEnd::new(Arc::clone(&home.region), welcome.geometry, keep(app_bell), keep(daemon_bell))?;
    Ok(Context::new(end, home, welcome, socket, user()))
}

/// The effective user.
pub(crate) fn user() -> libc::uid_t {
    // SAFETY: a plain call.
    unsafe { libc::geteuid() }
}

/// Moves a descriptor of the library out of the program's way.
pub(crate) fn keep(fd: OwnedFd) -> OwnedFd {
    let raw = out_of_the_way(fd.into_raw_fd());
    // SAFETY: `out_of_the_way` gives back a descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// The command line, for people: cut off where it would not fit a message.
pub(crate) fn command_line() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    String::from_utf8_lossy(&words.join(&b' ')).chars().take(200).collect()
}
