//! Outstanding work requests of a queue, and the program's names for them: shared by posting and polling.
use crate::errno::Result;
use buffers::Lock;
use context::queues::RECEIVE_WORDS;
use shm::PipeProducer;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use verbs::{QpNumber, ReceivePiece};

/// Both queues of a queue pair.
pub(crate) struct Queues {
    /// Whose they are.
    pub(crate) qp: QpNumber,
    /// The send queue.
    pub(crate) send: SendQueue,
    /// The receive queue, or the SRQ that the queue pair uses. Halves of an XRC have none.
    pub(crate) receive: Option<Arc<ReceiveQueue>>,
}

/// Work requests of a send queue. Posting holds the lock of the send pipe, polling that of the completion queue.
pub(crate) struct SendQueue {
    /// `wr_id`s by the work request's number; as many as a power of two.
    ids: Box<[AtomicU64]>,
    /// Work requests that may be outstanding.
    most: u32,
    posted: AtomicU32,
    /// All before this one have ended.
    ended: AtomicU32,
}

impl SendQueue {
    /// For so many outstanding work requests.
    pub(crate) fn new(most: u32) -> SendQueue {
        let ids = (0..most.next_power_of_two()).map(|_| AtomicU64::new(0)).collect();
        SendQueue { ids, most, posted: AtomicU32::new(0), ended: AtomicU32::new(0) }
    }

    /// The number of the next work request; ENOMEM where the queue is full.
    #[inline]
    pub(crate) fn next(&self) -> Result<u32> {
        let number = self.posted.load(Relaxed);
        let outstanding = number.wrapping_sub(self.ended.load(Acquire));
        if outstanding >= self.most { Err(libc::ENOMEM) } else { Ok(number) }
    }

    /// ENOMEM where not so many more can be posted.
    pub(crate) fn room_for(&self, requests: usize) -> Result<()> {
        let outstanding = self.posted.load(Relaxed).wrapping_sub(self.ended.load(Acquire));
        if outstanding as usize + requests > self.most as usize { Err(libc::ENOMEM) } else { Ok(()) }
    }

    /// The work request of this number is posted.
    #[inline]
    pub(crate) fn post(&self, number: u32, id: u64) {
        self.id(number).store(id, Relaxed);
        self.posted.store(number.wrapping_add(1), Relaxed);
    }

    /// A work request has ended, and with it all before: the program's name for it. `None` where that was before a
    /// reset, or was never posted.
    #[inline]
    pub(crate) fn end(&self, number: u32) -> Option<u64> {
        let ended = self.ended.load(Relaxed);
        let outstanding = self.posted.load(Relaxed).wrapping_sub(ended);
        let is_one = number.wrapping_sub(ended) < outstanding;
        is_one.then(|| {
            let id = self.id(number).load(Relaxed);
            self.ended.store(number.wrapping_add(1), Release);
            id
        })
    }

    /// The queue pair was reset: nothing is outstanding. Numbers go on.
    pub(crate) fn reset(&self) {
        self.ended.store(self.posted.load(Relaxed), Release);
    }

    fn id(&self, number: u32) -> &AtomicU64 {
        &self.ids[number as usize & (self.ids.len() - 1)]
    }
}

/// A receive queue or SRQ.
pub(crate) struct ReceiveQueue {
    inner: Lock<Receives>,
}

struct Receives {
    pipe: PipeProducer<RECEIVE_WORDS>,
    /// `wr_id`s by the work request's number; as many as a power of two.
    slots: Box<[Slot]>,
    /// Of an SRQ: those that are outstanding while their place is taken again.
    late: HashMap<u32, u64>,
    most: u32,
    posted: u32,
    outstanding: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    number: u32,
    id: Option<u64>,
}

impl ReceiveQueue {
    /// For so many outstanding work requests.
    pub(crate) fn new(pipe: PipeProducer<RECEIVE_WORDS>, most: u32) -> ReceiveQueue {
        let slots = vec![Slot::default(); most.next_power_of_two() as usize].into();
        let inner = Receives { pipe, slots, late: HashMap::new(), most, posted: 0, outstanding: 0 };
        ReceiveQueue { inner: Lock::new(inner) }
    }

