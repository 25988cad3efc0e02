//! A thread that runs offload functions: it takes requests from its completion queue, runs their coroutines, and sends
//! the responses. Everything that it owns is its own; others send it messages and wake it.
use crate::call::{Asked, Call, End, Payload, Progress};
use crate::device::{Cq, Device};
use crate::dma::Lane;
use crate::library::Functions;
use crate::limits::{CALLS, STACK_BYTES};
use crate::link::{Link, Response};
use crate::status::{Status, now};
use crate::wake::Wake;
use crate::watchdog::Watchdog;
use corosensei::stack::DefaultStack;
use offload_api::status;
use shm::Contention;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use verbs::{Completion, Number, QpNumber, Status as Ended};

/// Rounds without work after which a thread sleeps, unless that is shorter than [`AWAKE`].
const ROUNDS: u32 = 64;
/// How long a thread stays awake without work.
const AWAKE: Duration = Duration::from_micros(500);
/// Of the rounds without work, each such one yields: the daemon, a client and this thread may share two cores.
const YIELDS_EACH: u32 = 8;
/// Under contention, it sleeps so long instead.
const NAP: Duration = Duration::from_micros(20);
/// Completions that are taken in a round.
const AT_ONCE: usize = 64;
/// Time between two polls for calls whose time is over, while it sleeps.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// To a thread.
pub(crate) enum Message {
    /// A connection.
    Link(Box<Link>),
    /// It ends, once its calls have ended: [`Gone`].
    End(QpNumber),
}

/// From a thread: this queue pair may be destroyed.
pub(crate) enum Gone {
    /// As it was asked.
    Ended(Box<Link>),
    /// The connection is broken: it is to be ended.
    Broken(QpNumber),
}

/// A thread that runs functions, as the first one sees it.
pub(crate) struct Thread {
    /// Its completion queue.
    pub(crate) cq: Number,
    /// Connections that it has.
    pub(crate) links: usize,
    /// Its messages.
    pub(crate) messages: Sender<Message>,
    /// Wakes it.
    pub(crate) wake: Arc<Wake>,
}

impl Thread {
    /// Sends it a message.
    pub(crate) fn send(&self, message: Message) {
        // It lives as long as the process.
        let _ = self.messages.send(message);
        self.wake.wake();
    }
}

/// What a thread needs.
pub(crate) struct Runner {
    /// Its place in [`Status`].
    pub(crate) place: usize,
    /// The device.
    pub(crate) device: Arc<Device>,
    /// Its completion queue.
    pub(crate) cq: Cq,
    /// The pipe of that queue's events, which does not block.
    pub(crate) events: OwnedFd,
    /// Messages to it.
    pub(crate) messages: Receiver<Message>,
    /// Messages from it.
    pub(crate) gone: Sender<Gone>,
    /// The thread that gets them.
    pub(crate) control: Arc<Wake>,
    /// Itself, to others.
    pub(crate) wake: Arc<Wake>,
    /// All functions.
    pub(crate) functions: Arc<RwLock<Functions>>,
    /// What it runs.
    pub(crate) status: Status,
    /// The thread that watches that.
    pub(crate) watchdog: Arc<Watchdog>,
    /// DMA operations that are outstanding, of all threads.
    pub(crate) outstanding: Arc<AtomicU64>,
    /// Time of a call.
    pub(crate) call: Duration,
}

/// A call, and what its response needs.
struct Running {
    call: Call,
    slot: usize,
    qp: QpNumber,
    tag: u16,
    /// How it ended, where the engine waits for its DMA.
    end: Option<End>,
}

/// A request that has come.
struct Arrived {
    qp: QpNumber,
    slot: usize,
    bytes: u32,
    immediate: u32,
}

/// A thread at work.
struct Work {
    of: Runner,
    lane: Rc<Lane>,
    links: HashMap<QpNumber, Box<Link>>,
    running: Vec<Option<Running>>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    waiting: VecDeque<Arrived>,
    stacks: Vec<DefaultStack>,
    rings: bool,
    polled_at: u64,
}

