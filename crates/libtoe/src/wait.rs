//! Waiting: take in what came, look, yield for a while, then sleep.
//!
//! A hand-over to a thread that sleeps on another core costs some 20 us, one to a thread that yields less than
//! one: so a waiting thread yields first and sleeps late. While it yields it only looks at the rings' positions, without
//! the lock.
use crate::epoll;
use crate::errno::{self, Result};
use crate::lock::{self, Guard};
use crate::lookout::{End, Lookout};
use crate::real;
use crate::share;
use crate::signals::{BlockedSignals, Signals};
use crate::state::{Key, Lib, Link};
use crate::thread;
use crate::waking::{self, wakes, yield_now};
use libc::{c_int, pollfd, sigset_t, timespec};
use shm::Crowd;
use std::cell::Cell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Looks at the rings' positions after each yield: what the daemon is about to say comes within a microsecond, and who
/// yields at once gets its turn back after two switches. Not before the first: whoever is to answer may be on this core.
const SPINS: u32 = 24;
/// So many times a thread yields until it takes the lock and looks at everything again. Other threads of the process make
/// sockets ready too, and the kernel has descriptors of its own; these are slower anyway.
const TURNS: u32 = 8;
/// How long a thread yields before it sleeps.
const YIELD_TIME: Duration = Duration::from_micros(60);
/// And so many times at least where [`MANY`] threads of the process do: each yield takes longer then, as all others have their
/// turns, and to sleep and be woken costs more.
const LEAST_YIELDS: u32 = 16;
const MANY: u32 = 8;
/// How many threads of a process that has several yield now.
static YIELDING: AtomicU32 = AtomicU32::new(0);
/// Whether others want the cores that this process waits on.
static CROWD: Crowd = Crowd::new();
/// First and longest sleep on a connection whose notices may go to another process.
const SHARED_NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// In the place of a descriptor: `poll` passes it over.
const NOBODY: RawFd = -1;
/// Longest sleep while a bump waits for room in the ring.
const OWED_NAP: Duration = Duration::from_millis(1);

/// What a thread waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Something about a socket.
    Socket(Key),
    /// Something in an epoll set.
    Set(Key),
}

/// How to wait.
pub(crate) struct Wait<'a> {
    /// `ETIMEDOUT` from then on.
    pub deadline: Option<Instant>,
    /// Whose news end the sleep. Answers to requests always do.
    pub targets: &'a [Target],
    /// Descriptors of the kernel that end it as well.
    pub kernel: Vec<pollfd>,
    /// About signals.
    pub signals: Signals,
    /// Signals that are blocked meanwhile; `None` for those that the thread blocks anyway.
    pub mask: Option<sigset_t>,
}

/// Shorter times than this are kept to the microsecond, others to the millisecond.
const EXACT: Duration = Duration::from_millis(20);

impl Wait<'_> {
    /// Other threads may look for it: who waits for sockets or sets hears of them from whoever takes their news in.
    fn has_others(&self) -> bool {
        !self.targets.is_empty() && !lock::is_alone()
    }

    /// Of the threads that sleep so, a ring of the bell need only wake one.
    fn sleeps_in_turn(&self) -> bool {
        let exact = self.deadline.is_some_and(|deadline| deadline < waking::now() + EXACT);
        self.has_others() && self.kernel.is_empty() && !exact
    }

    /// Until an answer comes, whatever happens.
    pub(crate) fn forever() -> Wait<'static> {
        Wait { deadline: None, targets: &[], kernel: Vec::new(), signals: Signals::Keep, mask: None }
    }
}

