//! Admission of requests to a volume from all connections of its socket: bounded, and exclusive where needed.
use super::budget::Budget;
use solar::transport::{Queue, Submission};
use solar::{BLOCK_LEN, Direction, Status};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of requests that have not ended: of all connections.
const MOST_BYTES: usize = 64 << 20;

/// The way to a volume.
pub(super) struct Gate {
    queue: Arc<Queue>,
    /// What has not ended.
    outstanding: Arc<Budget>,
    /// Held while something is submitted.
    submitting: Mutex<()>,
}

impl Gate {
    pub(super) fn new(queue: Arc<Queue>) -> Gate {
        Gate { queue, outstanding: Arc::default(), submitting: Mutex::default() }
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.submitting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for whole blocks, for all requests in one go as far as there is room for them.
    pub(super) fn submit_all(&self, submissions: Vec<Submission>) {
        let _one = self.alone();
        let mut ready = Vec::with_capacity(submissions.len());
        for submission in submissions {
            if self.outstanding.bytes() >= MOST_BYTES {
                self.queue.submit_all(std::mem::take(&mut ready));
                self.outstanding.wait_until(|bytes| bytes < MOST_BYTES);
            }
            ready.push(self.counted(submission));
        }
        self.queue.submit_all(ready);
    }

    /// The same request, which counts as outstanding until it has ended.
    fn counted(&self, submission: Submission) -> Submission {
        let Submission { direction, lba, buffer, done } = submission;
        let share = self.outstanding.take(buffer.len());
        let done = Box::new(move |status, buffer| {
            drop(share);
            done(status, buffer);
        });
        Submission { direction, lba, buffer, done }
    }

    /// Asks and waits for the end.
    fn ask_and_wait(&self, direction: Direction, lba: u64, buffer: Vec<u8>) -> (Status, Vec<u8>) {
        let (sender, ended) = sync_channel(1);
        let done = Box::new(move |status, buffer| {
            // The receiver waits below.
            let _ = sender.send((status, buffer));
        });
        self.queue.submit_all(vec![self.counted(Submission { direction, lba, buffer, done })]);
        ended.recv().unwrap_or((Status::Failed, Vec::new()))
    }

    /// Writes bytes that begin or end within a block: the blocks are read and written again, while nothing else is
    /// under way.
    pub(super) fn write_within(&self, offset: u64, data: &[u8]) -> Status {
        let _one = self.alone();
        self.outstanding.wait_until(|bytes| bytes == 0);
        let (lba, skip, room) = cover(offset, data.len());
        let (status, mut buffer) = self.ask_and_wait(Direction::Read, lba, vec![0; room]);
        if status != Status::Ok {
            return status;
        }
        buffer[skip..skip + data.len()].copy_from_slice(data);
        self.ask_and_wait(Direction::Write, lba, buffer).0
    }
}

/// The blocks that cover some bytes: the first one, where the bytes begin in it, and how long all blocks are.
pub(super) fn cover(offset: u64, len: usize) -> (u64, usize, usize) {
    let block = BLOCK_LEN as u64;
    let skip = (offset % block) as usize;
    (offset / block, skip, (skip + len).div_ceil(BLOCK_LEN) * BLOCK_LEN)
}
