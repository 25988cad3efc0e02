//! CUBIC (RFC 9438), for paths that drop instead of marking.
use super::hystart::HyStart;
use super::policy::{Decision, Kind, MAX_WINDOW, Needs, Policy, Sample};
use super::window::Window;
use crate::Nanos;

/// Constant `C` in segments per second cubed (RFC 9438 section 5).
const C: f64 = 0.4;
/// Share of the window that stays after congestion (section 4.6).
const BETA: f64 = 0.7;
/// Additive increase that makes the Reno-friendly estimate as aggressive as Reno (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The table's row.
pub(super) static KIND: Kind = Kind {
    name: "cubic",
    code: 3,
    needs: Needs { window: true, rate: false, timestamps: false, exact_marks: false },
    new: |mss, now| Box::new(Cubic::new(mss, now)),
};

/// When a stage of congestion avoidance began, and the window then.
type Epoch = (Nanos, f64);

/// State of a flow. Windows in it are in segments, as in the RFC.
#[derive(Debug, Clone)]
struct Cubic {
    window: Window,
    /// How the first slow start ends, if no congestion ends it.
    hystart: HyStart,
    /// Where the curve has its plateau: the window just before the last reduction, or below it after fast convergence.
    w_max: f64,
    /// The window just before the last reduction (`cwnd_prior`).
    prior: f64,
    /// Reno-friendly window of this congestion-avoidance stage.
    w_est: f64,
    /// When this stage began, and the window then; `None` outside congestion avoidance.
    epoch: Option<Epoch>,
    /// These three before the last loss (section 4.9.2).
    before: Option<(f64, f64, Option<Epoch>)>,
    /// When the policy last ran: time in which the application limited does not count (section 5.8).
    last: Nanos,
}

impl Policy for Cubic {
    fn update(&mut self, sample: &Sample) -> Decision {
        if sample.undone {
            self.undo();
        }
        if sample.timeout {
            self.remember_maximum(sample.mss);
            self.window.collapse(BETA, sample);
        } else if sample.losses > 0 || sample.ecn_acked > 0 {
            self.remember_maximum(sample.mss);
            self.window.shrink(BETA, sample.mss);
        } else if sample.acked > 0 {
            self.advance(sample);
        }
        self.last = sample.now;
        Decision { cwnd: self.window.cwnd, rate: 0 }
    }

    fn follows_acknowledgements(&self) -> bool {
        self.window.in_slow_start()
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }
}

impl Cubic {
    fn new(mss: u32, now: Nanos) -> Cubic {
        Cubic {
            window: Window::new(mss),
            hystart: HyStart::default(),
            w_max: 0.0,
            prior: 0.0,
            w_est: 0.0,
            epoch: None,
            before: None,
            last: now,
        }
    }

    /// Section 4.7, fast convergence: a flow that is cut before it is back at its maximum makes room.
    fn remember_maximum(&mut self, mss: u32) {
        let cwnd = self.window.cwnd as f64 / mss as f64;
        self.before = Some((self.w_max, self.prior, self.epoch));
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        self.epoch = None;
    }

    /// Section 4.9.2: the last loss was none.
    fn undo(&mut self) {
        self.window.undo();
        if let Some(before) = self.before.take() {
            (self.w_max, self.prior, self.epoch) = before;
        }
    }

    fn advance(&mut self, sample: &Sample) {
        if !sample.window_limited(self.window.cwnd) {
            // The curve does not run on while the application, not the network, limits.
            if let Some((start, _)) = &mut self.epoch {
                *start += sample.now.saturating_sub(self.last);
            }
        } else if self.window.in_slow_start() {
            self.start(sample);
        } else {
            self.avoid_congestion(sample);
        }
    }

    fn start(&mut self, sample: &Sample) {
        let first = self.window.ssthresh == u32::MAX;
        match if first { self.hystart.growth(sample) } else { Some(sample.acked) } {
            Some(bytes) => self.window.slow_start(bytes),
            None => self.window.ssthresh = self.window.cwnd,
        }
    }

