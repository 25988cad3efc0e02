//! Epoll sets over any mix of OpenTOE sockets and the kernel's descriptors.
//!
//! A program's set is a real epoll set of the kernel: its kernel descriptors are really in it. OpenTOE sockets
//! are kept beside it, with a list of those that are ready, so a wait costs nothing for those that are not. To
//! sleep on both, a second set of the kernel holds the program's set and what the library wakes up for.
use crate::errno::{self, Result};
use crate::lock::Guard;
use crate::socket::{Kind, Socket};
use crate::state::{Key, Lib, Link, Slab};
use crate::table;
use crate::wait::{self, BlockedSignals, OwnFd};
use crate::{readiness, real, share};
use libc::{c_int, epoll_event, sigset_t};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Longest chain of sets within sets, as in Linux.
const MOST_NESTED: usize = 5;
/// After so many waits that found OpenTOE sockets ready, the kernel's descriptors are looked at as well.
const KERNEL_TURN: u32 = 16;
/// While a thread yields, the kernel's descriptors are looked at in one of so many turns: that is a system call, most
/// sets have some (a listener has a half there), and what is waited for mostly comes from OpenTOE.
const KERNEL_LOOK: u32 = 8;

/// An epoll set.
pub struct EpollSet {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them.
    pub fd: RawFd,
    entries: Slab<Entry>,
    /// By descriptor and what it was when it was added: as in the kernel, an entry outlives its descriptor while others
    /// refer to the same socket, and the descriptor's number may be another one's by then.
    by_name: BTreeMap<(RawFd, Target), usize>,
    /// Entries that may be ready.
    ready: VecDeque<usize>,
    /// What its threads sleep on.
    bed: Option<Bed>,
    /// Threads that sleep there.
    sleepers: u32,
    /// Wake descriptors of threads that poll the set itself.
    pub waiters: Vec<RawFd>,
    /// Sets that hold this one, with their entry for it.
    parents: Vec<(usize, usize)>,
    /// Whether the kernel's set may have something to say.
    has_kernel: bool,
    turn: u32,
    /// After fork: whether another process may take news of a connection in it.
    pub may_share: bool,
}

struct Entry {
    fd: RawFd,
    target: Target,
    events: u32,
    data: u64,
    /// In the ready list.
    queued: bool,
    /// `EPOLLONESHOT` has reported.
    disabled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Socket(Key),
    Set(Key),
}

impl EpollSet {
    /// A set without members.
    pub fn new(id: u64, fd: RawFd) -> EpollSet {
        EpollSet {
            id,
            descriptors: 1,
            fd,
            entries: Slab::new(),
            by_name: BTreeMap::new(),
            ready: VecDeque::new(),
            bed: None,
            sleepers: 0,
            waiters: Vec::new(),
            parents: Vec::new(),
            has_kernel: false,
            turn: 0,
            may_share: false,
        }
    }

    /// Ends the sleep of a thread.
    fn kick(&self) {
        if self.sleepers > 0 {
            self.bed.iter().for_each(|bed| wait::wake(bed.kick.fd()));
        }
    }

    /// What its threads sleep on, complete as of now.
    fn make_bed(&mut self, link: &Link) -> Result<&mut Bed> {
        let fd = self.fd;
        let bed = match &mut self.bed {
            Some(bed) => bed,
            none => none.insert(Bed::new(fd)?),
        };
        if let (Link::Attached(context), false) = (link, bed.has_bell) {
            bed.add(context.end.app_bell.fd().as_raw_fd(), BELL, EDGE)?;
            bed.add(context.control_fd(), DAEMON, EDGE)?;
            bed.has_bell = true;
        }
        Ok(bed)
    }

    /// Whether members of it live in user space.
    pub fn has_ours(&self) -> bool {
        !self.by_name.is_empty()
    }
}

/// A set of the kernel with everything that ends a sleep.
struct Bed {
    set: OwnFd,
    kick: OwnFd,
    has_bell: bool,
}

/// `data` in a bed: the program's set has something.
const PROGRAM: u64 = 0;
/// The context's bell rang.
const BELL: u64 = 1;
/// The daemon's socket has come to its end.
const DAEMON: u64 = 2;
/// Another thread has something for this set.
const KICK: u64 = 3;

