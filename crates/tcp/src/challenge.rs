//! Challenge acknowledgements: their limit (RFC 5961 section 7).
use crate::Nanos;

/// How many more challenges a connection is answered with in the present interval. Each connection has its own limit.
/// With one limit for all, an unknown peer could use it up on a connection of its own. What is left would show whether
/// a guess at another connection hit (CVE-2016-5696; RFC 5961 section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeLimit {
    left: u8,
    interval_start: Nanos,
}

impl ChallengeLimit {
    /// Challenges of a connection in an interval.
    pub const PER_INTERVAL: u8 = 10;
    /// Length of an interval, nanoseconds.
    pub const INTERVAL: Nanos = 100_000_000;

    /// A full limit.
    pub fn new() -> ChallengeLimit {
        ChallengeLimit { left: Self::PER_INTERVAL, interval_start: 0 }
    }

    /// Takes one challenge; false where none is left in this interval.
    pub fn allow(&mut self, now: Nanos) -> bool {
        self.allow_of(now, Self::PER_INTERVAL)
    }

    /// As [`ChallengeLimit::allow`], with `most` challenges in an interval.
    pub fn allow_of(&mut self, now: Nanos, most: u8) -> bool {
        if now.saturating_sub(self.interval_start) >= Self::INTERVAL {
            *self = ChallengeLimit { left: most, interval_start: now };
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

impl Default for ChallengeLimit {
    fn default() -> ChallengeLimit {
        ChallengeLimit::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 5961: 7-a, 10-a.
    #[test]
    fn one_connection_does_not_use_up_what_another_has() {
        let (mut one, mut other) = (ChallengeLimit::new(), ChallengeLimit::new());
        let allowed = (0..50).filter(|_| one.allow(1_000_000_000)).count();
        assert_eq!(allowed, ChallengeLimit::PER_INTERVAL as usize);
        assert!(other.allow(1_000_000_000));
        assert!(one.allow(1_000_000_000 + ChallengeLimit::INTERVAL), "the next interval has its own");
    }
}
