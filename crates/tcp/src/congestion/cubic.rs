//! CUBIC (RFC 9438), for paths that drop instead of marking.
use super::hystart::{GROWTH_DIVISOR, HyStart, Phase};
use super::policy::{Decision, Kind, MAX_WINDOW, Needs, Policy, Sample};
use super::window::Window;
use crate::{Growth, Nanos};

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
    /// How it grows with acknowledgements.
    growth: Growth,
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
        self.window.grow(sample.grown);
        if sample.undone {
            self.undo();
        }
        if sample.timeout {
            self.remember_maximum(sample.mss);
            self.window.collapse(BETA, sample);
            self.growth = self.window.slow_start();
        } else if sample.losses > 0 || sample.ecn_acked > 0 {
            self.remember_maximum(sample.mss);
            self.window.shrink(BETA, sample.mss);
            // Up to the next update, which begins a stage of congestion avoidance.
            self.growth = Growth::NONE;
        } else if sample.acked > 0 {
            self.advance(sample);
        }
        self.last = sample.now;
        Decision { cwnd: self.window.cwnd, rate: 0 }
    }

    fn growth(&self) -> Growth {
        self.growth
    }

    fn follows_acknowledgements(&self) -> bool {
        self.window.in_slow_start()
    }

    fn idle(&mut self, mss: u32) -> Option<u32> {
        let cwnd = self.window.idle(mss)?;
        // Beyond the threshold a new stage begins: the curve has not run on meanwhile (section 5.8).
        (self.epoch, self.growth) = (None, self.window.slow_start());
        Some(cwnd)
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }
}

impl Cubic {
    fn new(mss: u32, now: Nanos) -> Cubic {
        let window = Window::new(mss);
        Cubic {
            growth: window.slow_start(),
            window,
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
        if self.window.in_slow_start() {
            self.growth = self.window.slow_start();
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
        self.growth = match if first { self.hystart.phase(sample) } else { Phase::SlowStart } {
            Phase::SlowStart => self.window.slow_start(),
            Phase::Conservative => Growth { per: GROWTH_DIVISOR * sample.mss, ..self.window.slow_start() },
            Phase::Over => {
                self.window.ssthresh = self.window.cwnd;
                Growth::NONE
            }
        };
    }

    /// Sections 4.2 to 4.5: the curve's next round trip as a pace, in bytes acknowledged for each segment. As Linux has
    /// it (`tcp_cubic.c`, `cnt`), which takes no segment for less than two.
    fn avoid_congestion(&mut self, sample: &Sample) {
        let mss = f64::from(sample.mss);
        let cwnd = f64::from(self.window.cwnd) / mss;
        let (start, cwnd_epoch) = *self.epoch.get_or_insert_with(|| {
            self.w_est = cwnd;
            (sample.now, cwnd)
        });
        let w_max = self.w_max.max(cwnd_epoch);
        let k = ((w_max - cwnd_epoch) / C).cbrt();
        let ahead = sample.srtt.unwrap_or(0);
        let t = sample.now.saturating_sub(start).saturating_add(ahead) as f64 / 1e9;
        let target = (C * (t - k).powi(3) + w_max).clamp(cwnd, 1.5 * cwnd);

        // Once the estimate has reached the window of the last reduction, it grows as Reno's does (section 4.3).
        let alpha = if self.w_est < self.prior { ALPHA } else { 1.0 };
        self.w_est += alpha * sample.acked as f64 / mss / cwnd;
        let next = target.max(self.w_est + alpha);
        let per = (cwnd / (next - cwnd)).max(2.0) * mss;
        self.growth = if next > cwnd { Growth { until: MAX_WINDOW, per: per as u32 } } else { Growth::NONE };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{DataPath, MSS, full_round};
    use super::*;
    const MS: Nanos = 1_000_000;

    fn after_loss(at: u32) -> (Cubic, DataPath) {
        let mut cubic = Cubic::new(MSS, 0);
        cubic.window.cwnd = at * MSS;
        let mut path = DataPath::new(&cubic, at * MSS);
        let cwnd = path.update(&mut cubic, &Sample { losses: 1, acked: 0, ..full_round(0, at * MSS) });
        assert_eq!((cwnd, cubic.growth()), (at * MSS * 7 / 10, Growth::NONE));
        (cubic, path)
    }

    #[test]
    fn returns_to_the_old_maximum_after_k_seconds_and_then_probes() {
        let (mut cubic, mut path) = after_loss(1000);
        let k = (300.0f64 / C).cbrt();
        let mut now = 0;
        let step = 100 * MS;
        let mut at_k = 0;
        while now < (2.0 * k * 1e9) as Nanos {
            now += step;
            let cwnd = path.cwnd();
            let next = path.full_round(&mut cubic, now);
            assert!(next >= cwnd, "never shrinks without congestion");
            if now <= (k * 1e9) as Nanos {
                at_k = next;
            }
        }
        assert!((980 * MSS..1010 * MSS).contains(&at_k), "at K: {at_k}");
        assert!(cubic.window.cwnd > 1250 * MSS, "beyond the plateau it probes");
    }

    /// Linux: at most a segment for every two.
    #[test]
    fn it_grows_by_half_at_most_in_a_round() {
        let (mut cubic, mut path) = after_loss(100);
        for second in 1..200 {
            let cwnd = path.cwnd();
            let next = path.full_round(&mut cubic, second * 1000 * MS);
            assert!(next <= cwnd + cwnd / 2 + MSS, "{second}: {cwnd} {next}");
        }
        assert!(path.cwnd() > 10_000 * MSS);
    }

    #[test]
    fn is_no_slower_than_reno_on_short_round_trips() {
        let (mut cubic, mut path) = after_loss(20);
        (1..=20).for_each(|round| _ = path.full_round(&mut cubic, round * MS));
        assert!(path.cwnd() >= (14 + 9) * MSS, "{}", path.cwnd());
    }

    /// RFC 9438 section 4.3: 0.53 of a segment in a round until the window is what it was, then a whole one.
    #[test]
    fn beyond_the_old_window_it_grows_as_reno_does() {
        let (mut cubic, mut path) = after_loss(20);
        let mut rounds = |from: u64, count: u64| {
            (from..from + count).for_each(|round| _ = path.full_round(&mut cubic, round * MS));
            path.cwnd() / MSS
        };
        // The first round begins the stage.
        let (up_to, beyond) = (rounds(1, 12), rounds(13, 12));
        assert!((19..=20).contains(&up_to), "{up_to}");
        assert!((11..=12).contains(&(beyond - up_to)), "{}", beyond - up_to);
    }

    #[test]
    fn after_a_timeout_the_window_grows_to_the_threshold() {
        let (mut cubic, mut path) = after_loss(100);
        let lost = Sample { acked: 0, timeout: true, ..full_round(MS, 70 * MSS) };
        assert_eq!((path.update(&mut cubic, &lost), cubic.growth()), (MSS, Growth::slow_start(49 * MSS)));
        let windows: Vec<u32> = (2..9).map(|round| path.full_round(&mut cubic, round * MS) / MSS).collect();
        assert_eq!(windows, [2, 4, 8, 16, 32, 49, 49]);
        assert!(cubic.growth().per >= 2 * MSS, "congestion avoidance");
    }

    #[test]
    fn a_second_loss_below_the_maximum_makes_room() {
        let (mut cubic, _) = after_loss(1000);
        cubic.update(&Sample { losses: 1, ..full_round(MS, 700 * MSS) });
        assert!((cubic.w_max - 595.0).abs() < 1.0, "w_max {}", cubic.w_max);
    }
}