    /// Sections 4.2 to 4.5, applied once for all acknowledgements of a round.
    fn avoid_congestion(&mut self, sample: &Sample) {
        let mss = sample.mss as f64;
        let cwnd = self.window.cwnd as f64 / mss;
        let (start, cwnd_epoch) = *self.epoch.get_or_insert_with(|| {
            self.w_est = cwnd;
            (sample.now, cwnd)
        });
        let w_max = self.w_max.max(cwnd_epoch);
        let k = ((w_max - cwnd_epoch) / C).cbrt();
        let ahead = sample.srtt.unwrap_or(0);
        let t = sample.now.saturating_sub(start).saturating_add(ahead) as f64 / 1e9;
        let target = (C * (t - k).powi(3) + w_max).clamp(cwnd, 1.5 * cwnd);

        let acked = sample.acked as f64 / mss;
        // Once the estimate has reached the window of the last reduction, it grows as Reno's does (section 4.3).
        let alpha = if self.w_est < self.prior { ALPHA } else { 1.0 };
        self.w_est += alpha * acked / cwnd;
        let cubic = cwnd + (target - cwnd) * (acked / cwnd).min(1.0);
        let next = cubic.max(self.w_est) * mss;
        self.window.cwnd = next.min(MAX_WINDOW as f64) as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MSS, full_round};
    use super::*;
    const MS: Nanos = 1_000_000;

    fn after_loss(at: u32) -> Cubic {
        let mut cubic = Cubic::new(MSS, 0);
        cubic.window.cwnd = at * MSS;
        cubic.update(&Sample { losses: 1, ..full_round(0, at * MSS) });
        assert_eq!(cubic.window.cwnd, at * MSS * 7 / 10);
        cubic
    }

    #[test]
    fn returns_to_the_old_maximum_after_k_seconds_and_then_probes() {
        let mut cubic = after_loss(1000);
        let k = (300.0f64 / C).cbrt();
        let mut now = 0;
        let step = 100 * MS;
        let mut at_k = 0;
        while now < (2.0 * k * 1e9) as Nanos {
            now += step;
            let cwnd = cubic.window.cwnd;
            let round = Sample { srtt: Some(step), ..full_round(now, cwnd) };
            let next = cubic.update(&round).cwnd;
            assert!(next >= cwnd, "never shrinks without congestion");
            if now <= (k * 1e9) as Nanos {
                at_k = next;
            }
        }
        assert!((980 * MSS..1010 * MSS).contains(&at_k), "at K: {at_k}");
        assert!(cubic.window.cwnd > 1250 * MSS, "beyond the plateau it probes");
    }

    #[test]
    fn is_no_slower_than_reno_on_short_round_trips() {
        let mut cubic = after_loss(20);
        for round in 1..=20 {
            let cwnd = cubic.window.cwnd;
            cubic.update(&full_round(round * MS, cwnd));
        }
        assert!(cubic.window.cwnd >= (14 + 9) * MSS, "{}", cubic.window.cwnd);
    }

    /// RFC 9438 section 4.3: 0.53 of a segment in a round until the window is what it was, then a whole one.
    #[test]
    fn beyond_the_old_window_it_grows_as_reno_does() {
        let mut cubic = after_loss(20);
        let mut rounds = |from: u64, count: u64| {
            (from..from + count).for_each(|round| {
                let cwnd = cubic.window.cwnd;
                cubic.update(&full_round(round * MS, cwnd));
            });
            f64::from(cubic.window.cwnd) / f64::from(MSS)
        };
        let (up_to, beyond) = (rounds(1, 11), rounds(12, 12));
        assert!((19.5..20.0).contains(&up_to), "{up_to}");
        assert!((11.0..11.6).contains(&(beyond - up_to)), "{}", beyond - up_to);
    }

    #[test]
    fn a_second_loss_below_the_maximum_makes_room() {
        let mut cubic = after_loss(1000);
        cubic.update(&Sample { losses: 1, ..full_round(MS, 700 * MSS) });
        assert!((cubic.w_max - 595.0).abs() < 1.0, "w_max {}", cubic.w_max);
    }
}
