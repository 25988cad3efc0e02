//! Rate limits on answers to unknown peers: so many a second, and no more.
use engine::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// A budget for each second, of the whole host.
pub struct Budget {
    per_second: u32,
    left: u32,
    since: Nanos,
}

impl Budget {
    /// So many a second.
    pub fn new(per_second: u32) -> Budget {
        Budget { per_second, left: per_second, since: 0 }
    }

    /// Takes one; false where the second's budget is spent.
    #[inline]
    pub fn take(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.since) >= SECOND {
            self.since = now;
            self.left = self.per_second;
        }
        let taken = self.left > 0;
        self.left -= taken as u32;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 4443: 2.4-b.
    #[test]
    fn a_second_has_its_budget_and_no_more() {
        let mut budget = Budget::new(2);
        assert_eq!([budget.take(0), budget.take(1), budget.take(2)], [true, true, false]);
        assert!(budget.take(SECOND));
    }
}
