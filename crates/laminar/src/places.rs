//! The places of shared logs: whose each is, which records are complete, and what of a flow's stream lies where.
use context::{Completion, LOG_SLOT, LogEnd, LogRecord, Slot};
use std::collections::VecDeque;

/// Whose a place in the log is, and whether what is there can be read, in one word: a log has millions of places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub flow: u16,
    /// [`Member::life`]: the flow's number may be another connection's by now.
    pub life: u32,
    /// The record is whole, or a hole.
    pub ready: bool,
}

const _: () = assert!(crate::program::MOST_FLOWS <= 1 << 16);

impl Owner {
    fn to_word(self) -> u64 {
        self.flow as u64 | (self.life as u64) << 16 | (self.ready as u64) << 48
    }

    fn from_word(word: u64) -> Owner {
        Owner { flow: word as u16, life: (word >> 16) as u32, ready: word >> 48 != 0 }
    }
}

/// A log. Records are counted from its beginning: `head` <= `ready` <= `tail`.
pub(crate) struct Log {
    pub end: LogEnd,
    pub context: u32,
    /// Given back by the application.
    pub head: u64,
    /// Can be read.
    pub ready: u64,
    /// Have a place.
    pub tail: u64,
    /// [`Owner`]s of all places. Memory that was not written costs none.
    pub owners: Vec<u64>,
    /// Records that the windows of its members promise.
    pub promised: u64,
    /// Records with a place, not given back, whose connection has left.
    pub left_behind: u64,
    pub lives: u32,
}

/// A stretch of a flow's stream that lies in the log in one piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    /// Bytes since the flow's first record.
    pub from: u32,
    /// The record that begins there.
    pub index: u64,
}

/// A flow whose records go to a log.
pub(crate) struct Member {
    /// Number of the log.
    pub log: u16,
    /// Stream position of the first record.
    pub start: u32,
    pub life: u32,
    /// It stands in [`Logs::moved`].
    pub moved: bool,
    pub mark: u64,
    /// Bytes of the stream since `start` that have a place, and that are complete.
    pub reserved: u32,
    pub done: u32,
    /// Complete records, and all ever given back.
    pub records: u64,
    pub trimmed: u64,
    /// Stretches that are not complete, in order.
    pub stretches: VecDeque<Stretch>,
}

impl Member {
    /// What is not complete, in order: where each stretch lies, and where in the stream it ends.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = (Stretch, u32)> {
        let ends = self.stretches.iter().skip(1).map(|next| next.from).chain([self.reserved]);
        self.stretches.iter().copied().zip(ends)
    }
}

/// All logs of a host.
#[derive(Default)]
pub(crate) struct Logs {
    pub list: Vec<Option<Log>>,
    /// Flows whose streams have come further in this round.
    pub moved: Vec<u32>,
    /// Records that were complete, holes, and segments that filled places given before.
    pub counts: [u64; 3],
}

impl Logs {
    pub(crate) fn get(&mut self, number: u16) -> Option<&mut Log> {
        self.list.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn of(&self, context: u32) -> Option<u16> {
        let found = |log: &Option<Log>| log.as_ref().is_some_and(|log| log.context == context);
        self.list.iter().position(found).map(|at| at as u16)
    }

    /// Bytes of a log's record.
    pub(crate) fn record_of(&self, number: u16) -> Option<u32> {
        Some(self.list.get(number as usize)?.as_ref()?.record())
    }

    /// The tail of each as the pipeline has it.
    pub(crate) fn tails(&self) -> impl Iterator<Item = (u16, u32)> {
        self.numbers().filter_map(|number| Some((number, self.list[number as usize].as_ref()?.tail_bytes())))
    }

    /// Numbers of those that there are.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u16> {
        (0..self.list.len() as u16).filter(|number| self.list[*number as usize].is_some())
    }
}

impl Log {
    pub(crate) fn new(context: u32, end: LogEnd) -> Log {
        let owners = vec![0; end.shape.records as usize];
        Log { end, context, head: 0, ready: 0, tail: 0, owners, promised: 0, left_behind: 0, lives: 0 }
    }

    pub(crate) fn record(&self) -> u32 {
        self.end.shape.record
    }

