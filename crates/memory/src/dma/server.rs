//! The server's end of a DMA queue: for whoever has the memory.
use super::{
    COMPLETION_WORDS, COMPLETIONS_AT, Direction, ENTRIES, MAGIC, ORDER_WORDS, ORDERS_AT, QUEUE_BELL, REGION,
    SERVER_BELL, STAGING, STAGING_AT,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shm::{ByteRing, Doorbell, PipeConsumer, PipeProducer, Region, handover};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// A copy that the data-path orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DmaCopy {
    /// Names it in [`DmaServer::done`].
    pub number: u64,
    /// From the staging area to the device; otherwise the other way.
    pub into_device: bool,
    /// The device's address, as it was registered, plus an offset within the registration.
    pub address: u64,
    /// Bytes.
    pub len: usize,
    /// The first one's place in the staging area.
    pub at: usize,
}

/// The server's end of a queue.
pub struct DmaServer {
    region: Arc<Region>,
    staging: ByteRing,
    orders: PipeConsumer<ORDER_WORDS>,
    completions: PipeProducer<COMPLETION_WORDS>,
    own: Doorbell,
    daemon: Doorbell,
    /// Ends with the queue.
    socket: OwnedFd,
}

impl DmaServer {
    /// The end of a queue whose socket this is.
    ///
    /// # Errors
    /// Nothing came through the socket, or something else.
    pub fn open(socket: OwnedFd) -> io::Result<DmaServer> {
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "this is no DMA queue of this version");
        let (message, files) = handover::recv(socket.as_fd())?;
        let [region, bell, own] = <[OwnedFd; 3]>::try_from(files).map_err(|_| strange())?;
        let region = Arc::new(Region::from_fd(region)?);
        if message != MAGIC.to_le_bytes() || region.len() != REGION || region.u64_at(0).load(Acquire) != MAGIC {
            return Err(strange());
        }
        Ok(DmaServer {
            staging: ByteRing::map(&region, STAGING_AT, STAGING)?,
            orders: PipeConsumer::new(&region, ORDERS_AT, ENTRIES, 0),
            completions: PipeProducer::new(&region, COMPLETIONS_AT, ENTRIES, 0, ENTRIES / 4),
            own: Doorbell::new(&region, SERVER_BELL, own),
            daemon: Doorbell::new(&region, QUEUE_BELL, bell),
            region,
            socket,
        })
    }

    /// Where the staging area is mapped, and how many bytes it has: for devices that copy by themselves.
    pub fn staging(&self) -> (*mut u8, usize) {
        (self.region.address(STAGING_AT, STAGING), STAGING)
    }

    /// Copies bytes out of the staging area.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.staging.read(at as u32, into);
    }

    /// Copies bytes into it.
    pub fn write(&self, at: usize, from: &[u8]) {
        self.staging.write(at as u32, from);
    }

    /// The next order, where there is one. It lies within the staging area.
    pub fn take(&mut self) -> Option<DmaCopy> {
        let [number, direction, address, len, at, ..] = self.orders.pop()?;
        let (len, at) = (usize::try_from(len).ok()?, usize::try_from(at).ok()?);
        let within = at.checked_add(len).is_some_and(|end| end <= STAGING);
        let into_device = direction == Direction::IntoDevice as u64;
        within.then_some(DmaCopy { number, into_device, address, len, at })
    }

    /// A copy has ended: `error` is 0, or a Linux error number. Copies may end in any order.
    pub fn done(&mut self, number: u64, error: i32) {
        // There is room: as many completions as orders.
        if self.completions.push([number, u64::from(error.unsigned_abs())]).is_ok() {
            self.daemon.ring();
        }
    }

    /// Waits for an order, for so long at most where a time is given. False once the queue has ended.
    ///
    /// # Errors
    /// Of the system call.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<bool> {
        self.own.prepare_to_sleep();
        let mut open = true;
        if self.orders.is_empty() {
            let own = PollFd::from_borrowed_fd(self.own.fd(), PollFlags::IN);
            let mut fds = [own, PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            let most = most.map(|most| Timespec {
                tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: most.subsec_nanos().into(),
            });
            match poll(&mut fds, most.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => open = fds[1].revents().is_empty(),
                Err(error) => return Err(error.into()),
            }
            self.own.clear();
        }
        self.own.awake();
        Ok(open)
    }
}
