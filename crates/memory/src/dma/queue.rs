//! The data-path's end of a DMA queue.
use super::staging::{Run, Staging};
use super::{
    COMPLETION_WORDS, COMPLETIONS_AT, Direction, ENTRIES, MAGIC, ORDER_WORDS, ORDERS_AT, QUEUE_BELL, REGION,
    SERVER_BELL, STAGING,
};
use crate::fault::Fault;
use shm::{ByteRing, Doorbell, PipeConsumer, PipeProducer, Region, Span};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that one order copies at most.
const MOST: usize = 1 << 20;

/// A copy between the data-path and a device. It goes on where nobody asks for it any more.
pub struct Transfer {
    state: AtomicU8,
    direction: Direction,
    len: usize,
    run: Run,
}

const UNDER_WAY: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
const LOST: u8 = 3;

impl Transfer {
    /// `None` as long as it is under way.
    ///
    /// # Errors
    /// The device could not do it, or is gone.
    pub fn result(&self) -> Option<Result<(), Fault>> {
        match self.state.load(Acquire) {
            UNDER_WAY => None,
            DONE => Some(Ok(())),
            LOST => Some(Err(Fault::Lost)),
            _ => Some(Err(Fault::Unmapped)),
        }
    }

    /// The bytes that came out of the device, by reference; none before it is done.
    pub fn span(self: &Arc<Transfer>) -> Option<Span> {
        if self.direction == Direction::IntoDevice || self.result() != Some(Ok(())) {
            return None;
        }
        let held = Arc::clone(self) as Arc<dyn Send + Sync>;
        // SAFETY: the staging area, in a sealed region that the transfer's run keeps mapped. It is mapped for writing.
        let area = unsafe { ByteRing::borrowed(self.run.staging().base()?, STAGING as u32, held) };
        Some(Span::new(&Arc::new(area), self.run.at() as u32, self.len as u32))
    }

    fn end(&self, state: u8) {
        self.state.store(state, Release);
    }
}

/// What an order waits for.
struct Pending {
    number: u64,
    transfer: Arc<Transfer>,
    /// Held as long as bytes of a region are on their way.
    _whose: Arc<()>,
}

struct State {
    orders: PipeProducer<ORDER_WORDS>,
    completions: PipeConsumer<COMPLETION_WORDS>,
    /// An order's number modulo [`ENTRIES`] is its place here.
    pending: Box<[Option<Pending>]>,
    free: Vec<u32>,
    /// Orders by age, with the time of each; those that are done leave it late.
    ages: VecDeque<(u64, u64)>,
    lap: u64,
    /// Nanoseconds, of the last poll.
    now: u64,
    news: bool,
}

/// A device's queue, as the data-path has it.
pub struct DmaQueue {
    staging: Arc<Staging>,
    state: Mutex<State>,
    lost: AtomicBool,
    /// Nobody serves it any more.
    abandoned: AtomicBool,
    server: Doorbell,
    own: Doorbell,
    /// Nanoseconds that an order may take.
    timeout: u64,
}

/// What the server of a queue needs.
pub struct DmaServerEnds {
    /// The queue's region.
    pub region: Arc<Region>,
    /// The eventfd that it rings.
    pub bell: OwnedFd,
    /// Its end of the doorbell that the data-path rings.
    pub own: OwnedFd,
}

impl DmaQueue {
    /// A queue of which each order may take so many nanoseconds. `bell` is an eventfd that wakes the data-path.
    ///
    /// # Errors
    /// The system has no memory or no descriptor.
    pub fn create(bell: OwnedFd, timeout: u64) -> io::Result<(DmaQueue, DmaServerEnds)> {
        let region = Arc::new(Region::create("opentoe-dma", REGION)?);
        region.u64_at(0).store(MAGIC, Release);
        let (its, ours) = Doorbell::pair()?;
        let staging = Arc::new(Staging::new(&region)?);
        let ends = DmaServerEnds { region: Arc::clone(&region), bell: bell.try_clone()?, own: its };
        let state = State {
            orders: PipeProducer::new(&region, ORDERS_AT, ENTRIES, 0, ENTRIES / 4),
            completions: PipeConsumer::new(&region, COMPLETIONS_AT, ENTRIES, 0),
            pending: (0..ENTRIES).map(|_| None).collect(),
            free: (0..ENTRIES).rev().collect(),
            ages: VecDeque::new(),
            lap: 0,
            now: 0,
            news: false,
        };
        let (server, own) = (Doorbell::new(&region, SERVER_BELL, ours), Doorbell::new(&region, QUEUE_BELL, bell));
        let queue = DmaQueue {
            staging,
            state: Mutex::new(state),
            lost: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            server,
            own,
            timeout,
        };
        Ok((queue, ends))
    }

    /// Orders a copy of bytes to a device's address.
    pub(crate) fn write(&self, address: u64, from: &[u8], whose: &Arc<()>) -> Result<Arc<Transfer>, Fault> {
        self.order(Direction::IntoDevice, address, from.len(), whose, |area, at| area.write(at, from))
    }

    /// The same of a part of what a span refers to.
    pub(crate) fn write_span(
        &self,
        address: u64,
        span: &Span,
        part: Range<usize>,
        whose: &Arc<()>,
    ) -> Result<Arc<Transfer>, Fault> {
        let (skip, len) = (part.start as u32, part.len() as u32);
        self.order(Direction::IntoDevice, address, part.len(), whose, |area, at| {
            area.write_part(at, span, (skip, len));
        })
    }

