//! Doorbells: waking a side that sleeps, for nothing while it is awake.
use crate::Region;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

/// One direction's doorbell: an eventfd and a word in the region that says how many sleep on it.
///
/// The sleeper calls [`Doorbell::prepare_to_sleep`], looks once more whether there is work, and only then
/// waits on the descriptor; the other side publishes work and calls [`Doorbell::ring`]. The fences make sure
/// that one of them sees the other.
pub struct Doorbell {
    region: Arc<Region>,
    at: usize,
    fd: OwnedFd,
}

impl Doorbell {
    /// The doorbell whose word is at byte `at` of the region and whose eventfd is `fd`.
    pub fn new(region: &Arc<Region>, at: usize, fd: OwnedFd) -> Doorbell {
        Doorbell { region: Arc::clone(region), at, fd }
    }

    /// A fresh non-blocking eventfd for a doorbell.
    pub fn eventfd() -> io::Result<OwnedFd> {
        // SAFETY: a plain system call; the result is checked and owned at once.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: fd is fresh and valid.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Announces a sleeper. Afterwards, look for work once more before waiting.
    pub fn prepare_to_sleep(&self) {
        Doorbell::prepare_all([self]);
    }

    /// Announces a sleeper on each of several doorbells.
    pub fn prepare_all<'a>(bells: impl IntoIterator<Item = &'a Doorbell>) {
        for bell in bells {
            bell.region.u32_at(bell.at).fetch_add(1, SeqCst);
        }
        fence(SeqCst);
    }

    /// Takes the announcement back, after waking or after finding work.
    pub fn awake(&self) {
        self.region.u32_at(self.at).fetch_sub(1, SeqCst);
    }

    /// Forgets all announcements: for the only sleeper of this doorbell, after the other side may have
    /// written the word.
    pub fn reset(&self) {
        self.region.u32_at(self.at).store(0, SeqCst);
    }

    /// Wakes the other side if it sleeps. Call after publishing work. Returns whether it rang.
    #[inline]
    pub fn ring(&self) -> bool {
        fence(SeqCst);
        let sleeping = self.region.u32_at(self.at).load(SeqCst) != 0;
        if sleeping {
            self.ring_always();
        }
        sleeping
    }

    /// Writes the eventfd without looking whether anybody sleeps.
    pub fn ring_always(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes eight bytes from a local array. Failing (EAGAIN at the counter's limit) means that it
        // is already signalled.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes the signal, so that the descriptor is no longer readable.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: reads at most eight bytes into a local array; EAGAIN means that there was no signal.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    /// The eventfd, readable when rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    /// Two threads that each publish and then sleep unless the other one has published: with a lost wake-up, both
    /// would wait for ever. The other side's word is seen, or the bell rings: never neither.
    #[test]
    fn a_sleeper_and_a_ringer_never_miss_each_other() {
        let region = Arc::new(Region::create("test", 4096).unwrap());
        let fd = Doorbell::eventfd().unwrap();
        let sleeper = Doorbell::new(&region, 64, fd.try_clone().unwrap());
        let ringer = Doorbell::new(&region, 64, fd);
        let work = |region: &Region| region.u32_at(1024).load(Relaxed);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=20_000u32 {
                    ringer.region.u32_at(1024).store(round, Relaxed);
                    ringer.ring();
                    while ringer.region.u32_at(2048).load(SeqCst) != round {
                        std::thread::yield_now();
                    }
                }
                stop.store(true, SeqCst);
                ringer.ring_always();
            });
            let mut seen = 0;
            while !stop.load(SeqCst) {
                sleeper.prepare_to_sleep();
                if work(&region) == seen {
                    wait_readable(&sleeper);
                }
                sleeper.awake();
                sleeper.clear();
                seen = work(&region);
                region.u32_at(2048).store(seen, SeqCst);
            }
        });
    }

    /// Waits for the bell without a time limit: a lost wake-up hangs the test.
    fn wait_readable(bell: &Doorbell) {
        let mut poll = libc::pollfd { fd: bell.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, a local.
        unsafe { libc::poll(&mut poll, 1, -1) };
    }
}
