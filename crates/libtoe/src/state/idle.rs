//! Idle time of connections, and the state of the sweep over them ([`crate::daemon::reclaim`]).
use std::time::Instant;

/// Rounds that a connection must be quiet at most.
const MOST_THRESHOLD: u8 = 64;

/// State of the sweep.
pub(crate) struct Sweeper {
    pub(crate) at: usize,
    /// When the last round began; none is under way before the first.
    pub(crate) began: Option<Instant>,
    /// When the first one did.
    pub(crate) first: Option<Instant>,
    pub(crate) under_way: bool,
    /// A completion came since the round began, or a connection was found that may be reclaimed next time.
    pub(crate) again: bool,
    pub(crate) batches: u32,
}

impl Sweeper {
    /// Before the first round.
    pub(crate) const fn new() -> Sweeper {
        Sweeper { at: 0, began: None, first: None, under_way: false, again: false, batches: 0 }
    }

    /// From the begin of the first round to that of the last, in seconds, and one more.
    pub(crate) fn seconds(&self) -> u32 {
        let time = self.began.zip(self.first).map_or(0, |(began, first)| (began - first).as_secs());
        time.min(u64::from(u32::MAX) - 1) as u32 + 1
    }
}

/// State of a connection's buffers at a sweep.
#[derive(Default)]
pub(crate) struct State {
    /// Positions (written, read) at the last sweep.
    pub(crate) seen: (u32, u32),
    /// Positions when the buffers were given back, or never used.
    pub(crate) empty: (u32, u32),
    /// The daemon was asked and has not answered: bumps may be lost.
    pub asked: bool,
    /// The program holds addresses of room that it reserved (zero-copy interface).
    pub reserved: bool,
    /// It has sent from the program's memory ([`super::references`]): acknowledgements concern its program.
    pub refers: bool,
    pub(crate) idle: Idle,
}

/// How long a connection has been quiet, and how long it must be. To be reclaimed and to wake costs system calls and
/// page faults. So a connection that wakes soon, again and again, must be quiet for longer and longer: 32,000 may have
/// a message every other second.
#[derive(Default)]
pub(crate) struct Idle {
    /// Sweeps that found it as the one before did.
    pub(crate) sweeps: u8,
    /// Sweeps that it takes, less one.
    threshold: u8,
    /// When it was reclaimed, until it wakes: seconds as [`Sweeper::seconds`] has them; 0 for none.
    pub(crate) since: u32,
}

impl Idle {
    /// A visit by the sweep that began at second `now`; whether it is time to reclaim it.
    pub(crate) fn is_due(&mut self, moved: bool, now: u32) -> bool {
        if !moved {
            self.sweeps = self.sweeps.saturating_add(1);
            return self.sweeps > self.threshold;
        }
        let since = std::mem::take(&mut self.since);
        if since != 0 {
            let soon = now.saturating_sub(since) <= 2 * (u32::from(self.threshold) + 2);
            self.threshold = if soon { (2 * self.threshold + 1).min(MOST_THRESHOLD - 1) } else { 0 };
        }
        self.sweeps = 0;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sweeps once a round over a connection that sends every `period` rounds; how often it is reclaimed in 1000
    /// rounds.
    fn rests(period: u32) -> u32 {
        let (mut idle, mut asleep, mut rests) = (Idle::default(), false, 0);
        for round in 0..1000 {
            let (moved, now) = (round % period == 0, round + 1);
            asleep &= !moved;
            if !asleep && idle.is_due(moved, now) {
                (asleep, idle.since) = (true, now);
                rests += 1;
            }
        }
        rests
    }

    #[test]
    fn frequent_connections_are_reclaimed_less_often() {
        assert!((1..=3).contains(&rests(3)), "{}", rests(3));
        assert_eq!((rests(20), rests(500)), (50, 2));
    }
}
