//! Memory trimming of quiet threads: whether memory of busy times can go back to the system.
use engine::Nanos;

/// Over so long a period a thread has to be quiet.
pub(crate) const PERIOD: Nanos = 1_000_000_000;
/// Rounds with work in a period that leave a thread quiet: those of timers, of rare segments, of an operator's
/// questions. A thread of many connections hardly ever sleeps for a whole period. Time would show less: on a machine
/// that is short of processors, each of them may take long.
pub(crate) const FEW: u64 = 64;

/// How much a thread did in the present period.
pub(crate) struct Quiet {
    since: Nanos,
    /// Rounds with work before it.
    before: u64,
}

impl Quiet {
    pub(crate) fn new(now: Nanos) -> Quiet {
        Quiet { since: now, before: 0 }
    }

    /// Asked by a thread that has nothing to do and has had so many rounds with work so far. True where a period ends
    /// with few of them.
    pub(crate) fn is_over(&mut self, now: Nanos, rounds: u64) -> bool {
        if now.saturating_sub(self.since) < PERIOD {
            return false;
        }
        let few = rounds - self.before < FEW;
        *self = Quiet { since: now, before: rounds };
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a thread is found quiet in ten periods of so many rounds with work.
    fn quiet_periods(rounds: u64) -> usize {
        let mut quiet = Quiet::new(7);
        (1..=10 * rounds).filter(|at| quiet.is_over(7 + at * PERIOD / rounds, *at)).count()
    }

    #[test]
    fn what_wakes_a_thread_now_and_then_leaves_it_quiet() {
        assert_eq!(quiet_periods(4), 10);
        assert_eq!(quiet_periods(FEW - 1), 10);
    }

    #[test]
    fn a_thread_that_works_often_is_not_quiet() {
        assert_eq!(quiet_periods(FEW), 0);
        assert_eq!(quiet_periods(100 * FEW), 0);
    }

    #[test]
    fn it_is_quiet_a_period_after_its_first_sleep() {
        let (mut quiet, end) = (Quiet::new(0), 5 * PERIOD + 1);
        assert!(!quiet.is_over(end, 1_000_000), "it worked for five periods");
        assert!(!quiet.is_over(end + PERIOD - 1, 1_000_001));
        assert!(quiet.is_over(end + PERIOD, 1_000_002));
    }
}