/// Waits until `look` gives something. It is called with the lock held, after everything that the daemon said was
/// taken in, and gets the kernel's descriptors with `revents` filled in.
pub(crate) fn until<T>(
    lib: &mut Guard,
    mut wait: Wait<'_>,
    mut look: impl FnMut(&mut Lib, &[pollfd]) -> Option<T>,
) -> Result<T> {
    if let Some(found) = take_in_and_look(lib, &mut wait, &mut look) {
        return Ok(found);
    }
    if is_over(wait.deadline) {
        return Err(libc::ETIMEDOUT);
    }
    let mut blocked = BlockedSignals::of_wait(wait.signals, wait.mask);
    let (patience, mut slept) = (Patience::new(), false);
    let (mut naps, mut lookout) = (Naps::new(), Lookout::default());
    loop {
        let patient = !slept && patience.lasts();
        if patient {
            yield_until_news(lib, &patience, wait.deadline);
        }
        if let Some(found) = take_in_and_look(lib, &mut wait, &mut look) {
            return Ok(found);
        }
        if is_over(wait.deadline) {
            return Err(libc::ETIMEDOUT);
        }
        if patient {
            continue;
        }
        slept = true;
        let blocked = &*blocked.get_or_insert_with(|| BlockedSignals::new(wait.mask));
        share::claim_all(lib, wait.targets)?;
        let woken = sleep(lib, &mut wait, blocked, naps.next(), &mut lookout, &mut look)?;
        let before = wakes();
        if let Some(found) = woken.found.or_else(|| take_in_and_look(lib, &mut wait, &mut look)) {
            return Ok(found);
        }
        woken.end.into_iter().for_each(|end| lookout.woke(End { woke: wakes() != before, ..end }));
        let interrupted = woken.interrupted;
        if interrupted && !blocked.goes_on(wait.signals) {
            return Err(libc::EINTR);
        }
    }
}

fn take_in_and_look<T>(
    lib: &mut Guard,
    wait: &mut Wait<'_>,
    look: &mut impl FnMut(&mut Lib, &[pollfd]) -> Option<T>,
) -> Option<T> {
    if !wait.kernel.is_empty() {
        let now = timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid slice, without waiting.
        unsafe { real::ppoll_raw(&mut wait.kernel, &now, std::ptr::null()) };
    }
    lib.drain();
    look(lib, &wait.kernel)
}

/// What ended a sleep.
struct Woken<T> {
    /// Of the last look before it.
    found: Option<T>,
    /// A signal handler ran.
    interrupted: bool,
    /// Where threads sleep in turn: how it ended, as far as is known then.
    end: Option<End>,
}

/// Sleeps until something may have happened, unless the last look finds something.
fn sleep<T>(
    lib: &mut Guard,
    wait: &mut Wait<'_>,
    blocked: &BlockedSignals,
    shared: Duration,
    lookout: &mut Lookout,
    look: &mut impl FnMut(&mut Lib, &[pollfd]) -> Option<T>,
) -> Result<Woken<T>> {
    let me = thread::wake_fd()?;
    lib.send_held();
    let short = lookout.leaves_it();
    let nap = longest_nap(lib, wait.targets, shared).into_iter().chain(short).min();
    let Some(context) = lib.context() else {
        // Without a daemon only the kernel's descriptors, signals and the deadline can end the wait.
        let timeout = until_deadline(wait.deadline, nap);
        let interrupted = lib.unlocked(|| sleep_on(&mut wait.kernel, timeout, blocked));
        return Ok(Woken { found: None, interrupted, end: None });
    };
    let bell = if short.is_none() { context.end.app_bell.fd().as_raw_fd() } else { NOBODY };
    let bells = [bell, context.control_fd(), me];
    let announced = if short.is_none() { lib.announce_sleep() } else { None };
    let on = sleep_set(&lib.link, wait.sleeps_in_turn(), lookout).unwrap_or(SleepSet::Each(bells));
    enlist(lib, wait.targets, me);
    lib.drain();
    let found = look(lib, &wait.kernel);
    let (mut interrupted, mut reasons) = (false, [false; 3]);
    let (taken_in, begin) = (lib.taken_in, waking::now());
    if found.is_none() {
        let timeout = until_deadline(wait.deadline, nap);
        (interrupted, reasons) = sleep_in(lib, (on, bells), &mut wait.kernel, timeout, blocked);
    }
    let end = wait.has_others().then(|| End {
        rung: reasons[0],
        slept: waking::now() - begin,
        others: lib.taken_in != taken_in,
        woke: false,
        found: false,
    });
    lib.end_sleep(announced);
    wake_up(lib, reasons);
    dismiss(lib, wait.targets, me);
    Ok(Woken { found, interrupted, end })
}

/// The one system call that sleeps; says whether a signal handler ran.
fn sleep_on(fds: &mut [pollfd], timeout: Option<timespec>, blocked: &BlockedSignals) -> bool {
    waking::sleep_on(fds, timeout, blocked.outside()) < 0 && errno::get() == libc::EINTR
}

/// What a thread sleeps on, besides the program's own descriptors.
#[derive(Clone, Copy)]
enum SleepSet {
    /// A [bed](epoll::Bed): the bell wakes one of the threads that sleep so.
    Bed(RawFd),
    /// One descriptor for all, under a filter of system calls.
    Single(RawFd),
    /// The bell, the daemon's socket and the thread's wake-up.
    Each([RawFd; 3]),
}

