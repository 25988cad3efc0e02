//! Scheduler of the exploration: one thread runs at a time, and the daemon's stand-in between them.
#[path = "../../tests/loop_host/mod.rs"]
mod loop_host;

pub(super) use loop_host::{ADDRESS, Death, LoopHost};

use super::plan::{Choice, Plan};
use libc::{c_int, sigset_t};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::{LazyLock, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Ends the sleep of a thread whose time-out has come.
pub(super) const TIME_OVER: c_int = libc::SIGUSR2;

thread_local! {
    /// This thread's number, where the controller chooses when it runs.
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The thread's number, if it is one of the controller's.
pub(super) fn me() -> Option<usize> {
    ME.try_with(Cell::get).unwrap_or(None)
}

/// Runs `act` as thread `me` of the controller's.
fn run_as(me: usize, act: impl FnOnce()) {
    // SAFETY: a local set; the thread is this test's own.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, TIME_OVER);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
    CONTROL.enter(me);
    ME.set(Some(me));
    act();
    // What belongs to the thread goes while nobody else runs.
    crate::wait::thread::forget();
    ME.set(None);
    CONTROL.is_done(me);
}

/// Threads at most.
const MOST: usize = 6;
const NEVER: u64 = u64::MAX;
/// How long a thread runs, in real time, before the controller checks whether it waits for the daemon.
const QUESTION: Duration = Duration::from_micros(100);

/// State of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// It is not there.
    Absent,
    /// It runs: one at most.
    Running,
    /// It is ready to run.
    Ready,
    /// It holds the lock and is about to poll the daemon's rings.
    Polls,
    /// It is in a system call that sleeps, or about to enter it.
    Asleep,
    /// It is at its end.
    Done,
}

const STATES: [State; 6] = [State::Absent, State::Running, State::Ready, State::Polls, State::Asleep, State::Done];

struct Slot {
    state: AtomicU32,
    go: AtomicBool,
    thread: Mutex<Option<Thread>>,
    tid: AtomicI32,
    /// When its sleep ends, in ns.
    until: AtomicU64,
    over: AtomicBool,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            state: AtomicU32::new(State::Absent as u32),
            go: AtomicBool::new(false),
            thread: Mutex::new(None),
            tid: AtomicI32::new(0),
            until: AtomicU64::new(NEVER),
            over: AtomicBool::new(false),
        }
    }

    fn state(&self) -> State {
        STATES[self.state.load(SeqCst) as usize]
    }

    fn wait_to_run(&self) {
        while !self.go.swap(false, SeqCst) {
            thread::park();
        }
    }

    fn resume(&self) {
        self.state.store(State::Running as u32, SeqCst);
        self.go.store(true, SeqCst);
        self.thread.lock().unwrap().iter().for_each(Thread::unpark);
    }

    /// The kernel has it asleep.
    fn sleeps_in_kernel(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid.load(SeqCst)));
        stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }
}

/// The controller's side and the threads' side of it.
pub(super) struct Control {
    slots: [Slot; MOST],
    /// Read without a lock: a thread that is about to sleep in the kernel must not sleep before.
    controller: OnceLock<Thread>,
    plan: Mutex<Plan>,
    step: AtomicU32,
    /// The plan's value at the step at which a thread yielded.
    choice: AtomicU32,
    clock: AtomicU64,
    /// The daemon dies with its next round.
    pub dies: Mutex<Option<Death>>,
}

const NONE: u32 = u32::MAX;
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
pub(super) static CONTROL: Control = Control {
    slots: [const { Slot::new() }; MOST],
    controller: OnceLock::new(),
    plan: Mutex::new(Plan::Ordinary),
    step: AtomicU32::new(0),
    choice: AtomicU32::new(NONE),
    clock: AtomicU64::new(0),
    dies: Mutex::new(None),
};

impl Control {
    /// Time passes; returns the time.
    pub(super) fn pass(&self, time: Duration) -> Instant {
        let time = time.as_nanos() as u64;
        *BEGIN + Duration::from_nanos(self.clock.fetch_add(time, SeqCst) + time)
    }

