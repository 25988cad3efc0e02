//! Sleep of a waiting thread, in `epoll_wait`, `poll` and every blocking call.
//!
//! It announces itself on the bell, checks a last time, registers on its targets, and sleeps. What the daemon adds
//! after the announcement rings the bell; the lock is held from the check on, so what other threads do comes after.
use super::target::{Target, WaitOptions};
use super::time::{milliseconds, until_deadline};
use crate::lock::Guard;
use crate::state::members::has_shared;
use crate::state::{Lib, Link};
use crate::system::errno::{self, Result};
use crate::system::sleep_set::{BELL, DAEMON, KICK, REASONS};
use crate::system::waking;
use crate::wait::follower::{End, Follower};
use crate::wait::signals::BlockedSignals;
use crate::wait::thread;
use libc::{pollfd, timespec};
use std::os::fd::RawFd;
use std::time::Duration;

/// First and longest sleep on a connection whose completions may go to another process.
const SHARED_NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// In the place of a descriptor: `poll` passes it over.
const NOBODY: RawFd = -1;
/// Longest sleep while a bump waits for room in the ring.
const PENDING_NAP: Duration = Duration::from_millis(1);

/// State of a wait between its sleeps.
#[derive(Default)]
pub(super) struct Sleeper {
    naps: Naps,
    pub follower: Follower,
}

/// How long a wait for shared connections sleeps at a time, until it claims them again. It is a little longer each
/// time, since another process that waits as well has them until then.
struct Naps(Duration);

impl Default for Naps {
    fn default() -> Naps {
        Naps(SHARED_NAPS.0)
    }
}

impl Naps {
    fn next(&mut self) -> Duration {
        let next = (2 * self.0).min(SHARED_NAPS.1);
        std::mem::replace(&mut self.0, next)
    }
}

/// Result of a sleep.
pub(super) enum Woken<T> {
    /// The last check before it found this: there was none.
    Found(T),
    /// It is over.
    Slept {
        /// A signal handler ran.
        interrupted: bool,
        /// Beside other threads: how it ended, as far as is known then.
        end: Option<End>,
    },
}

/// Sleeps until something may have happened, unless the last check finds something.
pub(super) fn sleep<T>(
    lib: &mut Guard,
    wait: &mut WaitOptions<'_>,
    Sleeper { naps, follower }: &mut Sleeper,
    blocked: &BlockedSignals,
    poll: &mut impl FnMut(&mut Lib, Option<&[pollfd]>) -> Option<T>,
) -> Result<Woken<T>> {
    let me = if wait.own_set().is_some() { NOBODY } else { thread::wake_fd()? };
    lib.send_held();
    let place = SleepTarget::of(lib, wait, follower)?;
    let short = follower.leaves_it();
    let announced = if short.is_none() { lib.announce_sleep() } else { None };
    lib.drain();
    if let Some(found) = poll(lib, None) {
        lib.end_sleep(announced);
        return Ok(Woken::Found(found));
    }
    // Afterwards: what was taken in may be that the daemon is gone, and the next one is to be tried.
    let nap = longest_nap(lib, wait.targets, naps.next()).into_iter().chain(short).min();
    enlist(lib, wait.targets, me);
    let (taken_in, begin) = (lib.taken_in, waking::now());
    let slept = sleep_in(lib, place, Each { me, listens: announced.is_some() }, wait, nap, blocked);
    let others = lib.taken_in != taken_in;
    dismiss(lib, wait.targets, me);
    lib.end_sleep(announced);
    let Slept { interrupted, bell, daemon, kick } = slept?;
    let end = wait.has_others().then(|| End { rung: bell, slept: waking::now() - begin, others, woke: false });
    if kick {
        thread::clear_wake();
    }
    if bell {
        // Before everything is taken in, so no signal is lost; a bell that is never cleared becomes full.
        lib.context().into_iter().for_each(|context| context.end.app_bell.clear());
    }
    if daemon {
        lib.drain();
        // Another thread may have come back to the next daemon already.
        lib.check_daemon();
    }
    Ok(Woken::Slept { interrupted, end })
}

