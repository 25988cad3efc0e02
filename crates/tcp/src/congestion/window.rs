//! A congestion window with slow start (RFC 5681 section 3.1): what the window-based policies share.
use super::policy::{MAX_WINDOW, Sample, initial_window};
use crate::Growth;

/// A congestion window.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// Bytes.
    pub(super) cwnd: u32,
    /// Bytes.
    pub(super) ssthresh: u32,
    /// Both, before the last loss.
    before: (u32, u32),
}

impl Window {
    pub(super) fn new(mss: u32) -> Window {
        Window { cwnd: initial_window(mss), ssthresh: u32::MAX, before: (0, 0) }
    }

    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Slow start: one byte for each byte acknowledged, up to the threshold.
    // Meets RFC 5681: 3.1-c.
    pub(super) fn slow_start(&self) -> Growth {
        Growth::slow_start(self.ssthresh.min(MAX_WINDOW))
    }

    pub(super) fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_WINDOW);
    }

    /// Congestion: `share` of the window stays, at least two segments.
    pub(super) fn shrink(&mut self, share: f64, mss: u32) {
        self.shrink_to(share, 2 * mss);
    }

    /// Congestion: `share` of the window stays, at least so many bytes.
    pub(super) fn shrink_to(&mut self, share: f64, least: u32) {
        self.before = (self.cwnd, self.ssthresh);
        self.ssthresh = ((self.cwnd as f64 * share) as u32).max(least);
        self.cwnd = self.ssthresh;
    }

    /// The last loss was none: the window is at least what it was before it.
    // Meets RFC 3708: 3.3-a.
    pub(super) fn undo(&mut self) {
        let (cwnd, ssthresh) = std::mem::take(&mut self.before);
        (self.cwnd, self.ssthresh) = (self.cwnd.max(cwnd), self.ssthresh.max(ssthresh));
    }

    /// Idle for the time of a timeout: half of the window stays, and at least the restart window. The threshold keeps
    /// three quarters of it, as in Linux (`tcp_cwnd_restart`). RFC 5681 section 4.1 goes to the restart window at once.
    // Meets RFC 5681: 4.1-a.
    pub(super) fn idle(&mut self, mss: u32) -> Option<u32> {
        let restart = initial_window(mss);
        if self.cwnd <= restart {
            return None;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        self.cwnd = (self.cwnd / 2).max(restart);
        Some(self.cwnd)
    }

    /// Timeout: the threshold becomes `share` of what was in flight, the window one segment (RFC 5681, equation 4).
    // Meets RFC 9293: MUST-19.
    // Meets RFC 5681: 3.1-e, 3.1-f.
    pub(super) fn collapse(&mut self, share: f64, sample: &Sample) {
        // A timeout after another one finds nothing to remember.
        if self.cwnd > sample.mss {
            self.before = (self.cwnd, self.ssthresh);
        }
        let flight = sample.outstanding.max(self.cwnd.min(sample.outstanding.saturating_add(sample.unsent)));
        self.ssthresh = ((flight as f64 * share) as u32).max(2 * sample.mss);
        self.cwnd = sample.mss;
    }
}
