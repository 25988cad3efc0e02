//! A host's RDMA device on its data-path thread.
use host::Transport;
use rdma::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a device is among those of its data-path thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DeviceAt {
    /// That of a host.
    Host(usize),
    /// That of a ZeroNIC host.
    Zeronic(usize),
}

/// The device of a host. Only the data-path thread locks it: for its rounds, and for
/// what it is asked between two of them.
pub(crate) struct ThreadDevice {
    device: Arc<Mutex<Device>>,
}

impl ThreadDevice {
    /// The seat of a device, and the transport for its host.
    pub(crate) fn new(device: Device) -> (ThreadDevice, Box<dyn Transport>) {
        let device = Arc::new(Mutex::new(device));
        let transport = Arc::clone(&device);
        (ThreadDevice { device }, Box::new(transport))
    }

    /// The device, between two rounds.
    pub(crate) fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