    /// Orders a copy of bytes at a device's address.
    pub(crate) fn read(&self, address: u64, len: usize, whose: &Arc<()>) -> Result<Arc<Transfer>, Fault> {
        self.order(Direction::OutOfDevice, address, len, whose, |_, _| {})
    }

    fn order(
        &self,
        direction: Direction,
        address: u64,
        len: usize,
        whose: &Arc<()>,
        fill: impl FnOnce(&ByteRing, u32),
    ) -> Result<Arc<Transfer>, Fault> {
        if len > MOST {
            return Err(Fault::Bounds);
        }
        let mut state = self.state();
        // Under the lock, as it is set: no order is left behind.
        if self.is_lost() {
            return Err(Fault::Lost);
        }
        let slot = *state.free.last().ok_or(Fault::Busy)?;
        let run = self.staging.take(len).ok_or(Fault::Busy)?;
        fill(self.staging.byte_ring(), run.at() as u32);
        let number = state.lap * u64::from(ENTRIES) + u64::from(slot);
        let words = [number, direction as u64, address, len as u64, run.at() as u64, 0, 0, 0];
        state.orders.push(words).map_err(|_| Fault::Busy)?;
        state.free.pop();
        state.lap += 1;
        state.news = true;
        let transfer = Arc::new(Transfer { state: AtomicU8::new(UNDER_WAY), direction, len, run });
        let pending = Pending { number, transfer: Arc::clone(&transfer), _whose: Arc::clone(whose) };
        state.pending[slot as usize] = Some(pending);
        let now = state.now;
        state.ages.push_back((number, now));
        Ok(transfer)
    }

    /// Takes in what the server has done, and rings for what it is to do. Returns how many copies have ended. A server
    /// that does not do its oldest order in time is lost.
    pub fn poll(&self, now: u64) -> usize {
        let mut state = self.state();
        state.now = now;
        let mut ended = 0;
        // At most what was ordered: a server may make completions as fast as they are taken.
        for _ in 0..ENTRIES {
            let Some([number, error]) = state.completions.pop() else { break };
            ended += usize::from(state.complete(number, if error == 0 { DONE } else { FAILED }));
        }
        let late = state.oldest().is_some_and(|since| now >= since.saturating_add(self.timeout));
        if std::mem::take(&mut state.news) {
            self.server.ring();
        }
        drop(state);
        if late || self.is_to_be_lost() {
            ended += self.lose();
        }
        ended
    }

    /// No process serves the queue any more: the data-path loses it with its next poll, and is woken for that.
    pub fn abandon(&self) {
        self.abandoned.store(true, Release);
        self.own.ring_always();
    }

    fn is_to_be_lost(&self) -> bool {
        self.abandoned.load(Acquire) && !self.is_lost()
    }

    /// Rings for what was ordered since.
    pub fn flush(&self) {
        if std::mem::take(&mut self.state().news) {
            self.server.ring();
        }
    }

    /// The server is gone, or is not believed any more: what is under way has failed, and nothing is ordered from now
    /// on. Returns how many copies have ended so.
    pub fn lose(&self) -> usize {
        let mut state = self.state();
        self.lost.store(true, Release);
        let numbers: Vec<u64> = state.pending.iter().flatten().map(|pending| pending.number).collect();
        numbers.iter().filter(|number| state.complete(**number, LOST)).count()
    }

    /// See [`DmaQueue::lose`].
    pub fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// The server has done something that [`DmaQueue::poll`] has not seen.
    pub fn has_news(&self) -> bool {
        let state = self.state();
        state.news || !state.completions.is_empty() || self.is_to_be_lost()
    }

    /// Nanoseconds: when the server is lost, if it does nothing.
    pub fn next_deadline(&self) -> Option<u64> {
        self.state().oldest().map(|since| since.saturating_add(self.timeout))
    }

    /// The data-path is about to sleep: the server must ring from now on. Ask [`DmaQueue::has_news`] once more.
    pub fn prepare_to_sleep(&self) {
        self.own.prepare_to_sleep();
    }

    /// The data-path polls again.
    pub fn awake(&self) {
        self.own.reset();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// An order has ended; false where there is no such order.
    fn complete(&mut self, number: u64, ended: u8) -> bool {
        let slot = (number % u64::from(ENTRIES)) as u32;
        let place = &mut self.pending[slot as usize];
        let Some(pending) = place.take_if(|pending| pending.number == number) else { return false };
        pending.transfer.end(ended);
        self.free.push(slot);
        true
    }

    /// When the oldest order that is under way was given.
    fn oldest(&mut self) -> Option<u64> {
        while let Some((number, since)) = self.ages.front().copied() {
            let slot = (number % u64::from(ENTRIES)) as usize;
            if self.pending[slot].as_ref().is_some_and(|pending| pending.number == number) {
                return Some(since);
            }
            self.ages.pop_front();
        }
        None
    }
}

impl DmaServerEnds {
    /// Sends them to the server, through a UNIX seqpacket socket that it opens ([`super::DmaServer::open`]).
    ///
    /// # Errors
    /// Of the socket.
    pub fn send(&self, socket: &OwnedFd) -> io::Result<()> {
        let files = [self.region.fd(), self.bell.as_fd(), self.own.as_fd()];
        shm::handover::send_at_once(socket.as_fd(), &MAGIC.to_le_bytes(), &files)
    }
}
