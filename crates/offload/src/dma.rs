//! DMA regions of host programs, and operations on them. What the engine has mapped is copied at once; what is reached
//! through the kernel may wait for the host program, so a thread of its own does that.
use crate::wake::Wake;
use memory::{Access, AddressSpace, Description, Domain, Fault, Key, Lease, MemoryTable};
use offload_api::dma;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};

/// A host program: its DMA regions, by its own addresses.
pub(crate) struct Host {
    /// The port of its clients.
    pub(crate) port: u16,
    /// Connections of its clients.
    pub(crate) connections: AtomicUsize,
    domain: Domain,
    table: Arc<MemoryTable>,
    regions: RwLock<Vec<Registered>>,
}

/// A DMA region.
struct Registered {
    start: u64,
    end: u64,
    key: Key,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    FetchAdd,
    CompareSwap,
}

impl Op {
    /// By its code of `include/offload.h`; the sizes of atomics are given.
    fn new(code: c_int, size: usize) -> Option<Op> {
        match (code, size) {
            (dma::READ, _) => Some(Op::Read),
            (dma::WRITE, _) => Some(Op::Write),
            (dma::FETCH_ADD, 8) => Some(Op::FetchAdd),
            (dma::COMPARE_SWAP, 16) => Some(Op::CompareSwap),
            _ => None,
        }
    }

    fn access(self) -> Access {
        match self {
            Op::Read => Access::RemoteRead,
            Op::Write => Access::RemoteWrite,
            Op::FetchAdd | Op::CompareSwap => Access::RemoteAtomic,
        }
    }
}

/// An operation, as a function submits it.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    op: Op,
    address: u64,
    at: *mut u8,
    size: usize,
}

impl Operation {
    /// `None` where it makes no sense.
    pub(crate) fn new(code: c_int, address: u64, at: *mut u8, size: usize) -> Option<Operation> {
        let op = Op::new(code, size)?;
        (!at.is_null() || size == 0).then_some(Operation { op, address, at, size })
    }

    /// Bytes of the host's memory.
    fn bytes(&self) -> usize {
        if matches!(self.op, Op::Read | Op::Write) { self.size } else { 8 }
    }

    /// Carries it out.
    ///
    /// # Safety
    /// The function's bytes are valid, and nobody else uses them meanwhile.
    unsafe fn run(&self, lease: &Lease<'_>) -> Result<(), Fault> {
        let at = self.address - lease.address();
        match self.op {
            // SAFETY: as the caller guarantees.
            Op::Read => lease.read(at, unsafe { std::slice::from_raw_parts_mut(self.at, self.size) }),
            // SAFETY: as the caller guarantees.
            Op::Write => lease.write(at, unsafe { std::slice::from_raw_parts(self.at, self.size) }),
            Op::FetchAdd | Op::CompareSwap => {
                let words = self.at.cast::<u64>();
                // SAFETY: as the caller guarantees; they may stand anywhere.
                let first = unsafe { words.read_unaligned() };
                let before = match self.op {
                    Op::FetchAdd => lease.fetch_add(at, first)?,
                    // SAFETY: this operation has two words.
                    _ => lease.compare_swap(at, first, unsafe { words.add(1).read_unaligned() })?,
                };
                // SAFETY: as the caller guarantees.
                unsafe { words.write_unaligned(before) };
                Ok(())
            }
        }
    }
}

/// What became of an operation that was submitted.
pub(crate) enum Submitted {
    /// It was carried out.
    Done,
    /// Its bytes are reached through the kernel.
    Waits,
}

impl Host {
    /// A program without regions, in a domain of its own.
    pub(crate) fn new(port: u16, number: u32, table: &Arc<MemoryTable>) -> Host {
        let (domain, regions) = (Domain(number), RwLock::default());
        Host { port, connections: 0.into(), domain, table: Arc::clone(table), regions }
    }

    /// Adds a DMA region.
    ///
    /// # Errors
    /// An error number: it is refused, or it overlaps another one.
    pub(crate) fn register(
        &self,
        description: &Description,
        files: &[OwnedFd],
        space: Option<&Arc<AddressSpace>>,
    ) -> Result<(), i32> {
        let start = description.address;
        let end = start + description.len().ok_or(libc::EINVAL)?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let place = regions.partition_point(|region| region.end <= start);
        if regions.get(place).is_some_and(|next| next.start < end) {
            return Err(libc::EEXIST);
        }
        let key = self.table.register(self.domain, description, files, space).map_err(|refusal| refusal.errno())?;
        regions.insert(place, Registered { start, end, key });
        Ok(())
    }

