//! `epoll_wait`: collects what is ready; where nothing is, the thread sleeps in `wait/sleep.rs`.
use super::kernel_half;
use super::out::Out;
use crate::calls::waiting;
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::members::among;
use crate::state::set::{EpollSet, Target as Member};
use crate::state::slab::{Key, Slab};
use crate::state::socket::Socket;
use crate::state::{Lib, events};
use crate::system::errno::{self, Result};
use crate::system::{real, user_memory, waking};
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use libc::{epoll_event, sigset_t};
use std::time::Duration;

const EDGE: u32 = libc::EPOLLET as u32;
/// After so many waits that found OpenTOE sockets ready, the kernel's descriptors are polled as well.
const KERNEL_PERIOD: u32 = 16;

/// `epoll_pwait2`, from which the others follow. Returns how many events were written.
///
/// A set without OpenTOE sockets goes directly to the kernel, with the library's own events left out.
pub(crate) fn wait_events(
    lib: &mut Guard,
    key: Key,
    out: Out,
    timeout: Option<Duration>,
    mask: Option<&sigset_t>,
) -> Result<usize> {
    let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
    lib.drain();
    let found = poll(lib, key, out, at_once)?;
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
    let targets = [Target::Members(key)];
    let wait = WaitOptions { deadline, targets: &targets, signals: Signals::Interrupt, mask, ..WaitOptions::forever() };
    let found = waiting::go_on(lib, wait, |lib, kernel| match poll(lib, key, out, kernel.is_some()) {
        Ok(0) => None,
        found => Some(found),
    });
    let found = match found {
        Ok(found) => found?,
        Err(libc::ETIMEDOUT) => 0,
        Err(errno) => return Err(errno),
    };
    if found == out.len {
        // There may be something left for another thread that sleeps, and one kick ends the sleep of one.
        lib.set(key).into_iter().for_each(EpollSet::kick);
    }
    Ok(found)
}

/// What is ready now, of both kinds: of the kernel's where OpenTOE's sockets give nothing and the caller asks for them,
/// and sometimes first.
fn poll(lib: &mut Lib, key: Key, out: Out, kernel: bool) -> Result<usize> {
    let set = lib.set(key).ok_or(libc::EBADF)?;
    set.waits = set.waits.wrapping_add(1);
    // Where both kinds have plenty, the first kind alternates.
    let kernel_first = set.has_kernel && set.waits % KERNEL_PERIOD == 0;
    let has_kernel = set.has_kernel;
    let mut found = 0;
    if kernel_first {
        found = collect_kernel(lib, key, out)?;
    }
    match collect_ours(lib, key, out.behind(found)) {
        Ok(more) => found += more,
        Err(errno) if found == 0 => return Err(errno),
        Err(_) => {}
    }
    if found == 0 && has_kernel && kernel && !kernel_first {
        found = collect_kernel(lib, key, out)?;
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
        let (mut next, mut visited, mut again) = (out.at, 0, 0);
        let end = out.at.wrapping_add(out.len);
        let mut is_bad = false;
        while visited < self.ready.len() && next != end {
            let index = self.ready[visited];
            visited += 1;
            let Some(entry) = self.entries.get_mut(index as usize) else { continue };
            entry.queued = false;
            if entry.disabled {
                continue;
            }
            let bits = match entry.target {
                Member::Socket(socket) => among(sockets, socket, entry.events),
                Member::Set(_) => nested_bits(nested, index, entry.events),
            };
            if bits == 0 {
                continue;
            }
            let event = epoll_event { events: bits, u64: entry.data };
            // SAFETY: the program gave the place for so many.
            unsafe { user_memory::put_event(next, event) };
            if user_memory::faulted() {
                entry.queued = true;
                visited -= 1;
                is_bad = next == out.at;
                break;
            }
            next = next.wrapping_add(1);
            if entry.events & events::ONCE != 0 {
                entry.disabled = true;
                kernel_half::reported_here(sockets, self.fd, entry);
            } else if entry.events & EDGE == 0 {
                entry.queued = true;
                self.ready[again] = index;
                again += 1;
            }
        }
        self.ready.drain(again..visited);
        if again < self.ready.len() {
            self.ready.rotate_left(again);
        }
        let found = (next.addr() - out.at.addr()) / size_of::<epoll_event>();
        if is_bad { Err(libc::EFAULT) } else { Ok(found) }
    }
}

#[cold]
fn nested_bits(ready: &[u32], entry: u32, wanted: u32) -> u32 {
    if ready.contains(&entry) { events::IN & wanted } else { 0 }
}

impl Lib {
    /// Entries for sets in the set's list that would find something.
    #[inline]
    fn ready_sets(&mut self, key: Key) -> Vec<u32> {
        match self.sets.get(key.index) {
            Some(set) if set.nested > 0 => self.poll_nested(set.ready.clone(), key.index),
            _ => Vec::new(),
        }
    }

    #[cold]
    fn poll_nested(&mut self, mut ready: Vec<u32>, set: usize) -> Vec<u32> {
        ready.retain(|entry| {
            let target = self.sets.get(set).and_then(|set| set.entries.get(*entry as usize)).map(|entry| entry.target);
            matches!(target, Some(Member::Set(nested)) if self.is_ready(nested as usize, 1))
        });
        ready
    }
}

/// Asks a set of the kernel, without waiting.
fn collect_kernel(lib: &mut Lib, key: Key, out: Out) -> Result<usize> {
    let Lib { sockets, sets, .. } = lib;
    let Some(set) = sets.get_mut(key.index).filter(|_| out.len > 0) else { return Ok(0) };
    // SAFETY: no mask; whose place it is does not matter.
    let got = errno::check(unsafe { real::epoll_pwait_raw(set.fd, out.at, out.len, 0, std::ptr::null()) })? as usize;
    if got > 0 && !set.once_in_kernel.is_empty() {
        kernel_half::reported_there(sockets, set, out, got);
    }
    Ok(got)
}
