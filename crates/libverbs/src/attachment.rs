//! The tie to the daemon: control requests over the attach socket, and what all queue pairs of a context share.
use crate::errno::Result;
use buffers::Lock;
use context::queues::{AppQueues, SEND_WORDS, daemon_bell};
use memory::{Key, Registrar, Rights};
use shm::{Doorbell, PipeProducer, Region, handover};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use verbs::attach::{self, Device, Hello, Welcome};
use verbs::control::{Answer, Request};
use verbs::{MOST_ELEMENTS, Number};

/// The daemon's attach socket: as for sockets.
const SOCKET_VARIABLE: &str = context::attach::SOCKET_VARIABLE;
/// The host to attach to.
const HOST_VARIABLE: &str = context::attach::HOST_VARIABLE;
/// The host whose device is wanted, where that is not the one of the program's sockets.
const DEVICES_HOST_VARIABLE: &str = "TOE_VERBS_HOST";
/// The only device that the program is to see, of a host that has several.
const DEVICE_VARIABLE: &str = "TOE_VERBS_DEVICE";
/// Set: what the daemon refuses is written to standard error, with its reason.
const EXPLAIN_VARIABLE: &str = "TOE_EXPLAIN";
/// Characters of the command line that are reported to the daemon.
const COMMAND_CHARS: usize = 200;

/// An attached context.
pub(crate) struct Attachment {
    control: Mutex<Control>,
    device: Device,
    others: Vec<Device>,
    /// The daemon sleeps on it.
    pub(crate) bell: Doorbell,
    pipes: Vec<Lock<SendPipe>>,
    /// The process that attached: a child of it has no connection to the daemon.
    process: u32,
}

/// The program's end of a send pipe.
pub(crate) struct SendPipe {
    /// The end.
    pub(crate) producer: PipeProducer<SEND_WORDS>,
    /// Where the elements of a work request are made.
    pub(crate) elements: [[u64; SEND_WORDS]; MOST_ELEMENTS],
}

struct Control {
    /// `None` once the device was closed.
    socket: Option<OwnedFd>,
    registrar: Registrar,
    handed_over: bool,
}

/// A range of memory that is to be registered.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// First byte.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// How work requests name its first byte.
    pub(crate) named: u64,
}

/// Whether this process was started to run on OpenTOE.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(SOCKET_VARIABLE).is_some_and(|path| !path.is_empty())
}

/// Writes a sentence to standard error, where the user asked for that.
pub(crate) fn explain(sentence: impl FnOnce() -> String) {
    if std::env::var_os(EXPLAIN_VARIABLE).is_some() {
        eprintln!("libibverbs (OpenTOE): {}", sentence());
    }
}

impl Attachment {
    /// Attaches to a device, or to the first one, and gives the read end of the pipe of asynchronous events as well.
    pub(crate) fn new(device: Option<&str>) -> Result<(Attachment, OwnedFd)> {
        let attached = attach(device).map_err(|error| {
            explain(|| format!("cannot attach: {error}"));
            error.raw_os_error().unwrap_or(libc::EIO)
        })?;
        buffers::begin();
        Ok(attached)
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The devices that the program sees: this one, and others of the host.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        let others = if named(DEVICE_VARIABLE).is_some() { &[][..] } else { &self.others };
        std::iter::once(&self.device).chain(others)
    }

    /// A send pipe, by the number that the daemon gave.
    pub(crate) fn pipe(&self, number: u32) -> Result<&Lock<SendPipe>> {
        self.pipes.get(number as usize).ok_or(libc::EIO)
    }

    /// Asks for what is answered without a value.
    pub(crate) fn done(&self, request: &Request) -> Result<()> {
        self.ask(request).map(drop)
    }

    /// Asks for an object that has a number, and perhaps a descriptor.
    pub(crate) fn number(&self, request: &Request) -> Result<(Number, Option<OwnedFd>)> {
        match self.ask(request)? {
            (Answer::Number(number), fds) => Ok((number, fds.into_iter().next())),
            _ => Err(libc::EIO),
        }
    }