impl Bed {
    fn new(program: RawFd) -> Result<Bed> {
        // SAFETY: a plain call.
        let set = errno::check(unsafe { real::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let bed = Bed { set: OwnFd::adopt(set), kick: OwnFd::new()?, has_bell: false };
        bed.add(program, PROGRAM, 0)?;
        bed.add(bed.kick.fd(), KICK, EDGE)?;
        Ok(bed)
    }

    /// Edges: each ring of the bell ends one sleep, whoever clears it.
    fn add(&self, fd: RawFd, data: u64, edge: u32) -> Result<()> {
        let mut event = epoll_event { events: libc::EPOLLIN as u32 | edge, u64: data };
        // SAFETY: valid descriptors and a local event.
        errno::check(unsafe { real::epoll_ctl(self.set.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }).map(|_| ())
    }
}

/// An entry's target became ready for `bits`.
pub fn became_ready(sets: &mut Slab<EpollSet>, set: usize, entry: usize, bits: u32) {
    mark(sets, set, entry, bits, 0);
}

fn mark(sets: &mut Slab<EpollSet>, set: usize, index: usize, bits: u32, depth: usize) {
    let Some(found) = sets.get_mut(set) else { return };
    let Some(entry) = found.entries.get_mut(index) else { return };
    let wanted = entry.events | readiness::ERR | readiness::HUP;
    if entry.queued || entry.disabled || bits & wanted == 0 {
        return;
    }
    entry.queued = true;
    found.ready.push_back(index);
    found.kick();
    found.waiters.iter().for_each(|fd| wait::wake(*fd));
    if depth < MOST_NESTED && !found.parents.is_empty() {
        for (parent, entry) in found.parents.clone() {
            mark(sets, parent, entry, readiness::IN, depth + 1);
        }
    }
}

/// A socket is gone: so is the entry.
pub fn forget(sets: &mut Slab<EpollSet>, set: usize, entry: usize) {
    let Some(set) = sets.get_mut(set) else { return };
    if let Some(entry) = set.entries.remove(entry) {
        set.by_name.remove(&(entry.fd, entry.target));
    }
    set.ready.retain(|ready| *ready != entry);
}

/// A socket became the kernel's: the kernel's set watches it from now on.
pub fn hand_to_kernel(sets: &mut Slab<EpollSet>, set: usize, entry: usize) {
    let Some(found) = sets.get_mut(set) else { return };
    found.ready.retain(|ready| *ready != entry);
    let Some(entry) = found.entries.remove(entry) else { return };
    found.by_name.remove(&(entry.fd, entry.target));
    found.has_kernel = true;
    let mut event = epoll_event { events: if entry.disabled { 0 } else { entry.events }, u64: entry.data };
    // SAFETY: valid descriptors and a local event. A kernel half is in the set already.
    unsafe { real::epoll_ctl(found.fd, libc::EPOLL_CTL_ADD, entry.fd, &mut event) };
    found.kick();
}

/// The kernel's half of a listener that is in the set, by the descriptor with which it was added: another one of the
/// same socket, here `fd`, only where that is gone.
pub fn watch_in_kernel(sets: &mut Slab<EpollSet>, set: usize, entry: usize, fd: RawFd) {
    let Some(set) = sets.get_mut(set) else { return };
    let Some(entry) = set.entries.get(entry) else { return };
    let same = table::get(entry.fd) == table::get(fd);
    let fd = if same { entry.fd } else { fd };
    let mut event = epoll_event { events: entry.events, u64: entry.data };
    // SAFETY: valid descriptors and a local event.
    unsafe { real::epoll_ctl(set.fd, libc::EPOLL_CTL_ADD, fd, &mut event) };
    set.has_kernel = true;
}

/// The kernel's half of a listener that is in the set listens no more.
pub fn unwatch_in_kernel(sets: &mut Slab<EpollSet>, set: usize, entry: usize) {
    let Some(set) = sets.get_mut(set) else { return };
    let Some(Entry { fd, target: Target::Socket(key), .. }) = set.entries.get(entry) else { return };
    if table::get(*fd) == table::Entry::Socket(key.index) {
        // SAFETY: valid descriptors; no event is looked at. It may not be there, where the kernel had no room for it.
        unsafe { real::epoll_ctl(set.fd, libc::EPOLL_CTL_DEL, *fd, std::ptr::null_mut()) };
    }
}

/// Whether another process may take news of a connection in the set.
pub fn has_shared(lib: &mut Lib, key: Key) -> bool {
    members_after_fork(lib, key).iter().any(|member| is_shared(lib, *member))
}

fn is_shared(lib: &mut Lib, key: Key) -> bool {
    matches!(lib.socket(key).map(|socket| &socket.kind), Some(Kind::Stream(stream)) if stream.shared)
}

/// The sockets of a set that existed when the process forked; none for others, which costs nothing.
fn members_after_fork(lib: &mut Lib, key: Key) -> Vec<Key> {
    let Some(set) = lib.set(key).filter(|set| set.may_share) else { return Vec::new() };
    set.entries.indices().iter().filter_map(|i| set.entries.get(*i)?.socket()).collect()
}

/// After fork, a process that waits takes over what it inherited and waits for.
fn refresh_inherited(lib: &mut Guard, key: Key) -> Result<()> {
    let members = members_after_fork(lib, key);
    let mut any = false;
    for member in members {
        lib.show_interest(member);
        if is_shared(lib, member) {
            any = true;
            share::claim(lib, member)?;
        }
    }
    if let Some(set) = lib.set(key) {
        set.may_share &= any;
    }
    Ok(())
}

impl Entry {
    fn socket(&self) -> Option<Key> {
        match self.target {
            Target::Socket(key) => Some(key),
            Target::Set(_) => None,
        }
    }
}

#[inline]
fn among(sockets: &mut Slab<Socket>, key: Key, wanted: u32) -> u32 {
    let socket = sockets.get_mut(key.index).filter(|socket| socket.id == key.id);
    socket.map_or(0, |socket| readiness::among(socket, wanted))
}

impl Lib {
    /// Enters a set that was just made.
    pub fn add_set(&mut self, fd: RawFd) {
        let id = self.fresh_id();
        let index = self.sets.insert(EpollSet::new(id, fd));
        if !table::set(fd, table::Entry::Set(index)) {
            self.sets.remove(index);
        }
    }

    /// One descriptor of the set is gone; with the last one the set is.
    pub fn drop_set_descriptor(&mut self, index: usize) {
        let Some(set) = self.sets.get_mut(index) else { return };
        set.descriptors -= 1;
        if set.descriptors > 0 {
            return;
        }
        let Some(set) = self.sets.remove(index) else { return };
        for (parent, entry) in &set.parents {
            forget(&mut self.sets, *parent, *entry);
        }
        for member in set.entries.indices() {
            if let Some(target) = set.entries.get(member).map(|entry| entry.target) {
                self.unwatch(target, index, member);
            }
        }
    }

    fn watch(&mut self, target: Target, set: usize, entry: usize) {
        match target {
            Target::Socket(key) => self.socket(key).into_iter().for_each(|s| s.watchers.push((set, entry))),
            Target::Set(key) => self.set(key).into_iter().for_each(|s| s.parents.push((set, entry))),
        }
    }

    fn unwatch(&mut self, target: Target, set: usize, entry: usize) {
        match target {
            Target::Socket(key) => self.socket(key).into_iter().for_each(|s| s.watchers.retain(|w| *w != (set, entry))),
            Target::Set(key) => self.set(key).into_iter().for_each(|s| s.parents.retain(|p| *p != (set, entry))),
        }
    }

    fn ready_bits(&mut self, target: Target, wanted: u32, depth: usize) -> u32 {
        match target {
            Target::Socket(key) => among(&mut self.sockets, key, wanted),
            Target::Set(key) if self.set_is_ready(key, depth + 1) => readiness::IN & wanted,
            Target::Set(_) => 0,
        }
    }

    /// Whether a wait on the set would find something: what `poll` says of an epoll descriptor.
    pub fn set_is_ready(&mut self, key: Key, depth: usize) -> bool {
        let Some(set) = self.set(key).filter(|_| depth <= MOST_NESTED) else { return false };
        let candidates: Vec<usize> = set.ready.iter().copied().collect();
        for index in candidates {
            let entry = self.set(key).and_then(|set| set.entries.get(index));
            let Some((target, events)) = entry.filter(|e| !e.disabled).map(|e| (e.target, e.events)) else { continue };
            if self.ready_bits(target, events, depth) != 0 {
                return true;
            }
        }
        false
    }
}

/// `epoll_ctl` where the set is known and the descriptor may be anything.
pub fn control(lib: &mut Guard, set: Key, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
    let target = match table::get(fd) {
        table::Entry::Socket(_) => lib.socket_of(fd).map(Target::Socket),
        table::Entry::Set(_) => lib.set_of(fd).map(Target::Set),
        _ => None,
    };
    let is_set = matches!(target, Some(Target::Set(_)));
    let kernel_half = match target {
        Some(Target::Socket(key)) => lib.socket(key).is_some_and(|socket| socket.listens_in_kernel()),
        _ => true,
    };
    let known = |lib: &mut Guard, target| lib.set(set).is_some_and(|set| set.by_name.contains_key(&(fd, target)));
    if kernel_half {
        match (control_kernel(lib, set, operation, fd, event), target) {
            // The kernel's half is there already, for another descriptor of the socket that is closed by now.
            (Err(libc::EEXIST), Some(target)) if !known(lib, target) => {}
            (result, _) => result?,
        }
    }
    let Some(target) = target else { return Ok(()) };
    if is_set && target == Target::Set(set) {
        return Err(libc::EINVAL);
    }
    control_ours(lib, set, operation, fd, target, event)
}

/// The kernel's descriptors, nested sets, and the kernel's half of a listener are really in the kernel's set.
fn control_kernel(lib: &mut Lib, key: Key, operation: c_int, fd: RawFd, event: Option<epoll_event>) -> Result<()> {
    let set = lib.set(key).ok_or(libc::EBADF)?;
    let mut event = event;
    let pointer = event.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: `pointer` is null or a local event.
    errno::check(unsafe { real::epoll_ctl(set.fd, operation, fd, pointer) })?;
    set.has_kernel = true;
    Ok(())
}

fn control_ours(
    lib: &mut Guard,
    key: Key,
    operation: c_int,
    fd: RawFd,
    target: Target,
    event: Option<epoll_event>,
) -> Result<()> {
    let Lib { sets, .. } = &mut **lib;
    let set = sets.get_mut(key.index).ok_or(libc::EBADF)?;
    let present = set.by_name.get(&(fd, target)).copied();
    match (operation, present, event) {
        (libc::EPOLL_CTL_ADD, Some(_), _) => Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None, Some(event)) => {
            // A thread that sleeps on the kernel's members alone is to hear of ours from now on.
            set.kick();
            let entry = Entry { fd, target, events: event.events, data: event.u64, queued: false, disabled: false };
            let index = set.entries.insert(entry);
            set.by_name.insert((fd, target), index);
            set.ready.reserve(set.by_name.len());
            lib.watch(target, key.index, index);
            queue_if_ready(lib, key, index);
            Ok(())
        }
        (libc::EPOLL_CTL_MOD, Some(index), Some(event)) => {
            if let Some(entry) = set.entries.get_mut(index) {
                (entry.events, entry.data, entry.disabled) = (event.events, event.u64, false);
            }
            queue_if_ready(lib, key, index);
            Ok(())
        }
        (libc::EPOLL_CTL_DEL, Some(index), _) => {
            forget(sets, key.index, index);
            lib.unwatch(target, key.index, index);
            Ok(())
        }
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, _, None) => Err(libc::EFAULT),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None, _) => Err(libc::ENOENT),
        _ => Err(libc::EINVAL),
    }
}

