//! Leader and followers: which thread takes completions in for the others.
//!
//! Any thread that calls the library takes in what came for all of them, and wakes those that sleep. So a thread that
//! sleeps beside a busy one is woken for nothing, as a thread in `accept` beside those that serve. The daemon makes a
//! system call for each batch of completions. The thread wakes, finds them taken in, and sleeps again. After some such
//! wakings it sleeps without being announced, for short times, as long as others do take completions in.
use std::time::Duration;

/// Wakings in vain, one right after the other, before a thread becomes a follower.
const IN_VAIN: u32 = 4;
/// The longest sleep without being announced: how long completions wait where the leader begins to compute instead.
const SHORT: Duration = Duration::from_millis(1);

/// History of a thread's sleeps, in one wait.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    in_vain: u32,
    /// The last sleep was ended by a ring that was not for this thread.
    for_others: bool,
}

/// How a sleep ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// By the bell.
    pub rung: bool,
    /// After so long.
    pub slept: Duration,
    /// Other threads took completions in meanwhile.
    pub others: bool,
    /// The completions that this thread took in woke others.
    pub woke: bool,
}

impl Follower {
    /// How long to sleep without being announced; nothing where the thread must be notified.
    pub(crate) fn leaves_it(&self) -> Option<Duration> {
        (self.in_vain >= IN_VAIN).then_some(SHORT)
    }

    /// A sleep is over.
    pub(crate) fn woke(&mut self, end: End) {
        let vain = match self.leaves_it() {
            Some(_) => end.others,
            None => end.rung && !end.woke && end.slept < SHORT,
        };
        self.in_vain = if vain { (self.in_vain + 1).min(IN_VAIN) } else { 0 };
        self.for_others = end.rung;
    }

    /// The bell should wake others first: reported once for each sleep that it ended for others.
    pub(crate) fn steps_back(&mut self) -> bool {
        std::mem::take(&mut self.for_others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VAIN: End = End { rung: true, slept: Duration::from_micros(20), others: true, woke: false };

    fn after(ends: &[End]) -> bool {
        let mut follower = Follower::default();
        ends.iter().for_each(|end| follower.woke(*end));
        follower.leaves_it().is_some()
    }

    #[test]
    fn others_lead_only_while_they_poll() {
        assert!(!after(&[VAIN; 3]));
        assert!(after(&[VAIN; 4]));
        let short = End { rung: false, slept: SHORT, ..VAIN };
        assert!(after(&[VAIN, VAIN, VAIN, VAIN, short, short]), "they go on polling");
        assert!(!after(&[VAIN, VAIN, VAIN, VAIN, short, End { others: false, ..short }]), "nobody polls any more");
    }

    #[test]
    fn a_thread_woken_for_others_yields_the_lead_once() {
        let mut follower = Follower::default();
        let mut after = |end| {
            follower.woke(end);
            (follower.steps_back(), follower.steps_back())
        };
        assert_eq!(after(VAIN), (true, false));
        assert_eq!(after(End { rung: false, ..VAIN }), (false, false));
    }

    #[test]
    fn a_useful_or_seldom_woken_thread_is_notified() {
        let seldom = End { slept: Duration::from_secs(1), ..VAIN };
        for other in [seldom, End { woke: true, ..VAIN }, End { rung: false, ..VAIN }] {
            assert!(!after(&[other; 8]), "{other:?}");
            assert!(!after(&[VAIN, VAIN, VAIN, other, VAIN]), "{other:?}");
        }
    }
}