/// What this thread sleeps on, other than on each descriptor; `in_turn` where the bell need not wake every thread.
fn sleep_set(link: &Link, in_turn: bool, lookout: &mut Lookout) -> Option<SleepSet> {
    if waking::is_confined() {
        return thread::single().map(SleepSet::Single);
    }
    let bed = if in_turn { thread::bed(link, lookout.steps_back()) } else { None };
    bed.map(SleepSet::Bed)
}

/// Sleeps; returns whether a signal handler ran, and what ended the sleep: bell, daemon, another thread.
fn sleep_in(
    lib: &mut Guard,
    (on, each): (SleepSet, [RawFd; 3]),
    kernel: &mut Vec<pollfd>,
    timeout: Option<timespec>,
    blocked: &BlockedSignals,
) -> (bool, [bool; 3]) {
    let each = match on {
        SleepSet::Bed(bed) => match lib.unlocked(|| sleep_in_bed(bed, timeout, blocked)) {
            Some(woken) => return woken,
            None => each,
        },
        SleepSet::Single(fd) => {
            let heard = pollfd { fd, events: libc::POLLIN, revents: 0 };
            let (interrupted, [woken]) = sleep_beside(lib, kernel, [heard], timeout, blocked);
            let died = woken && lib.context().is_some_and(|context| context.daemon_is_gone());
            return (interrupted, [woken, died, woken]);
        }
        SleepSet::Each(each) => each,
    };
    // Of the daemon's socket only its end is of interest, no messages.
    let [bell, daemon, me] = each.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
    sleep_beside(lib, kernel, [bell, pollfd { events: 0, ..daemon }, me], timeout, blocked)
}

/// Sleeps on the program's descriptors and these; returns whether a signal handler ran, and which of these are ready.
fn sleep_beside<const N: usize>(
    lib: &mut Guard,
    kernel: &mut Vec<pollfd>,
    ours: [pollfd; N],
    timeout: Option<timespec>,
    blocked: &BlockedSignals,
) -> (bool, [bool; N]) {
    let programs = kernel.len();
    kernel.extend(ours);
    let interrupted = lib.unlocked(|| sleep_on(kernel, timeout, blocked));
    let woken = std::array::from_fn(|i| kernel[programs + i].revents != 0);
    kernel.truncate(programs);
    (interrupted, woken)
}

/// Sleeps in a bed: whether a signal handler ran, and what ended it of bell, daemon and another thread. Nothing where a
/// filter of the program's does not let it.
fn sleep_in_bed(bed: RawFd, timeout: Option<timespec>, blocked: &BlockedSignals) -> Option<(bool, [bool; 3])> {
    let mut reasons = [libc::epoll_event { events: 0, u64: 0 }; epoll::REASONS];
    // SAFETY: a descriptor of ours and a valid mask.
    let got =
        unsafe { waking::sleep_in(bed, reasons.as_mut_ptr(), reasons.len(), milliseconds(timeout), blocked.outside()) };
    let interrupted = got < 0 && errno::get() == libc::EINTR;
    let reasons = reasons.get(..got.max(0) as usize).filter(|_| got >= 0 || interrupted)?;
    Some((interrupted, [epoll::BELL, epoll::DAEMON, epoll::KICK].map(|why| reasons.iter().any(|r| { r.u64 } == why))))
}

/// After sleeping: the bell is cleared before everything is taken in, so no signal is lost.
fn wake_up(lib: &mut Lib, [bell, daemon, me]: [bool; 3]) {
    if me {
        thread::clear_wake();
    }
    let Some(context) = lib.context() else { return };
    if bell {
        context.end.app_bell.clear();
    }
    if daemon {
        lib.drain();
        // Another thread may have come back to the next daemon already.
        lib.check_daemon();
    }
}

fn enlist(lib: &mut Lib, targets: &[Target], me: RawFd) {
    if targets.is_empty() {
        lib.askers.push(me);
    }
    for target in targets {
        match target {
            Target::Socket(key) => lib.socket(*key).into_iter().for_each(|socket| socket.waiters.push(me)),
            Target::Set(key) => lib.set(*key).into_iter().for_each(|set| set.waiters.push(me)),
        }
    }
}

fn dismiss(lib: &mut Lib, targets: &[Target], me: RawFd) {
    if targets.is_empty() {
        lib.askers.remove(me);
    }
    for target in targets {
        match target {
            Target::Socket(key) => lib.socket(*key).into_iter().for_each(|socket| socket.waiters.remove(me)),
            Target::Set(key) => lib.set(*key).into_iter().for_each(|set| set.waiters.remove(me)),
        }
    }
}