    /// One step more: the plan's value for it.
    fn next(&self) -> Option<Choice> {
        let step = self.step.fetch_add(1, SeqCst);
        self.plan.lock().unwrap().at(step)
    }

    /// The thread that runs comes to a point: whether others are to be first.
    pub(super) fn deviates(&self) -> bool {
        let choice = self.next();
        self.choice.store(choice.unwrap_or(NONE), SeqCst);
        choice.is_some()
    }

    /// The thread waits until it is scheduled.
    pub(super) fn give_up(&self, me: usize, state: State) {
        self.set_state(me, state);
        self.slots[me].wait_to_run();
    }

    fn set_state(&self, me: usize, state: State) {
        self.slots[me].state.store(state as u32, SeqCst);
        self.controller.get().into_iter().for_each(Thread::unpark);
    }

    /// The thread begins; it runs when it is scheduled.
    pub(super) fn enter(&self, me: usize) {
        let slot = &self.slots[me];
        *slot.thread.lock().unwrap() = Some(thread::current());
        // SAFETY: a plain call.
        slot.tid.store(unsafe { libc::gettid() }, SeqCst);
        self.give_up(me, State::Ready);
    }

    /// The thread ends.
    pub(super) fn is_done(&self, me: usize) {
        self.set_state(me, State::Done);
    }

    /// The thread is about to sleep.
    pub(super) fn sleeps(&self, me: usize, timeout: Option<Duration>) {
        let now = self.clock.load(SeqCst);
        let until = timeout.map_or(NEVER, |timeout| now.saturating_add(timeout.as_nanos() as u64));
        self.slots[me].until.store(until, SeqCst);
        self.slots[me].over.store(false, SeqCst);
        self.set_state(me, State::Asleep);
    }

    /// The thread does not sleep any more: whether its time-out was the reason.
    pub(super) fn is_back(&self, me: usize) -> bool {
        self.give_up(me, State::Ready);
        self.slots[me].over.load(SeqCst)
    }
}

/// Result of a run.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Run {
    /// Number of its steps.
    pub steps: u32,
    /// How many others could go first, at the last step that the plan names.
    pub alternatives: u32,
    /// Time for which nobody could run.
    pub idle: Duration,
    /// Everybody sleeps for ever.
    pub stuck: bool,
}

/// Runs threads to their end, in the order of a plan.
pub(super) struct Controller<'a> {
    host: &'a mut LoopHost,
    /// The stand-in had nothing to do, and nobody ran since.
    idle: bool,
    threads: usize,
    last: usize,
    run: Run,
}

/// Who may go next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Daemon,
    Thread(usize),
}

/// An action of a thread.
pub(super) type Act = Box<dyn FnOnce() + Send>;

