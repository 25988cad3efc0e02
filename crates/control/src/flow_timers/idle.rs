//! The congestion window of a flow that sends nothing (RFC 5681 section 4.1).
use super::{FlowTimers, TimerActions};
use crate::flow_options::FlowOptions;
use engine::Nanos;
use engine::stream::FlowFigures;

impl FlowTimers {
    /// The window shrinks while nothing is sent. It does so before the next byte: the engine sends that at once. A flow
    /// that is not timed otherwise is polled for it a few times, until its window is the restart window.
    // Meets RFC 5681: 4.1-a.
    pub(super) fn shrink_if_idle(
        &mut self,
        now: Nanos,
        figures: &FlowFigures,
        options: &FlowOptions,
        mss: u32,
        actions: &mut TimerActions,
    ) {
        if options.slow_start_after_idle == 0 {
            return;
        }
        let time = self.rtt.rto().nanos().max(options.slow_start_after_idle);
        if figures.outstanding > 0 || figures.snd_nxt != self.last.snd_nxt {
            self.idle_at = now + time;
        } else if (1..=now).contains(&self.idle_at) {
            let (growth, cwnd) = (self.policy.growth(), self.policy.idle(mss));
            if let Some(cwnd) = cwnd {
                (self.enforced.cwnd, actions.window) = (cwnd, Some(cwnd));
            }
            if self.policy.growth() != growth {
                actions.growth = Some(self.policy.growth());
            }
            self.idle_at = cwnd.map_or(0, |_| (self.idle_at + time).max(now + 1));
        }
        if figures.outstanding == 0 && self.idle_at > 0 {
            actions.next = Some(actions.next.map_or(self.idle_at, |next| next.min(self.idle_at)));
        }
    }
}
