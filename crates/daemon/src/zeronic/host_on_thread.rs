//! A ZeroNIC host on its data-path thread.
use super::transport::Below;
use crate::wake::watch;
use engine::Nanos;
use memory::MemoryTable;
use port::{Port, PortDrops, Recorder};
use rdma::Device;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use zeronic::{NewProgram, ProgramId, Programs, Transport};

/// Rounds in which nothing was done, after which one in [`ROUNDS_A_POLL`] polls.
const EMPTY_ROUNDS: u32 = 64;
const ROUNDS_A_POLL: u32 = 4;

/// The host, its port, and the doorbells of its programs.
pub(crate) struct ThreadZeronic {
    programs: Programs<Below, Arc<MemoryTable>>,
    port: Box<dyn Port>,
    drops: PortDrops,
    /// Watched while their programs live.
    bells: HashMap<ProgramId, OwnedFd>,
    /// The transport's descriptor, while it is watched.
    watched: Option<OwnedFd>,
    /// Rounds since something was done.
    empty_rounds: u32,
}

impl ThreadZeronic {
    pub(crate) fn new(programs: Programs<Below, Arc<MemoryTable>>, port: Box<dyn Port>) -> ThreadZeronic {
        ThreadZeronic {
            programs,
            port,
            drops: PortDrops::default(),
            bells: HashMap::new(),
            watched: None,
            empty_rounds: 0,
        }
    }

    /// Has an epoll set watch its port and its transport.
    pub(crate) fn watch(&mut self, set: &OwnedFd) -> io::Result<()> {
        let own = self.programs.stack().transport().wait_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        if let Some(own) = &own {
            watch(set, own.as_fd(), epoll::EventFlags::empty())?;
        }
        self.watched = own;
        self.port.wait_fd().map_or(Ok(()), |fd| watch(set, fd, epoll::EventFlags::empty()))
    }

    /// A sentence, once, when the transport is gone for good. Its descriptor, which would wake for ever, is watched no
    /// more.
    pub(crate) fn failed(&mut self, set: &OwnedFd) -> Option<String> {
        self.watched.as_ref()?;
        let sentence = self.programs.stack().transport().failure()?;
        if let Some(fd) = self.watched.take() {
            let _ = epoll::delete(set, fd);
        }
        Some(sentence)
    }

    /// A program comes; `bell` is the eventfd of its doorbell, which `set` watches from now on.
    pub(crate) fn attach(&mut self, set: &OwnedFd, program: NewProgram, bell: OwnedFd) -> Result<ProgramId, String> {
        let id = self.programs.attach(program)?;
        // Edge-triggered, so the eventfd needs no read: each ring wakes once.
        if let Err(error) = watch(set, bell.as_fd(), epoll::EventFlags::ET) {
            self.programs.detach(id);
            return Err(format!("the daemon has no room for another doorbell: {error}"));
        }
        self.bells.insert(id, bell);
        Ok(id)
    }

    /// A program is gone.
    pub(crate) fn detach(&mut self, set: &OwnedFd, id: ProgramId) {
        if let Some(bell) = self.bells.remove(&id) {
            let _ = epoll::delete(set, bell);
        }
        self.programs.detach(id);
    }

    /// What records frames for whoever captures.
    pub(crate) fn recorder(&mut self) -> &mut Recorder {
        self.programs.stack().recorder()
    }

    /// Asks its RDMA device.
    pub(crate) fn with_device<T>(&mut self, now: Nanos, ask: impl FnOnce(&mut Device) -> T) -> Option<T> {
        self.programs.stack().with_device(now, ask)
    }

    /// The host and its port, for views.
    pub(crate) fn parts(&mut self) -> (&mut Programs<Below, Arc<MemoryTable>>, &dyn Port, &PortDrops) {
        (&mut self.programs, &*self.port, &self.drops)
    }

    /// A round, in which so many bytes may go out. Where nothing was done for a while, only some rounds poll: others
    /// on this thread wait for each poll.
    pub(crate) fn round(&mut self, now: Nanos, bytes: usize) -> usize {
        if self.empty_rounds <= EMPTY_ROUNDS || self.empty_rounds % ROUNDS_A_POLL == 0 {
            self.programs.stack().set_round_bytes(bytes);
            let done = self.programs.poll(now, &mut *self.port, &mut self.drops);
            if done > 0 {
                self.empty_rounds = 0;
                return done;
            }
        }
        self.empty_rounds = self.empty_rounds.wrapping_add(1);
        0
    }

    pub(crate) fn has_work(&self, now: Nanos) -> bool {
        self.port.has_work(now) || self.programs.has_work()
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        [self.port.next_deadline(), self.programs.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn prepare_to_sleep(&self) {
        self.port.prepare_to_sleep();
        self.programs.prepare_to_sleep();
    }

    pub(crate) fn awake(&mut self) {
        self.empty_rounds = 0;
        self.port.awake();
        self.programs.awake();
    }
}