    /// Posts a work request, entry by entry; ENOMEM where the queue is full.
    #[inline]
    pub(crate) fn post(&self, id: u64, pieces: impl ExactSizeIterator<Item = ReceivePiece>) -> Result<()> {
        let mut inner = self.inner.lock();
        let room = inner.pipe.reserve(pieces.len() as u32).is_ok();
        if inner.outstanding >= inner.most || !room {
            return Err(libc::ENOMEM);
        }
        inner.remember(id);
        for piece in pieces {
            inner.pipe.push(piece.encode()).map_err(|_| libc::ENOMEM)?;
        }
        Ok(())
    }

    /// A work request has ended: the program's name for it. `None` where that was before a reset, or was never posted.
    #[inline]
    pub(crate) fn end(&self, number: u32) -> Option<u64> {
        let mut inner = self.inner.lock();
        let at = number as usize & (inner.slots.len() - 1);
        let slot = &mut inner.slots[at];
        let id = if slot.number == number { slot.id.take() } else { inner.late.remove(&number) };
        inner.outstanding -= u32::from(id.is_some());
        id
    }

    /// The queue pair was reset: nothing is outstanding. Numbers go on.
    pub(crate) fn reset(&self) {
        let mut inner = self.inner.lock();
        inner.slots.fill(Slot::default());
        inner.late.clear();
        inner.outstanding = 0;
    }
}

impl Receives {
    #[inline]
    fn remember(&mut self, id: u64) {
        let number = self.posted;
        let at = number as usize & (self.slots.len() - 1);
        let before = std::mem::replace(&mut self.slots[at], Slot { number, id: Some(id) });
        if let Some(id) = before.id {
            self.late.insert(before.number, id);
        }
        self.posted = number.wrapping_add(1);
        self.outstanding += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context::queues::{AppQueues, DaemonQueues, QueueSizes};
    use verbs::Piece;

    #[test]
    fn a_send_queue_is_full_until_something_ended() {
        let queue = SendQueue::new(3);
        for id in 0..3 {
            let number = queue.next().unwrap();
            queue.post(number, 100 + id);
        }
        assert_eq!(queue.next(), Err(libc::ENOMEM));
        assert_eq!(queue.end(3), None, "never posted");
        assert_eq!(queue.end(1), Some(101), "and the one before it");
        assert_eq!(queue.end(0), None, "it has ended");
        assert_eq!(queue.next(), Ok(3));
        queue.post(3, 103);
        queue.reset();
        assert_eq!(queue.end(3), None, "forgotten");
        assert_eq!(queue.next(), Ok(4));
    }

    fn receive_queue(most: u32) -> (ReceiveQueue, DaemonQueues) {
        let sizes = QueueSizes { receive: 8, ..QueueSizes::default() };
        let (region, daemon) = DaemonQueues::create("test", sizes).unwrap();
        let pipe = AppQueues::new(&region).unwrap().receive.unwrap();
        (ReceiveQueue::new(pipe, most), daemon)
    }

    fn pieces(count: usize) -> impl ExactSizeIterator<Item = ReceivePiece> {
        (0..count).map(move |at| ReceivePiece { piece: Piece::default(), more: at + 1 < count })
    }

    #[test]
    fn receives_end_in_any_order() {
        let (queue, mut daemon) = receive_queue(4);
        for id in 0..4 {
            queue.post(id, pieces(1)).unwrap();
        }
        assert_eq!(queue.post(4, pieces(1)), Err(libc::ENOMEM));
        // The first one is late, and its place is taken again and again.
        for number in 1..9 {
            while daemon.receive.as_mut().unwrap().pop().is_some() {}
            assert_eq!(queue.end(number), Some(number.into()));
            queue.post(u64::from(number) + 3, pieces(1)).unwrap();
        }
        assert_eq!(queue.end(0), Some(0));
        assert_eq!(queue.end(0), None);
        queue.reset();
        assert_eq!(queue.end(10), None);
    }

    #[test]
    fn a_work_request_is_posted_whole_or_not_at_all() {
        let (queue, mut daemon) = receive_queue(8);
        queue.post(0, pieces(6)).unwrap();
        assert_eq!(queue.post(1, pieces(3)), Err(libc::ENOMEM));
        queue.post(1, pieces(2)).unwrap();
        let mut taken = [[0; 2]; 8];
        assert_eq!(daemon.receive.as_mut().unwrap().take(&mut taken), 8);
        let more = taken.map(|words| ReceivePiece::decode(&words).more);
        assert_eq!(more, [true, true, true, true, true, false, true, false]);
    }
}
