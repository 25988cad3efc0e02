//! Congestion-control policies (FlexTOE appendix D): they run outside the data-path, about once per round-trip
//! time and flow, on the counters that the data-path collected since the last time. Each gives a window and a
//! rate, which the engine enforces.
mod cubic;
mod dctcp;
mod timely;

use cubic::Cubic;
use dctcp::Dctcp;
use engine::Nanos;
use timely::Timely;

/// Most bytes that any policy allows in flight: the largest window that TCP can express (RFC 7323 section 2.3).
const MAX_WINDOW: u32 = 1 << 30;

/// What happened to a flow since the last update.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Now.
    pub now: Nanos,
    /// Bytes acknowledged since the last update.
    pub acked: u64,
    /// Of these, bytes whose acknowledgement echoed a congestion mark.
    pub ecn_acked: u64,
    /// The latest round-trip time, where there is a new one.
    pub rtt: Option<Nanos>,
    /// Smoothed round-trip time.
    pub srtt: Option<Nanos>,
    /// Fast retransmits since the last update.
    pub losses: u32,
    /// The retransmission timer fired.
    pub timeout: bool,
    /// Bytes sent and not acknowledged.
    pub outstanding: u32,
    /// Bytes that wait to be sent.
    pub unsent: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

impl Sample {
    /// The window, and not the application, limited what was sent: only then may a window grow (RFC 7661
    /// section 4.4).
    // Meets RFC 5681: 4.1-a.
    fn window_limited(&self, window: u32) -> bool {
        self.unsent > 0 || self.outstanding as u64 + self.acked >= window as u64 / 2
    }
}

/// What the engine is to enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Most bytes in flight.
    pub cwnd: u32,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
}

/// The policy of one flow with its state.
#[derive(Debug, Clone)]
pub enum Policy {
    /// DCTCP (RFC 8257).
    Dctcp(Dctcp),
    /// TIMELY (Mittal et al., SIGCOMM 2015).
    Timely(Timely),
    /// CUBIC (RFC 9438).
    Cubic(Cubic),
    /// The peer's window alone limits.
    None,
}

impl Policy {
    /// The policy of a kind for a new connection. `Default` must have been resolved by the caller; it means CUBIC.
    pub fn new(kind: context::Congestion, mss: u32, now: Nanos) -> Policy {
        match kind {
            context::Congestion::Dctcp => Policy::Dctcp(Dctcp::new(mss)),
            context::Congestion::Timely => Policy::Timely(Timely::new(mss)),
            context::Congestion::Cubic | context::Congestion::Default => Policy::Cubic(Cubic::new(mss, now)),
            context::Congestion::None => Policy::None,
        }
    }

    /// Which policy it is.
    pub fn kind(&self) -> context::Congestion {
        match self {
            Policy::Dctcp(_) => context::Congestion::Dctcp,
            Policy::Timely(_) => context::Congestion::Timely,
            Policy::Cubic(_) => context::Congestion::Cubic,
            Policy::None => context::Congestion::None,
        }
    }

    /// Takes in what happened and decides anew.
    pub fn update(&mut self, sample: &Sample) -> Decision {
        match self {
            Policy::Dctcp(policy) => policy.update(sample),
            Policy::Timely(policy) => policy.update(sample),
            Policy::Cubic(policy) => policy.update(sample),
            Policy::None => Decision { cwnd: MAX_WINDOW, rate: 0 },
        }
    }

    /// Slow-start threshold in bytes, for `TCP_INFO`; `u32::MAX` before the first congestion.
    pub fn ssthresh(&self) -> u32 {
        match self {
            Policy::Dctcp(policy) => policy.window.ssthresh,
            Policy::Cubic(policy) => policy.window.ssthresh,
            Policy::Timely(_) | Policy::None => u32::MAX,
        }
    }
}

/// Initial window: ten segments (RFC 6928).
// Meets RFC 5681: 3.1-b.
pub fn initial_window(mss: u32) -> u32 {
    10 * mss
}

/// A congestion window with slow start (RFC 5681 section 3.1): what the window-based policies share.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Bytes.
    pub cwnd: u32,
    /// Bytes.
    pub ssthresh: u32,
}

