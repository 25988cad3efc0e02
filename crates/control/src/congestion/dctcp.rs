//! DCTCP (RFC 8257): the window shrinks in proportion to the share of bytes that met a congestion mark.
use super::{Decision, Sample, Window};

/// Weight of the newest round in `DCTCP.Alpha` (RFC 8257 section 4.2 recommends 1/16).
const GAIN: f64 = 1.0 / 16.0;

/// State of a flow.
#[derive(Debug, Clone)]
pub struct Dctcp {
    pub(super) window: Window,
    /// Estimated share of marked bytes. Starts at 1, so that the first mark halves (section 3.3).
    alpha: f64,
    /// A mark or a loss was seen: slow start is over for good.
    seen_congestion: bool,
}

impl Dctcp {
    pub(super) fn new(mss: u32) -> Dctcp {
        Dctcp { window: Window::new(mss), alpha: 1.0, seen_congestion: false }
    }

    pub(super) fn update(&mut self, sample: &Sample) -> Decision {
        if sample.timeout {
            self.seen_congestion = true;
            self.window.collapse(0.5, sample);
        } else if sample.acked > 0 || sample.losses > 0 {
            self.round(sample);
        }
        Decision { cwnd: self.window.cwnd, rate: 0 }
    }

    // Meets RFC 5681: 3.1-d, 3.2-d.
    // Meets RFC 3168: 6.1.2-a.
    fn round(&mut self, sample: &Sample) {
        let marked = if sample.acked > 0 { sample.ecn_acked as f64 / sample.acked as f64 } else { 0.0 };
        if self.seen_congestion || marked > 0.0 {
            self.alpha = (1.0 - GAIN) * self.alpha + GAIN * marked.min(1.0);
        }
        if sample.losses > 0 {
            // Section 3.5: packet loss is answered as in conventional TCP.
            self.seen_congestion = true;
            self.window.shrink(0.5, sample.mss);
        } else if marked > 0.0 {
            // Section 3.3: cwnd = cwnd * (1 - DCTCP.Alpha / 2).
            self.seen_congestion = true;
            self.window.shrink(1.0 - self.alpha / 2.0, sample.mss);
        } else if sample.window_limited(self.window.cwnd) {
            if self.window.in_slow_start() {
                self.window.slow_start(sample.acked);
            } else {
                self.window.grow(sample.mss);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MSS, full_round};
    use super::*;

    // Checks RFC 3168: 6.1.2-a.
    #[test]
    fn the_first_mark_halves_and_a_light_one_later_hardly_shrinks() {
        let mut dctcp = Dctcp::new(MSS);
        let before = dctcp.update(&full_round(1, 10 * MSS)).cwnd;
        let marked = Sample { ecn_acked: before as u64, ..full_round(2, before) };
        assert_eq!(dctcp.update(&marked).cwnd, before / 2);
        for round in 0..200 {
            let cwnd = dctcp.window.cwnd;
            dctcp.update(&full_round(3 + round, cwnd));
        }
        let before = dctcp.window.cwnd;
        let light = Sample { ecn_acked: before as u64 / 100, ..full_round(300, before) };
        let after = dctcp.update(&light).cwnd;
        assert!(after < before && after > before * 99 / 100, "{before} -> {after}");
    }

    #[test]
    fn alpha_follows_the_marked_share() {
        let mut dctcp = Dctcp::new(MSS);
        for round in 0..200 {
            let cwnd = dctcp.window.cwnd;
            dctcp.update(&Sample { ecn_acked: cwnd as u64 / 4, ..full_round(round, cwnd) });
        }
        assert!((dctcp.alpha - 0.25).abs() < 0.01, "alpha {}", dctcp.alpha);
    }

    // Checks RFC 5681: 3.1-d.
    #[test]
    fn grows_one_segment_a_round_after_congestion() {
        let mut dctcp = Dctcp::new(MSS);
        dctcp.update(&Sample { losses: 1, ..full_round(1, 10 * MSS) });
        let before = dctcp.window.cwnd;
        assert_eq!(before, 5 * MSS);
        assert_eq!(dctcp.update(&full_round(2, before)).cwnd, before + MSS);
    }

    // Checks RFC 5681: 3.2-d.
    #[test]
    fn a_loss_halves() {
        let mut dctcp = Dctcp::new(MSS);
        let before = dctcp.update(&full_round(1, 10 * MSS)).cwnd;
        assert_eq!(dctcp.update(&Sample { losses: 1, ..full_round(2, before) }).cwnd, before / 2);
    }
}
