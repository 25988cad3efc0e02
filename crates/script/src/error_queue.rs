//! The error queue of a connection: notifications that sends with `MSG_ZEROCOPY` are done (Linux's
//! `Documentation/networking/msg_zerocopy.rst`). Payload is copied here, and each notification reports it.
use std::collections::VecDeque;

/// Origin of an error: `SO_EE_ORIGIN_ZEROCOPY` of `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
/// The payload was copied after all: `SO_EE_CODE_ZEROCOPY_COPIED`.
const COPIED: u8 = 1;

/// Numbers of sends, the first and the last of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    first: u32,
    last: u32,
}

/// Sends that wait for their acknowledgement, and notifications of those that do not any more.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue {
    /// The next send's number.
    next: u32,
    /// The number of each send, and the position in the stream where it ends.
    waiting: VecDeque<(u32, u32)>,
    done: VecDeque<Range>,
}

impl ErrorQueue {
    /// A send ends at this position.
    pub(crate) fn sent(&mut self, end: u32) {
        self.waiting.push_back((self.next, end));
        self.next += 1;
    }

    /// All before this position is acknowledged. True where there is a notification more.
    pub(crate) fn acknowledged(&mut self, tail: u32) -> bool {
        let is_done = |end: u32| tail.wrapping_sub(end) < 1 << 31;
        let done = self.waiting.iter().take_while(|(_, end)| is_done(*end)).count();
        self.finish(done)
    }

    /// The connection is over: no acknowledgement comes any more.
    pub(crate) fn end(&mut self) {
        self.finish(self.waiting.len());
    }

    /// The first sends are done. A notification that follows the last one in the queue extends that.
    fn finish(&mut self, count: usize) -> bool {
        for (number, _) in self.waiting.drain(..count) {
            match self.done.back_mut() {
                Some(range) if range.last + 1 == number => range.last = number,
                _ => self.done.push_back(Range { first: number, last: number }),
            }
        }
        count > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    /// The next notification, as `struct sock_extended_err`.
    pub(crate) fn take(&mut self) -> Option<[u8; 16]> {
        let Range { first, last } = self.done.pop_front()?;
        let mut bytes = [0; 16];
        (bytes[4], bytes[6]) = (ORIGIN_ZEROCOPY, COPIED);
        bytes[8..12].copy_from_slice(&first.to_ne_bytes());
        bytes[12..16].copy_from_slice(&last.to_ne_bytes());
        Some(bytes)
    }
}