impl Window {
    fn new(mss: u32) -> Window {
        Window { cwnd: initial_window(mss), ssthresh: u32::MAX }
    }

    fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start: one byte for each byte acknowledged, up to the threshold.
    // Meets RFC 5681: 3.1-c.
    fn slow_start(&mut self, acked: u64) {
        let grown = (self.cwnd as u64 + acked).min(self.ssthresh as u64).min(MAX_WINDOW as u64);
        self.cwnd = grown as u32;
    }

    fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_WINDOW);
    }

    /// Congestion: `share` of the window stays, at least two segments.
    fn shrink(&mut self, share: f64, mss: u32) {
        self.shrink_to(share, 2 * mss);
    }

    /// Congestion: `share` of the window stays, at least so many bytes.
    fn shrink_to(&mut self, share: f64, least: u32) {
        self.ssthresh = ((self.cwnd as f64 * share) as u32).max(least);
        self.cwnd = self.ssthresh;
    }

    /// Timeout: the threshold becomes `share` of what was in flight, the window one segment (RFC 5681, equation 4).
    // Meets RFC 9293: MUST-19.
    // Meets RFC 5681: 3.1-e, 3.1-f.
    fn collapse(&mut self, share: f64, sample: &Sample) {
        let flight = sample.outstanding.max(self.cwnd.min(sample.outstanding.saturating_add(sample.unsent)));
        self.ssthresh = ((flight as f64 * share) as u32).max(2 * sample.mss);
        self.cwnd = sample.mss;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context::Congestion;

    pub(super) const MSS: u32 = 1000;
    const MS: Nanos = 1_000_000;

    /// A round in which everything that the window allows was sent and acknowledged.
    pub(super) fn full_round(now: Nanos, cwnd: u32) -> Sample {
        Sample {
            now,
            acked: cwnd as u64,
            rtt: Some(MS),
            srtt: Some(MS),
            outstanding: cwnd,
            unsent: 1,
            mss: MSS,
            ..Sample::default()
        }
    }

    // Checks RFC 5681: 3.1-b, 3.1-c.
    #[test]
    fn window_policies_double_per_round_before_congestion() {
        for kind in [Congestion::Dctcp, Congestion::Cubic] {
            let mut policy = Policy::new(kind, MSS, 0);
            let first = policy.update(&full_round(MS, 10 * MSS));
            let second = policy.update(&full_round(2 * MS, first.cwnd));
            assert_eq!((first.cwnd, second.cwnd), (20 * MSS, 40 * MSS), "{kind:?}");
            assert_eq!(second.rate, 0);
        }
    }

    // Checks RFC 5681: 4.1-a.
    #[test]
    fn an_idle_application_does_not_grow_the_window() {
        for kind in [Congestion::Dctcp, Congestion::Cubic] {
            let mut policy = Policy::new(kind, MSS, 0);
            let quiet = Sample { acked: 100, outstanding: 0, unsent: 0, ..full_round(MS, 0) };
            assert_eq!(policy.update(&quiet).cwnd, 10 * MSS, "{kind:?}");
        }
    }

    // Checks RFC 9293: MUST-19.
    // Checks RFC 5681: 3.1-e, 3.1-f.
    #[test]
    fn a_timeout_leaves_one_segment_and_slow_start() {
        for kind in [Congestion::Dctcp, Congestion::Cubic] {
            let mut policy = Policy::new(kind, MSS, 0);
            policy.update(&full_round(MS, 10 * MSS));
            let lost = Sample { acked: 0, timeout: true, rtt: None, ..full_round(2 * MS, 20 * MSS) };
            assert_eq!(policy.update(&lost).cwnd, MSS, "{kind:?}");
            assert!(policy.ssthresh() < 20 * MSS && policy.ssthresh() >= 2 * MSS);
            assert_eq!(policy.update(&full_round(3 * MS, MSS)).cwnd, 2 * MSS, "{kind:?}");
        }
    }

    #[test]
    fn without_a_policy_nothing_limits() {
        let mut policy = Policy::new(Congestion::None, MSS, 0);
        assert_eq!(policy.update(&Sample::default()), Decision { cwnd: MAX_WINDOW, rate: 0 });
    }
}
