//! Per-thread state of a waiting thread: its wake-up, and its sleep set.
use crate::system::errno::{self, Result};
use crate::system::own_fd::OwnFd;
use crate::system::sleep_set::{Bells, SleepSet};
use crate::system::{real, sharing, waking};
use libc::epoll_event;
use std::cell::RefCell;
use std::os::fd::RawFd;

struct Own {
    /// Written by other threads.
    wake: OwnFd,
    /// For waits for OpenTOE's sockets alone, beside other threads.
    sleep_set: Option<SleepSet>,
    /// For waits under a filter of system calls.
    single: Option<Single>,
}

/// One descriptor that `poll` finds readable while the bell, the daemon's socket or this thread's wake-up is. It is a
/// set of the kernel, level-triggered, so that nobody has to take events out of it. `poll` refuses more descriptors
/// than `RLIMIT_NOFILE`, and OpenSSH's server sets that to one.
struct Single {
    set: OwnFd,
    /// It has the bell and the daemon's socket.
    attached: bool,
}

impl Single {
    fn new(wake: RawFd) -> Result<Single> {
        // SAFETY: a plain call.
        let set = OwnFd::adopt(errno::check(unsafe { real::epoll_create1(libc::EPOLL_CLOEXEC) })?);
        let single = Single { set, attached: false };
        single.add(wake, libc::EPOLLIN).map(|()| single)
    }

    fn attach(&mut self, bells: Option<Bells>) -> Result<()> {
        let (Some(Bells { bell, daemon, .. }), false) = (bells, self.attached) else { return Ok(()) };
        self.add(bell, libc::EPOLLIN)?;
        self.add(daemon, libc::EPOLLHUP)?;
        self.attached = true;
        Ok(())
    }

    fn add(&self, fd: RawFd, events: libc::c_int) -> Result<()> {
        let mut event = epoll_event { events: events as u32, u64: 0 };
        // SAFETY: valid descriptors and a local event.
        errno::check(unsafe { real::epoll_ctl(self.set.fd(), libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Descriptor that wakes this thread ([`crate::system::waking::wake`]).
pub(crate) fn wake_fd() -> Result<RawFd> {
    let found = OWN.try_with(|own| own.borrow().as_ref().map(|own| own.wake.fd())).unwrap_or(None);
    if let Some(fd) = found {
        return Ok(fd);
    }
    if sharing::is_child() {
        return Err(libc::EMFILE);
    }
    let wake = OwnFd::new()?;
    let fd = wake.fd();
    // In a thread that is ending, the descriptor would be closed at once: such a thread cannot wait any more.
    OWN.try_with(|own| own.replace(Some(Own { wake, sleep_set: None, single: None }))).map_err(|_| libc::ENOMEM)?;
    Ok(fd)
}

/// Forgets that it was woken.
pub(crate) fn clear_wake() {
    let mut count = 0u64;
    let fd = OWN.try_with(|own| own.borrow().as_ref().map(|own| own.wake.fd())).unwrap_or(None);
    if let Some(fd) = fd {
        // SAFETY: reads eight bytes into a local.
        unsafe { real::read(fd, (&raw mut count).cast(), 8) };
    }
}

/// Sleep set of this thread, where the bell need not wake every thread; nothing where there can be none. Behind all
/// others, where the bell woke it for their completions.
pub(crate) fn sleep_set(bells: Option<Bells>, step_back: bool) -> Option<RawFd> {
    let made = |own: &RefCell<Option<Own>>| {
        let mut own = own.borrow_mut();
        let Own { wake, sleep_set, .. } = own.as_mut()?;
        if sleep_set.is_none() && !sharing::is_child() {
            *sleep_set = SleepSet::new(wake.fd()).ok();
        }
        let sleep_set = sleep_set.as_mut()?;
        sleep_set.watch(bells).ok()?;
        if step_back {
            sleep_set.step_back(bells).ok()?;
        }
        Some(sleep_set.set.fd())
    };
    OWN.try_with(made).unwrap_or(None)
}

/// Before this thread makes a child that shares its memory, which waits for the daemon when it runs its program. Makes
/// what the child will sleep on. One of the parent's threads may take the answer in, and could not wake the child by
/// descriptors that the child made: it lacks them. Where there is no room for any, the child's sockets stay behind.
pub(crate) fn prepare_for_child(bells: Option<Bells>) {
    if bells.is_some() && !waking::is_confined() && wake_fd().is_ok() {
        let _ = sleep_set(bells, false);
    }
}

/// Makes all descriptors that a wait needs where the program filters system calls. A process may be unable to make any
/// when it installs the filter: a child makes them when it begins.
pub(crate) fn prepare_single(bells: Option<Bells>) -> Result<()> {
    wake_fd()?;
    let made = |own: &RefCell<Option<Own>>| {
        let mut own = own.borrow_mut();
        let Own { wake, single, .. } = own.as_mut().ok_or(libc::ENOMEM)?;
        if single.is_none() {
            *single = Some(Single::new(wake.fd())?);
        }
        single.as_mut().map_or(Ok(()), |single| single.attach(bells))
    };
    OWN.try_with(made).unwrap_or(Err(libc::ENOMEM))
}

/// The one descriptor to poll, where this thread has it.
pub(crate) fn single() -> Option<RawFd> {
    let found = |own: &RefCell<Option<Own>>| {
        own.borrow().as_ref()?.single.as_ref().filter(|single| single.attached).map(|single| single.set.fd())
    };
    OWN.try_with(found).unwrap_or(None)
}

/// After fork: the parent's thread keeps them.
pub(crate) fn forget() {
    let _ = OWN.try_with(|own| own.replace(None));
    sharing::forget();
}
