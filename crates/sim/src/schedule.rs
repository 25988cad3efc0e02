//! Schedule of takeovers.
use crate::plan::{Plan, Takeover};
use port::Nanos;

/// When a host is to be taken over, the last one first.
pub(crate) struct Takeovers(Vec<(Nanos, Takeover)>);

impl Takeovers {
    pub(crate) fn new(plan: &Plan, host: usize, start: Nanos) -> Takeovers {
        let mine = plan.takeovers.iter().filter(|takeover| takeover.host == host);
        let mut all: Vec<_> = mine.map(|takeover| (start + takeover.at_us * 1000, *takeover)).collect();
        all.sort_by_key(|(at, takeover)| std::cmp::Reverse((*at, takeover.refused)));
        Takeovers(all)
    }

    /// When the next one is.
    pub(crate) fn next(&self, now: Nanos) -> Option<Nanos> {
        self.0.last().map(|(at, _)| *at).filter(|at| *at > now)
    }

    /// The next one, and when it is.
    pub(crate) fn first(&self) -> Option<(Nanos, Takeover)> {
        self.0.last().copied()
    }

    /// It has been.
    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }
}
