//! Marks: from how many received bytes on a connection is readable (`SO_RCVLOWAT`), and up to how many unsent ones it
//! is writable (`TCP_NOTSENT_LOWAT`).
//!
//! A connection with a mark has a flag in its slot, which every fast path reads anyway: all others pay nothing for it.
//!
//! What is unsent is in the engine's state. It is asked after each write that leaves more unsent than the mark allows.
//! It reports how far it has sent once that is less ([`Bump::UNTIL_SENT`]).
use super::Stream;
use crate::state::slot_state::{LOW_MARK, UNSENT_MARK};
use context::{Bump, Slot};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

/// What a write takes at most that begins below the mark: as Linux fills a segment of this length once it has begun it.
const SEGMENT: u32 = 64 << 10;

impl Stream {
    /// The program waits for so many bytes at least. The flag stays: another process may have a mark of its own.
    pub(crate) fn use_low_mark(&mut self, low_mark: u32) {
        self.slow_completions = low_mark > 1 || self.unsent_mark() > 0 || self.reclaim.refers;
        if low_mark > 1 {
            self.raise(LOW_MARK);
        }
    }

    /// What may be unsent for it to write more; 0 for no such mark.
    pub(in crate::state) fn unsent_mark(&self) -> u32 {
        self.rare.as_deref().map_or(0, |rare| rare.unsent_mark)
    }

    /// It writes only while fewer bytes are unsent; 0 for no such mark.
    pub(crate) fn use_unsent_mark(&mut self, unsent_mark: u32, low_mark: u32) {
        if unsent_mark > 0 || self.rare.is_some() {
            self.rare.get_or_insert_default().unsent_mark = unsent_mark;
        }
        if unsent_mark > 0 {
            self.raise(UNSENT_MARK);
        }
        self.use_low_mark(low_mark);
    }

    /// A completion has come: the engine may have reported what was sent.
    pub(crate) fn on_sent_report(&mut self, word: &AtomicU32) {
        if let Some(rare) = &mut self.rare {
            rare.tx_sent = word.load(Acquire);
        }
    }

    /// Bytes written and not sent yet, as far as the engine has reported.
    fn unsent(&self) -> u32 {
        let sent = self.rare.as_deref().map_or(0, |rare| rare.tx_sent);
        self.tx_head().wrapping_sub(sent).min(self.in_flight())
    }

    /// Twice of what is unsent is below the mark: whoever waits to write wakes up then, as in Linux.
    pub(crate) fn is_below_mark(&self) -> bool {
        self.unsent_mark() == 0 || u64::from(self.unsent()) * 2 < u64::from(self.unsent_mark())
    }

    /// There is so much room, and so little unsent, that whoever waits to write wakes up.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_roomy() && self.is_below_mark()
    }

    /// Bytes that a call may write.
    pub(crate) fn room_to_write(&self) -> u32 {
        match self.unsent_mark() {
            0 => self.room(),
            mark if self.unsent() < mark => self.room().min(SEGMENT),
            _ => 0,
        }
    }

    /// What to ask the engine, where more is unsent than the mark allows.
    pub(in crate::state) fn question(&self, slot: Slot) -> Option<Bump> {
        let until = self.tx_head().wrapping_sub(self.unsent_mark().saturating_sub(1) / 2);
        (!self.is_below_mark()).then(|| Bump { tx_head: until, ring: Bump::UNTIL_SENT, ..self.bump(slot, false) })
    }

    /// As many bytes can be read as the mark asks for. Half of the buffer is always enough, as in Linux: the peer's
    /// window is open until then.
    pub(crate) fn reaches(&self, low_mark: u32) -> bool {
        self.readable() >= low_mark.min(self.buffer_sizes().0 / 2).max(1)
    }
}
