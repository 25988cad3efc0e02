//! An open connection: positions in its buffers, and what has happened to it.
use crate::error_queue::ErrorQueue;
use context::{Completion, Slot};
use libc::c_int;
use shm::ByteRing;
use std::sync::Arc;

/// Wake-ups of those who wait for a connection, counted: edges of epoll are their differences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// Bytes came, or the end.
    pub reads: u64,
    /// There is room again.
    pub writes: u64,
    /// Something failed, or a notification is in the error queue.
    pub errors: u64,
}

impl Wakes {
    /// Those of what has ended.
    pub(crate) const ENDED: Wakes = Wakes { reads: u64::MAX, writes: u64::MAX, errors: u64::MAX };
}

/// A connection, by its slot.
pub(crate) struct Connection {
    pub slot: Slot,
    pub rx: Arc<ByteRing>,
    pub tx: Arc<ByteRing>,
    pub tx_head: u32,
    pub tx_tail: u32,
    pub rx_head: u32,
    pub rx_tail: u32,
    pub peer_fin: bool,
    pub fin: bool,
    pub read_shut: bool,
    pub error: Option<c_int>,
    /// It was reset, or timed out: nothing more goes or comes.
    pub broken: bool,
    /// What may wait to be acknowledged (`SO_SNDBUF`).
    pub limit: u32,
    /// A call found no room: the next one that there is wakes up who waits.
    pub waits_for_room: bool,
    /// Notifications of sends with `MSG_ZEROCOPY`.
    pub notifications: ErrorQueue,
    pub wakes: Wakes,
}

impl Connection {
    pub(crate) fn new(slot: Slot, rx: ByteRing, tx: ByteRing) -> Connection {
        Connection {
            slot,
            rx: Arc::new(rx),
            tx: Arc::new(tx),
            tx_head: 0,
            tx_tail: 0,
            rx_head: 0,
            rx_tail: 0,
            peer_fin: false,
            fin: false,
            read_shut: false,
            error: None,
            broken: false,
            limit: u32::MAX,
            waits_for_room: false,
            notifications: ErrorQueue::default(),
            // It is open: who waits to write wakes up.
            wakes: Wakes { writes: 1, ..Wakes::default() },
        }
    }

    /// Takes the engine's positions.
    pub(crate) fn apply(&mut self, completion: Completion) {
        let more = self.rx_tail != completion.rx_tail || (completion.fin && !self.peer_fin);
        self.rx_tail = completion.rx_tail;
        self.tx_tail = completion.tx_tail;
        self.peer_fin |= completion.fin;
        self.wakes.reads += u64::from(more);
        self.wakes.errors += u64::from(self.notifications.acknowledged(self.tx_tail));
        if self.waits_for_room && self.is_roomy() {
            self.waits_for_room = false;
            self.wakes.writes += 1;
        }
    }

    /// It fails with this error.
    pub(crate) fn fail(&mut self, error: c_int) {
        (self.error, self.broken) = (Some(error), true);
        self.notifications.end();
        let Wakes { reads, writes, errors } = &mut self.wakes;
        (*reads, *writes, *errors) = (*reads + 1, *writes + 1, *errors + 1);
    }

    /// Bytes that were received and not read.
    pub(crate) fn unread(&self) -> u32 {
        self.rx_tail.wrapping_sub(self.rx_head)
    }

    /// Bytes that were written and not acknowledged.
    pub(crate) fn in_flight(&self) -> u32 {
        self.tx_head.wrapping_sub(self.tx_tail)
    }

    /// Bytes that a call may write.
    pub(crate) fn room(&self) -> u32 {
        self.tx.most().min(self.limit).saturating_sub(self.in_flight())
    }

    /// As Linux's `sk_stream_is_writeable`: a third of the buffer is free.
    pub(crate) fn is_roomy(&self) -> bool {
        self.room() >= (self.in_flight() / 2).max(1)
    }
}
