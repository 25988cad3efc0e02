//! Round-trip time estimation and the retransmission timeout (RFC 6298).
use crate::Nanos;
use wire::Seq;

/// Times one segment from when it was sent until it is acknowledged. A segment that may have been sent twice is timed
/// only where timestamps distinguish its transmissions (Karn's algorithm, RFC 6298 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttTimer {
    /// 0 where nothing is timed; with [`RESENT`] for a retransmission.
    started: Nanos,
    /// The acknowledgement that ends it.
    end: Seq,
    /// The least round-trip time of the last hundreds, nanoseconds.
    least: u32,
}

/// The least round-trip time moves up by this part of what each one is longer: a path may have become another.
const LEAST_FOLLOWS: u32 = 256;
/// The highest bit of a time, which no clock reaches.
const RESENT: Nanos = 1 << 63;

impl RttTimer {
    /// A timer at rest.
    pub fn new() -> RttTimer {
        RttTimer { started: 0, end: Seq(0), least: u32::MAX }
    }

    /// The same on a connection whose handshake took so long, nanoseconds; 0 where that was not measured.
    // Meets RFC 8985: 6.2-i.
    pub fn after_handshake(rtt: u32) -> RttTimer {
        RttTimer { least: if rtt == 0 { u32::MAX } else { rtt }, ..RttTimer::new() }
    }

    /// New data is sent, up to `end`. It is timed, unless something is being timed: true where it is.
    #[inline(always)]
    pub fn start(&mut self, now: Nanos, end: Seq) -> bool {
        let starts = self.started == 0;
        if starts {
            (self.started, self.end) = (now.max(1), end);
        }
        starts
    }

    /// Something is sent again, perhaps what is being timed.
    // Meets RFC 6298: 3.
    #[inline]
    pub fn cancel(&mut self) {
        self.started = 0;
    }

    /// A segment is sent again that ends at `end`, and its timestamp differs from those of its earlier transmissions.
    /// It is timed, unless something is being timed.
    // Meets RFC 6298: 3.
    pub fn start_again(&mut self, now: Nanos, end: Seq) {
        if self.start(now, end) {
            self.started |= RESENT;
        }
    }

    /// The least round-trip time, nanoseconds; `u32::MAX` before the first.
    pub fn least(&self) -> u32 {
        self.least
    }

    /// What is timed ends behind `left`, and at `right` or before.
    #[inline]
    pub fn is_within(&self, left: Seq, right: Seq) -> bool {
        self.started > 0 && left.before(self.end) && self.end.at_or_before(right)
    }

    /// Everything before `una` is acknowledged. The round-trip time, where this ends one of new data, nanoseconds: odd,
    /// so that it is not 0; otherwise 0.
    #[inline(always)]
    pub fn take(&mut self, now: Nanos, una: Seq) -> u32 {
        self.take_if(now, una, |_| false)
    }

    /// The same, and of a retransmission where the acknowledgement `answers` what was sent at that time.
    #[inline(always)]
    pub fn take_if(&mut self, now: Nanos, una: Seq, answers: impl FnOnce(Nanos) -> bool) -> u32 {
        if self.started == 0 || una.before(self.end) {
            return 0;
        }
        let started = std::mem::take(&mut self.started);
        if started & RESENT != 0 && !answers(started & !RESENT) {
            return 0;
        }
        let rtt = now.saturating_sub(started & !RESENT).min(u32::MAX.into()) as u32 | 1;
        // Meets RFC 8985: 6.2-i.
        self.least = if rtt < self.least { rtt } else { self.least + (rtt - self.least) / LEAST_FOLLOWS };
        rtt
    }
}

impl Default for RttTimer {
    fn default() -> RttTimer {
        RttTimer::new()
    }
}

/// Estimator of one connection.
#[derive(Debug, Clone)]
pub struct RttEstimator {
    smoothed: Option<Nanos>,
    variation: Nanos,
    bounds: RtoBounds,
    backoffs: u32,
}

/// Bounds of a retransmission timeout (RFC 6298 section 2, rules 2.4 and 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoBounds {
    least: Nanos,
    most: Nanos,
}

impl RtoBounds {
    /// Bounds in nanoseconds: at least one clock tick, and in order.
    pub fn new(least: Nanos, most: Nanos) -> RtoBounds {
        let least = least.max(GRANULARITY);
        RtoBounds { least, most: most.max(least) }
    }
}

/// A retransmission timeout: within its bounds by construction, so never 0 and never for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rto(Nanos);

impl Rto {
    /// The timeout of a base time after so many timeouts in a row: doubled for each (rule 5.5), within the bounds.
    // Meets RFC 6298: 2.5, 4.
    pub fn new(base: Nanos, backoffs: u32, bounds: RtoBounds) -> Rto {
        let doubled = base.max(bounds.least).saturating_mul(1 << backoffs.min(32));
        Rto(doubled.clamp(bounds.least, bounds.most))
    }

    /// Nanoseconds.
    pub fn nanos(self) -> Nanos {
        self.0
    }
}

