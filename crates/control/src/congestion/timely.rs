//! TIMELY (Mittal et al., SIGCOMM 2015): a rate from the gradient of the round-trip time.
//!
//! The paper's thresholds (50 and 500 us) are for NIC timestamps. Here a round-trip time includes the wake-ups and
//! batches of software hosts, so both are four times higher. And two samples differ by 100 us and more without any
//! queue, so the gradient is measured against a longer time than the paper's 20 us, and a single rise cannot halve the
//! rate: otherwise jitter alone keeps the rate far below what the path carries (`toe bench incast`).
use super::{Decision, Sample, initial_window};
use engine::Nanos;

/// Below this round-trip time the rate always grows (`T_low`).
const T_LOW: Nanos = 200_000;
/// Above this one it always shrinks (`T_high`).
const T_HIGH: Nanos = 2_000_000;
/// The round-trip time that normalises the gradient (`minRTT`).
const MIN_RTT: f64 = 200_000.0;
/// Largest share of the rate that a rising round-trip time takes at once. A queue that really builds rises for
/// several rounds.
const MOST_DECREASE: f64 = 0.25;
/// Weight of the newest difference (`alpha`).
const EWMA: f64 = 0.3;
/// Multiplicative decrease (`beta`).
const BETA: f64 = 0.8;
/// Additive step, bytes a second (`delta`): 10 Mbit/s.
const STEP: f64 = 1.25e6;
/// Rounds with a falling round-trip time before the steps grow (hyperactive increase, `N`).
const HYPERACTIVE_AFTER: u32 = 5;
/// Least rate, bytes a second: one segment in a few milliseconds keeps the measurements coming.
const MIN_RATE: f64 = 1e6;
/// Most, bytes a second.
const MAX_RATE: f64 = 125e9;

/// State of a flow.
#[derive(Debug, Clone)]
pub struct Timely {
    /// Bytes a second.
    rate: f64,
    /// Round-trip time at the last update.
    previous: Option<Nanos>,
    /// Smoothed difference between successive round-trip times, nanoseconds.
    difference: f64,
    /// Rounds in a row with a falling round-trip time.
    falling: u32,
    /// No congestion was seen yet: the rate doubles.
    starting: bool,
}

impl Timely {
    pub(super) fn new(mss: u32) -> Timely {
        // Ten segments in T_low, as a window-based policy would start.
        let rate = initial_window(mss) as f64 * 1e9 / T_LOW as f64;
        Timely { rate, previous: None, difference: 0.0, falling: 0, starting: true }
    }

    pub(super) fn update(&mut self, sample: &Sample) -> Decision {
        if sample.timeout || sample.losses > 0 {
            self.starting = false;
            self.rate *= 0.5;
        } else if let Some(rtt) = sample.rtt {
            self.round(rtt, sample.window_limited(self.window(sample)));
        }
        self.rate = self.rate.clamp(MIN_RATE, MAX_RATE);
        Decision { cwnd: self.window(sample), rate: self.rate as u64 }
    }

    /// The window only bounds the damage when acknowledgements stop: twice what the rate needs at `T_high`.
    fn window(&self, sample: &Sample) -> u32 {
        let bytes = 2.0 * self.rate * T_HIGH as f64 / 1e9;
        (bytes as u32).clamp(initial_window(sample.mss), super::MAX_WINDOW)
    }

    /// Algorithm 1 of the paper.
    fn round(&mut self, rtt: Nanos, limited: bool) {
        let newest = self.previous.map_or(0.0, |previous| rtt as f64 - previous as f64);
        self.previous = Some(rtt);
        self.difference = (1.0 - EWMA) * self.difference + EWMA * newest;
        let gradient = self.difference / MIN_RTT;
        if rtt > T_HIGH {
            self.decrease(BETA * (1.0 - T_HIGH as f64 / rtt as f64));
        } else if rtt >= T_LOW && gradient > 0.0 {
            self.decrease((BETA * gradient).min(MOST_DECREASE));
        } else if limited {
            self.increase(rtt < T_LOW);
        }
    }

    fn decrease(&mut self, share: f64) {
        self.starting = false;
        self.falling = 0;
        self.rate *= 1.0 - share;
    }

    fn increase(&mut self, short: bool) {
        if self.starting && short {
            self.rate *= 2.0;
            return;
        }
        self.starting = false;
        // Below T_low the steps do not grow: with many flows they would fill a small buffer at once.
        self.falling = if short { 0 } else { self.falling + 1 };
        let steps = if self.falling >= HYPERACTIVE_AFTER { 5.0 } else { 1.0 };
        self.rate += steps * STEP;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MSS, full_round};
    use super::*;

    fn with_rtt(rtt: Nanos) -> Sample {
        Sample { rtt: Some(rtt), ..full_round(0, 100 * MSS) }
    }

    #[test]
    fn doubles_until_the_queue_builds_then_steps() {
        let mut timely = Timely::new(MSS);
        let first = timely.update(&with_rtt(50_000)).rate;
        assert_eq!(timely.update(&with_rtt(50_000)).rate, 2 * first);
        let slow = timely.update(&with_rtt(4_000_000)).rate;
        assert!(slow < first * 2 * 7 / 10, "above T_high it shrinks");
        let next = timely.update(&with_rtt(300_000)).rate;
        assert_eq!(next, slow + STEP as u64);
        for _ in 0..HYPERACTIVE_AFTER {
            timely.update(&with_rtt(300_000));
        }
        let before = timely.rate;
        timely.update(&with_rtt(300_000));
        assert_eq!(timely.rate - before, 5.0 * STEP);
        let before = timely.rate;
        timely.update(&with_rtt(50_000));
        assert_eq!(timely.rate - before, STEP, "below T_low by single steps");
    }

    #[test]
    fn a_rising_round_trip_time_shrinks_and_a_steady_one_does_not() {
        let mut timely = Timely::new(MSS);
        timely.update(&with_rtt(300_000));
        let steady = timely.rate;
        timely.update(&with_rtt(300_000));
        assert!(timely.rate >= steady);
        let before = timely.rate;
        timely.update(&with_rtt(400_000));
        assert!(timely.rate < before);
    }

    #[test]
    fn jitter_without_a_queue_does_not_starve_a_flow() {
        let mut timely = Timely::new(MSS);
        timely.update(&with_rtt(4_000_000));
        // Half of the samples are 150 us late, in an order that has no trend.
        for round in 0..2000u64 {
            let late = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63;
            timely.update(&with_rtt(180_000 + late * 150_000));
        }
        assert!(timely.rate > 8e6, "{}", timely.rate);
    }

    #[test]
    fn stays_within_its_bounds() {
        let mut timely = Timely::new(MSS);
        for _ in 0..200 {
            timely.update(&Sample { timeout: true, ..with_rtt(1) });
        }
        assert_eq!(timely.rate, MIN_RATE);
        for _ in 0..100_000 {
            timely.update(&with_rtt(10_000));
        }
        assert!(timely.rate <= MAX_RATE);
    }
}
