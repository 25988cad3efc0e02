//! `epoll_wait`: what is ready, and sleeping until something is.
use super::bed::{BELL, DAEMON, REASONS};
use super::{EpollSet, Target, among, inherited};
use crate::errno::{self, Result};
use crate::lock::{self, Guard};
use crate::lookout::{End, Lookout};
use crate::program;
use crate::readiness;
use crate::share;
use crate::signals::{BlockedSignals, Signals};
use crate::socket::Socket;
use crate::state::{Key, Lib, Slab};
use crate::wait::{self, Naps, Patience};
use crate::waking;
use libc::{c_int, epoll_event, sigset_t};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// After so many waits that found OpenTOE sockets ready, the kernel's descriptors are looked at as well.
const KERNEL_TURN: u32 = 16;

/// Where a program wants events: an address that may be bad, and how many fit.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub at: *mut epoll_event,
    pub len: usize,
}

impl Out {
    /// A place of the library's own.
    fn of(events: &mut [epoll_event]) -> Out {
        Out { at: events.as_mut_ptr(), len: events.len() }
    }

    /// The place behind the first ones.
    fn behind(self, used: usize) -> Out {
        Out { at: self.at.wrapping_add(used), len: self.len - used }
    }
}

/// `epoll_pwait2`, from which the others follow. Returns how many events were written.
///
/// A set without OpenTOE sockets goes straight to the kernel, with the library's own events left out.
pub(crate) fn wait_events(
    lib: &mut Guard,
    key: Key,
    out: Out,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<usize> {
    let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
    let found = collect(lib, key, out, at_once)?;
    if found > 0 || at_once {
        return Ok(found);
    }
    wait_longer(lib, key, out, timeout, mask.copied())
}

/// Nothing was there: waits. The clock is asked only now.
#[cold]
fn wait_longer(
    lib: &mut Guard,
    key: Key,
    out: Out,
    timeout: Option<Duration>,
    mask: Option<sigset_t>,
) -> Result<usize> {
    let deadline = timeout.and_then(|timeout| waking::now().checked_add(timeout));
    share::give_up_unclaimed(lib);
    let mut blocked = BlockedSignals::of_wait(Signals::Interrupt, mask);
    let (patience, mut slept) = (Patience::new(), false);
    let mut naps = Naps::new();
    let mut lookout = Lookout::default();
    loop {
        let patient = !slept && patience.lasts();
        let found = if patient && lib.set(key).is_some_and(|set| set.has_ours()) {
            let news = wait::yield_until_news(lib, &patience, deadline);
            collect(lib, key, out, !news)?
        } else {
            slept = true;
            let blocked = blocked.get_or_insert_with(|| BlockedSignals::new(mask));
            sleep(lib, key, out, (deadline, naps.next()), blocked, &mut lookout)?
        };
        if found > 0 {
            return Ok(found);
        }
        if wait::is_over(deadline) {
            break;
        }
    }
    Ok(0)
}

/// What is ready now, of both kinds: of the kernel's where OpenTOE's sockets give nothing and the caller says so, and
/// sometimes first.
fn collect(lib: &mut Guard, key: Key, out: Out, kernel: bool) -> Result<usize> {
    lib.drain();
    let set = lib.set(key).ok_or(libc::EBADF)?;
    set.turn = set.turn.wrapping_add(1);
    // Where both kinds have plenty, they take turns in being first.
    let kernel_first = set.has_kernel && set.turn % KERNEL_TURN == 0;
    let (fd, has_kernel) = (set.fd, set.has_kernel);
    let mut found = 0;
    if kernel_first {
        found = collect_kernel(fd, out, 0, std::ptr::null())?;
    }
    match collect_ours(lib, key, out.behind(found)) {
        Ok(more) => found += more,
        Err(errno) if found == 0 => return Err(errno),
        Err(_) => {}
    }
    if found == 0 && has_kernel && kernel && !kernel_first {
        found = collect_kernel(fd, out, 0, std::ptr::null())?;
    }
    Ok(found)
}

/// Takes ready OpenTOE members from the list, round-robin: a level-triggered one goes to its end again.
fn collect_ours(lib: &mut Lib, key: Key, out: Out) -> Result<usize> {
    let nested = lib.ready_sets(key);
    let Lib { sockets, sets, .. } = lib;
    match sets.get_mut(key.index) {
        Some(set) if !set.ready.is_empty() => set.take_ready(sockets, &nested, out),
        _ => Ok(0),
    }
}

impl EpollSet {
    /// `nested` has the entries of ready sets.
    fn take_ready(&mut self, sockets: &mut Slab<Socket>, nested: &[u32], out: Out) -> Result<usize> {
        let (mut next, mut looked, mut again) = (out.at, 0, 0);
        let end = out.at.wrapping_add(out.len);
        let mut is_bad = false;
        while looked < self.ready.len() && next != end {
            let index = self.ready[looked];
            looked += 1;
            let Some(entry) = self.entries.get_mut(index as usize) else { continue };
            entry.queued = false;
            if entry.disabled {
                continue;
            }
            let bits = match entry.target {
                Target::Socket(socket) => among(sockets, socket, entry.events),
                Target::Set(_) => nested_bits(nested, index, entry.events),
            };
            if bits == 0 {
                continue;
            }
            let event = epoll_event { events: bits, u64: entry.data };
            // SAFETY: the program gave the place for so many.
            unsafe { program::put_event(next, event) };
            if program::faulted() {
                entry.queued = true;
                looked -= 1;
                is_bad = next == out.at;
                break;
            }
            next = next.wrapping_add(1);
            if entry.events & ONCE != 0 {
                entry.disabled = true;
            } else if entry.events & EDGE == 0 {
                entry.queued = true;
                self.ready[again] = index;
                again += 1;
            }
        }
        self.ready.drain(again..looked);
        if again < self.ready.len() {
            self.ready.rotate_left(again);
        }
        let found = (next.addr() - out.at.addr()) / size_of::<epoll_event>();
        if is_bad { Err(libc::EFAULT) } else { Ok(found) }
    }
}

#[cold]
fn nested_bits(ready: &[u32], entry: u32, wanted: u32) -> u32 {
    if ready.contains(&entry) { readiness::IN & wanted } else { 0 }
}

impl Lib {
    /// Entries for sets in the set's list that would find something.
    #[inline]
    fn ready_sets(&mut self, key: Key) -> Vec<u32> {
        match self.sets.get(key.index) {
            Some(set) if set.nested > 0 => self.look_at_nested(set.ready.clone(), key.index),
            _ => Vec::new(),
        }
    }

    #[cold]
    fn look_at_nested(&mut self, mut ready: Vec<u32>, set: usize) -> Vec<u32> {
        ready.retain(|entry| {
            let target = self.sets.get(set).and_then(|set| set.entries.get(*entry as usize)).map(|entry| entry.target);
            matches!(target, Some(Target::Set(nested)) if self.is_ready(nested as usize, 1))
        });
        ready
    }
}

/// Asks a set of the kernel.
fn collect_kernel(fd: RawFd, out: Out, timeout: c_int, mask: *const sigset_t) -> Result<usize> {
    if out.len == 0 {
        return Ok(0);
    }
    // SAFETY: a valid mask or none; whose descriptor it is does not matter.
    errno::check(unsafe { waking::sleep_in(fd, out.at, out.len, timeout, mask) }).map(|got| got as usize)
}

/// Sleeps until a member of either kind, the bell, a kick, a signal or the deadline ends it.
fn sleep(
    lib: &mut Guard,
    key: Key,
    out: Out,
    (deadline, shared): (Option<Instant>, Duration),
    blocked: &BlockedSignals,
    lookout: &mut Lookout,
) -> Result<usize> {
    inherited::refresh(lib, key)?;
    lib.send_held();
    let short = lookout.leaves_it();
    let nap = wait::nap_of_set(lib, key, shared).into_iter().chain(short).min();
    let Lib { sets, link, .. } = &mut **lib;
    let bed = sets.get_mut(key.index).filter(|set| set.id == key.id).ok_or(libc::EBADF)?.make_bed(link)?;
    if lookout.steps_back() {
        bed.step_back(link)?;
    }
    let bed = bed.set.fd();
    let announced = if short.is_none() { lib.announce_sleep() } else { None };
    lib.drain();
    let found = collect_ours(lib, key, out);
    let Some(set) = lib.set(key).filter(|_| found == Ok(0)) else {
        lib.end_sleep(announced);
        return found;
    };
    set.sleepers += 1;
    let (taken_in, begin) = (lib.taken_in, waking::now());
    let timeout = wait::milliseconds(wait::until_deadline(deadline, nap));
    let mut reasons = [epoll_event { events: 0, u64: 0 }; REASONS];
    let woken = lib.unlocked(|| collect_kernel(bed, Out::of(&mut reasons), timeout, blocked.outside()));
    if let Some(set) = lib.set(key) {
        set.sleepers = set.sleepers.saturating_sub(1);
        set.kicked = false;
    }
    lib.end_sleep(announced);
    let reasons = &reasons[..*woken.as_ref().unwrap_or(&0)];
    let rung = reasons.iter().any(|reason| { reason.u64 } == BELL);
    if rung {
        // Before everything is taken in, so no signal is lost; a bell that is never cleared becomes full.
        lib.context().into_iter().for_each(|context| context.end.app_bell.clear());
    }
    if reasons.iter().any(|reason| { reason.u64 } == DAEMON) {
        lib.drain();
        lib.check_daemon();
    }
    let (others, wakes) = (lib.taken_in != taken_in, waking::wakes());
    let found = collect(lib, key, out, true)?;
    if !lock::is_alone() {
        let woke = waking::wakes() != wakes;
        lookout.woke(End { rung, slept: waking::now() - begin, others, woke, found: found > 0 });
    }
    if found == out.len {
        // There may be something left for another thread that sleeps, and one kick ends the sleep of one.
        lib.set(key).into_iter().for_each(EpollSet::kick);
    }
    match woken {
        Err(errno) if found == 0 => Err(errno),
        _ => Ok(found),
    }
}
