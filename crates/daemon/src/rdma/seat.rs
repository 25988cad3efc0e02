//! A host's RDMA device on its data-path thread.
use crate::wake::watch;
use engine::Nanos;
use host::{Claim, Io, Neighbour, Transport};
use port::Frame;
use rdma::{Device, NewProgram, ProgramId};
use rustix::event::epoll;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The device of a host, and the doorbells of its programs. Only the data-path thread locks it: for its rounds, and for
/// what it is asked between two of them.
pub(crate) struct RdmaSeat {
    device: Arc<Mutex<Device>>,
    bells: HashMap<ProgramId, OwnedFd>,
}

/// The device as its host has it.
struct OfHost(Arc<Mutex<Device>>);

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RdmaSeat {
    /// The seat of a device, and the transport for its host.
    pub(crate) fn new(device: Device) -> (RdmaSeat, Box<dyn Transport>) {
        let device = Arc::new(Mutex::new(device));
        let transport = OfHost(Arc::clone(&device));
        (RdmaSeat { device, bells: HashMap::new() }, Box::new(transport))
    }

    /// The device, between two rounds.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        lock(&self.device)
    }

    /// A program attaches; `bell` is the eventfd of its doorbell, which `epoll` watches from now on.
    pub(crate) fn attach(
        &mut self,
        now: Nanos,
        epoll: &OwnedFd,
        program: NewProgram,
        bell: OwnedFd,
    ) -> Result<ProgramId, String> {
        let id = self.device().attach(program).map_err(|failure| failure.why)?;
        // Edge-triggered, so nobody has to read the eventfd: each ring wakes once.
        if let Err(error) = watch(epoll, bell.as_fd(), epoll::EventFlags::ET) {
            self.device().detach(now, id);
            return Err(format!("the daemon has no room for another doorbell: {error}"));
        }
        self.bells.insert(id, bell);
        Ok(id)
    }

    /// A program is gone.
    pub(crate) fn detach(&mut self, now: Nanos, epoll: &OwnedFd, id: ProgramId) {
        if let Some(bell) = self.bells.remove(&id) {
            let _ = epoll::delete(epoll, bell);
        }
        self.device().detach(now, id);
    }
}

impl Transport for OfHost {
    fn name(&self) -> &'static str {
        lock(&self.0).name()
    }

    fn claims(&self) -> Vec<Claim> {
        lock(&self.0).claims()
    }

    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        lock(&self.0).poll(now, rx, io)
    }

    fn on_neighbour(&mut self, now: Nanos, neighbour: &Neighbour, io: &mut Io<'_>) {
        lock(&self.0).on_neighbour(now, neighbour, io);
    }

    fn handover_obstacle(&self) -> Option<String> {
        lock(&self.0).handover_obstacle()
    }

    fn prepare_to_sleep(&self) {
        lock(&self.0).prepare_to_sleep();
    }

    fn awake(&self) {
        lock(&self.0).awake();
    }

    fn has_work(&self, now: Nanos) -> bool {
        lock(&self.0).has_work(now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        lock(&self.0).next_deadline()
    }
}
