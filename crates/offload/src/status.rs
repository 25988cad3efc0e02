//! Status of the worker's threads, which function each one runs, in memory that the supervisor sees. So a worker that
//! has died is read for the library, and the watchdog reads which thread does not come back.
use rustix::time::{ClockId, clock_gettime};
use shm::{CACHE_LINE, Region};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// One line each for the threads, and one for the thread that loads libraries.
const PLACES: usize = crate::limits::MOST_THREADS + 1;

/// The place of the thread that loads libraries.
pub(crate) const LOADER: usize = PLACES - 1;

/// The memory.
#[derive(Clone)]
pub(crate) struct Status(Arc<Region>);

/// A thread that runs a library for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stuck {
    /// The library.
    pub(crate) library: u64,
    /// Since when, by [`now`].
    pub(crate) since: u64,
    /// The thread's number.
    pub(crate) thread: u64,
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Status {
    /// Fresh memory.
    pub(crate) fn new() -> io::Result<Status> {
        Ok(Status(Arc::new(Region::create("offload-status", PLACES * CACHE_LINE + CACHE_LINE)?)))
    }

    /// What the supervisor made.
    pub(crate) fn from_fd(fd: OwnedFd) -> io::Result<Status> {
        let region = Region::from_fd(fd)?;
        let fits = region.len() >= (PLACES + 1) * CACHE_LINE;
        if fits { Ok(Status(Arc::new(region))) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// To hand over.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// A thread begins to run a library: when, by [`now`].
    pub(crate) fn enter(&self, place: usize, library: u64) -> u64 {
        let begin = now();
        self.0.u64_at(place * CACHE_LINE + 8).store(begin, Relaxed);
        self.0.u64_at(place * CACHE_LINE).store(library, Release);
        begin
    }

    /// And no longer.
    pub(crate) fn leave(&self, place: usize) {
        self.0.u64_at(place * CACHE_LINE).store(0, Release);
    }

    /// The calling thread has this place.
    pub(crate) fn settle(&self, place: usize) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.0.u64_at(place * CACHE_LINE + 16).store(thread as u64, Relaxed);
    }

    /// Threads that have run their library for longer than this.
    pub(crate) fn stuck(&self, longer: Duration) -> impl Iterator<Item = Stuck> {
        let before = now().saturating_sub(longer.as_nanos() as u64);
        (0..PLACES).filter_map(move |place| {
            let library = self.0.u64_at(place * CACHE_LINE).load(Acquire);
            let since = self.0.u64_at(place * CACHE_LINE + 8).load(Relaxed);
            let thread = self.0.u64_at(place * CACHE_LINE + 16).load(Relaxed);
            (library != 0 && since < before).then_some(Stuck { library, since, thread })
        })
    }

    /// The watchdog ends the worker because of a library.
    pub(crate) fn blame(&self, library: u64) {
        self.0.u64_at(PLACES * CACHE_LINE).store(library, Release);
    }

    /// Of a worker that has died: the library that the watchdog named.
    pub(crate) fn blamed(&self) -> Option<u64> {
        Some(self.0.u64_at(PLACES * CACHE_LINE).load(Acquire)).filter(|library| *library != 0)
    }

    /// Of a worker that has died: the libraries that its threads were in.
    pub(crate) fn running(&self) -> Vec<u64> {
        let all = (0..PLACES).map(|place| self.0.u64_at(place * CACHE_LINE).load(Acquire));
        all.filter(|library| *library != 0).collect()
    }
}