/// What a thread sleeps on, besides the program's own descriptors.
#[derive(Clone, Copy)]
enum SleepTarget {
    /// The [sleep set](crate::system::sleep_set::SleepSet) of the set that the call waits for; the program's
    /// descriptors are in it.
    Members(RawFd),
    /// A sleep set of the thread: the bell wakes one of the threads that sleep so.
    SleepSet(RawFd),
    /// One descriptor for all, under a filter of system calls.
    Single(RawFd),
    /// The bell, the daemon's socket and the thread's wake-up.
    Each,
}

impl SleepTarget {
    fn of(lib: &mut Lib, wait: &WaitOptions<'_>, follower: &mut Follower) -> Result<SleepTarget> {
        let Lib { sets, link, .. } = lib;
        let bells = link.bells();
        if let Some(key) = wait.own_set() {
            let set = sets.get_mut(key.index).filter(|set| set.id == key.id).ok_or(libc::EBADF)?;
            let sleep_set = set.make_sleep_set(bells)?;
            if follower.steps_back() {
                sleep_set.step_back(bells)?;
            }
            return Ok(SleepTarget::Members(sleep_set.set.fd()));
        }
        if waking::is_confined() {
            return Ok(thread::single().map_or(SleepTarget::Each, SleepTarget::Single));
        }
        let sleep_set = if wait.may_use_sleep_set() { thread::sleep_set(bells, follower.steps_back()) } else { None };
        Ok(sleep_set.map_or(SleepTarget::Each, SleepTarget::SleepSet))
    }
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy)]
struct Slept {
    /// A signal handler ran.
    interrupted: bool,
    /// The daemon has added completions or replies.
    bell: bool,
    /// The daemon is gone.
    daemon: bool,
    /// Another thread has written to this one's wake-up.
    kick: bool,
}

/// What ends the sleep of a thread that sleeps on each descriptor.
#[derive(Clone, Copy)]
struct Each {
    /// Its wake-up.
    me: RawFd,
    /// It is announced on the bell.
    listens: bool,
}

/// Sleeps, for `nap` at most.
fn sleep_in(
    lib: &mut Guard,
    place: SleepTarget,
    each: Each,
    wait: &mut WaitOptions<'_>,
    nap: Option<Duration>,
    blocked: &BlockedSignals,
) -> Result<Slept> {
    let timeout = until_deadline(wait.deadline, nap);
    match place {
        SleepTarget::Members(sleep_set) => {
            let slept = lib.unlocked(|| sleep_in_set(sleep_set, timeout, blocked))?;
            // The kick was the set's, for any thread that sleeps there.
            Ok(Slept { kick: false, ..slept })
        }
        SleepTarget::SleepSet(sleep_set) => {
            let slept = lib.unlocked(|| sleep_in_set(sleep_set, timeout, blocked));
            // A filter of the program's does not let it sleep there.
            slept.or_else(|_| Ok(sleep_on_each(lib, each, wait, timeout, blocked)))
        }
        SleepTarget::Single(fd) => {
            let (interrupted, [woken]) = sleep_beside(lib, wait, [readable(fd)], timeout, blocked);
            let daemon = woken && lib.context().is_some_and(|context| context.daemon_is_gone());
            Ok(Slept { interrupted, bell: woken, daemon, kick: woken })
        }
        SleepTarget::Each => Ok(sleep_on_each(lib, each, wait, timeout, blocked)),
    }
}

