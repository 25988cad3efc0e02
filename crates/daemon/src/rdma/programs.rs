//! List of RDMA programs, of the main thread: it starts a service thread for each, and is notified of its end.
use super::device_record::RdmaPlace;
use super::host_device::DeviceAt;
use super::pipes::EventPipes;
use super::service::{self, Newcomer};
use crate::attaching::{find, printable, version};
use crate::build::HostPlace;
use crate::datapath::Handle;
use crate::zeronic::ZeronicPlace;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};
use shm::{handover, reserve};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use verbs::attach::{Answer, Hello};

/// Service threads at once, of all hosts.
const MOST: usize = 256;
/// Bytes of a service thread's stack.
const STACK: usize = 512 << 10;

/// Which service threads have ended.
struct Ended {
    wake: OwnedFd,
    numbers: Mutex<Vec<u64>>,
}

/// Reports the end when it is dropped, also where the thread panicked.
struct EndOf {
    number: u64,
    ended: Arc<Ended>,
}

impl Drop for EndOf {
    fn drop(&mut self) {
        self.ended.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        // Failing means that the counter is at its limit: it is signalled.
        let _ = rustix::io::write(&self.ended.wake, &1u64.to_ne_bytes());
    }
}

/// All RDMA programs.
pub(crate) struct Programs {
    sockets: HashMap<u64, Arc<OwnedFd>>,
    ended: Arc<Ended>,
    pipes: Arc<EventPipes>,
    next: u64,
}

/// A first message that is a verbs library's.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    version(message, "verbs").is_some()
}

impl Programs {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> io::Result<Programs> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let ended = Arc::new(Ended { wake, numbers: Mutex::default() });
        Ok(Programs { sockets: HashMap::new(), ended, pipes: Arc::default(), next: 0 })
    }

    /// Readable when a service thread has ended: then call [`Programs::reap`].
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.ended.wake.as_fd()
    }

    /// Programs that are attached, or about to be.
    pub(crate) fn count(&self) -> usize {
        self.sockets.len()
    }

    /// Forgets programs whose service thread has ended.
    pub(crate) fn reap(&mut self) {
        let _ = rustix::io::read(&self.ended.wake, &mut [0; 8]);
        let ended = std::mem::take(&mut *self.ended.numbers.lock().unwrap_or_else(PoisonError::into_inner));
        ended.iter().for_each(|number| drop(self.sockets.remove(number)));
    }

    /// Ends all connections: the service threads remove what their programs had.
    pub(crate) fn remove_all(&self) {
        for socket in self.sockets.values() {
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    /// Takes a program's hello: starts its service thread, or refuses it with a sentence.
    pub(crate) fn start(&mut self, socket: OwnedFd, message: &[u8], places: Places<'_>) {
        let socket = Arc::new(socket);
        let pipes = Arc::clone(&self.pipes);
        let started = newcomer(&socket, message, places, pipes).and_then(|newcomer| self.serve(newcomer));
        match started {
            Ok(number) => drop(self.sockets.insert(number, socket)),
            Err(sentence) => refuse(&socket, sentence),
        }
    }

    fn serve(&mut self, newcomer: Newcomer) -> Result<u64, String> {
        if self.sockets.len() >= MOST {
            return Err(format!("the daemon serves {MOST} RDMA programs already: end some first"));
        }
        self.next += 1;
        let end = EndOf { number: self.next, ended: Arc::clone(&self.ended) };
        let body = move || {
            let end = end;
            let socket = Arc::clone(&newcomer.socket);
            if let Err(sentence) = service::serve(newcomer) {
                refuse(&socket, sentence);
            }
            drop(end);
        };
        let thread = thread::Builder::new().name(format!("verbs {}", self.next)).stack_size(STACK).spawn(body);
        thread.map(|_| self.next).map_err(|e| format!("the daemon cannot start a thread: {e}"))
    }
}

/// Hosts with devices, and how to reach the threads of the first ones.
#[derive(Clone, Copy)]
pub(crate) struct Places<'p> {
    pub(crate) hosts: &'p [HostPlace],
    pub(crate) handles: &'p [Handle],
    pub(crate) zeronics: &'p [ZeronicPlace],
}

/// A device that a program may use.
struct Choice {
    host: String,
    at: DeviceAt,
    handle: Handle,
    place: RdmaPlace,
}

