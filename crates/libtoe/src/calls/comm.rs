//! Asynchronous sends and receives in place: the program's end of a ZeroNIC host (`context::comm`, docs/ZERONIC.md).
//! Beside sockets: it has no part in descriptors, contexts or fork.
use crate::daemon::attach::{command_line, is_enabled};
use crate::system::errno::{self, Result};
use crate::system::real;
use crate::wait;
use context::attach::SOCKET_VARIABLE;
use context::comm::{Answer, Completion, Hello, Order, Post, Request, VERSION, program_bell};
use context::queues::{AppQueues, COMPLETION_WORDS, SEND_WORDS, daemon_bell};
use cuda::DeviceMemory;
use libc::c_int;
use memory::{AccessPath, Description, DmaServer, Refusal, Registrar, Rights};
use shm::{Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `struct toe_comm_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Event {
    what: u32,
    connection: u32,
    id: u64,
    value: u64,
}

/// A program's place on a ZeroNIC host.
pub(crate) struct Comm {
    socket: OwnedFd,
    posts: PipeProducer<SEND_WORDS>,
    completions: PipeConsumer<COMPLETION_WORDS>,
    /// Wakes the daemon.
    daemon: Doorbell,
    /// Rung by the daemon.
    own: Doorbell,
    /// The daemon rings when a completion comes.
    announced: bool,
    handed_over: bool,
    registrar: Registrar,
    /// Contexts of CUDA whose memory is registered, and the devices that they are here.
    contexts: Vec<(usize, u32)>,
    /// Behind the socket, with whose end their queues end.
    servers: Servers,
}

/// Threads that serve queues of devices. They have ended when this is dropped.
#[derive(Default)]
struct Servers(Vec<JoinHandle<()>>);

impl Drop for Servers {
    fn drop(&mut self) {
        // A thread that has panicked serves no more, either.
        self.0.drain(..).for_each(|server| drop(server.join()));
    }
}

/// Looks before a wait sleeps, with a yield after each: some 20 us where nobody else runs on the core.
const LOOKS: usize = 40;

fn of(error: io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EPROTO)
}

impl Comm {
    /// Attaches to the ZeroNIC host of this name, or the daemon's first one.
    pub(crate) fn open(host: Option<String>) -> Result<Comm> {
        if !is_enabled() {
            return Err(libc::EOPNOTSUPP);
        }
        let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default());
        let socket = handover::connect(&path).map_err(of)?;
        let hello = Hello { comm: VERSION, host, command: command_line() };
        let hello = serde_json::to_vec(&hello).map_err(|_| libc::EINVAL)?;
        handover::send(socket.as_fd(), &hello, &[]).map_err(of)?;
        let (answer, files) = receive(socket.as_fd())?;
        match answer {
            Answer::Welcome(_) => {}
            Answer::Refused(errno, _) => return Err(errno),
            _ => return Err(libc::EPROTO),
        }
        let [region, bell, own] = <[OwnedFd; 3]>::try_from(files).map_err(|_| libc::EPROTO)?;
        let region = Arc::new(Region::from_fd(region).map_err(of)?);
        let queues = AppQueues::new(&region).map_err(of)?;
        let (Some(posts), Some(completions)) = (queues.send, queues.completion) else { return Err(libc::EPROTO) };
        let mut daemon = daemon_bell(&region, bell);
        daemon.rely_on_barrier();
        let own = program_bell(&region, own);
        Ok(Comm {
            socket,
            posts,
            completions,
            daemon,
            own,
            announced: false,
            handed_over: false,
            registrar: Registrar::new(),
            contexts: Vec::new(),
            servers: Servers::default(),
        })
    }

    /// Readable when a completion has come, once [`Comm::take`] has found none.
    pub(crate) fn fd(&self) -> c_int {
        self.own.fd().as_raw_fd()
    }

    fn ask(&self, request: &Request<Description>, files: &[OwnedFd]) -> Result<Answer> {
        self.ask_for_files(request, files).map(|(answer, _)| answer)
    }

    fn ask_for_files(&self, request: &Request<Description>, files: &[OwnedFd]) -> Result<(Answer, Vec<OwnedFd>)> {
        let message = serde_json::to_vec(request).map_err(|_| libc::EINVAL)?;
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        handover::send(self.socket.as_fd(), &message, &files).map_err(of)?;
        match receive(self.socket.as_fd())? {
            (Answer::Refused(errno, _), _) => Err(errno),
            answered => Ok(answered),
        }
    }

    /// Makes a device; returns its number, and the socket for whoever serves its queue.
    pub(crate) fn device(&mut self) -> Result<(u32, OwnedFd)> {
        match self.ask_for_files(&Request::Device, &[])? {
            (Answer::Device(number), files) => {
                let [queue] = <[OwnedFd; 1]>::try_from(files).map_err(|_| libc::EPROTO)?;
                Ok((number, queue))
            }
            _ => Err(libc::EPROTO),
        }
    }

    /// Registers a device's memory; returns its key.
    pub(crate) fn register_device(&mut self, device: u32, address: u64, len: u64) -> Result<u32> {
        match self.ask(&Request::RegisterDevice { device, address, len }, &[])? {
            Answer::Key(key) => Ok(key),
            _ => Err(libc::EPROTO),
        }
    }

    /// Registers memory; returns its key.
    pub(crate) fn register(&mut self, address: u64, len: u64) -> Result<u32> {
        if let Some(found) = DeviceMemory::find(address, len) {
            let device = self.device_of(&found?)?;
            return self.register_device(device, address, len);
        }
        let refused = |refusal: Refusal| refusal.errno();
        let prepared = self.registrar.prepare(address, len, Rights::LOCAL_WRITE).map_err(refused)?;
        let by_kernel = prepared.description.extents.iter().any(|extent| extent.way == AccessPath::Kernel);
        if by_kernel && !self.handed_over {
            let space = self.registrar.address_space().map_err(refused)?;
            self.ask(&Request::HandOver, &[space])?;
            self.handed_over = true;
        }
        match self.ask(&Request::Register(prepared.description), &prepared.files)? {
            Answer::Key(key) => Ok(key),
            _ => Err(libc::EPROTO),
        }
    }

    /// The device that a context's memory is, with a thread that serves its queue.
    fn device_of(&mut self, memory: &DeviceMemory) -> Result<u32> {
        let known = self.contexts.iter().find(|(context, _)| *context == memory.context());
        if let Some((_, device)) = known {
            return Ok(*device);
        }
        let (device, queue) = self.device()?;
        let queue = DmaServer::open(queue).map_err(of)?;
        self.servers.0.push(memory.serve(queue).map_err(of)?);
        self.contexts.push((memory.context(), device));
        Ok(device)
    }

    /// Ends a registration: afterwards no byte of it is touched.
    pub(crate) fn deregister(&mut self, key: u32) -> Result<()> {
        self.ask(&Request::Deregister(key), &[]).map(drop)
    }

    /// Posts.
    pub(crate) fn post(&mut self, id: u64, connection: u32, order: Order) -> Result<()> {
        let post = Post { id, connection, order };
        self.posts.push(post.to_words()).map_err(|_| libc::EAGAIN)?;
        self.daemon.ring();
        Ok(())
    }

    /// Takes completions. Where there are fewer than asked for, the descriptor is readable when the next one comes.
    pub(crate) fn take(&mut self, list: &mut [Event]) -> usize {
        let mut count = self.pop(list);
        if count == list.len() {
            return count;
        }
        if self.announced {
            self.own.clear();
        } else {
            self.own.prepare_to_sleep();
            self.announced = true;
        }
        count += self.pop(&mut list[count..]);
        count
    }

    fn pop(&mut self, list: &mut [Event]) -> usize {
        let mut count = 0;
        while count < list.len() {
            let Some(words) = self.completions.pop() else { break };
            let Some(Completion { outcome, id, connection, value }) = Completion::from_words(words) else { continue };
            list[count] = Event { what: outcome as u32, connection, id, value };
            count += 1;
        }
        if count == list.len() && self.announced {
            self.own.awake();
            self.announced = false;
        }
        count
    }

    /// Takes completions that are there, or come while others have a turn. The daemon need not ring then.
    fn poll(&mut self, list: &mut [Event]) -> usize {
        for _ in 0..LOOKS {
            let count = self.pop(list);
            if count > 0 {
                if self.announced {
                    self.own.awake();
                    self.announced = false;
                }
                return count;
            }
            wait::yield_between();
        }
        0
    }

    /// As [`Comm::take`], after waiting for the first one; at most `timeout` milliseconds where that is not negative.
    pub(crate) fn wait(&mut self, list: &mut [Event], timeout: c_int) -> Result<usize> {
        let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
        let deadline = limit.map(|limit| Instant::now() + limit);
        loop {
            let mut count = self.poll(list);
            if count == 0 {
                count = self.take(list);
            }
            if count > 0 || list.is_empty() {
                return Ok(count);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(0);
            }
            let left = left.map_or(-1, |left| left.as_millis().clamp(1, c_int::MAX as u128) as c_int);
            let watched = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // The socket shows that the daemon is gone.
            let mut fds = [watched(self.fd()), watched(self.socket.as_raw_fd())];
            // SAFETY: a local array of two.
            errno::check(unsafe { real::poll(fds.as_mut_ptr(), 2, left) })?;
            if fds[1].revents != 0 {
                return Err(libc::ECONNRESET);
            }
        }
    }
}

/// One message of the daemon's; an interrupted wait goes on.
fn receive(socket: BorrowedFd<'_>) -> Result<(Answer, Vec<OwnedFd>)> {
    let (message, files) = loop {
        match handover::recv(socket) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => break received.map_err(of)?,
        }
    };
    if message.is_empty() {
        return Err(libc::ECONNRESET);
    }
    Ok((serde_json::from_slice(&message).map_err(|_| libc::EPROTO)?, files))
}
