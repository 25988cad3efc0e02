//! Round-trip time estimation and the retransmission timeout (RFC 6298).
use crate::Nanos;

/// Estimator of one connection.
#[derive(Debug, Clone)]
pub struct RttEstimator {
    smoothed: Option<Nanos>,
    variation: Nanos,
    min_rto: Nanos,
    max_rto: Nanos,
    backoffs: u32,
}

/// Timeout before the first measurement (RFC 6298 section 2, rule 2.1).
const INITIAL_RTO: Nanos = 1_000_000_000;
/// Clock granularity `G` of rule 2.2: how finely the control plane's timers fire.
const GRANULARITY: Nanos = 1_000_000;

impl RttEstimator {
    /// An estimator without a measurement. `min_rto` and `max_rto` bound the timeout (rules 2.4 and 2.5).
    pub fn new(min_rto: Nanos, max_rto: Nanos) -> RttEstimator {
        RttEstimator { smoothed: None, variation: 0, min_rto, max_rto, backoffs: 0 }
    }

    /// Takes a measurement of a segment that was not sent twice (Karn's algorithm is the engine's business). It
    /// shows that the path works, so it ends a backoff (section 5, last paragraph).
    // Meets RFC 9293: MUST-18.
    // Meets RFC 6298: 2.2, 2.3.
    pub fn sample(&mut self, rtt: Nanos) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((7 * smoothed + rtt) / 8);
            }
        }
        self.backoffs = 0;
    }

    /// Smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Nanos> {
        self.smoothed
    }

    /// Mean deviation of the round-trip time.
    pub fn rttvar(&self) -> Nanos {
        self.variation
    }

    /// The timeout now, backoff included.
    // Meets RFC 6298: 2.1, 2.5, 4.
    pub fn rto(&self) -> Nanos {
        let base = match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) => smoothed + GRANULARITY.max(4 * self.variation),
        };
        let doubled = base.max(self.min_rto).saturating_mul(1 << self.backoffs.min(32));
        doubled.min(self.max_rto)
    }

    /// A timeout fired: double the next one (rule 5.5).
    pub fn back_off(&mut self) {
        self.backoffs += 1;
    }

    /// New data was acknowledged: the next timeout is not doubled any more.
    pub fn reset_backoff(&mut self) {
        self.backoffs = 0;
    }

    /// Timeouts in a row.
    pub fn backoffs(&self) -> u32 {
        self.backoffs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Nanos = 1_000_000;

    // Checks RFC 9293: MUST-18.
    // Checks RFC 6298: 2.1, 2.2, 2.3, 5.5.
    #[test]
    fn follows_the_rules_of_rfc_6298() {
        let mut rtt = RttEstimator::new(5 * MS, 60_000 * MS);
        assert_eq!(rtt.rto(), 1000 * MS, "rule 2.1");
        rtt.sample(100 * MS);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(100 * MS), 50 * MS), "rule 2.2");
        assert_eq!(rtt.rto(), 300 * MS);
        rtt.sample(60 * MS);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(95 * MS), 47_500_000), "rule 2.3");
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), 4 * 285 * MS, "rule 5.5");
        rtt.reset_backoff();
        assert_eq!(rtt.rto(), 285 * MS);
    }

    // Checks RFC 6298: 2.5, 4.
    #[test]
    fn stays_within_its_bounds() {
        let mut rtt = RttEstimator::new(5 * MS, 60_000 * MS);
        for _ in 0..100 {
            rtt.sample(MS / 100);
        }
        assert_eq!(rtt.rto(), 5 * MS);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), 60_000 * MS);
    }
}
