//! What was sent just before a timeout (RFC 8985 section 6.3), for a sender that stamps no segment: whoever times it
//! notes from time to time how far it has sent.
use crate::Nanos;
use wire::Seq;

/// How far a sender had sent at two times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentMarks {
    /// What lies before it had its time when the newer mark was made.
    old: Seq,
    new: Seq,
    /// In ticks: each flow has its marks, and small ones.
    time: u32,
}

/// Of about 16 microseconds: they wrap after 19 hours, and then a mark may look new.
const fn ticks(now: Nanos) -> u32 {
    (now >> 14) as u32
}

impl SentMarks {
    /// Nothing was sent before `at`.
    pub const fn new(at: Seq, now: Nanos) -> SentMarks {
        SentMarks { old: at, new: at, time: ticks(now) }
    }

    /// All before `sent` has been sent; a segment has its time after `patience`.
    pub fn note(&mut self, now: Nanos, sent: Seq, patience: Nanos) {
        if self.is_old(now, patience) {
            *self = SentMarks { old: self.new, new: sent, time: ticks(now) };
        }
    }

    /// What was sent from there on may not have had its time. Nothing where all had. Too much rather than too little:
    /// what is not lost now is found by what is sent after it.
    // Meets RFC 8985: 6.3-a.
    pub fn recent(&self, now: Nanos, sent: Seq, patience: Nanos) -> Option<Seq> {
        let aged = if self.is_old(now, patience) { self.new } else { self.old };
        aged.before(sent).then_some(aged)
    }

    fn is_old(&self, now: Nanos, patience: Nanos) -> bool {
        Nanos::from(ticks(now).wrapping_sub(self.time)) > patience >> 14
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Seq = Seq(u32::MAX - 99);

    const TICK: Nanos = 1 << 14;
    /// The ticks wrap in between.
    const BEGIN: Nanos = (u32::MAX as Nanos - 150) * TICK;
    const PATIENCE: Nanos = 99 * TICK;

    // Checks RFC 8985: 6.3-a.
    #[test]
    fn what_was_sent_within_a_segments_time_is_recent() {
        let at = |ticks: Nanos| BEGIN + ticks * TICK;
        let mut marks = SentMarks::new(AT, at(0));
        assert_eq!(marks.recent(at(50), AT, PATIENCE), None, "nothing is outstanding");
        marks.note(at(100), AT + 200, PATIENCE);
        assert_eq!(marks.recent(at(199), AT + 300, PATIENCE), Some(AT), "all of it");
        assert_eq!(marks.recent(at(200), AT + 300, PATIENCE), Some(AT + 200));
        assert_eq!(marks.recent(at(200), AT + 200, PATIENCE), None, "all had its time");
        marks.note(at(150), AT + 250, PATIENCE);
        marks.note(at(250), AT + 300, PATIENCE);
        assert_eq!(marks.recent(at(349), AT + 400, PATIENCE), Some(AT + 200), "the older mark");
        assert_eq!(marks.recent(at(350), AT + 400, PATIENCE), Some(AT + 300));
        assert_eq!(marks.recent(at(350), AT + 400, Nanos::MAX), Some(AT + 200));
    }
}
