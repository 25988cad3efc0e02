//! DCQCN's reaction point: the rate of one sender (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments",
//! SIGCOMM '15, sections 3.1 and 5). Pure: its input is notifications, bytes and the time, its output a rate.
//!
//! A sender without one of these is not limited. The first notification makes one; it goes when the rate is the line's
//! again.
use engine::Nanos;

/// Weight of a notification in the estimate of congestion, as a shift: g = 1/256.
const GAIN: u32 = 8;
/// The estimate of congestion (alpha) is a fraction of this.
const ONE: u32 = 1 << 24;
/// Without a notification for so long (K), congestion is taken to be less.
const ALPHA_TIME: Nanos = 55_000;
/// The rate is increased once in this time (T).
const RATE_TIME: Nanos = 55_000;
/// And once after so many bytes (B).
const RATE_BYTES: u64 = 10_000_000;
/// Increases that only go half of the way to the target rate (F).
const FAST: u32 = 5;
/// The target rate gains this part of the line's rate with an increase after those (R_AI): 40 Mbit/s at 40 Gbit/s, as
/// published. The same number on a slower line would be a step of the same senders that is as much larger.
const ADDED: u64 = 1000;
/// The same once both counters are over the threshold (R_HI). The paper has no number: ten times the other one, as
/// 802.1Qau has it.
const ADDED_MORE: u64 = 100;
/// No sender is slower, bits a second: notifications may be forged, and what waits must get on.
pub(crate) const SLOWEST: u64 = 10_000_000;

/// The state of a limited sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dcqcn {
    /// The line's rate, and R_C and R_T: bits a second.
    line: u64,
    current: u64,
    target: u64,
    /// Alpha, in parts of [`ONE`].
    alpha: u32,
    /// When alpha and the rate change next by themselves.
    alpha_at: Nanos,
    rate_at: Nanos,
    /// Increases since the last notification: by time, and by bytes.
    by_time: u32,
    by_bytes: u32,
    /// Bytes sent since the last increase by bytes.
    bytes: u64,
}

impl Dcqcn {
    /// A sender at this rate, bits a second, which gets its first notification.
    pub(crate) fn new(line: u64, now: Nanos) -> Dcqcn {
        let line = line.max(SLOWEST);
        let mut sender = Dcqcn {
            line,
            current: line,
            target: line,
            alpha: ONE,
            alpha_at: Nanos::MAX,
            rate_at: Nanos::MAX,
            by_time: 0,
            by_bytes: 0,
            bytes: 0,
        };
        sender.notify(now);
        sender
    }

