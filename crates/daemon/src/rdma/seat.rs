//! A host's RDMA device on its data-path thread.
use crate::wake::watch;
use engine::Nanos;
use host::Transport;
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

impl RdmaSeat {
    /// The seat of a device, and the transport for its host.
    pub(crate) fn new(device: Device) -> (RdmaSeat, Box<dyn Transport>) {
        let device = Arc::new(Mutex::new(device));
        let transport = Arc::clone(&device);
        (RdmaSeat { device, bells: HashMap::new() }, Box::new(transport))
    }

    /// The device, between two rounds.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
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
