//! Outstanding operations of a client: requests of many blocks, and the operation of each block.
use crate::packet::Status;
use slab::Slab;
use std::collections::VecDeque;

/// Which way blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the volume.
    Read,
    /// To the volume.
    Write,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// The first block of the volume.
    pub lba: u64,
    /// How many blocks, one at least.
    pub blocks: u32,
    /// The caller's name for it: no two outstanding requests have the same.
    pub token: u64,
}

/// A request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Of the request.
    pub token: u64,
    /// [`Status::Ok`] where all blocks were read, or are durable; otherwise the first failure.
    pub status: Status,
}

/// The operation of one block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) direction: Direction,
    pub(crate) lba: u64,
    pub(crate) token: u64,
    /// The block of the request.
    pub(crate) index: u32,
    /// The place of the request among those that have not ended.
    request: usize,
    /// The checksum of a block to be written, once it was sent.
    pub(crate) crc: Option<u32>,
    ended: bool,
}

#[derive(Debug)]
struct Outstanding {
    token: u64,
    left: u32,
    status: Status,
}

/// All operations that have not ended, in order of their numbers; some that have ended are between them.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    list: VecDeque<Operation>,
    /// The number of the first of the list.
    oldest: u64,
    /// The first that was not handed to the sender.
    next: u64,
    requests: Slab<Outstanding>,
    completions: Vec<Completion>,
}

/// Blocks that one packet reads, or the one that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) direction: Direction,
    pub(crate) op: u64,
    pub(crate) count: u16,
}

/// Most blocks that one packet asks for.
const MOST_BLOCKS: u16 = 64;

impl Operations {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn submit(&mut self, request: Request) {
        let outstanding = Outstanding { token: request.token, left: request.blocks, status: Status::Ok };
        let place = self.requests.insert(outstanding);
        self.list.extend((0..request.blocks).map(|index| Operation {
            direction: request.direction,
            lba: request.lba.saturating_add(index.into()),
            token: request.token,
            index,
            request: place,
            crc: None,
            ended: false,
        }));
    }

    /// The operation of a number, where it has not ended.
    pub(crate) fn get(&mut self, op: u64) -> Option<&mut Operation> {
        let index = usize::try_from(op.checked_sub(self.oldest)?).ok()?;
        self.list.get_mut(index).filter(|operation| !operation.ended)
    }

    /// What is left of a run from its first operation on that has not ended; `None` where all have.
    pub(crate) fn wanted_of(&self, run: Run) -> Option<Run> {
        let end = run.op + u64::from(run.count);
        let at = |op: u64| (op - self.oldest) as usize;
        let op = (run.op.max(self.oldest)..end).find(|&op| self.list.get(at(op)).is_some_and(|found| !found.ended))?;
        Some(Run { op, count: (end - op) as u16, ..run })
    }

    /// An operation has ended.
    pub(crate) fn end(&mut self, op: u64, status: Status) {
        let Some(operation) = self.get(op) else { return };
        operation.ended = true;
        let place = operation.request;
        while self.list.front().is_some_and(|operation| operation.ended) {
            self.list.pop_front();
            self.oldest += 1;
        }
        self.next = self.next.max(self.oldest);
        let Some(request) = self.requests.get_mut(place) else { return };
        request.left -= 1;
        if request.status == Status::Ok {
            request.status = status;
        }
        if request.left == 0 {
            let Outstanding { token, status, .. } = self.requests.remove(place);
            self.completions.push(Completion { token, status });
        }
    }

    /// All have ended, with a failure.
    pub(crate) fn end_all(&mut self, status: Status) {
        for op in self.oldest..self.oldest + self.list.len() as u64 {
            self.end(op, status);
        }
    }

    /// A new session: all that have not ended are to be sent.
    pub(crate) fn begin_again(&mut self) {
        self.next = self.oldest;
    }

    /// What the sender is to have next, where `most` operations may be outstanding: of reads, as many as follow one
    /// another on the volume.
    pub(crate) fn next_run(&mut self, most: u64) -> Option<Run> {
        let end = (self.oldest + most).min(self.oldest + self.list.len() as u64);
        let at = |op: u64| (op - self.oldest) as usize;
        while self.next < end && self.list[at(self.next)].ended {
            self.next += 1;
        }
        let op = self.next;
        let first = *self.list.get(at(op)).filter(|_| op < end)?;
        let mut count = 1;
        while first.direction == Direction::Read && count < MOST_BLOCKS && op + u64::from(count) < end {
            let other = &self.list[at(op + u64::from(count))];
            if other.ended || other.direction != Direction::Read || other.lba != first.lba + u64::from(count) {
                break;
            }
            count += 1;
        }
        self.next = op + u64::from(count);
        Some(Run { direction: first.direction, op, count })
    }

    /// Requests that have ended since the last call.
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }
}
