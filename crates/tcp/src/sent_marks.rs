//! Sent marks (RFC 8985 section 6.3): how far a sender that stamps no segment had sent before a timeout. The timer's
//! poll notes that position from time to time.
use crate::Nanos;
use wire::Seq;

/// Send positions at two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMarks {
    /// What lies before it had its time when the newer mark was made.
    old: Seq,
    new: Seq,
    /// In ticks: each flow has its marks, and small ones.
    time: u32,
}

/// Of about 16 microseconds: they wrap after 19 hours, and then a mark may seem new.
const fn ticks(now: Nanos) -> u32 {
    (now >> 14) as u32
}

impl SentMarks {
    /// Nothing was sent before `at`.
    pub const fn new(at: Seq, now: Nanos) -> SentMarks {
        SentMarks { old: at, new: at, time: ticks(now) }
    }

    /// All before `sent` has been sent; a segment counts as late after `reordering_window`.
    pub fn note(&mut self, now: Nanos, sent: Seq, reordering_window: Nanos) {
        if self.is_old(now, reordering_window) {
            *self = SentMarks { old: self.new, new: sent, time: ticks(now) };
        }
    }

    /// What was sent from there on may still arrive. Nothing where all is late. Too much rather than too little: what
    /// is not lost now is found by what is sent after it.
    // Meets RFC 8985: 6.3-a.
    pub fn recent(&self, now: Nanos, sent: Seq, reordering_window: Nanos) -> Option<Seq> {
        let aged = if self.is_old(now, reordering_window) { self.new } else { self.old };
        aged.before(sent).then_some(aged)
    }

    fn is_old(&self, now: Nanos, reordering_window: Nanos) -> bool {
        Nanos::from(ticks(now).wrapping_sub(self.time)) > reordering_window >> 14
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Seq = Seq(u32::MAX - 99);

    const TICK: Nanos = 1 << 14;
    /// The ticks wrap in between.
    const BEGIN: Nanos = (u32::MAX as Nanos - 150) * TICK;
    const WINDOW: Nanos = 99 * TICK;

    // Checks RFC 8985: 6.3-a.
    #[test]
    fn what_was_sent_within_a_segments_time_is_recent() {
        let at = |ticks: Nanos| BEGIN + ticks * TICK;
        let mut marks = SentMarks::new(AT, at(0));
        assert_eq!(marks.recent(at(50), AT, WINDOW), None, "nothing is outstanding");
        marks.note(at(100), AT + 200, WINDOW);
        assert_eq!(marks.recent(at(199), AT + 300, WINDOW), Some(AT), "all of it");
        assert_eq!(marks.recent(at(200), AT + 300, WINDOW), Some(AT + 200));
        assert_eq!(marks.recent(at(200), AT + 200, WINDOW), None, "all is late");
        marks.note(at(150), AT + 250, WINDOW);
        marks.note(at(250), AT + 300, WINDOW);
        assert_eq!(marks.recent(at(349), AT + 400, WINDOW), Some(AT + 200), "the older mark");
        assert_eq!(marks.recent(at(350), AT + 400, WINDOW), Some(AT + 300));
        assert_eq!(marks.recent(at(350), AT + 400, Nanos::MAX), Some(AT + 200));
    }
}
