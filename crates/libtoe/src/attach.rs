//! Attaching the process to the daemon.
use crate::context_side::Context;
use crate::lock::Guard;
use crate::own_fd::out_of_the_way;
use crate::room;
use crate::state::{Lib, Link};
use context::attach::{Answer, Ask, Asked, HOST_VARIABLE, Hello, SOCKET_VARIABLE, Welcome};
use context::{AppEnd, Geometry};
use shm::{Region, handover};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

/// Whether the process was started to run on OpenTOE.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// The daemon's socket and the host, as the environment named them when the library was loaded: a program may clear
/// it before its first socket, as dovecot does.
static NAMED: OnceLock<(PathBuf, Option<String>)> = OnceLock::new();

/// Looks at the environment, once, when the library is loaded.
pub fn look_at_environment() {
    let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default());
    let host = std::env::var(HOST_VARIABLE).ok().filter(|host| !host.is_empty());
    ENABLED.store(!path.as_os_str().is_empty(), Relaxed);
    let _ = NAMED.set((path, host));
}

/// Whether the library does anything at all in this process.
#[inline]
pub fn is_enabled() -> bool {
    ENABLED.load(Relaxed)
}

/// Attaches where that was not done yet. A process that cannot attach ends here, with a sentence: a program is
/// never run half-accelerated.
pub fn ensure(lib: &mut Guard) {
    if !matches!(lib.link, Link::Detached) {
        return;
    }
    match attach(None) {
        Ok(context) => lib.attached(context),
        Err(sentence) => refuse(&sentence),
    }
}

/// Attaches where that was not done yet and can be: for calls that go on without.
pub fn if_possible(lib: &mut Guard) {
    if matches!(lib.link, Link::Detached) {
        if let Ok(context) = attach(None) {
            lib.attached(context);
        }
    }
}

/// Ends the process with a sentence on standard error.
pub fn refuse(sentence: &str) -> ! {
    let line = format!("libtoe: {sentence}\n");
    // SAFETY: writes a local buffer; then the process ends, without running the program's exit handlers.
    unsafe {
        crate::real::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(1)
    }
}

/// In the child of a fork: a context of its own, that has what the parent had. A child that cannot attach goes on,
/// with its OpenTOE sockets reset: it may never use them.
pub fn again_in_child(lib: &mut Lib, token: u64) {
    match attach(Some(token)) {
        Ok(context) => lib.attached(context),
        Err(_) => lib.link = Link::Dead,
    }
}

/// Attaches with or without a token; the error is a sentence.
pub fn attach(token: Option<u64>) -> Result<Context, String> {
    let (path, host) = NAMED.get().cloned().unwrap_or_default();
    let socket = handover::connect(&path)
        .map_err(|e| format!("no daemon answers at {} ({e}); start toed, or use `opentoe run`", path.display()))?;
    let socket = keep(socket);
    let (welcome, fds) = introduce(&socket, host, token).map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionRefused => e.to_string(),
        _ => format!("the daemon at {} did not answer properly ({e})", path.display()),
    })?;
    let bytes = welcome.geometry.region_len();
    room::before_mapping(bytes);
    map(welcome, fds, socket)
        .map_err(|e| format!("cannot use the memory that the daemon offers ({e}){}", room::explain(bytes as u64)))
}

/// The region of another context, in which this process has a share of a connection. The daemon's word, not that of
/// whoever passed the connection, is what decides.
pub fn region_of(socket: BorrowedFd<'_>, context: u32) -> Option<(OwnedFd, Geometry)> {
    handover::send(socket, &serde_json::to_vec(&Ask::Region { context }).ok()?, &[]).ok()?;
    let (answer, fds) = receive(socket).ok()?;
    match (serde_json::from_slice(&answer).ok()?, fds.into_iter().next()) {
        (Asked::Region(geometry), Some(region)) => Some((region, geometry)),
        _ => None,
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    loop {
        match handover::recv(socket) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn introduce(socket: &OwnedFd, host: Option<String>, token: Option<u64>) -> io::Result<(Welcome, Vec<OwnedFd>)> {
    let hello = Hello { version: context::VERSION, host, command: command_line(), token };
    handover::send(socket.as_fd(), &serde_json::to_vec(&hello)?, &[])?;
    let (answer, fds) = receive(socket.as_fd())?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match serde_json::from_slice(&answer)? {
        Answer::Welcome(welcome) => Ok((welcome, fds)),
        Answer::Refused(sentence) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, sentence)),
    }
}

fn map(welcome: Welcome, fds: Vec<OwnedFd>, socket: OwnedFd) -> io::Result<Context> {
    let fds: [OwnedFd; 3] = fds.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let [region, app_bell, daemon_bell] = fds.map(keep);
    let region = Arc::new(Region::from_fd(region)?);
    let end = AppEnd::new(region, welcome.geometry, app_bell, daemon_bell)?;
    Ok(Context::new(end, welcome, socket, user()))
}

/// The effective user.
pub fn user() -> libc::uid_t {
    // SAFETY: a plain call.
    unsafe { libc::geteuid() }
}

/// Moves a descriptor of the library out of the program's way.
pub fn keep(fd: OwnedFd) -> OwnedFd {
    let raw = out_of_the_way(fd.into_raw_fd());
    // SAFETY: `out_of_the_way` gives back a descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// The command line, for people: cut off where it would not fit a message.
pub fn command_line() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    String::from_utf8_lossy(&words.join(&b' ')).chars().take(200).collect()
}
