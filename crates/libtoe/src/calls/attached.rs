//! Attachments beside sockets: a program's queues of posts and completions, and registered memory. A ZeroNIC host
//! (`comm.rs`) and a volume (`volume.rs`) have one each. Beside sockets: it has no part in descriptors, contexts or
//! fork.
use crate::daemon::attach::is_enabled;
use crate::system::errno::{self, Result};
use crate::system::real;
use crate::wait;
use context::attach::SOCKET_VARIABLE;
use context::comm::{Answer, Request, program_bell};
use context::queues::{AppQueues, COMPLETION_WORDS, SEND_WORDS, daemon_bell};
use libc::c_int;
use memory::{AccessPath, Description, Refusal, Registrar, Rights};
use serde::Serialize;
use shm::{Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The place.
pub(crate) struct Attached {
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
}

/// An element of a completion queue, as the program's API has it.
pub(crate) trait Event: Copy {
    /// `None` for what no daemon of this version writes.
    fn of(words: [u64; COMPLETION_WORDS]) -> Option<Self>;
}

/// Polls before a wait sleeps, with a yield after each: some 20 us where nobody else runs on the core.
const POLLS: usize = 40;

/// The error number of a failure to talk with the daemon.
pub(crate) fn of(error: io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EPROTO)
}

impl Attached {
    /// Attaches with a first message. The daemon's answer comes along.
    pub(crate) fn open(hello: &impl Serialize) -> Result<(Attached, Answer)> {
        if !is_enabled() {
            return Err(libc::EOPNOTSUPP);
        }
        let path = PathBuf::from(std::env::var_os(SOCKET_VARIABLE).unwrap_or_default());
        let socket = handover::connect(&path).map_err(of)?;
        let hello = serde_json::to_vec(hello).map_err(|_| libc::EINVAL)?;
        handover::send(socket.as_fd(), &hello, &[]).map_err(of)?;
        let (answer, files) = receive(socket.as_fd())?;
        if let Answer::Refused(errno, _) = answer {
            return Err(errno);
        }
        let [region, bell, own] = <[OwnedFd; 3]>::try_from(files).map_err(|_| libc::EPROTO)?;
        let region = Arc::new(Region::from_fd(region).map_err(of)?);
        let queues = AppQueues::new(&region).map_err(of)?;
        let (Some(posts), Some(completions)) = (queues.send, queues.completion) else { return Err(libc::EPROTO) };
        let mut daemon = daemon_bell(&region, bell);
        daemon.rely_on_barrier();
        let own = program_bell(&region, own);
        let registrar = Registrar::new();
        let attached =
            Attached { socket, posts, completions, daemon, own, announced: false, handed_over: false, registrar };
        Ok((attached, answer))
    }

    /// Readable when a completion has come, once [`Attached::take`] has found none.
    pub(crate) fn fd(&self) -> c_int {
        self.own.fd().as_raw_fd()
    }

    /// Asks the daemon; `files` go along.
    pub(crate) fn ask(&self, request: &Request<Description>, files: &[OwnedFd]) -> Result<Answer> {
        self.ask_for_files(request, files).map(|(answer, _)| answer)
    }

    /// The same, where descriptors may come along with the answer.
    pub(crate) fn ask_for_files(
        &self,
        request: &Request<Description>,
        files: &[OwnedFd],
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let message = serde_json::to_vec(request).map_err(|_| libc::EINVAL)?;
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        handover::send(self.socket.as_fd(), &message, &files).map_err(of)?;
        match receive(self.socket.as_fd())? {
            (Answer::Refused(errno, _), _) => Err(errno),
            answered => Ok(answered),
        }
    }

    /// Registers memory of this process; returns its key.
    pub(crate) fn register(&mut self, address: u64, len: u64) -> Result<u32> {
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

    /// Ends a registration: afterwards no byte of it is touched.
    pub(crate) fn deregister(&mut self, key: u32) -> Result<()> {
        self.ask(&Request::Deregister(key), &[]).map(drop)
    }

    /// Posts.
    pub(crate) fn post(&mut self, post: [u64; SEND_WORDS]) -> Result<()> {
        self.posts.push(post).map_err(|_| libc::EAGAIN)?;
        self.daemon.ring();
        Ok(())
    }

    /// Takes completions. Where there are fewer than asked for, the descriptor is readable when the next one comes.
    pub(crate) fn take<E: Event>(&mut self, list: &mut [E]) -> usize {
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

    fn pop<E: Event>(&mut self, list: &mut [E]) -> usize {
        let mut count = 0;
        while count < list.len() {
            let Some(words) = self.completions.pop() else { break };
            let Some(event) = E::of(words) else { continue };
            list[count] = event;
            count += 1;
        }
        if count == list.len() && self.announced {
            self.own.awake();
            self.announced = false;
        }
        count
    }

    /// Takes completions that are there, or come while others run. The daemon need not ring then.
    fn poll<E: Event>(&mut self, list: &mut [E]) -> usize {
        for _ in 0..POLLS {
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

    /// As [`Attached::take`], after waiting for the first one; at most `timeout` milliseconds where that is not
    /// negative.
    pub(crate) fn wait<E: Event>(&mut self, list: &mut [E], timeout: c_int) -> Result<usize> {
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
