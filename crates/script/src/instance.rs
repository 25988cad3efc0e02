//! The sockets as several threads call them, and virtual time between them. A call that waits gives the sockets free,
//! and is made again when another thread has changed something.
//!
//! Time passes where the runner asks for it (it sleeps, waits for a packet, looks at the clock again and again), and in
//! a call that waits while all other threads wait for that call. Either way only while all others stand still
//! ([`crate::threads`]): a call that can end at some moment has ended, and its thread has seen the time, before time
//! goes on.
use crate::sockets::{Errno, Sockets};
use crate::threads::{Threads, current};
use libc::{EAGAIN, EDEADLK, c_int};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Virtual time that a look at the clock takes where nothing else was called since the last one: runners wait for the
/// last millisecond by looking again and again.
const LOOK_NS: u64 = 1_000;
/// How far time passes while the runner waits for a packet, or all of it for a call: a connection that gives up takes
/// minutes.
const PATIENCE_NS: u64 = 1_000_000_000_000;
/// Real time between two looks at whether other threads stand still. No result depends on it.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Real time after which the other threads count as gone astray: then a call that waits fails, and one that passes time
/// goes on.
const ASTRAY: Duration = Duration::from_secs(10);

/// What `userdata` points to.
pub(crate) struct Instance {
    state: Mutex<State>,
    changed: Condvar,
    /// Threads that are about to have the lock: they sleep, but do not stand still.
    entering: AtomicUsize,
}

struct State {
    sockets: Sockets,
    threads: Threads,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Instance {
    pub fn new(sockets: Sockets) -> Instance {
        let state = Mutex::new(State { sockets, threads: Threads::default() });
        Instance { state, changed: Condvar::new(), entering: AtomicUsize::new(0) }
    }

    /// The runner is done.
    pub fn abandon(&self) {
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

    /// Makes a call again and again while it would wait, if it `waits`; at time `until`, nanoseconds, it is over in any
    /// case.
    pub fn call<T>(
        &self,
        until: Option<u64>,
        waits: impl Fn(&Sockets) -> bool,
        mut attempt: impl FnMut(&mut Sockets) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut state = self.enter();
        let patience = state.sockets.stack.now() + PATIENCE_NS;
        loop {
            let result = attempt(&mut state.sockets);
            if !matches!(result, Err(EAGAIN)) || !waits(&state.sockets) {
                state.threads.acts(current());
                self.change(&mut state);
                return result;
            }
            state = self.wait(state, until, patience).ok_or(EDEADLK)?;
        }
    }

    /// A call that never waits.
    pub fn at_once<T>(&self, mut call: impl FnMut(&mut Sockets) -> Result<T, Errno>) -> Result<T, Errno> {
        self.call(None, |_| false, &mut call)
    }

    /// Waits for a change, and lets time pass where nobody else does; none where nothing will ever change.
    fn wait<'a>(&'a self, mut state: Guard<'a>, until: Option<u64>, patience: u64) -> Option<Guard<'a>> {
        let (own, begin) = (current(), Instant::now());
        state.threads.waits(own, until);
        let seen = state.threads.changes();
        while state.threads.changes() == seen {
            if state.threads.others_wait_for(own) && self.nobody_enters() {
                let changed = self.step(&mut state, patience);
                state.threads.acts(own);
                return changed.then_some(state);
            }
            if begin.elapsed() > ASTRAY {
                state.threads.acts(own);
                return None;
            }
            state = self.pause(state);
        }
        state.threads.acts(own);
        Some(state)
    }

    /// Goes to the next moment at which something is due or a call that waits is over, at most to `limit`; false where
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
        let (own, begin) = (current(), Instant::now());
        state.threads.passes(own);
        let mut waited = false;
        while !(state.threads.others_stand(own) && self.nobody_enters()) && begin.elapsed() < ASTRAY {
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
    pub fn now(&self) -> u64 {
        self.enter().sockets.stack.now()
    }

    /// Lets so many nanoseconds pass.
    pub fn sleep(&self, nanos: u64) {
        let state = self.enter();
        let then = state.sockets.stack.now() + nanos;
        drop(self.pass(state, then));
    }

    /// The time, nanoseconds, for a runner that may be waiting for it to pass.
    pub fn look_at_clock(&self) -> u64 {
        let mut state = self.lock();
        let looks = state.threads.looks(current());
        let now = state.sockets.stack.now();
        match looks {
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
    pub fn next_packet(&self) -> Result<(u64, Vec<u8>), u64> {
        let mut state = self.enter();
        state.sockets.settle();
        let limit = state.sockets.stack.now() + PATIENCE_NS;
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
    pub fn write_all(&self, fd: c_int, bytes: &[u8], flags: c_int) -> Result<usize, Errno> {
        let mut done = 0;
        let waits = |sockets: &Sockets| sockets.blocks(fd) && flags & libc::MSG_DONTWAIT == 0;
        let result = self.call(None, waits, |sockets| {
            done += sockets.transmit(fd, &bytes[done..])?;
            if done < bytes.len() && waits(sockets) { Err(EAGAIN) } else { Ok(done) }
        });
        if done > 0 { Ok(done) } else { result }
    }

    /// Receives at most so many bytes.
    pub fn receive(&self, fd: c_int, most: usize, flags: c_int) -> Result<Vec<u8>, Errno> {
        let waits = |sockets: &Sockets| sockets.blocks(fd) && flags & libc::MSG_DONTWAIT == 0;
        self.call(None, waits, |sockets| sockets.receive(fd, most, flags & libc::MSG_PEEK != 0))
    }
}
