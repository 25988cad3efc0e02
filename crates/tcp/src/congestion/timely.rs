//! TIMELY (Mittal et al., SIGCOMM 2015): a rate from the round-trip time and its gradient. This is the form with one
//! fair point of convergence ("patched TIMELY": Zhu et al., "ECN or Delay", CoNEXT 2016, algorithm 2). With the first
//! paper's algorithm, any shares of the flows are as stable as fair ones.
//!
//! The papers' thresholds are for NIC timestamps. Here a round-trip time includes the wake-ups and batches of software
//! hosts. Two samples differ by 100 us and more without any queue, and the acknowledgement of a segment may wait for
//! the next one. So thresholds are higher, the gradient is measured against a longer time, and decreases are gentler.
//! In virtual time: `cargo test -p sim --test congestion`; for real: `opentoe bench incast`.
use super::policy::{Decision, Kind, MAX_WINDOW, Needs, Policy, Sample, initial_window};
use crate::Nanos;

/// Below this round-trip time the rate always grows (`T_low`); a queue of this length is what flows settle above.
const T_LOW: f64 = 200_000.0;
/// Above this one it always shrinks (`T_high`).
const T_HIGH: f64 = 1_000_000.0;
/// The round-trip time that normalises the gradient (`minRTT`).
const MIN_RTT: f64 = 200_000.0;
/// Longest time that an acknowledgement waits for a second segment at hosts of this project.
const ACK_DELAY: f64 = 500_000.0;
/// Weight of the newest difference (`alpha`).
const EWMA: f64 = 0.3;
/// Multiplicative decrease above `T_high` (`beta`).
const BETA: f64 = 0.8;
/// Multiplicative decrease between the thresholds.
const BETA_BETWEEN: f64 = 0.05;
/// Additive step, bytes a second (`delta`): 2.5 Mbit/s. N flows settle at an error of `N * STEP / (BETA_BETWEEN *
/// capacity)`: with 20 flows on 1 Gbit/s, a queue of dsack `T_low`.
const STEP: f64 = 312_500.0;
/// Slower flows, bytes a second (50 Mbit/s), step with the root of their rate, or the queue of many would be longer
/// than any buffer. With the root and not in proportion, because there is one fair point of convergence then.
const FULL_STEP: f64 = 6_250_000.0;
/// Least rate, bytes a second: one segment in ten milliseconds keeps the measurements coming.
const MIN_RATE: f64 = 150_000.0;
/// Round trips at the least rate after which what is left of the round-trip time is taken to be the path's own.
const PROOF: u32 = 8;
/// Most, bytes a second.
const MAX_RATE: f64 = 125e9;

/// The table's row.
pub(super) static KIND: Kind = Kind {
    name: "timely",
    code: 2,
    needs: Needs { window: true, rate: true, timestamps: true, exact_marks: false },
    new: |mss, _now| Box::new(Timely::new(mss)),
};

/// State of a flow.
#[derive(Debug, Clone)]
struct Timely {
    /// Bytes a second.
    rate: f64,
    /// Round-trip time at the last update.
    previous: Option<Nanos>,
    /// Smoothed difference between successive round-trip times, nanoseconds.
    difference: f64,
    /// No congestion was seen yet: the rate doubles.
    starting: bool,
    /// Round-trip time without a queue of this flow's making, nanoseconds. It is measured once the flow was at its
    /// least rate for long, and is never more than any round trip since.
    own: f64,
    /// Round trips at the least rate, and the shortest of them.
    least: (u32, f64),
}

impl Policy for Timely {
    fn update(&mut self, sample: &Sample) -> Decision {
        if sample.timeout || sample.losses > 0 {
            self.starting = false;
            self.rate *= 0.5;
        } else if let Some(rtt) = sample.rtt {
            self.round(rtt, sample);
        }
        self.rate = self.rate.clamp(MIN_RATE, MAX_RATE);
        Decision { cwnd: self.window(sample), rate: self.rate as u64 }
    }
}

impl Timely {
    fn new(mss: u32) -> Timely {
        // Ten segments in T_low, as a window-based policy would start.
        let rate = initial_window(mss) as f64 * 1e9 / T_LOW;
        Timely { rate, previous: None, difference: 0.0, starting: true, own: 0.0, least: (0, f64::INFINITY) }
    }

    /// The window only bounds the damage when acknowledgements stop: four times what the rate needs at `T_high`. Before
    /// anything is measured, it is that of every policy. With 128 flows that all begin with what their rate asks for,
    /// most of it is lost, and one or the other waits for seconds.
    fn window(&self, sample: &Sample) -> u32 {
        if self.previous.is_none() {
            return initial_window(sample.mss);
        }
        let bytes = 4.0 * self.rate * T_HIGH / 1e9;
        (bytes as u32).clamp(initial_window(sample.mss), MAX_WINDOW)
    }

    fn step(&self) -> f64 {
        STEP * (self.rate / FULL_STEP).sqrt().min(1.0)
    }

    /// How much longer the path's own round trip is than `T_low`. The papers' thresholds are for paths whose own round
    /// trip is far below them. Where it is not, every flow came down to the least rate and stayed there. The causes are
    /// distance, and hosts that sleep between the few segments of slow flows and wake up late. A queue that the flow
    /// made is gone when it was at this rate for some round trips. Shorter ones, later, show at once that less of it
    /// was the path's own.
    fn beyond_control(&mut self, rtt: f64) -> f64 {
        self.least = if self.rate > MIN_RATE { (0, rtt) } else { (self.least.0 + 1, self.least.1.min(rtt)) };
        self.own = if self.least.0 >= PROOF { self.least.1 } else { self.own.min(rtt) };
        (self.own - T_LOW).max(0.0)
    }

