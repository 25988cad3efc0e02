//! What a thread of the program has here for itself: how others wake it, and what it sleeps on.
use crate::epoll::Bed;
use crate::errno::Result;
use crate::real;
use crate::state::Link;
use crate::wait::OwnFd;
use std::cell::RefCell;
use std::os::fd::RawFd;

struct Own {
    /// Written by other threads.
    wake: OwnFd,
    /// For waits for OpenTOE's sockets alone, beside other threads.
    bed: Option<Bed>,
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// What wakes this thread ([`crate::wait::wake`]).
pub fn wake_fd() -> Result<RawFd> {
    let found = OWN.try_with(|own| own.borrow().as_ref().map(|own| own.wake.fd())).unwrap_or(None);
    if let Some(fd) = found {
        return Ok(fd);
    }
    let wake = OwnFd::new()?;
    let fd = wake.fd();
    // In a thread that is ending, the descriptor would be closed at once: such a thread cannot wait any more.
    OWN.try_with(|own| own.replace(Some(Own { wake, bed: None }))).map_err(|_| libc::ENOMEM)?;
    Ok(fd)
}

/// Forgets that it was woken.
pub fn clear_wake() {
    let mut count = 0u64;
    let fd = OWN.try_with(|own| own.borrow().as_ref().map(|own| own.wake.fd())).unwrap_or(None);
    if let Some(fd) = fd {
        // SAFETY: reads eight bytes into a local.
        unsafe { real::read(fd, (&raw mut count).cast(), 8) };
    }
}

/// What this thread sleeps on where the bell need not wake every thread; nothing where there can be no such thing. Behind
/// all others, where the bell woke it for their news.
pub fn bed(link: &Link, step_back: bool) -> Option<RawFd> {
    let made = |own: &RefCell<Option<Own>>| {
        let mut own = own.borrow_mut();
        let Own { wake, bed } = own.as_mut()?;
        if bed.is_none() {
            *bed = Bed::new(wake.fd()).ok();
        }
        let bed = bed.as_mut()?;
        bed.hear(link).ok()?;
        if step_back {
            bed.step_back(link).ok()?;
        }
        Some(bed.set.fd())
    };
    OWN.try_with(made).unwrap_or(None)
}

/// After fork: the parent's thread keeps them.
pub fn forget() {
    let _ = OWN.try_with(|own| own.replace(None));
}
