//! Urgent data, as Linux has it: one byte is urgent, and its place in the stream is the mark. The engine reports where
//! the mark is before it reports that the byte has come.
//!
//! A connection whose mark is not passed has a flag in its slot, which every fast path reads anyway: all others pay
//! nothing for it.
use super::Stream;
use crate::state::option_values::Values;
use crate::state::slot_state::URGENT;
use crate::system::errno::Result;
use libc::iovec;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// What became of the urgent byte; 0 where there never was one.
const UNREAD: u32 = 1;
/// The program has it, by `MSG_OOB`.
const TAKEN: u32 = 2;
/// The stream was read beyond it.
const PASSED: u32 = 3;

impl Stream {
    /// The engine reports that byte `at` of the stream is urgent. Whether that is new, for `SIGURG`.
    pub(crate) fn note_urgent(&self, at: u32, inline: bool) -> bool {
        let (state, _exclusive) = (self.state(), self.exclusively());
        let mark = state.mark.load(Relaxed);
        let is_new = match state.urgency.load(Acquire) {
            0 => true,
            PASSED => at != mark,
            _ => at.wrapping_sub(mark) as i32 > 0,
        };
        let ahead = at.wrapping_sub(state.rx_head.load(Relaxed)) as i32;
        if !is_new || ahead < 0 {
            return false;
        }
        if self.is_at_mark() && !inline && self.readable() > 0 {
            // The earlier urgent byte, which is out of the stream, is not to become a part of it.
            self.consume(1);
        }
        state.mark.store(at, Relaxed);
        state.urgency.store(UNREAD, Release);
        self.raise(URGENT);
        true
    }

    /// Bytes before the mark, where it is not passed.
    pub(crate) fn to_mark(&self) -> Option<u32> {
        let state = self.state();
        let is_marked = self.flags() & URGENT != 0;
        is_marked.then(|| state.mark.load(Relaxed).wrapping_sub(state.rx_head.load(Relaxed)))
    }

    /// The next byte is the urgent one (`sockatmark`).
    pub(crate) fn is_at_mark(&self) -> bool {
        self.to_mark() == Some(0)
    }

    /// The urgent byte is here, and the program has not taken it (`POLLPRI`).
    pub(crate) fn has_urgent_byte(&self) -> bool {
        let is_unread = self.state().urgency.load(Acquire) == UNREAD;
        is_unread && self.to_mark().is_some_and(|before| before < self.readable())
    }

    /// How a call reads: the bytes that it leaves out first, and the most that it takes. It stops at the mark. One that
    /// begins there leaves the urgent byte out, or takes it with the others where it is `inline` (`SO_OOBINLINE`).
    pub(crate) fn readable_part(&self, inline: bool) -> (u32, usize) {
        match self.to_mark() {
            None => (0, usize::MAX),
            Some(0) => (u32::from(!inline), usize::MAX),
            Some(before) => (0, before as usize),
        }
    }

    /// Result of `FIONREAD`: bytes up to the mark.
    pub(crate) fn countable(&self, inline: bool) -> u32 {
        let all = self.readable();
        self.to_mark().filter(|_| !inline).map_or(all, |before| before.min(all))
    }

    /// As many bytes can be read as make the connection readable. An urgent byte that is next is none of them.
    pub(crate) fn has_enough(&self, options: &Values) -> bool {
        let hole = self.is_at_mark() && !options.inline_urgent;
        self.reaches(options.low_mark.saturating_add(hole.into()))
    }

    /// Bytes were read: perhaps beyond the mark.
    #[cold]
    pub(super) fn pass_mark(&self) {
        let state = self.state();
        let head = state.rx_head.load(Relaxed);
        if head.wrapping_sub(state.mark.load(Relaxed)) as i32 > 0 {
            state.urgency.store(PASSED, Release);
            state.flags.fetch_and(!URGENT, AcqRel);
        }
    }

    /// `recv` with `MSG_OOB`: the urgent byte. `EINVAL` where there is none, or it was read; `EAGAIN` where it is
    /// announced and has not come. It stays where it is, so that the mark does.
    ///
    /// # Safety
    /// The buffers are valid.
    pub(crate) unsafe fn take_urgent(&self, into: &[iovec], peeks: bool) -> Result<usize> {
        let _exclusive = self.exclusively();
        let before = self.to_mark().filter(|_| self.state().urgency.load(Acquire) == UNREAD).ok_or(libc::EINVAL)?;
        if before >= self.readable() {
            return Err(libc::EAGAIN);
        }
        // SAFETY: the caller's promise. The byte is one that can be read.
        let got = unsafe { self.copy_out(into, before, 1)? };
        if !peeks {
            self.state().urgency.store(TAKEN, Release);
        }
        Ok(got)
    }
}