fn queue_if_ready(lib: &mut Lib, key: Key, index: usize) {
    let Some(entry) = lib.set(key).and_then(|set| set.entries.get(index)) else { return };
    let (target, events) = (entry.target, entry.events);
    if let Target::Socket(socket) = target {
        lib.show_interest(socket);
    }
    let bits = lib.ready_bits(target, events, 0);
    became_ready(&mut lib.sets, key.index, index, bits);
}

/// `epoll_pwait2`, from which the others follow. Returns how many events were written.
///
/// A set without OpenTOE sockets goes straight to the kernel, with the library's own events left out.
pub fn wait_events(
    lib: &mut Guard,
    key: Key,
    out: &mut [epoll_event],
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
    out: &mut [epoll_event],
    timeout: Option<Duration>,
    mask: Option<sigset_t>,
) -> Result<usize> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    share::give_up_unclaimed(lib);
    let blocked = BlockedSignals::new(mask);
    let yielding = Instant::now();
    for turn in 0u32.. {
        let patient = wait::is_patient(yielding) && lib.set(key).is_some_and(|set| set.has_ours());
        let found = if patient {
            lib.unlocked(wait::yield_now);
            collect(lib, key, out, turn % KERNEL_LOOK == 0)?
        } else {
            sleep(lib, key, out, deadline, &blocked)?
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
fn collect(lib: &mut Guard, key: Key, out: &mut [epoll_event], kernel: bool) -> Result<usize> {
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
    found += collect_ours(lib, key, &mut out[found..]);
    if found == 0 && has_kernel && kernel && !kernel_first {
        found = collect_kernel(fd, out, 0, std::ptr::null())?;
    }
    Ok(found)
}

/// Takes ready OpenTOE members from the list, round-robin: a level-triggered one goes to its end again.
fn collect_ours(lib: &mut Lib, key: Key, out: &mut [epoll_event]) -> usize {
    let mut found = 0;
    let candidates = lib.sets.get(key.index).map_or(0, |set| set.ready.len());
    for _ in 0..candidates {
        if found == out.len() {
            break;
        }
        let Some(set) = lib.sets.get_mut(key.index) else { break };
        let Some(index) = set.ready.pop_front() else { break };
        let Some(entry) = set.entries.get_mut(index) else { continue };
        entry.queued = false;
        if entry.disabled {
            continue;
        }
        let (target, events) = (entry.target, entry.events);
        let bits = match target {
            Target::Socket(key) => among(&mut lib.sockets, key, events),
            Target::Set(_) => lib.ready_bits(target, events, 0),
        };
        if bits == 0 {
            continue;
        }
        let Some(set) = lib.sets.get_mut(key.index) else { break };
        let Some(entry) = set.entries.get_mut(index) else { continue };
        out[found] = epoll_event { events: bits, u64: entry.data };
        found += 1;
        if events & ONCE != 0 {
            entry.disabled = true;
        } else if events & EDGE == 0 {
            entry.queued = true;
            set.ready.push_back(index);
        }
    }
    found
}

/// Asks a set of the kernel.
fn collect_kernel(fd: RawFd, out: &mut [epoll_event], timeout: c_int, mask: *const sigset_t) -> Result<usize> {
    if out.is_empty() {
        return Ok(0);
    }
    let most = out.len().min(c_int::MAX as usize) as c_int;
    // SAFETY: the slice has room for `most` events; eight bytes is the kernel's size of a signal set. A direct
    // system call, because the C library's is a cancellation point.
    let got = unsafe { libc::syscall(libc::SYS_epoll_pwait, fd, out.as_mut_ptr(), most, timeout, mask, 8usize) };
    errno::check(got).map(|got| got as usize)
}

/// Sleeps until a member of either kind, the bell, a kick, a signal or the deadline ends it.
fn sleep(
    lib: &mut Guard,
    key: Key,
    out: &mut [epoll_event],
    deadline: Option<Instant>,
    blocked: &BlockedSignals,
) -> Result<usize> {
    refresh_inherited(lib, key)?;
    lib.send_held();
    let nap = wait::nap_of_set(lib, key);
    let Lib { sets, link, .. } = &mut **lib;
    let bed = sets.get_mut(key.index).filter(|set| set.id == key.id).ok_or(libc::EBADF)?.make_bed(link)?.set.fd();
    lib.context().into_iter().for_each(|context| context.end.app_bell.prepare_to_sleep());
    lib.drain();
    let found = collect_ours(lib, key, out);
    let Some(set) = lib.set(key).filter(|_| found == 0) else {
        lib.context().into_iter().for_each(|context| context.end.app_bell.awake());
        return Ok(found);
    };
    set.sleepers += 1;
    let timeout = wait::until_deadline(deadline, nap);
    let timeout = timeout.map_or(-1, |t| (t.tv_sec * 1000 + (t.tv_nsec + 999_999) / 1_000_000).min(i32::MAX as i64));
    let mut reasons = [epoll_event { events: 0, u64: 0 }; 4];
    let woken = lib.unlocked(|| collect_kernel(bed, &mut reasons, timeout as c_int, blocked.outside()));
    if let Some(set) = lib.set(key) {
        set.sleepers = set.sleepers.saturating_sub(1);
    }
    lib.context().into_iter().for_each(|context| context.end.app_bell.awake());
    let reasons = &reasons[..*woken.as_ref().unwrap_or(&0)];
    if reasons.iter().any(|reason| { reason.u64 } == BELL) {
        // Before everything is taken in, so no signal is lost; a bell that is never cleared becomes full.
        lib.context().into_iter().for_each(|context| context.end.app_bell.clear());
    }
    if reasons.iter().any(|reason| { reason.u64 } == DAEMON) {
        lib.drain();
        lib.daemon_died();
    }
    match (collect(lib, key, out, true)?, woken) {
        (0, Err(errno)) => Err(errno),
        (found, _) => Ok(found),
    }
}

/// After fork, connections in the sets are shared, and the child sleeps on descriptors of its own.
pub fn after_fork(lib: &mut Lib, in_child: bool) {
    for index in lib.sets.indices() {
        let Some(set) = lib.sets.get_mut(index) else { continue };
        set.may_share = true;
        if in_child {
            set.sleepers = 0;
            set.waiters.clear();
            set.bed = None;
        }
    }
}
