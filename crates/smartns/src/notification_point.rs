//! The notification point: when a receiver of packets that met congestion notifies their sender (Zhu et al.,
//! SIGCOMM '15, section 3.1, "NP algorithm").
use engine::Nanos;

/// At most one notification for a queue pair in this time (N).
const INTERVAL: Nanos = 50_000;
/// The congestion notifications that a queue pair has sent.
#[derive(Debug, Default)]
pub(crate) struct NotificationPoint {
    /// When it did so last.
    at: Option<Nanos>,
    sent: u64,
}

impl NotificationPoint {
    /// Packets are marked: whether the peer is to be notified now. If so, it counts as notified.
    pub(crate) fn is_due(&mut self, now: Nanos) -> bool {
        // A clock that has gone back begins anew.
        let is_due = self.at.and_then(|at| now.checked_sub(at)).is_none_or(|since| since >= INTERVAL);
        if is_due {
            (self.at, self.sent) = (Some(now), self.sent + 1);
        }
        is_due
    }

    /// Notifications so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks IBTA: A17.9.3-a.
    #[test]
    fn one_notification_in_50_microseconds() {
        let mut notification_point = NotificationPoint::default();
        let times = [7, 8, 50_006, 50_007, 50_008, 100_007, 300_000, 349_999, 10, 11];
        let due = times.map(|now| notification_point.is_due(now));
        assert_eq!(due, [true, false, false, true, false, true, true, false, true, false]);
        assert_eq!(notification_point.sent(), 5);
    }
}
