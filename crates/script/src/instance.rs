//! The sockets as several threads call them, and virtual time between them. A call that waits gives the sockets free,
//! and is made again when another thread has changed something.
//!
//! Time passes where the runner asks for it: it sleeps, waits for a packet, or looks at the clock again and again. It
//! passes in a call that waits, too, while all other threads wait for that call. Either way it passes only while all
//! others stand still ([`crate::threads`]). A call that can end at some moment has ended, and its thread has the time,
//! before time goes on.
use crate::sockets::{Errno, Sockets};
use crate::threads::{Others, Threads, current};
use libc::{EAGAIN, EDEADLK, EINPROGRESS, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Virtual time that a look at the clock takes where nothing else was called since the last one. Runners wait for the
/// last millisecond by looking again and again.
const LOOK_NS: u64 = 1_000;
/// How far time passes while the runner waits for a packet, or all of it for a call: a connection that gives up takes
/// minutes.
const TIME_LIMIT_NS: u64 = 1_000_000_000_000;
/// Real time between two looks at whether other threads stand still. No result depends on it.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Real time that other threads may sleep elsewhere (a shell command, a file). After it, a call that waits fails, and
/// one that passes time goes on. A thread that computes or gets no core does not count. On a crowded machine it may be
/// late by any time, and must still get the time at which it was on its way.
const ASTRAY: Duration = Duration::from_secs(10);

/// What `userdata` points to.
pub(crate) struct Instance {
    state: Mutex<State>,
    changed: Condvar,
    /// Threads that are about to have the lock: they sleep, but do not stand still.
    entering: AtomicUsize,
    /// [`ASTRAY`].
    time_limit: Duration,
}

struct State {
    sockets: Sockets,
    threads: Threads,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Instance {
    pub(crate) fn new(sockets: Sockets) -> Instance {
        let state = Mutex::new(State { sockets, threads: Threads::default() });
        Instance { state, changed: Condvar::new(), entering: AtomicUsize::new(0), time_limit: ASTRAY }
    }

    /// The runner is done.
    pub(crate) fn abandon(&self) {
        self.lock().sockets.abandon();
    }

    fn lock(&self) -> Guard<'_> {
        self.entering.fetch_add(1, SeqCst);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.entering.fetch_sub(1, SeqCst);
        state
    }

    /// Begins a call.
    fn enter(&self) -> Guard<'_> {
        let mut state = self.lock();
        state.threads.acts(current());
        state
    }

    /// Gives the sockets free for a moment.
    fn pause<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        self.changed.wait_timeout(state, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0
    }

    fn change(&self, state: &mut State) {
        state.threads.change();
        self.changed.notify_all();
    }

    /// Nobody is between waking up and acting. To be asked after what threads do: who slept for the lock then is
    /// counted now.
    fn nobody_enters(&self) -> bool {
        self.entering.load(SeqCst) == 0
    }

    /// Whether threads have slept elsewhere for too long, `asleep` being when the last one was seen to be on its way.
    fn astray(&self, others: Others, asleep: &mut Instant) -> bool {
        if others != Others::Sleep {
            *asleep = Instant::now();
        }
        asleep.elapsed() > self.time_limit
    }

    /// Makes a call again and again while it would wait, if it `waits`; at time `until`, nanoseconds, it is over in any
    /// case.
    pub(crate) fn call<T>(
        &self,
        until: Option<u64>,
        waits: impl Fn(&Sockets) -> bool,
        mut attempt: impl FnMut(&mut Sockets) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.enter();
        let time_limit = state.sockets.stack.now() + TIME_LIMIT_NS;
        state.sockets.take_changes();
        loop {
            let result = attempt(&mut state.sockets);
            if !matches!(result, Err(EAGAIN)) || !waits(&state.sockets) {
                state.threads.acts(current());
                self.change(&mut state);
                return result;
            }
            state = self.wait(state, until, time_limit).ok_or(EDEADLK)?;
        }
    }

    /// A call that never waits.
    pub(crate) fn at_once<T>(&self, mut call: impl FnMut(&mut Sockets) -> Result<T, Errno>) -> Result<T, Errno> {
        self.call(None, |_| false, &mut call)
    }

    /// Waits for a change, and lets time pass where nobody else does; none where nothing will ever change.
    fn wait<'a>(&'a self, mut state: Guard<'a>, until: Option<u64>, time_limit: u64) -> Option<Guard<'a>> {
        let (own, mut asleep) = (current(), Instant::now());
        state.threads.waits(own, until);
        let seen = state.threads.changes();
        while state.threads.changes() == seen {
            let others = state.threads.others_wait_for(own);
            if others == Others::Stand && self.nobody_enters() {
                let changed = self.step(&mut state, time_limit);
                state.threads.acts(own);
                return changed.then_some(state);
            }
            if self.astray(others, &mut asleep) {
                state.threads.acts(own);
                return None;
            }
            state = self.pause(state);
        }
        state.threads.acts(own);
        Some(state)
    }

    /// Goes to the next moment at which something is due or a call that waits is over, at most to `limit`. False where
    /// there is none.
    fn step(&self, state: &mut State, limit: u64) -> bool {
        let State { sockets, threads } = state;
        let end = threads.earliest_end(sockets.stack.now()).filter(|end| *end <= limit);
        let stepped = sockets.stack.step(end.unwrap_or(limit));
        if let (false, Some(end)) = (stepped, end) {
            sockets.stack.run_until(end);
        }
        sockets.take_in();
        self.change(state);
        stepped || end.is_some()
    }

    /// Waits until all other threads stand still; whether one did not.
    fn stand<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, bool) {
        let (own, mut asleep) = (current(), Instant::now());
        state.threads.passes(own);
        let mut waited = false;
        loop {
            let others = state.threads.others_stand(own);
            if (others == Others::Stand && self.nobody_enters()) || self.astray(others, &mut asleep) {
                break;
            }
            waited = true;
            state = self.pause(state);
        }
        state.threads.acts(own);
        (state, waited)
    }

    /// Lets time pass until `then`.
    fn pass<'a>(&'a self, mut state: Guard<'a>, then: u64) -> Guard<'a> {
        loop {
            state = self.stand(state).0;
            if !self.step(&mut state, then) {
                break;
            }
        }
        state.sockets.stack.run_until(then);
        state.sockets.take_in();
        self.change(&mut state);
        state
    }

    /// The time, nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.enter().sockets.stack.now()
    }

    /// Lets so many nanoseconds pass.
    pub(crate) fn sleep(&self, nanos: u64) {
        let state = self.enter();
        let then = state.sockets.stack.now() + nanos;
        drop(self.pass(state, then));
    }

    /// The time, nanoseconds, for a runner that may be waiting for it to pass.
    pub(crate) fn read_clock(&self) -> u64 {
        let mut state = self.lock();
        let clock_reads = state.threads.clock_reads(current());
        let now = state.sockets.stack.now();
        match clock_reads {
            0 => return now,
            1 => drop(self.pass(state, now + LOOK_NS)),
            // Nobody was woken since the others stood still: the thread only looked.
            _ => {
                state.sockets.stack.run_until(now + LOOK_NS);
                state.sockets.take_in();
                self.change(&mut state);
            }
        }
        now + LOOK_NS
    }

    /// The next packet that the host sends, and when, nanoseconds; time passes until it does. Where none comes: the
    /// time then.
    pub(crate) fn next_packet(&self) -> Result<(u64, Vec<u8>), u64> {
        let mut state = self.enter();
        state.sockets.take_changes();
        state.sockets.settle();
        let limit = state.sockets.stack.now() + TIME_LIMIT_NS;
        loop {
            if let Some(packet) = state.sockets.stack.take() {
                return Ok(packet);
            }
            let waited;
            (state, waited) = self.stand(state);
            // Who did not stand still may have sent something.
            if !waited && !self.step(&mut state, limit) {
                return Err(state.sockets.stack.now());
            }
        }
    }

    /// Writes all where the descriptor waits, else what there is room for.
    pub(crate) fn write_all(&self, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
        let (mut done, mut early) = (0, false);
        let waits = |sockets: &Sockets| sockets.blocks(fd) && flags & libc::MSG_DONTWAIT == 0;
        let result = self.call(None, waits, |sockets| {
            let begins = sockets.awaits_data(fd);
            early |= begins;
            done += match begins {
                true => sockets.give_early(fd, bytes, waits(sockets))?,
                false => sockets.transmit(fd, &bytes[done..], flags)?,
            };
            // Who waits, waits for the connection, too.
            let opens = early && sockets.connect_result(fd) == Err(EAGAIN);
            if (done < bytes.len() || opens) && waits(sockets) {
                return Err(EAGAIN);
            }
            // No data went with the SYN: the call is one that connects.
            if opens && done == 0 {
                return Err(EINPROGRESS);
            }
            sockets.note_zero_copy(fd, flags);
            Ok(done)
        });
        let failed = early && result.as_ref().is_err_and(|error| *error != EAGAIN);
        if done > 0 && !failed { Ok(done) } else { result }
    }

    /// Receives at most so many bytes.
    pub(crate) fn receive(&self, fd: c_int, most: usize, flags: c_int) -> Result<Vec<u8>, Errno> {
        let waits = |sockets: &Sockets| sockets.blocks(fd) && flags & libc::MSG_DONTWAIT == 0;
        self.call(None, waits, |sockets| sockets.receive(fd, most, flags & libc::MSG_PEEK != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;
    use crate::stack::Stack;
    use std::sync::Barrier;

    /// A thread does something of its own between two looks at the clock, while another one lets a second pass. How
    /// far the clock went meanwhile, nanoseconds.
    fn passed_beside(work: impl Fn() + Sync) -> u64 {
        let sockets = Sockets::new(Stack::new(Flags::parse("").unwrap()).unwrap());
        let instance = Instance { time_limit: Duration::from_millis(100), ..Instance::new(sockets) };
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let begin = instance.now();
                begun.wait();
                work();
                instance.now() - begin
            });
            begun.wait();
            instance.sleep(1_000_000_000);
            worker.join().unwrap()
        })
    }

    #[test]
    fn no_time_passes_for_a_thread_that_is_late() {
        let late = || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(600) {
                std::hint::spin_loop();
            }
        };
        assert_eq!(passed_beside(late), 0);
    }

    #[test]
    fn time_goes_on_without_a_thread_that_sleeps_elsewhere() {
        // Longer than the time_limit by far, since its first part may be spent on the way to a core.
        assert_eq!(passed_beside(|| std::thread::sleep(Duration::from_secs(3))), 1_000_000_000);
    }
}
