//! The engine as a program of the host's RDMA device: it attaches and asks as any verbs library does (`crates/verbs`).
use context::queues::{AppQueues, SEND_WORDS, daemon_bell};
use memory::{Key, Registrar, Rights};
use shm::{Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use verbs::attach::{self, Hello};
use verbs::control::{Answer, NewQp, Request};
use verbs::{Completion, Notify, Number, QpNumber, Wish};

/// An attached context.
pub(crate) struct Device {
    socket: Mutex<OwnedFd>,
    send: Mutex<PipeProducer<SEND_WORDS>>,
    bell: Doorbell,
    _events: OwnedFd,
}

/// A completion queue.
pub(crate) struct Cq {
    /// Its number.
    pub(crate) number: Number,
    notify: Notify,
    pipe: PipeConsumer<8>,
}

/// A completion channel, or one of connection management.
pub(crate) struct Channel {
    /// Its number.
    pub(crate) number: Number,
    /// The end that is read.
    pub(crate) pipe: OwnedFd,
}

/// A queue pair, as it was made.
pub(crate) struct Made {
    /// Its number.
    pub(crate) qp: QpNumber,
    /// Its receive queue.
    pub(crate) receive: PipeProducer<2>,
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the daemon's answer to {what} is none"))
}

impl Device {
    /// Attaches to the RDMA device of a host.
    ///
    /// # Errors
    /// There is no daemon, or it refuses, with its sentence.
    pub(crate) fn open(path: &Path, host: Option<&str>) -> io::Result<Device> {
        let socket = handover::connect(path)?;
        let hello = Hello {
            verbs: verbs::VERSION,
            host: host.map(String::from),
            device: None,
            command: "opentoe-offload".into(),
        };
        handover::send(socket.as_fd(), &serde_json::to_vec(&hello)?, &[])?;
        let (message, files) = handover::recv(socket.as_fd())?;
        match serde_json::from_slice(&message)? {
            attach::Answer::Welcome(_) => {}
            attach::Answer::Refused(why) => return Err(io::Error::other(why)),
        }
        let mut files = files.into_iter();
        let (Some(region), Some(bell), Some(events)) = (files.next(), files.next(), files.next()) else {
            return Err(odd("the greeting"));
        };
        let region = Arc::new(Region::from_fd(region)?);
        let send = AppQueues::new(&region)?.send.ok_or_else(|| odd("the greeting"))?;
        let mut bell = daemon_bell(&region, bell);
        bell.rely_on_barrier();
        let device = Device { socket: Mutex::new(socket), send: Mutex::new(send), bell, _events: events };
        let space = Registrar::new().address_space().map_err(io::Error::other)?;
        device.ask(&Request::HandOver, &[space.as_fd()])?;
        Ok(device)
    }

    /// The daemon has gone.
    pub(crate) fn is_gone(&self) -> bool {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fds = [rustix::event::PollFd::new(&*socket, rustix::event::PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|found| found > 0)
    }

    /// Asks, and waits for the answer. What is refused is an error with the daemon's sentence.
    pub(crate) fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> io::Result<(Answer, Option<OwnedFd>)> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        handover::send(socket.as_fd(), &serde_json::to_vec(request)?, files)?;
        let (message, files) = handover::recv(socket.as_fd())?;
        if message.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&message)? {
            Answer::Failed { errno, why } => Err(refusal(errno, &why)),
            answer => Ok((answer, files.into_iter().next())),
        }
    }

    /// Asks for what has a number.
    pub(crate) fn number(&self, request: &Request) -> io::Result<Number> {
        match self.ask(request, &[])?.0 {
            Answer::Number(number) => Ok(number),
            _ => Err(odd("a request for a number")),
        }
    }

    /// A channel.
    pub(crate) fn channel(&self, request: &Request) -> io::Result<Channel> {
        match self.ask(request, &[])? {
            (Answer::Number(number), Some(pipe)) => Ok(Channel { number, pipe }),
            _ => Err(odd("a request for a channel")),
        }
    }

    /// A completion queue with its events in a channel.
    pub(crate) fn cq(&self, entries: u32, channel: Number) -> io::Result<Cq> {
        let (answer, region) = self.ask(&Request::CreateCq { entries, channel: Some(channel) }, &[])?;
        let (Answer::Queue { number, .. }, Some(region)) = (answer, region) else {
            return Err(odd("a request for a completion queue"));
        };
        let region = Arc::new(Region::from_fd(region)?);
        let pipe = AppQueues::new(&region)?.completion.ok_or_else(|| odd("a request for a completion queue"))?;
        Ok(Cq { number, notify: Notify::new(&region), pipe })
    }

    /// A queue pair.
    pub(crate) fn qp(&self, new: NewQp) -> io::Result<Made> {
        let (answer, region) = self.ask(&Request::CreateQp(new), &[])?;
        let (Answer::Qp { number: qp, .. }, Some(region)) = (answer, region) else {
            return Err(odd("a request for a queue pair"));
        };
        let region = Arc::new(Region::from_fd(region)?);
        let receive = AppQueues::new(&region)?.receive.ok_or_else(|| odd("a request for a queue pair"))?;
        Ok(Made { qp, receive })
    }

    /// Registers memory of this process for messages.
    pub(crate) fn register(&self, domain: Number, region: &Region) -> io::Result<Key> {
        let address = region.address(0, region.len()).expose_provenance() as u64;
        let prepared = Registrar::new().prepare(address, region.len() as u64, Rights::LOCAL_WRITE);
        let prepared = prepared.map_err(io::Error::other)?;
        let files: Vec<BorrowedFd<'_>> = prepared.files.iter().map(AsFd::as_fd).collect();
        let request = Request::Register { domain, description: prepared.description, named: address };
        match self.ask(&request, &files)?.0 {
            Answer::Region(key) => Ok(key),
            _ => Err(odd("a registration")),
        }
    }

    /// Posts an element that is a whole work request. [`Device::ring`] is to follow.
    pub(crate) fn post(&self, element: [u64; SEND_WORDS]) {
        let mut send = self.send.lock().unwrap_or_else(PoisonError::into_inner);
        // The engine moves elements to their queue pairs at once. A daemon that has gone takes none any more.
        for _ in 0..1 << 20 {
            if send.push(element).is_ok() {
                return;
            }
            self.bell.ring();
            std::thread::yield_now();
        }
    }

    /// Wakes the data-path.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }
}

impl Cq {
    /// The next completion.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            let words = self.pipe.pop()?;
            // Others than completions are added by no daemon of this version.
            if let Some(completion) = Completion::decode(&words) {
                return Some(completion);
            }
        }
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.pipe.is_empty()
    }

    /// Asks for an event for the next one.
    pub(crate) fn ask_for_event(&self) {
        self.notify.ask(Wish::Any);
    }
}

fn refusal(errno: i32, why: &str) -> io::Error {
    let kind = io::Error::from_raw_os_error(errno).kind();
    io::Error::new(kind, why.to_string())
}