    /// Asks, and waits for the answer.
    pub(crate) fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>)> {
        self.control()?.ask(request, &[])
    }

    /// Asks with a descriptor of this process, and waits for the answer.
    pub(crate) fn ask_with(&self, request: &Request, fd: BorrowedFd<'_>) -> Result<(Answer, Vec<OwnedFd>)> {
        self.control()?.ask(request, &[fd])
    }

    /// Registers memory of this process.
    pub(crate) fn register(&self, domain: Number, range: Range, rights: Rights) -> Result<Key> {
        let mut control = self.control()?;
        let prepared = control.registrar.prepare(range.address, range.len, rights).map_err(|refusal| {
            explain(|| refusal.to_string());
            refusal.errno()
        })?;
        control.hand_over()?;
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        let request = Request::Register { domain, description: prepared.description, named: range.named };
        match control.ask(&request, &files)? {
            (Answer::Region(key), _) => Ok(key),
            _ => Err(libc::EIO),
        }
    }

    /// Nothing can be asked any more; the daemon removes what the context had.
    pub(crate) fn close(&self) {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).socket = None;
    }

    /// The daemon has not gone.
    pub(crate) fn is_alive(&self) -> bool {
        let Ok(control) = self.control.try_lock() else { return true };
        let Some(socket) = &control.socket else { return false };
        let mut fd = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one valid entry, without waiting.
        unsafe { libc::poll(&mut fd, 1, 0) };
        fd.revents & (libc::POLLHUP | libc::POLLERR) == 0
    }

    fn control(&self) -> Result<std::sync::MutexGuard<'_, Control>> {
        if std::process::id() != self.process {
            return Err(libc::EPERM);
        }
        Ok(self.control.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Control {
    /// Lets the daemon into this address space, once.
    fn hand_over(&mut self) -> Result<()> {
        if !self.handed_over {
            let space = self.registrar.address_space().map_err(|refusal| refusal.errno())?;
            self.ask(&Request::HandOver, &[space.as_fd()])?;
            self.handed_over = true;
        }
        Ok(())
    }

    fn ask(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>)> {
        let socket = self.socket.as_ref().ok_or(libc::EIO)?;
        let message = serde_json::to_vec(request).map_err(|_| libc::EINVAL)?;
        let answered = send(socket, &message, fds).and_then(|()| receive(socket));
        let (answer, fds) = answered.map_err(|error| {
            explain(|| format!("the daemon does not answer ({error})"));
            libc::EIO
        })?;
        match serde_json::from_slice(&answer).map_err(|_| libc::EIO)? {
            Answer::Failed { errno, why } => {
                explain(|| format!("refused: {why}"));
                Err(errno)
            }
            answer => Ok((answer, fds)),
        }
    }
}

/// The value of an environment variable, where it is set and not empty.
fn named(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|name| !name.is_empty())
}

fn attach(device: Option<&str>) -> io::Result<(Attachment, OwnedFd)> {
    let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default());
    let socket = handover::connect(&path)?;
    let host = named(DEVICES_HOST_VARIABLE).or_else(|| named(HOST_VARIABLE));
    let device = device.map(String::from).or_else(|| named(DEVICE_VARIABLE));
    let hello = Hello { verbs: verbs::VERSION, host, device, command: command_line() };
    send(&socket, &serde_json::to_vec(&hello)?, &[])?;
    let (answer, fds) = receive(&socket)?;
    let welcome = match serde_json::from_slice(&answer)? {
        attach::Answer::Welcome(welcome) => welcome,
        attach::Answer::Refused(why) => return Err(io::Error::other(why)),
    };
    arrange(welcome, fds, socket)
}

/// Maps what came with the welcome: region, doorbell, asynchronous events, further send pipes.
fn arrange(welcome: Welcome, fds: Vec<OwnedFd>, socket: OwnedFd) -> io::Result<(Attachment, OwnedFd)> {
    let incomplete = || io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing in the daemon's answer");
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(incomplete);
    let (region, bell, events) = (next()?, next()?, next()?);
    let region = Arc::new(Region::from_fd(region)?);
    let mut bell = daemon_bell(&region, bell);
    bell.rely_on_barrier();
    let mut pipes = vec![send_pipe(&region)?];
    for fd in fds {
        pipes.push(send_pipe(&Arc::new(Region::from_fd(fd)?))?);
    }
    let control = Control { socket: Some(socket), registrar: Registrar::new(), handed_over: false };
    let process = std::process::id();
    let Welcome { device, others, .. } = welcome;
    Ok((Attachment { control: Mutex::new(control), device, others, bell, pipes, process }, events))
}

fn send_pipe(region: &Arc<Region>) -> io::Result<Lock<SendPipe>> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "a region has no send pipe");
    let producer = AppQueues::new(region)?.send.ok_or_else(missing)?;
    Ok(Lock::new(SendPipe { producer, elements: [[0; SEND_WORDS]; MOST_ELEMENTS] }))
}

fn send(socket: &OwnedFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    uninterrupted(|| handover::send(socket.as_fd(), message, fds))
}

fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (message, fds) = uninterrupted(|| handover::recv(socket.as_fd()))?;
    if message.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok((message, fds)) }
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn command_line() -> String {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    String::from_utf8_lossy(&words.join(&b' ')).chars().take(COMMAND_CHARS).collect()
}