impl Controller<'_> {
    /// Runs all of them; the threads stay as they are where they are stuck.
    pub(super) fn run(host: &mut LoopHost, acts: Vec<Act>, plan: &Plan) -> Run {
        assert!(acts.len() <= MOST && ME.get().is_none());
        CONTROL.controller.get_or_init(thread::current);
        *CONTROL.plan.lock().unwrap() = plan.clone();
        CONTROL.step.store(0, SeqCst);
        CONTROL.choice.store(NONE, SeqCst);
        let threads = acts.len();
        let begin = |(me, act): (usize, Act)| {
            CONTROL.slots[me].state.store(State::Absent as u32, SeqCst);
            let handle = thread::spawn(move || run_as(me, act));
            while CONTROL.slots[me].state() != State::Ready {
                thread::park_timeout(Duration::from_millis(1));
            }
            handle
        };
        let handles: Vec<_> = acts.into_iter().enumerate().map(begin).collect();
        let mut controller = Controller { host, idle: false, threads, last: threads - 1, run: Run::default() };
        controller.go();
        controller.run.steps = CONTROL.step.load(SeqCst);
        if !controller.run.stuck {
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            while controller.host.round() {}
        }
        controller.run
    }

    fn go(&mut self) {
        loop {
            self.settle();
            let preempted = CONTROL.choice.swap(NONE, SeqCst);
            if let Some(polling) = self.find(State::Polls) {
                // The daemon is the one that could be first.
                self.run.alternatives = 1;
                self.daemon();
                self.settle();
                self.run_thread(polling);
                continue;
            }
            let next = self.candidates();
            if !next.is_empty() {
                match self.choose(next, preempted) {
                    Next::Daemon => self.daemon(),
                    Next::Thread(thread) => self.run_thread(thread),
                }
            } else if !self.leap() {
                self.run.stuck = (0..self.threads).any(|thread| CONTROL.slots[thread].state() != State::Done);
                return;
            }
        }
    }

    /// One of them: the first, where the plan has no value. `preempted` is its value where a thread came to a point.
    fn choose(&mut self, mut next: Vec<Next>, preempted: Choice) -> Next {
        let others = next.len() - 1;
        let choice = if preempted != NONE {
            // Whoever was preempted is the last to go on.
            next.retain(|next| *next != Next::Thread(self.last));
            next.push(Next::Thread(self.last));
            Some(preempted)
        } else {
            CONTROL.next().map(|choice| choice.wrapping_add(1))
        };
        if choice.is_some() {
            self.run.alternatives = others as u32;
        }
        next[choice.unwrap_or(0) as usize % next.len()]
    }

    /// In the ordinary order: the daemon first, where it may have something to do, then the threads in turn.
    fn candidates(&self) -> Vec<Next> {
        let daemon = (!self.idle).then_some(Next::Daemon);
        let in_turn = (1..=self.threads).map(|i| (self.last + i) % self.threads);
        let ready = in_turn.filter(|thread| CONTROL.slots[*thread].state() == State::Ready);
        daemon.into_iter().chain(ready.map(Next::Thread)).collect()
    }

    fn find(&self, state: State) -> Option<usize> {
        (0..self.threads).find(|thread| CONTROL.slots[*thread].state() == state)
    }

    fn daemon(&mut self) {
        if let Some(death) = CONTROL.dies.lock().unwrap().take() {
            self.host.die(death);
        }
        self.idle = !self.host.round();
    }

    fn run_thread(&mut self, thread: usize) {
        (self.last, self.idle) = (thread, false);
        let slot = &CONTROL.slots[thread];
        slot.resume();
        while slot.state() == State::Running {
            thread::park_timeout(QUESTION);
            // It asks the daemon something over the attach socket, and waits for the answer with the lock held. The
            // state is read afterwards: a thread that yields sleeps as well.
            if slot.sleeps_in_kernel() && slot.state() == State::Running {
                self.host.round();
            }
        }
    }

    /// Until everybody who is to sleep is asleep in the kernel, and everybody whom the kernel woke is back.
    fn settle(&self) {
        for slot in &CONTROL.slots[..self.threads] {
            while slot.state() == State::Asleep && !slot.sleeps_in_kernel() {
                thread::yield_now();
            }
        }
    }

    /// Nobody can run: the next time-out comes.
    fn leap(&mut self) -> bool {
        let asleep = (0..self.threads).filter(|thread| CONTROL.slots[*thread].state() == State::Asleep);
        let until = |thread: &usize| CONTROL.slots[*thread].until.load(SeqCst);
        let Some(first) = asleep.min_by_key(until).filter(|thread| until(thread) != NEVER) else { return false };
        let (slot, now) = (&CONTROL.slots[first], CONTROL.clock.load(SeqCst));
        let later = slot.until.load(SeqCst).max(now);
        self.run.idle += Duration::from_nanos(later - now);
        CONTROL.clock.store(later, SeqCst);
        slot.over.store(true, SeqCst);
        // SAFETY: a thread of this process that is there until it reports that it is done.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), slot.tid.load(SeqCst), TIME_OVER) };
        while slot.state() == State::Asleep {
            thread::park_timeout(Duration::from_millis(1));
        }
        true
    }
}