fn newcomer(
    socket: &Arc<OwnedFd>,
    message: &[u8],
    places: Places<'_>,
    pipes: Arc<EventPipes>,
) -> Result<Newcomer, String> {
    let hello = hello(message)?;
    let peer = handover::credentials(socket.as_fd())
        .map_err(|e| format!("the credentials of the peer cannot be read: {e}"))?;
    let mut choices = choices(socket, hello.host.as_deref(), peer.uid, places)?;
    let at = match &hello.device {
        None => 0,
        Some(wanted) => choices.iter().position(|choice| choice.place.device.name == *wanted).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|choice| choice.place.device.name.as_str()).collect();
            format!("host `{}` has no RDMA device `{wanted}`: it has {}", choices[0].host, names.join(", "))
        })?,
    };
    short_of_memory()?;
    let Choice { host, at, handle, place } = choices.remove(at);
    let others = choices.into_iter().map(|choice| choice.place.device).collect();
    let command = printable(&hello.command);
    Ok(Newcomer { socket: Arc::clone(socket), peer, command, host, at, handle, place, others, pipes })
}

/// The devices of the host that a program names, or of the first one, which the program's user may use: at least one.
/// A ZeroNIC host that shares a host's address is another device of that one's.
fn choices(socket: &OwnedFd, host: Option<&str>, uid: u32, places: Places<'_>) -> Result<Vec<Choice>, String> {
    let named = |place: &&ZeronicPlace| match host {
        Some(name) => place.section.name == name,
        None => places.hosts.is_empty(),
    };
    if let Some(place) = places.zeronics.iter().find(named) {
        return Ok(vec![of_zeronic(socket, uid, place)?]);
    }
    let host = find(places.hosts, host)?;
    let name = &host.config.stack.name;
    if !host.access.may_attach(socket.as_fd()) {
        return Err(format!("user {uid} may not attach to host `{name}`: its users and groups do not name them"));
    }
    let shares = places.zeronics.iter().filter(|place| place.section.host.as_ref() == Some(name));
    let mut all = vec![of_host(uid, host, places.handles)];
    all.extend(shares.map(|place| of_zeronic(socket, uid, place)));
    let (mut may, mut why) = (Vec::new(), None);
    for choice in all {
        choice.map_or_else(|sentence| why = Some(sentence), |choice| may.push(choice));
    }
    why.filter(|_| may.is_empty()).map_or(Ok(may), Err)
}

/// The RDMA device of a host.
fn of_host(uid: u32, host: &HostPlace, handles: &[Handle]) -> Result<Choice, String> {
    let name = &host.config.stack.name;
    let place = host.rdma.clone().ok_or_else(|| {
        format!("host `{name}` has no RDMA device: its configuration turns it on with rdma = \"own\" or \"all\"")
    })?;
    if !place.users.may_attach(uid) {
        return Err(format!(
            "user {uid} may not use the RDMA device of host `{name}`: with rdma = \"own\" only the daemon's user may"
        ));
    }
    let (at, handle) = (DeviceAt::Host(host.index), handles[host.thread].clone());
    Ok(Choice { host: name.clone(), at, handle, place })
}

/// That of a ZeroNIC host.
fn of_zeronic(socket: &OwnedFd, uid: u32, place: &ZeronicPlace) -> Result<Choice, String> {
    place.admit(socket.as_fd(), uid)?;
    let (host, at) = (place.section.name.clone(), DeviceAt::Zeronic(place.index));
    Ok(Choice { host, at, handle: place.handle.clone(), place: place.rdma.clone() })
}

fn short_of_memory() -> Result<(), String> {
    match reserve::is_short() {
        true => {
            Err("the daemon gets no more memory: it serves the attached programs, and no new one until it gets some"
                .into())
        }
        false => Ok(()),
    }
}

fn hello(message: &[u8]) -> Result<Hello, String> {
    let strange = || "this is no hello of a verbs library".to_string();
    let version = version(message, "verbs").ok_or_else(strange)?;
    if version != verbs::VERSION {
        return Err(format!(
            "the verbs library has version {version} and the daemon version {}: use the libibverbs.so.1 that came \
             with this daemon, or start a daemon of the library's version",
            verbs::VERSION
        ));
    }
    serde_json::from_slice(message).map_err(|_| strange())
}

fn refuse(socket: &OwnedFd, sentence: String) {
    tracing::warn!("an RDMA program was refused: {sentence}");
    let answer = serde_json::to_vec(&Answer::Refused(sentence)).unwrap_or_default();
    // It may be gone already.
    let _ = handover::send(socket.as_fd(), &answer, &[]);
}
