//! Yielding before sleeping.
//!
//! A hand-over to a thread that sleeps on another core costs some 20 us, one to a thread that yields less than one. So
//! a waiting thread yields first and sleeps late. While it yields it only looks at the rings' positions, without the
//! lock.
use super::time::is_over;
use crate::lock::{self, Guard};
use crate::system::waking::{self, yield_now};
use shm::Contention;
use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Looks at the rings' positions after each yield. The daemon's next completion comes within a microsecond, and who
/// yields at once gets its turn back after two switches. Not before the first: whoever is to answer may be on this
/// core.
const SPINS: u32 = 24;
/// So many times a thread yields until it takes the lock and looks at everything again. Other threads of the process
/// make sockets ready too, and the kernel has descriptors of its own; these are slower anyway.
const TURNS: u32 = 8;
/// How long a thread yields before it sleeps.
const YIELD_TIME: Duration = Duration::from_micros(60);
/// And so many times at least where [`MANY`] threads of the process do. Each yield takes longer then, as all others
/// have their turns, and to sleep and be woken costs more.
const LEAST_YIELDS: u32 = 16;
const MANY: u32 = 8;
/// How many threads of a process that has several yield now.
static YIELDING: AtomicU32 = AtomicU32::new(0);
/// Whether others want the cores that this process waits on.
static CONTENTION: Contention = Contention::new();

/// How long a thread yields before it sleeps, in one wait: not at all where others want the core.
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

/// Lets others run, without the lock, until the daemon has said something, a few times; reports whether it has.
pub(super) fn yield_until_news(lib: &mut Guard, spin: &SpinTime, deadline: Option<Instant>) -> bool {
    // What is owed to the ring is tried again with each look.
    let news = lib.context().filter(|context| !context.owes()).map(|context| context.end.news());
    let Some(news) = news else {
        lib.unlocked(|| spin.yields());
        return false;
    };
    lib.unlocked(|| {
        for _ in 0..TURNS {
            spin.yields();
            for _ in 0..SPINS {
                if news.iter().any(|ring| ring.is_there()) {
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