    /// Its regions go: no byte of them is touched afterwards.
    pub(crate) fn remove(&self) {
        let regions = std::mem::take(&mut *self.regions.write().unwrap_or_else(PoisonError::into_inner));
        for region in regions {
            let _ = self.table.deregister(self.domain, region.key);
        }
    }

    /// How many regions, and their bytes.
    pub(crate) fn usage(&self) -> (usize, u64) {
        self.table.usage(self.domain)
    }

    /// The region that has all bytes of an operation.
    fn open(&self, operation: &Operation) -> Result<Lease<'_>, i32> {
        let end = operation.address.checked_add(operation.bytes() as u64).ok_or(libc::EFAULT)?;
        let key = {
            let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
            let place = regions.partition_point(|region| region.end <= operation.address);
            let region = regions.get(place).ok_or(libc::EFAULT)?;
            if region.start > operation.address || region.end < end {
                return Err(libc::EFAULT);
            }
            region.key
        };
        self.table.open(self.domain, key, operation.op.access()).map_err(number)
    }

    /// Carries an operation out where that waits for nobody.
    ///
    /// # Safety
    /// The function's bytes are valid, and nobody else uses them meanwhile.
    pub(crate) unsafe fn submit(&self, operation: &Operation) -> Result<Submitted, i32> {
        let lease = self.open(operation)?;
        if lease.may_wait() {
            return Ok(Submitted::Waits);
        }
        // SAFETY: as the caller guarantees.
        unsafe { operation.run(&lease) }.map_err(number)?;
        Ok(Submitted::Done)
    }
}

/// As `include/offload.h` names it.
fn number(fault: Fault) -> i32 {
    match fault {
        Fault::Rights => libc::EACCES,
        Fault::Alignment => libc::EINVAL,
        _ => libc::EFAULT,
    }
}

/// The submitter of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whose {
    /// The place of the call in its thread's table.
    pub(crate) call: usize,
    /// The number of the operation.
    pub(crate) id: i64,
}

struct Job {
    host: Arc<Host>,
    operation: Operation,
    whose: Whose,
}

// SAFETY: the function's bytes are a call's, which lives until the operation has ended.
unsafe impl Send for Job {}

/// An operation that has ended: 0, or a negative error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Which.
    pub(crate) whose: Whose,
    /// How.
    pub(crate) result: c_int,
}

/// The thread that carries out what may wait, as another thread sees it.
pub(crate) struct Lane {
    jobs: Sender<Job>,
    ended: Receiver<Ended>,
    /// Of all lanes.
    outstanding: Arc<AtomicU64>,
}

impl Lane {
    /// Starts the thread. It wakes `owner` when an operation has ended, and ends with the lane.
    pub(crate) fn start(owner: &Arc<Wake>, outstanding: Arc<AtomicU64>) -> std::io::Result<Lane> {
        let (jobs, taken) = channel::<Job>();
        let (finished, ended) = channel();
        let owner = Arc::clone(owner);
        std::thread::Builder::new().name("offload-dma".into()).spawn(move || {
            for Job { host, operation, whose } in taken {
                let done = host.open(&operation).and_then(|lease| {
                    // SAFETY: the call keeps the bytes until it has the operation's end.
                    unsafe { operation.run(&lease) }.map_err(number)
                });
                if finished.send(Ended { whose, result: done.map_or_else(|number| -number, |()| 0) }).is_err() {
                    return;
                }
                owner.wake();
            }
        })?;
        Ok(Lane { jobs, ended, outstanding })
    }

    /// Hands over an operation.
    ///
    /// # Safety
    /// The function's bytes are valid, and nobody else uses them, until its end was taken.
    pub(crate) unsafe fn submit(&self, host: &Arc<Host>, operation: Operation, whose: Whose) {
        self.outstanding.fetch_add(1, Relaxed);
        // The thread lives as long as the lane.
        let _ = self.jobs.send(Job { host: Arc::clone(host), operation, whose });
    }

    /// The next operation that has ended.
    pub(crate) fn ended(&self) -> Option<Ended> {
        let ended = self.ended.try_recv().ok();
        self.outstanding.fetch_sub(u64::from(ended.is_some()), Relaxed);
        ended
    }
}
