//! Challenge acknowledgements: their limit (RFC 5961 section 7).
use crate::Nanos;

/// How many more challenges a connection is answered with in the present interval. Each connection has its own limit.
/// With one limit for all, an unknown peer could use it up on a connection of its own. What is left would show whether
/// a guess at another connection hit (CVE-2016-5696; RFC 5961 section 10).
///
/// In four bytes, since each connection has it: milliseconds repeat after more than four hours. A challenge that comes
/// just then finds what was left of the old interval, at most for the rest of a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeLimit {
    /// When the interval began, milliseconds modulo 2^24, above what is left of it.
    start_and_left: u32,
}

/// Bits of [`ChallengeLimit::start_and_left`] for what is left.
const LEFT_BITS: u32 = 8;

impl ChallengeLimit {
    /// Challenges of a connection in an interval.
    pub const PER_INTERVAL: u8 = 10;
    /// Length of an interval, nanoseconds.
    pub const INTERVAL: Nanos = 100_000_000;

    /// A full limit.
    pub fn new() -> ChallengeLimit {
        ChallengeLimit { start_and_left: Self::PER_INTERVAL.into() }
    }

    /// Takes one challenge; false where none is left in this interval.
    pub fn allow(&mut self, now: Nanos) -> bool {
        self.allow_of(now, Self::PER_INTERVAL)
    }

    /// As [`ChallengeLimit::allow`], with `most` challenges in an interval.
    pub fn allow_of(&mut self, now: Nanos, most: u8) -> bool {
        let start = ((now / 1_000_000) as u32) << LEFT_BITS;
        let passed = start.wrapping_sub(self.start_and_left & (u32::MAX << LEFT_BITS)) >> LEFT_BITS;
        if Nanos::from(passed) * 1_000_000 >= Self::INTERVAL {
            self.start_and_left = start | u32::from(most);
        }
        let allowed = self.start_and_left as u8 > 0;
        self.start_and_left -= u32::from(allowed);
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

    #[test]
    fn an_interval_ends_also_where_milliseconds_repeat() {
        let mut limit = ChallengeLimit::new();
        let at = ((1 << 24) - 50) * 1_000_000;
        assert!((0..5).all(|_| limit.allow_of(at, 5)) && !limit.allow_of(at + ChallengeLimit::INTERVAL - 1, 5));
        assert!(limit.allow_of(at + ChallengeLimit::INTERVAL, 5) && limit.allow_of(3 * at, 5));
    }
}