    /// A notification came: equation 1. The rate falls by half of alpha.
    pub(crate) fn notify(&mut self, now: Nanos) {
        self.advance(now);
        self.target = self.current;
        let cut = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ONE);
        self.current = (self.current - cut as u64).max(SLOWEST);
        self.alpha = self.alpha - (self.alpha >> GAIN) + (ONE >> GAIN);
        (self.alpha_at, self.rate_at) = (now + ALPHA_TIME, now + RATE_TIME);
        (self.by_time, self.by_bytes, self.bytes) = (0, 0, 0);
    }

    /// Does what was due until now: equation 2 for alpha, and increases by time.
    pub(crate) fn advance(&mut self, now: Nanos) {
        // A clock that has gone back makes nothing wait longer than once.
        self.alpha_at = self.alpha_at.min(now.saturating_add(ALPHA_TIME));
        self.rate_at = self.rate_at.min(now.saturating_add(RATE_TIME));
        while self.alpha_at <= now && self.alpha >> GAIN > 0 {
            self.alpha -= self.alpha >> GAIN;
            self.alpha_at += ALPHA_TIME;
        }
        // Below that it is none: nothing changes any more.
        if self.alpha_at <= now {
            self.alpha_at = now + ALPHA_TIME;
        }
        while self.rate_at <= now && !self.is_free() {
            self.by_time += 1;
            self.increase();
            self.rate_at += RATE_TIME;
        }
    }

    /// Bytes were sent.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        while self.bytes >= RATE_BYTES {
            self.bytes -= RATE_BYTES;
            self.by_bytes += 1;
            self.increase();
        }
    }

    /// One of the counters was counted up: fast recovery, additive increase or hyper increase (figure 7).
    fn increase(&mut self) {
        let added = match (self.by_time.max(self.by_bytes), self.by_time.min(self.by_bytes)) {
            (..=FAST, _) => 0,
            (_, ..=FAST) => self.line / ADDED,
            _ => self.line / ADDED_MORE,
        };
        self.target = (self.target + added).min(self.line);
        // Rounded up: so it gets there.
        self.current = (self.target + self.current).div_ceil(2);
    }

    /// Bits a second.
    pub(crate) fn rate(&self) -> u64 {
        self.current
    }

    /// The rate is the line's: there is nothing left to limit.
    pub(crate) fn is_free(&self) -> bool {
        self.current >= self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;
    const LINE: u64 = 40 * GBIT;

    /// Alpha as a number.
    fn alpha(sender: &Dcqcn) -> f64 {
        f64::from(sender.alpha) / f64::from(ONE)
    }

    fn is_near(one: f64, other: f64) -> bool {
        (one - other).abs() <= other.abs() * 1e-5 + 1e-6
    }

    /// One that had a notification at time 0, and whose rate and target are these.
    fn sender(current: u64, target: u64) -> Dcqcn {
        Dcqcn { current, target, ..Dcqcn::new(LINE, 0) }
    }

    #[test]
    fn the_first_notification_halves_the_rate() {
        let sender = Dcqcn::new(LINE, 1000);
        // Alpha is 1 before it, and 255/256 + 1/256 = 1 after it.
        assert_eq!((sender.current, sender.target, sender.alpha), (LINE / 2, LINE, ONE));
        assert_eq!((sender.alpha_at, sender.rate_at), (56_000, 56_000));
        assert!(!sender.is_free());
    }

    #[test]
    fn a_notification_cuts_by_half_of_alpha_and_then_raises_alpha() {
        let mut sender = sender(8 * GBIT, 20 * GBIT);
        sender.alpha = ONE / 4;
        (sender.by_time, sender.by_bytes, sender.bytes) = (3, 2, 77);
        sender.notify(10_000);
        assert_eq!((sender.current, sender.target), (7 * GBIT, 8 * GBIT), "R_T = R_C; R_C = R_C (1 - alpha / 2)");
        assert!(is_near(alpha(&sender), 0.25 * 255.0 / 256.0 + 1.0 / 256.0), "alpha = (1 - g) alpha + g");
        assert_eq!((sender.by_time, sender.by_bytes, sender.bytes), (0, 0, 0));
        assert_eq!((sender.alpha_at, sender.rate_at), (65_000, 65_000));
    }

    #[test]
    fn without_notifications_alpha_falls_once_in_55_microseconds() {
        let mut sender = Dcqcn::new(LINE, 0);
        sender.advance(54_999);
        assert_eq!(sender.alpha, ONE);
        sender.advance(55_000);
        assert!(is_near(alpha(&sender), 255.0 / 256.0));
        sender.advance(55_000 * 100 + 1);
        assert!(is_near(alpha(&sender), (255.0f64 / 256.0).powi(100)), "{}", alpha(&sender));
        sender.advance(u64::MAX / 2);
        assert!(alpha(&sender) < 1e-4 && sender.alpha_at > u64::MAX / 2);
    }

    #[test]
    fn five_fast_increases_then_additive_ones() {
        let mut sender = sender(2 * GBIT, 10 * GBIT);
        let mut expected = 2.0e9;
        for round in 1..=5 {
            sender.advance(55_000 * round);
            expected = (expected + 10.0e9) / 2.0;
            assert!(is_near(sender.current as f64, expected) && sender.target == 10 * GBIT, "fast recovery {round}");
        }
        for round in 6..=9 {
            sender.advance(55_000 * round);
            let target = 10 * GBIT + (round - 5) * 40_000_000;
            expected = (expected + target as f64) / 2.0;
            assert!(is_near(sender.current as f64, expected) && sender.target == target, "additive increase {round}");
        }
        assert_eq!(sender.by_time, 9);
    }

    #[test]
    fn ten_megabytes_count_as_well_as_time() {
        let mut sender = sender(2 * GBIT, 10 * GBIT);
        sender.sent(9_999_999);
        assert_eq!((sender.current, sender.by_bytes), (2 * GBIT, 0));
        sender.sent(1);
        assert_eq!((sender.current, sender.by_bytes, sender.bytes), (6 * GBIT, 1, 0));
        sender.sent(25_000_000);
        assert_eq!((sender.by_bytes, sender.bytes), (3, 5_000_000));
    }

    #[test]
    fn hyper_increase_needs_both_counters() {
        let mut sender = sender(2 * GBIT, 10 * GBIT);
        sender.advance(55_000 * 6);
        assert_eq!(sender.target, 10 * GBIT + 40_000_000);
        sender.sent(5 * RATE_BYTES);
        // max(T, BC) > F and min(T, BC) <= F: five more additive increases.
        assert_eq!(sender.target, 10 * GBIT + 6 * 40_000_000);
        sender.sent(RATE_BYTES);
        assert_eq!((sender.by_time, sender.by_bytes), (6, 6));
        assert_eq!(sender.target, 10 * GBIT + 6 * 40_000_000 + 400_000_000);
    }

    #[test]
    fn a_slower_line_has_smaller_steps() {
        let slow = |by_bytes| Dcqcn { by_time: 9, by_bytes, line: 10 * GBIT, ..sender(GBIT, 2 * GBIT) };
        let gains = |mut sender: Dcqcn| {
            sender.advance(55_000);
            sender.target - 2 * GBIT
        };
        assert_eq!([gains(slow(0)), gains(slow(9))], [10_000_000, 100_000_000]);
    }

    #[test]
    fn the_rate_falls_to_the_floor_and_comes_back_to_the_line() {
        let mut sender = Dcqcn::new(LINE, 0);
        (0..10_000).for_each(|at| sender.notify(at * 10));
        assert_eq!((sender.rate(), sender.alpha), (SLOWEST, ONE));
        // 1000 additive increases and what they need to be reached: less than 60 ms.
        sender.advance(100_000 + 60_000_000);
        assert!(sender.is_free(), "{sender:?}");
        assert_eq!((sender.current, sender.target), (LINE, LINE));
        assert!(Dcqcn::new(0, 0).is_free(), "a line that is slower than the floor");
    }

    #[test]
    fn looking_often_or_seldom_gives_the_same() {
        let (mut often, mut seldom) = (sender(GBIT, 3 * GBIT), sender(GBIT, 3 * GBIT));
        (0..3000).for_each(|at| often.advance(at * 977));
        seldom.advance(2999 * 977);
        assert_eq!(often, seldom);
    }

    #[test]
    fn a_clock_that_goes_back_delays_nothing_for_long() {
        let mut sender = sender(GBIT, 3 * GBIT);
        sender.notify(1 << 60);
        let before = sender.rate();
        sender.advance(1000);
        sender.advance(1000 + 55_000);
        assert!(sender.rate() > before);
    }
}
