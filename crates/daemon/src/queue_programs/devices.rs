//! Device memory of one program of a ZeroNIC host: its DMA queues, and whether they are served.
use memory::{DmaQueue, MemoryTable};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use shm::handover;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Devices of one program.
const MOST: usize = 8;

/// A program's devices, by number.
#[derive(Default)]
pub(super) struct ProgramDevices {
    all: Vec<Device>,
    /// The devices of what is registered.
    keys: HashMap<u32, usize>,
}

struct Device {
    queue: Arc<DmaQueue>,
    /// Ends when no process can serve the queue any more; then it is none.
    socket: Option<OwnedFd>,
}

impl ProgramDevices {
    /// Makes a device. `bell` is the eventfd that wakes the host's thread; a copy may take so many nanoseconds. Returns
    /// its number, and the socket for its server.
    ///
    /// # Errors
    /// The program has as many as it may, or the system has no memory or no descriptor.
    pub(super) fn make(&mut self, table: &MemoryTable, bell: OwnedFd, timeout: u64) -> io::Result<(u32, OwnedFd)> {
        if self.all.len() >= MOST {
            return Err(Errno::MFILE.into());
        }
        let (queue, ends) = DmaQueue::create(bell, timeout)?;
        let (ours, its) = handover::pair()?;
        ends.send(&ours)?;
        let queue = Arc::new(queue);
        table.devices().add(&queue);
        self.all.push(Device { queue, socket: Some(ours) });
        Ok((self.all.len() as u32 - 1, its))
    }

    pub(super) fn queue(&self, device: u32) -> Option<&Arc<DmaQueue>> {
        self.all.get(device as usize).map(|device| &device.queue)
    }

    /// A region is the device's.
    pub(super) fn registered(&mut self, key: u32, device: u32) {
        self.keys.insert(key, device as usize);
    }

    /// A region is registered no more. False where its device was lost: then it is unknown what it still copies.
    pub(super) fn deregistered(&mut self, key: u32) -> bool {
        let device = self.keys.remove(&key).and_then(|device| self.all.get(device));
        device.is_none_or(|device| !device.queue.is_lost())
    }

    /// Waits until the program sends something, and gives up devices that no process serves any more.
    pub(super) fn wait(&mut self, socket: &OwnedFd) {
        while self.all.iter().any(|device| device.socket.is_some()) {
            let served: Vec<usize> = (0..self.all.len()).filter(|at| self.all[*at].socket.is_some()).collect();
            let sockets = served.iter().filter_map(|at| self.all[*at].socket.as_ref());
            let fds = [socket].into_iter().chain(sockets);
            let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                // As without devices: the program's next message is waited for elsewhere.
                Err(_) => return,
            }
            let speaks = !fds[0].revents().is_empty();
            let ended: Vec<usize> =
                served.iter().zip(&fds[1..]).filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| *at).collect();
            for at in ended {
                // A server sends nothing here: whatever comes means that it is gone, or breaks the protocol.
                self.all[at].socket = None;
                self.all[at].queue.abandon();
            }
            if speaks {
                return;
            }
        }
    }

    /// The program is gone.
    pub(super) fn end(&mut self, table: &MemoryTable) {
        self.all.drain(..).for_each(|device| table.devices().remove(&device.queue));
    }
}
