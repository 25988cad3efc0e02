//! Spin phase of a wait: yields before the sleep.
//!
//! A wake-up of a thread on another core costs some 20 us, one to a thread that yields less than one. So a waiting
//! thread yields first and sleeps late. While it yields it only polls the rings' positions, without the lock.
use super::time::is_over;
use crate::lock::{self, Guard};
use crate::system::waking::{self, yield_now};
use shm::Contention;
use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Polls of the rings' positions after each yield. The daemon's next completion comes within a microsecond, and a
/// thread that yields at once runs again after two switches. Not before the first: the thread that is to answer may be
/// on this core.
const SPINS: u32 = 24;
/// So many times a thread yields until it takes the lock and checks everything again. Other threads of the process make
/// sockets ready too, and the kernel has descriptors of its own; these are slower anyway.
const YIELDS: u32 = 8;
/// How long a thread yields before it sleeps.
const YIELD_TIME: Duration = Duration::from_micros(60);
/// And so many times at least where [`MANY`] threads of the process do. Each yield takes longer then, as all others
/// run, and to sleep and be woken costs more.
const LEAST_YIELDS: u32 = 16;
const MANY: u32 = 8;
/// How many threads of a process that has several yield now.
static YIELDING: AtomicU32 = AtomicU32::new(0);
/// Whether others are ready on the cores that this process waits on.
static CONTENTION: Contention = Contention::new();

/// How long a thread yields before it sleeps, in one wait: not at all where others are ready on the core.
pub(super) struct SpinTime {
    since: Option<Instant>,
    /// It is counted among those that yield.
    counted: bool,
    yields: Cell<u32>,
}

impl SpinTime {
    /// A wait begins.
    pub(super) fn new() -> SpinTime {
        let since = (!CONTENTION.is_there() && !waking::is_confined()).then(waking::now);
        let counted = since.is_some() && !lock::is_alone();
        if counted {
            YIELDING.fetch_add(1, Relaxed);
        }
        SpinTime { since, counted, yields: Cell::new(0) }
    }

    /// Of a wait that does not yield.
    pub(super) fn none() -> SpinTime {
        SpinTime { since: None, counted: false, yields: Cell::new(0) }
    }

    /// The thread goes on yielding.
    pub(super) fn lasts(&self) -> bool {
        let among_many = || self.yields.get() < LEAST_YIELDS && YIELDING.load(Relaxed) >= MANY;
        self.since.is_some_and(|since| waking::now() - since < YIELD_TIME || among_many())
    }

    /// It lets others run once more.
    fn yields(&self) {
        self.yields.set(self.yields.get() + 1);
        give_way();
    }
}

/// After fork: the parent's other threads are not here.
pub(crate) fn forget_others() {
    YIELDING.store(0, Relaxed);
}

impl Drop for SpinTime {
    fn drop(&mut self) {
        if self.counted {
            YIELDING.fetch_sub(1, Relaxed);
        }
    }
}

/// Lets others run, without the lock, until the daemon has added something, a few times; reports whether it has.
pub(super) fn yield_until_completions(lib: &mut Guard, spin: &SpinTime, deadline: Option<Instant>) -> bool {
    // Pending bumps are tried again with each check.
    let rings = lib.context().filter(|context| !context.has_pending_bumps()).map(|context| context.end.news());
    let Some(rings) = rings else {
        lib.unlocked(|| spin.yields());
        return false;
    };
    lib.unlocked(|| {
        for _ in 0..YIELDS {
            spin.yields();
            for _ in 0..SPINS {
                if rings.iter().any(|ring| ring.is_there()) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if is_over(deadline) || !spin.lasts() {
                break;
            }
        }
        false
    })
}

/// Lets another thread run, and remembers whether that one had much to do.
fn give_way() {
    let at = waking::now();
    yield_now();
    CONTENTION.yielded(waking::now() - at);
}

/// Lets another thread run between two large pieces of work, unless the scheduler takes the core away anyway.
pub(crate) fn yield_between() {
    if !CONTENTION.is_there() && !waking::is_confined() {
        give_way();
    }
}