impl Runner {
    /// Runs until the process ends.
    ///
    /// # Errors
    /// The thread for DMA cannot be started.
    pub(crate) fn run(self) -> std::io::Result<()> {
        self.status.settle(self.place);
        let lane = Rc::new(Lane::start(&self.wake, Arc::clone(&self.outstanding))?);
        let mut work = Work {
            of: self,
            lane,
            links: HashMap::new(),
            running: (0..CALLS).map(|_| None).collect(),
            free: (0..CALLS).rev().collect(),
            ready: VecDeque::new(),
            waiting: VecDeque::new(),
            stacks: Vec::new(),
            rings: false,
            polled_at: 0,
        };
        let contention = Contention::new();
        let (mut idle, mut since) = (0u32, Instant::now());
        loop {
            if work.round() {
                (idle, since) = (0, Instant::now());
                continue;
            }
            idle += 1;
            if idle > ROUNDS && since.elapsed() > AWAKE {
                work.sleep();
                (idle, since) = (0, Instant::now());
            } else if idle % YIELDS_EACH == 0 {
                give_way(&contention);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

fn give_way(contention: &Contention) {
    if contention.is_there() {
        return std::thread::sleep(NAP);
    }
    let begin = Instant::now();
    std::thread::yield_now();
    contention.yielded(begin.elapsed());
}

impl Work {
    /// Polls everything once. Whether there was something.
    fn round(&mut self) -> bool {
        let mut found = self.messages();
        for _ in 0..AT_ONCE {
            let Some(completion) = self.of.cq.next() else { break };
            self.completed(&completion);
            found = true;
        }
        while let Some(ended) = self.lane.ended() {
            self.dma_ended(ended);
            found = true;
        }
        found |= self.begin_calls();
        for _ in 0..self.ready.len() {
            let Some(place) = self.ready.pop_front() else { break };
            self.run(place);
            found = true;
        }
        self.end_late_calls();
        if std::mem::take(&mut self.rings) {
            self.of.device.ring();
        }
        found
    }

    fn messages(&mut self) -> bool {
        let mut found = false;
        while let Ok(message) = self.of.messages.try_recv() {
            found = true;
            match message {
                Message::Link(link) => drop(self.links.insert(link.qp, link)),
                Message::End(qp) => {
                    if let Some(link) = self.links.get_mut(&qp) {
                        link.ends = true;
                        self.waiting.retain(|arrived| arrived.qp != qp);
                        self.end_link(qp);
                    }
                }
            }
        }
        found
    }

    /// A connection that ends has no calls any more: its queue pair may go.
    fn end_link(&mut self, qp: QpNumber) {
        if self.links.get(&qp).is_some_and(|link| link.ends && link.calls == 0) {
            if let Some(link) = self.links.remove(&qp) {
                let _ = self.of.gone.send(Gone::Ended(link));
                self.of.control.wake();
            }
        }
    }

    fn completed(&mut self, completion: &Completion) {
        let qp = completion.qp;
        if !self.links.contains_key(&qp) {
            // The thread was notified of it before the client was accepted, but perhaps after its poll.
            self.messages();
        }
        let Some(link) = self.links.get_mut(&qp).filter(|link| !link.ends) else { return };
        if completion.status != Ended::Success {
            let _ = self.of.gone.send(Gone::Broken(qp));
            return self.of.control.wake();
        }
        if !completion.is_receive() {
            return link.left(completion.number);
        }
        let slot = link.received(completion.number);
        self.waiting.push_back(Arrived { qp, slot, bytes: completion.bytes, immediate: completion.immediate });
    }

    /// Begins calls for what has come, as many as may be at once.
    fn begin_calls(&mut self) -> bool {
        let mut found = false;
        while !self.waiting.is_empty() && !self.free.is_empty() {
            let Some(arrived) = self.waiting.pop_front() else { break };
            self.begin(arrived);
            found = true;
        }
        found
    }

    fn begin(&mut self, arrived: Arrived) {
        let Arrived { qp, slot, bytes, immediate } = arrived;
        let Some(link) = self.links.get_mut(&qp) else { return };
        let (opcode, tag) = ((immediate >> 16) as u16, immediate as u16);
        let found =
            self.of.functions.read().unwrap_or_else(PoisonError::into_inner).find(opcode, link.host.port).cloned();
        let Some(entry) = found else { return self.respond(qp, slot, refusal(status::NO_OPCODE, tag)) };
        let stack = self.stacks.pop().map_or_else(|| DefaultStack::new(STACK_BYTES), Ok);
        let Ok(stack) = stack else { return self.respond(qp, slot, refusal(status::NO_MEMORY, tag)) };
        let Some(place) = self.free.pop() else { return };
        let deadline = now() + self.of.call.as_nanos() as u64;
        let (host, memory) = (Arc::clone(&link.host), link.memory(slot));
        link.calls += 1;
        entry.library.counts.calls.fetch_add(1, Relaxed);
        let call = Call::new(Asked { memory, bytes, opcode, qp, host, deadline }, entry, &self.lane, place, stack);
        self.running[place] = Some(Running { call, slot, qp, tag, end: None });
        self.run(place);
    }

    fn run(&mut self, place: usize) {
        let Some(running) = &mut self.running[place] else { return };
        let begin = self.of.status.enter(self.of.place, running.call.entry.library.number);
        let progress = running.call.run(&mut self.stacks);
        self.of.status.leave(self.of.place);
        running.call.entry.library.counts.busy_ns.fetch_add(now() - begin, Relaxed);
        match progress {
            Progress::Ready => self.ready.push_back(place),
            Progress::Waits => {}
            Progress::Ended(end) => self.ended(place, end),
        }
    }

    fn dma_ended(&mut self, ended: crate::dma::Ended) {
        let place = ended.whose.call;
        let Some(running) = self.running.get_mut(place).and_then(Option::as_mut) else { return };
        let goes_on = running.call.ended(ended);
        match running.end.take() {
            Some(end) => self.ended(place, end),
            None if goes_on => self.ready.push_back(place),
            None => {}
        }
    }

    /// Ends calls that wait and whose time is over.
    fn end_late_calls(&mut self) {
        let now = now();
        if self.free.len() == CALLS || now < self.polled_at + POLL_INTERVAL.as_nanos() as u64 {
            return;
        }
        self.polled_at = now;
        for place in 0..CALLS {
            // One that is ready checks its time itself.
            let late = |running: &&mut Running| running.end.is_none() && running.call.deadline() < now;
            let Some(running) = self.running[place].as_mut().filter(late) else { continue };
            if !self.ready.contains(&place) {
                let end = running.call.time_out();
                self.ended(place, end);
            }
        }
    }

    /// A call has ended: its response leaves once no DMA of it is under way.
    fn ended(&mut self, place: usize, end: End) {
        let Some(running) = &mut self.running[place] else { return };
        if !running.call.is_quiet() {
            running.end = Some(end);
            return;
        }
        running.call.free_stack(&mut self.stacks);
        let Some(Running { call, slot, qp, tag, .. }) = self.running[place].take() else { return };
        self.free.push(place);
        let (code, payload) = match end {
            End::Returned(value, payload) => (u16::try_from(value).unwrap_or(status::FAILED), payload),
            End::TimedOut => (status::TIMED_OUT, Payload::default()),
        };
        let counts = &call.entry.library.counts;
        counts.dma.fetch_add(call.operations(), Relaxed);
        counts.failed.fetch_add(u64::from(code == status::FAILED || code == status::TIMED_OUT), Relaxed);
        counts.timed_out.fetch_add(u64::from(code == status::TIMED_OUT), Relaxed);
        if let Some(link) = self.links.get_mut(&qp) {
            link.calls -= 1;
        }
        let payload = if code < status::NO_OPCODE { payload } else { Payload::default() };
        let immediate = u32::from(code) << 16 | u32::from(tag);
        self.respond(qp, slot, Response { slot, immediate, payload });
        self.end_link(qp);
    }

    fn respond(&mut self, qp: QpNumber, slot: usize, response: Response) {
        if let Some(link) = self.links.get_mut(&qp).filter(|link| !link.ends) {
            link.respond(&self.of.device, Response { slot, ..response });
            self.rings = true;
        }
    }

    /// Sleeps until there is something, and the watchdog with it.
    fn sleep(&mut self) {
        self.of.wake.going_to_sleep();
        self.of.cq.ask_for_event();
        if self.of.cq.is_empty() && !self.round() {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut fds = [
                PollFd::from_borrowed_fd(self.of.wake.fd(), PollFlags::IN),
                PollFd::new(&self.of.events, PollFlags::IN),
            ];
            let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.as_nanos() as i64 };
            let busy = self.free.len() < CALLS;
            let _ = poll(&mut fds, busy.then_some(&timeout));
            let mut events = [0; 64];
            while rustix::io::read(&self.of.events, &mut events).is_ok_and(|read| read == events.len()) {}
        }
        self.of.wake.awake();
        self.of.watchdog.wake();
    }
}

/// A response that has a status only.
fn refusal(code: u16, tag: u16) -> Response {
    Response { slot: 0, immediate: u32::from(code) << 16 | u32::from(tag), payload: Payload::default() }
}