fn sleep_on_each(
    lib: &mut Guard,
    Each { me, listens }: Each,
    wait: &mut WaitOptions<'_>,
    timeout: Option<timespec>,
    blocked: &BlockedSignals,
) -> Slept {
    let bells = lib.link.bells();
    let bell = bells.filter(|_| listens).map_or(NOBODY, |bells| bells.bell);
    let daemon = bells.map_or(NOBODY, |bells| bells.daemon);
    // Of the daemon's socket only its end is of interest, no messages.
    let ours = [readable(bell), pollfd { events: 0, ..readable(daemon) }, readable(me)];
    let (interrupted, [bell, daemon, kick]) = sleep_beside(lib, wait, ours, timeout, blocked);
    Slept { interrupted, bell, daemon, kick }
}

fn readable(fd: RawFd) -> pollfd {
    pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Sleeps on the program's descriptors and these; returns whether a signal handler ran, and which of these are ready.
fn sleep_beside<const N: usize>(
    lib: &mut Guard,
    wait: &mut WaitOptions<'_>,
    ours: [pollfd; N],
    timeout: Option<timespec>,
    blocked: &BlockedSignals,
) -> (bool, [bool; N]) {
    let fds = &mut wait.kernel;
    let programs = fds.len();
    fds.extend(ours);
    let got = lib.unlocked(|| waking::sleep_on(fds, timeout, blocked.outside()));
    let interrupted = got < 0 && errno::get() == libc::EINTR;
    let woken = std::array::from_fn(|i| fds[programs + i].revents != 0);
    fds.truncate(programs);
    (interrupted, woken)
}

/// Sleeps in a sleep set. An error where a filter of the program's does not let it.
fn sleep_in_set(sleep_set: RawFd, timeout: Option<timespec>, blocked: &BlockedSignals) -> Result<Slept> {
    let mut reasons = [libc::epoll_event { events: 0, u64: 0 }; REASONS];
    // SAFETY: a descriptor of ours and a valid mask.
    let got = unsafe {
        waking::sleep_in(sleep_set, reasons.as_mut_ptr(), reasons.len(), milliseconds(timeout), blocked.outside())
    };
    let interrupted = match got {
        0.. => false,
        _ if errno::get() == libc::EINTR => true,
        _ => return Err(errno::get()),
    };
    let reasons = &reasons[..got.max(0) as usize];
    let has = |why| reasons.iter().any(|reason| { reason.u64 } == why);
    Ok(Slept { interrupted, bell: has(BELL), daemon: has(DAEMON), kick: has(KICK) })
}

/// A thread that takes in completions of a target wakes this one from now on.
fn enlist(lib: &mut Lib, targets: &[Target], me: RawFd) {
    if targets.is_empty() {
        lib.askers.push(me);
    }
    for target in targets {
        match target {
            Target::Socket(key) => lib.socket(*key).into_iter().for_each(|socket| socket.waiters.push(me)),
            Target::Set(key) => lib.set(*key).into_iter().for_each(|set| set.waiters.push(me)),
            Target::Members(key) => lib.set(*key).into_iter().for_each(|set| set.add_sleeper()),
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
            Target::Members(key) => lib.set(*key).into_iter().for_each(|set| set.remove_sleeper()),
        }
    }
}

/// How long a thread may sleep at most without losing something that no bell announces; `shared` where another process
/// may take the completions.
fn longest_nap(lib: &mut Lib, targets: &[Target], shared: Duration) -> Option<Duration> {
    if let Link::Lost(lost, _) = &lib.link {
        return lost.nap();
    }
    let rest = lib.reclaim_some();
    if lib.context().is_some_and(|context| context.has_pending_bumps()) {
        return Some(PENDING_NAP);
    }
    let shared = targets.iter().any(|target| is_shared(lib, *target)).then_some(shared);
    [rest, shared].into_iter().flatten().min()
}

/// Whether another process may take completions of the target.
fn is_shared(lib: &mut Lib, target: Target) -> bool {
    match target {
        Target::Socket(key) => lib.socket(key).is_some_and(|socket| socket.is_shared()),
        Target::Set(key) | Target::Members(key) => has_shared(lib, key),
    }
}