/// How long a wait for shared connections sleeps at a time, until it claims them again: a little longer each time, since
/// another process that waits as well has them until then.
pub(crate) struct Naps(Duration);

impl Naps {
    /// A wait begins.
    pub(crate) fn new() -> Naps {
        Naps(SHARED_NAPS.0)
    }

    /// The next nap.
    pub(crate) fn next(&mut self) -> Duration {
        let next = (2 * self.0).min(SHARED_NAPS.1);
        std::mem::replace(&mut self.0, next)
    }
}

/// How long a thread may sleep at most without losing something that no bell announces; `shared` where another process
/// may take the news.
fn longest_nap(lib: &mut Lib, targets: &[Target], shared: Duration) -> Option<Duration> {
    if let Link::Lost(lost, _) = &lib.link {
        return lost.nap();
    }
    let rest = lib.rest_some();
    if lib.context().is_some_and(|context| context.owes()) {
        return Some(OWED_NAP);
    }
    let shared = targets.iter().any(|target| lib.is_shared(*target)).then_some(shared);
    [rest, shared].into_iter().flatten().min()
}

impl Lib {
    /// Whether another process may take news of the target.
    pub(crate) fn is_shared(&mut self, target: Target) -> bool {
        match target {
            Target::Socket(key) => self.socket(key).is_some_and(|socket| socket.is_shared()),
            Target::Set(key) => epoll::has_shared(self, key),
        }
    }
}

/// How long a thread yields before it sleeps, in one wait: not at all where others want the core.
pub(crate) struct Patience {
    since: Option<Instant>,
    /// It is counted among those that yield.
    counted: bool,
    yields: Cell<u32>,
}

impl Patience {
    /// A wait begins.
    pub(crate) fn new() -> Patience {
        let since = (!CROWD.is_there() && !waking::is_confined()).then(waking::now);
        let counted = since.is_some() && !lock::is_alone();
        if counted {
            YIELDING.fetch_add(1, Relaxed);
        }
        Patience { since, counted, yields: Cell::new(0) }
    }

    /// The thread goes on yielding.
    pub(crate) fn lasts(&self) -> bool {
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

impl Drop for Patience {
    fn drop(&mut self) {
        if self.counted {
            YIELDING.fetch_sub(1, Relaxed);
        }
    }
}

/// Lets others run, without the lock, until the daemon has said something, a few times; says whether it has.
pub(crate) fn yield_until_news(lib: &mut Guard, patience: &Patience, deadline: Option<Instant>) -> bool {
    // What is owed to the ring is tried again with each look.
    let news = lib.context().filter(|context| !context.owes()).map(|context| context.end.news());
    let Some(news) = news else {
        lib.unlocked(|| patience.yields());
        return false;
    };
    lib.unlocked(|| {
        for _ in 0..TURNS {
            patience.yields();
            for _ in 0..SPINS {
                if news.iter().any(|ring| ring.is_there()) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if is_over(deadline) || !patience.lasts() {
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
    CROWD.yielded(waking::now() - at);
}

/// Lets another thread run between two large pieces of work, unless the scheduler takes the core away anyway.
pub(crate) fn yield_between() {
    if !CROWD.is_there() && !waking::is_confined() {
        give_way();
    }
}

/// The longest that a wait for a set may sleep; `shared` where it has shared connections.
pub(crate) fn nap_of_set(lib: &mut Lib, key: Key, shared: Duration) -> Option<Duration> {
    longest_nap(lib, &[Target::Set(key)], shared)
}

/// Whether a deadline has passed.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| waking::now() >= deadline)
}

/// Time to the deadline, but no longer than a nap; `None` for ever.
pub(crate) fn until_deadline(deadline: Option<Instant>, nap: Option<Duration>) -> Option<timespec> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(waking::now()));
    let time = match (left, nap) {
        (Some(left), Some(nap)) => left.min(nap),
        (left, nap) => left.or(nap)?,
    };
    Some(timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 })
}

/// A time as `epoll_wait` has it: rounded up, -1 for ever.
pub(crate) fn milliseconds(time: Option<timespec>) -> c_int {
    let whole = |time: timespec| (time.tv_sec * 1000 + (time.tv_nsec + 999_999) / 1_000_000).min(c_int::MAX as i64);
    time.map_or(-1, |time| whole(time) as c_int)
}
