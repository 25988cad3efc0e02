//! DCTCP (RFC 8257): the window shrinks in proportion to the share of bytes that met a congestion mark.
//!
//! Where many flows share a small buffer, two segments of each are too many. A window below that is a rate: so many
//! bytes in a round trip, which the engine's scheduler paces (thesis section 4.3.4). RFC 8257 has none; the windows
//! below one packet of Swift (Kumar et al., SIGCOMM 2020, section 3.4) are the same idea.
use super::policy::{Decision, Kind, Needs, Policy, Sample};
use super::window::Window;

/// Weight of the newest round in `DCTCP.Alpha` (RFC 8257 section 4.2 recommends 1/16).
const GAIN: f64 = 1.0 / 16.0;
/// A window of fewer segments than this is paced.
const PACED_BELOW: u32 = 2;
/// It goes below two segments only where more than this share of bytes is marked although no flow has more than that.
/// Otherwise a few segments of each are what the path has room for, and the window alone does better.
const CROWDED: f64 = 0.5;
/// A paced window takes this part of a step down: one segment an update is all that it has to go by.
const PACED_DOWN: f64 = 1.0 / 4.0;
/// And this part of a segment is its step up. A quarter of `PACED_DOWN`: many flows share what is left.
const PACED_UP: u32 = 16;
/// The least window is this part of a segment.
const LEAST: u32 = 64;

/// The table's row.
pub(super) static KIND: Kind = Kind {
    name: "dctcp",
    code: 1,
    needs: Needs { window: true, rate: true, timestamps: false, exact_marks: true },
    new: |mss, _now| Box::new(Dctcp::new(mss)),
};

/// State of a flow.
#[derive(Debug, Clone)]
struct Dctcp {
    window: Window,
    /// Estimated share of marked bytes. Starts at 1, so that the first mark halves (section 3.3).
    alpha: f64,
    /// A mark or a loss was seen: slow start is over for good.
    seen_congestion: bool,
}

impl Policy for Dctcp {
    fn update(&mut self, sample: &Sample) -> Decision {
        if sample.undone {
            self.window.undo();
        }
        if sample.timeout {
            self.seen_congestion = true;
            self.timeout(sample);
        } else if sample.acked > 0 || sample.losses > 0 {
            self.round(sample);
        }
        self.decision(sample)
    }

    fn idle(&mut self, mss: u32) -> Option<u32> {
        self.window.idle(mss)
    }

    fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }
}

impl Dctcp {
    fn new(mss: u32) -> Dctcp {
        Dctcp { window: Window::new(mss), alpha: 1.0, seen_congestion: false }
    }

    /// A paced window lets two segments be under way, so that the second brings an acknowledgement at once.
    fn decision(&self, sample: &Sample) -> Decision {
        let cwnd = self.window.cwnd;
        let rate = sample
            .srtt
            .filter(|_| self.is_paced(sample))
            .map_or(0, |srtt| (u64::from(cwnd) * 1_000_000_000 / srtt.max(1)).max(1));
        match (rate, sample.timeout) {
            (0, _) => Decision { cwnd, rate: 0 },
            (_, true) => Decision { cwnd: sample.mss, rate },
            (_, false) => Decision { cwnd: PACED_BELOW * sample.mss, rate },
        }
    }

    fn is_paced(&self, sample: &Sample) -> bool {
        self.window.cwnd < PACED_BELOW * sample.mss
    }

    fn timeout(&mut self, sample: &Sample) {
        if self.is_paced(sample) {
            self.window.shrink_to(0.5, sample.mss / LEAST);
        } else {
            self.window.collapse(0.5, sample);
        }
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
            let least = if self.is_paced(sample) { sample.mss / LEAST } else { PACED_BELOW * sample.mss };
            self.window.shrink_to(0.5, least);
        } else if marked > 0.0 {
            self.seen_congestion = true;
            self.marked(sample);
        } else if sample.window_limited(self.window.cwnd) {
            if self.window.in_slow_start() {
                // Not with each acknowledgement: many flows that share a link would exceed it by as much again, and
                // unevenly, between the first mark and the policy's next run.
                self.window.grow(sample.acked.min((self.window.ssthresh - self.window.cwnd).into()) as u32);
            } else {
                let step = if self.is_paced(sample) { sample.mss / PACED_UP } else { sample.mss };
                self.window.grow(step);
            }
        }
    }

    /// Section 3.3: cwnd = cwnd * (1 - DCTCP.Alpha / 2), to two segments first.
    fn marked(&mut self, sample: &Sample) {
        let two = PACED_BELOW * sample.mss;
        if self.window.cwnd > two {
            self.window.shrink_to(1.0 - self.alpha / 2.0, two);
        } else {
            let crowded = (self.alpha - CROWDED).max(0.0);
            self.window.shrink_to(1.0 - PACED_DOWN * crowded / 2.0, sample.mss / LEAST);
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
        assert_eq!(before, 20 * MSS);
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

    fn all_marked(now: u64, cwnd: u32) -> Sample {
        Sample { ecn_acked: cwnd.into(), ..full_round(now, cwnd) }
    }

    #[test]
    fn where_two_segments_are_too_many_it_is_paced_below_them() {
        let mut dctcp = Dctcp::new(MSS);
        for round in 0..30 {
            dctcp.update(&all_marked(round, 2 * MSS));
        }
        let slow = dctcp.update(&all_marked(200, MSS));
        assert!(slow.cwnd == 2 * MSS && slow.rate < 1_000_000, "less than a segment a millisecond: {slow:?}");
        let least = dctcp.update(&Sample { losses: 1, ..all_marked(201, MSS) });
        assert!(least.rate <= slow.rate / 2 + 1, "a loss does not widen it");
        let lost = dctcp.update(&Sample { timeout: true, ..full_round(202, MSS) });
        assert!(lost.cwnd == MSS && lost.rate < least.rate, "nor does a timeout");
        for round in 0..200 {
            dctcp.update(&full_round(203 + round, 2 * MSS));
        }
        let wide = dctcp.update(&full_round(403, 20 * MSS));
        assert!(wide.rate == 0 && wide.cwnd > 2 * MSS, "with room again, the window alone limits: {wide:?}");
    }

    #[test]
    fn a_few_marks_leave_two_segments() {
        let mut dctcp = Dctcp::new(MSS);
        dctcp.update(&all_marked(0, 10 * MSS));
        let mut decision = Decision { cwnd: 0, rate: 0 };
        for round in 0..400 {
            // Two of five rounds are marked.
            let sample = if round % 5 < 2 { all_marked(round, 2 * MSS) } else { full_round(round, MSS / 4) };
            decision = dctcp.update(&Sample { unsent: 0, outstanding: 0, ..sample });
        }
        assert!(decision.cwnd == 2 * MSS, "{decision:?}");
    }
}
