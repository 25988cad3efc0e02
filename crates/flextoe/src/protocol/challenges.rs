//! The limit on challenge acknowledgements.
use engine::Nanos;

/// How many more challenges a flow answers with in the present interval (RFC 5961 section 7). Each flow has its own
/// limit: with one for all flows, a stranger could use it up on a connection of his own and learn from what is left
/// whether a guess at somebody else's hit (CVE-2016-5696; RFC 5961 section 10).
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Challenges {
    left: u8,
    interval_start: Nanos,
}

impl Challenges {
    const PER_INTERVAL: u8 = 10;
    const INTERVAL: Nanos = 100_000_000;

    pub fn new() -> Challenges {
        Challenges { left: Self::PER_INTERVAL, interval_start: 0 }
    }

    // Meets RFC 5961: 7-a, 10-a.
    pub fn allow(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.interval_start) >= Self::INTERVAL {
            *self = Challenges { left: Self::PER_INTERVAL, interval_start: now };
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 5961: 7-a, 10-a.
    #[test]
    fn one_flow_does_not_use_up_what_another_has() {
        let (mut one, mut other) = (Challenges::new(), Challenges::new());
        let allowed = (0..50).filter(|_| one.allow(1_000_000_000)).count();
        assert_eq!(allowed, Challenges::PER_INTERVAL as usize);
        assert!(other.allow(1_000_000_000));
        assert!(one.allow(1_000_000_000 + Challenges::INTERVAL), "the next interval has its own");
    }
}
