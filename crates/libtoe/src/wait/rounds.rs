//! The rounds of a wait: take completions in, check, yield for a while, then sleep.
use super::sleep::{Sleeper, Woken, sleep};
use super::spin::{SpinTime, yield_until_completions};
use super::target::{Target, WaitOptions};
use super::time::is_over;
use crate::lock::Guard;
use crate::state::Lib;
use crate::system::errno::Result;
use crate::system::real;
use crate::system::waking::wakes;
use crate::wait::follower::End;
use crate::wait::signals::BlockedSignals;
use libc::{pollfd, timespec};

/// A wait with its condition.
pub(crate) struct Rounds<'a, P, L> {
    /// Options of the wait.
    pub wait: WaitOptions<'a>,
    /// Step before each sleep.
    pub prepare: P,
    /// Checks the condition, with the lock held and after all completions were taken in. Gets the kernel's descriptors,
    /// with `revents` filled in where it is time to poll them, too. It is not right before a sleep, which they end by
    /// themselves.
    pub poll: L,
}

impl<T, P, L> Rounds<'_, P, L>
where
    P: FnMut(&mut Guard, &[Target]) -> Result<()>,
    L: FnMut(&mut Lib, Option<&[pollfd]>) -> Option<T>,
{
    /// Waits until `poll` gives something.
    pub(crate) fn until(mut self, lib: &mut Guard) -> Result<T> {
        match self.poll_all(lib) {
            Some(found) => Ok(found),
            None => self.go_on(lib),
        }
    }

    /// The same where the caller has checked already.
    pub(crate) fn go_on(mut self, lib: &mut Guard) -> Result<T> {
        if is_over(self.wait.deadline) {
            return Err(libc::ETIMEDOUT);
        }
        let mut blocked = BlockedSignals::of_wait(self.wait.signals, self.wait.mask);
        let (spin, mut sleeper) = (self.spin(lib), None::<Sleeper>);
        loop {
            let found = if sleeper.is_none() && spin.lasts() {
                match yield_until_completions(lib, &spin, self.wait.deadline) {
                    true => self.poll_ours(lib),
                    false => self.poll_all(lib),
                }
            } else {
                let blocked = &*blocked.get_or_insert_with(|| BlockedSignals::new(self.wait.mask));
                self.sleep(lib, sleeper.get_or_insert_default(), blocked)?
            };
            if let Some(found) = found {
                return Ok(found);
            }
            if is_over(self.wait.deadline) {
                return Err(libc::ETIMEDOUT);
            }
        }
    }

    /// A thread that waits for descriptors of the kernel alone does not yield: they are slower anyway.
    fn spin(&self, lib: &mut Guard) -> SpinTime {
        let ours = |key| lib.set(key).is_some_and(|set| set.has_ours());
        if self.wait.own_set().is_none_or(ours) { SpinTime::new() } else { SpinTime::none() }
    }

    fn poll_ours(&mut self, lib: &mut Lib) -> Option<T> {
        lib.drain();
        (self.poll)(lib, None)
    }

    fn poll_all(&mut self, lib: &mut Lib) -> Option<T> {
        let kernel = &mut self.wait.kernel;
        if !kernel.is_empty() {
            let now = timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: a valid slice, without waiting.
            unsafe { real::ppoll_raw(kernel, &now, std::ptr::null()) };
        }
        lib.drain();
        (self.poll)(lib, Some(kernel))
    }

    /// One sleep, and a check after it. `EINTR` where a handler ran that ends the call.
    fn sleep(&mut self, lib: &mut Guard, sleeper: &mut Sleeper, blocked: &BlockedSignals) -> Result<Option<T>> {
        (self.prepare)(lib, self.wait.targets)?;
        let (interrupted, end) = match sleep(lib, &mut self.wait, sleeper, blocked, &mut self.poll)? {
            Woken::Found(found) => return Ok(Some(found)),
            Woken::Slept { interrupted, end } => (interrupted, end),
        };
        let before = wakes();
        let found = self.poll_all(lib);
        if found.is_some() {
            return Ok(found);
        }
        end.into_iter().for_each(|end| sleeper.follower.woke(End { woke: wakes() != before, ..end }));
        if interrupted && !blocked.goes_on(self.wait.signals) { Err(libc::EINTR) } else { Ok(None) }
    }
}