/// Timeout before the first measurement (RFC 6298 section 2, rule 2.1).
const INITIAL_RTO: Nanos = 1_000_000_000;
/// Clock granularity `G` of rule 2.2: how finely the control plane's timers fire.
const GRANULARITY: Nanos = 1_000_000;

/// A timeout is later than the smoothed round trip by this part of it at least. On a long path without jitter, four
/// times the variation becomes next to nothing, and the first queue on it would look like a loss. Rule 2.4 allows it,
/// which asks for a whole second at least.
const LEAST_MARGIN: Nanos = 4;

impl RttEstimator {
    /// An estimator without a measurement.
    pub fn new(bounds: RtoBounds) -> RttEstimator {
        RttEstimator { smoothed: None, variation: 0, bounds, backoffs: 0 }
    }

    /// The longest expected time of an acknowledgement, after what was measured: two round trips, or one with four
    /// times its variation.
    pub fn expected(&self) -> Option<Nanos> {
        self.smoothed.map(|smoothed| smoothed + smoothed.max(4 * self.variation))
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
    // Meets RFC 6298: 2.1.
    pub fn rto(&self) -> Rto {
        let base = match self.smoothed {
            None => INITIAL_RTO,
            Some(smoothed) => smoothed + GRANULARITY.max(4 * self.variation).max(smoothed / LEAST_MARGIN),
        };
        Rto::new(base, self.backoffs, self.bounds)
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
        let mut rtt = RttEstimator::new(RtoBounds::new(5 * MS, 60_000 * MS));
        assert_eq!(rtt.rto().nanos(), 1000 * MS, "rule 2.1");
        rtt.sample(100 * MS);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(100 * MS), 50 * MS), "rule 2.2");
        assert_eq!(rtt.rto().nanos(), 300 * MS);
        rtt.sample(60 * MS);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(95 * MS), 47_500_000), "rule 2.3");
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto().nanos(), 4 * 285 * MS, "rule 5.5");
        rtt.reset_backoff();
        assert_eq!(rtt.rto().nanos(), 285 * MS);
    }

    // Checks RFC 6298: 3.
    #[test]
    fn what_was_sent_twice_is_not_timed() {
        let mut timer = RttTimer::new();
        assert!(timer.start(1000, Seq(u32::MAX)) && !timer.start(1500, Seq(50)));
        assert_eq!(timer.take(1700, Seq(u32::MAX - 1)), 0, "not acknowledged");
        assert_eq!(timer.take(1800, Seq(3)), 801);
        assert_eq!(timer.take(1900, Seq(50)), 0, "one at a time");
        timer.start(2000, Seq(90));
        timer.cancel();
        assert_eq!(timer.take(2500, Seq(90)), 0);
    }

    // Checks RFC 6298: 3.
    #[test]
    fn what_was_sent_again_is_timed_where_the_answer_is_its_own() {
        let mut timer = RttTimer::new();
        timer.start_again(1000, Seq(50));
        assert_eq!(timer.take_if(1500, Seq(50), |sent| sent == 1000), 501);
        timer.start_again(2000, Seq(90));
        assert_eq!(timer.take_if(2500, Seq(90), |_| false), 0, "it answers an earlier transmission");
        timer.start_again(3000, Seq(99));
        assert_eq!(timer.take(3500, Seq(99)), 0, "nothing says which one it answers");
        timer.start(4000, Seq(120));
        timer.start_again(4100, Seq(110));
        assert_eq!(timer.take(4400, Seq(120)), 401, "one at a time");
    }

    // Checks RFC 8985: 6.2-i.
    #[test]
    fn the_least_round_trip_is_kept_and_slowly_forgotten() {
        let mut timer = RttTimer::new();
        assert_eq!(timer.least(), u32::MAX);
        let mut time = |rtt: u64| {
            timer.start(5000, Seq(9));
            timer.take(5000 + rtt, Seq(9));
            timer.least()
        };
        assert_eq!((time(200), time(100), time(300)), (201, 101, 101));
        (0..1000).for_each(|_| _ = time(10_101));
        assert!((9000..10_101).contains(&time(10_101)), "the path is another one");
    }

    // Checks RFC 6298: 2.5, 4.
    #[test]
    fn stays_within_its_bounds() {
        let mut rtt = RttEstimator::new(RtoBounds::new(5 * MS, 60_000 * MS));
        for _ in 0..100 {
            rtt.sample(MS / 100);
        }
        assert_eq!(rtt.rto().nanos(), 5 * MS);
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto().nanos(), 60_000 * MS);
    }

    #[test]
    fn a_timeout_is_within_its_bounds_whatever_made_it() {
        for (least, most) in [(0, 0), (5 * MS, MS), (1, Nanos::MAX), (200 * MS, 120_000 * MS)] {
            let bounds = RtoBounds::new(least, most);
            for base in [0, 1, 1000 * MS, Nanos::MAX] {
                for backoffs in [0, 1, 40, u32::MAX] {
                    let rto = Rto::new(base, backoffs, bounds).nanos();
                    assert!(rto >= MS && rto >= least && rto <= most.max(least).max(MS), "{rto}");
                }
            }
        }
    }
}