    /// The tail as the pipeline has it: bytes, modulo 2^32.
    pub(crate) fn tail_bytes(&self) -> u32 {
        (self.tail as u32).wrapping_mul(self.record())
    }

    pub(crate) fn owner(&self, index: u64) -> Owner {
        Owner::from_word(self.owners[(index & (self.owners.len() as u64 - 1)) as usize])
    }

    pub(crate) fn set_owner(&mut self, index: u64, owner: Owner) {
        let at = index & (self.owners.len() as u64 - 1);
        self.owners[at as usize] = owner.to_word();
    }

    /// The flow's next `bytes`, whole records, have their place at the tail.
    pub(crate) fn reserve(&mut self, flow: u32, member: &mut Member, bytes: u32) {
        let stretch = Stretch { from: member.reserved, index: self.tail };
        // One that goes on where the last one ends is part of it.
        let joins = member.stretches.back().is_some_and(|last| {
            let length = stretch.from.wrapping_sub(last.from) / self.record();
            last.index + length as u64 == stretch.index
        });
        if !joins {
            member.stretches.push_back(stretch);
        }
        for index in self.tail..self.tail + (bytes / self.record()) as u64 {
            self.set_owner(index, Owner { flow: flow as u16, life: member.life, ready: false });
        }
        self.tail += (bytes / self.record()) as u64;
        member.reserved = member.reserved.wrapping_add(bytes);
    }

    /// Puts bytes of the flow's stream from `offset` on to their places. `write` gets each piece's first and last byte,
    /// counted from `offset`, and its place in the log.
    pub(crate) fn pieces(
        &self,
        member: &Member,
        offset: u32,
        (skip, end): (u32, u32),
        mut write: impl FnMut(u32, u32, u32),
    ) {
        for (stretch, until) in member.incomplete() {
            // Relative to what is complete, nothing wraps.
            let relative = |at: u32| at.wrapping_sub(member.done) as i32 as i64;
            let (low, high) = (relative(stretch.from), relative(until));
            let (first, last) = (relative(offset) + skip as i64, relative(offset) + end as i64);
            let (first, last) = (first.max(low).max(0), last.min(high));
            if first < last {
                let place = (stretch.index as u32).wrapping_mul(self.record()).wrapping_add((first - low) as u32);
                let from = |at: i64| (at - relative(offset)) as u32;
                write(from(first), from(last), place);
            }
        }
    }

    /// All records of the flow that end at or before `offset` are complete, or (`hole`) never will be. Returns how
    /// many.
    pub(crate) fn finish(&mut self, member: &mut Member, offset: u32, hole: bool) -> u64 {
        let record = self.record();
        let end = member.reserved.wrapping_sub(member.done).min(offset.wrapping_sub(member.done)) / record;
        for _ in 0..end {
            while member.stretches.len() > 1 && member.stretches[1].from == member.done {
                member.stretches.pop_front();
            }
            let Some(stretch) = member.stretches.front() else { break };
            let index = stretch.index + (member.done.wrapping_sub(stretch.from) / record) as u64;
            self.end.describe(index, &LogRecord { mark: member.mark, number: member.records, hole });
            self.set_owner(index, Owner { ready: true, ..self.owner(index) });
            member.done = member.done.wrapping_add(record);
            member.records += 1;
        }
        if member.done == member.reserved {
            member.stretches.clear();
        } else if let Some(first) = member.stretches.front_mut() {
            // So that distances stay short in a stream without end.
            let passed = member.done.wrapping_sub(first.from);
            if passed as i32 > 0 {
                *first = Stretch { from: member.done, index: first.index + (passed / record) as u64 };
            }
        }
        end as u64
    }

    /// How far the log can be read now; nothing where that is as before.
    pub(crate) fn readable(&mut self) -> Option<Completion> {
        let before = self.ready;
        while self.ready < self.tail && self.owner(self.ready).ready {
            self.ready += 1;
        }
        (self.ready != before).then(|| self.completion())
    }

    /// The completion with how far it can be read.
    pub(crate) fn completion(&self) -> Completion {
        let slot = Slot { index: LOG_SLOT, generation: 0 };
        Completion { ring: 0, urgent: false, slot, rx_tail: self.ready as u32, tx_tail: self.tail as u32, fin: false }
    }
}