    fn round(&mut self, rtt: Nanos, sample: &Sample) {
        let newest = self.previous.map_or(0.0, |previous| rtt as f64 - previous as f64);
        self.previous = Some(rtt);
        self.difference = (1.0 - EWMA) * self.difference + EWMA * newest;
        let rtt = rtt as f64;
        // Every second segment's acknowledgement waits for the next: slow flows must not take that for a queue.
        let wait = (1e9 * f64::from(sample.mss) / self.rate).min(ACK_DELAY) / 2.0;
        let beyond = wait + self.beyond_control(rtt);
        let (low, high) = (T_LOW + beyond, T_HIGH + beyond);
        let step = if sample.window_limited(self.window(sample)) { self.step() } else { 0.0 };
        if rtt < low && self.starting {
            self.rate += if step > 0.0 { self.rate } else { 0.0 };
            return;
        }
        self.starting = false;
        if rtt < low {
            self.rate += step;
        } else if rtt > high {
            self.rate *= 1.0 - BETA * (1.0 - high / rtt);
        } else {
            let weight = (2.0 * self.difference / MIN_RTT + 0.5).clamp(0.0, 1.0);
            let error = (rtt - low) / low;
            self.rate = step * (1.0 - weight) + self.rate * (1.0 - BETA_BETWEEN * weight * error);
        }
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
        let before = timely.rate;
        timely.update(&with_rtt(50_000));
        assert_eq!(timely.rate - before, STEP, "below T_low by steps");
        let quiet = Sample { unsent: 0, outstanding: 0, acked: 100, ..with_rtt(50_000) };
        let before = timely.rate;
        timely.update(&quiet);
        assert_eq!(timely.rate, before, "and not while the application limits");
    }

    #[test]
    fn it_begins_with_ten_segments() {
        let mut timely = Timely::new(MSS);
        let unknown = Sample { rtt: None, ..full_round(0, 10 * MSS) };
        assert_eq!(timely.update(&unknown).cwnd, 10 * MSS);
        assert!(timely.update(&with_rtt(50_000)).cwnd > 10 * MSS, "a round trip is known");
    }

    #[test]
    fn slow_flows_take_smaller_steps_but_not_in_proportion() {
        let step = |rate: f64| Timely { rate, ..Timely::new(MSS) }.step();
        assert_eq!(step(1e9), STEP);
        assert!((step(FULL_STEP / 4.0) - STEP / 2.0).abs() < 1.0);
    }

    #[test]
    fn a_rising_round_trip_time_shrinks_and_a_falling_one_does_not() {
        let mut timely = Timely::new(MSS);
        timely.update(&with_rtt(600_000));
        for rtt in [650_000, 700_000, 750_000] {
            let before = timely.rate;
            timely.update(&with_rtt(rtt));
            assert!(timely.rate < before);
        }
        timely.update(&with_rtt(400_000));
        let before = timely.rate;
        timely.update(&with_rtt(300_000));
        assert!(timely.rate > before);
    }

    /// What the patch is for: one fair point. With the same round-trip times, all rates become the same.
    #[test]
    fn flows_that_see_the_same_queue_come_to_the_same_rate() {
        let mut flows = [Timely::new(MSS), Timely::new(MSS)];
        (flows[0].rate, flows[1].rate) = (1e6, 50e6);
        for round in 0..20_000u64 {
            // A queue that goes up and down a little.
            let rtt = 400_000 + (round % 4) * 20_000;
            flows.iter_mut().for_each(|flow| {
                flow.update(&with_rtt(rtt));
            });
        }
        let share = flows[0].rate / flows[1].rate;
        assert!((0.95..1.05).contains(&share), "{} and {}", flows[0].rate, flows[1].rate);
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

    /// One flow alone on a path whose own round trip is longer than `T_high`, 125 MB/s, and a buffer of one
    /// millisecond.
    #[test]
    fn a_long_path_does_not_starve_a_flow() {
        let (path, speed) = (3e6, 125e6);
        let mut timely = Timely::new(MSS);
        let (mut queue, mut longest, mut moved) = (0.0_f64, 0.0_f64, 0.0);
        let rounds = 20_000;
        for round in 0..rounds {
            let rtt = path + queue / speed * 1e9;
            timely.update(&with_rtt(rtt as Nanos));
            let came = timely.rate * rtt / 1e9;
            queue = (queue + came - speed * rtt / 1e9).max(0.0);
            if round >= rounds / 2 {
                longest = longest.max(queue);
                moved += timely.rate.min(speed);
            }
        }
        let share = moved / f64::from(rounds / 2) / speed;
        assert!(share > 0.9, "{share} of the speed, at {} bytes a second", timely.rate);
        assert!(longest / speed < 2e-3, "a queue of {} ms", longest / speed * 1e3);
    }

    #[test]
    fn the_base_round_trip_follows_a_shorter_one() {
        let mut timely = Timely { rate: MIN_RATE, starting: false, ..Timely::new(MSS) };
        for _ in 0..PROOF {
            timely.update(&with_rtt(3_000_000));
        }
        assert!(timely.rate > MIN_RATE, "a queue of its own would be gone");
        timely.update(&with_rtt(100_000));
        let before = timely.rate;
        timely.update(&with_rtt(3_000_000));
        assert!(timely.rate < before, "this is a queue");
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
