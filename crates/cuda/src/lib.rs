//! Memory of CUDA devices behind DMA queues (docs/REGISTERED-MEMORY.md, "Device memory").
//!
//! The program's own process serves its queue: it has the driver, the context and the right to the memory already. The
//! daemon never sees the driver. Nothing depends on CUDA when this is built or loaded: the driver is asked only where
//! the process has loaded it.

mod driver;
mod server;

use driver::Driver;
use memory::DmaServer;
use std::io;
use std::thread::{self, JoinHandle};

/// Memory of a device, by the driver's handle in this process.
#[derive(Clone, Copy)]
pub struct DeviceMemory {
    driver: Driver,
    context: usize,
}

impl DeviceMemory {
    /// Of `len` bytes from an address on. `None` where they are ordinary memory, or the process does not use CUDA.
    ///
    /// # Errors
    /// `EFAULT`: they are not all of one allocation. `EIO`: the driver does not report of which context they are.
    pub fn find(address: u64, len: u64) -> Option<Result<DeviceMemory, i32>> {
        let driver = Driver::of_process().filter(|driver| driver.is_device(address))?;
        let end = address.checked_add(len);
        let inside = driver.range(address).zip(end).is_none_or(|((first, bytes), end)| end <= first + bytes);
        if !inside || end.is_none() {
            return Some(Err(libc::EFAULT));
        }
        let context = driver.context(address).map(|context| context.expose_provenance());
        Some(context.map(|context| DeviceMemory { driver, context }).ok_or(libc::EIO))
    }

    /// Names the context: memory of one context can be served by one queue.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Serves a queue of this memory's context on a thread of its own, until the queue ends.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn serve(&self, queue: DmaServer) -> io::Result<JoinHandle<()>> {
        let DeviceMemory { driver, context } = *self;
        // A queue that the driver refuses to serve ends with it: the daemon finds the device lost.
        let body = move || server::serve(driver, context, queue);
        thread::Builder::new().name("toe-cuda".into()).spawn(body)
    }
}
