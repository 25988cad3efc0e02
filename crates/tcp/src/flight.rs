//! What may be in flight as far as congestion control goes, and how that grows with acknowledgements.
//!
//! Congestion control runs beside the data-path, a few times in a round trip. It sets the window where there was
//! congestion. Otherwise it sets how the window grows ([`Growth`]), and each acknowledgement applies that.
use wire::Seq;
use wire::tcp::Growth;

/// The limit of bytes in flight: the congestion window, and what limited transmit adds to it for now (RFC 3042).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightLimit {
    cwnd: u32,
    /// Bytes that may be in flight: the window and what limited transmit adds, or fast recovery's own limit.
    allowed: u32,
    /// The window grows while it is below this ([`Growth::until`]).
    until: u32,
    /// Most bytes that were in flight at once in the last round trip in which the window could grow.
    peak: u32,
}

/// How far the window is used, and what is acknowledged towards the next segment of it. Beside [`FlightLimit`], since
/// only windows that grow need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUse {
    /// The round trip of [`FlightLimit::peak`] ends where this is acknowledged.
    round_end: Seq,
    /// A segment for so many bytes acknowledged ([`Growth::per`]), and bytes that count towards the next one.
    per: u32,
    counted: u32,
}

impl WindowUse {
    /// Of a stream that begins here, with a window that grows like this.
    pub fn new(at: Seq, growth: Growth) -> WindowUse {
        WindowUse { round_end: at, per: growth.per, counted: 0 }
    }
}

/// An acknowledgement of something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The first byte that was not acknowledged before it.
    pub una: Seq,
    /// After the last byte that was sent.
    pub max: Seq,
    /// Bytes that it acknowledges.
    pub bytes: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

impl FlightLimit {
    /// A congestion window of so many bytes, and how it grows.
    pub fn new(cwnd: u32, growth: Growth) -> FlightLimit {
        FlightLimit { cwnd, allowed: cwnd, until: growth.until, peak: 0 }
    }

    /// Bytes that may be in flight.
    #[inline(always)]
    pub fn bytes(&self) -> u32 {
        self.allowed
    }

    /// The congestion window, bytes.
    #[inline]
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Sets the congestion window, bytes. What limited transmit has added stays.
    pub fn set_cwnd(&mut self, cwnd: u32) {
        let limited = self.allowed.saturating_sub(self.cwnd);
        (self.cwnd, self.allowed) = (cwnd, cwnd.saturating_add(limited));
    }

    /// From now on the window grows like this. What was acknowledged towards the next segment counts on, for one
    /// segment at most.
    pub fn set_growth(&mut self, usage: &mut WindowUse, growth: Growth) {
        self.until = growth.until;
        (usage.per, usage.counted) = (growth.per, usage.counted.min(growth.per));
    }

    /// Grows the window with an acknowledgement, outside fast recovery. Returns by how many bytes.
    #[inline(always)]
    pub fn acknowledge(&mut self, usage: &mut WindowUse, ack: &Acknowledged) -> u32 {
        if self.cwnd >= self.until || !self.is_used((ack.max - ack.una).max(self.peak)) {
            return 0;
        }
        self.grow(usage, ack)
    }

    /// With so many bytes in flight, the window and not the application limits: at least half of it is used, so that a
    /// round trip at most doubles what was used (RFC 7661 section 4.3).
    #[inline(always)]
    fn is_used(&self, flight: u32) -> bool {
        flight > self.cwnd / 2
    }

    // Meets RFC 5681: 3.1-c, 3.1-d, 4.1-a.
    #[inline(never)]
    fn grow(&mut self, usage: &mut WindowUse, ack: &Acknowledged) -> u32 {
        let flight = ack.max - ack.una;
        if usage.round_end.at_or_before(ack.una) || flight > self.peak {
            (self.peak, usage.round_end) = (flight, ack.max);
        }
        if !self.is_used(self.peak) {
            return 0;
        }
        let more = if usage.per == 0 { ack.bytes } else { usage.segments(ack.bytes).saturating_mul(ack.mss) };
        let more = more.min(self.until - self.cwnd);
        self.cwnd += more;
        self.allowed = self.allowed.saturating_add(more);
        more
    }

    /// Fast recovery: so many bytes may be in flight for now, whatever the window is.
    pub fn limit(&mut self, bytes: u32) {
        self.allowed = bytes;
    }

    /// Limited transmit: one segment more (RFC 5681 section 3.2 step 1).
    // Meets RFC 5681: 3.2-e, 3.2-f.
    pub fn extend(&mut self, mss: u32) {
        self.allowed = self.allowed.saturating_add(mss);
    }

    /// The congestion window alone counts again.
    #[inline]
    pub fn reset(&mut self) {
        self.allowed = self.cwnd;
    }
}

impl WindowUse {
    /// Segments by which the window grows for so many bytes more.
    fn segments(&mut self, bytes: u32) -> u32 {
        let counted = self.counted.saturating_add(bytes);
        self.counted = counted % self.per;
        counted / self.per
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// A sender with a window, whose peer acknowledges.
    struct Sender {
        limit: FlightLimit,
        usage: WindowUse,
        una: Seq,
        max: Seq,
    }

    impl Sender {
        fn new(segments: u32, growth: Growth) -> Sender {
            let at = Seq(u32::MAX - 5000);
            let usage = WindowUse::new(at, growth);
            Sender { limit: FlightLimit::new(segments * MSS, growth), usage, una: at, max: at }
        }

        /// Sends so many segments, as far as the window allows.
        fn send(&mut self, segments: u32) {
            let room = self.limit.bytes().saturating_sub(self.max - self.una);
            self.max += (segments * MSS).min(room);
        }

        /// So many segments are acknowledged. Returns the window, segments.
        fn acknowledge(&mut self, segments: u32) -> u32 {
            let ack = Acknowledged { una: self.una, max: self.max, bytes: segments * MSS, mss: MSS };
            let (before, grown) = (self.limit.cwnd(), self.limit.acknowledge(&mut self.usage, &ack));
            assert_eq!(self.limit.cwnd(), before + grown);
            self.una += segments * MSS;
            self.limit.cwnd() / MSS
        }
    }

    // Checks RFC 5681: 3.1-c.
    #[test]
    fn in_slow_start_the_window_grows_by_what_is_acknowledged() {
        let mut sender = Sender::new(10, Growth::slow_start(u32::MAX));
        let mut windows = Vec::new();
        for segments in [1, 2, 3, 4] {
            sender.send(30);
            windows.push(sender.acknowledge(segments));
        }
        assert_eq!(windows, [11, 13, 16, 20], "doubled with a window of acknowledgements");
        assert_eq!(sender.limit.bytes(), 20 * MSS, "and so much may be in flight");
    }

    // Checks RFC 5681: 3.1-c.
    #[test]
    fn slow_start_ends_at_the_threshold() {
        let mut sender = Sender::new(10, Growth::slow_start(12_500));
        sender.send(10);
        assert_eq!((sender.acknowledge(2), sender.acknowledge(2)), (12, 12));
        assert_eq!(sender.limit.cwnd(), 12_500);
    }

    // Checks RFC 5681: 3.1-d.
    #[test]
    fn later_the_window_grows_by_a_segment_for_so_many_bytes() {
        let mut sender = Sender::new(10, Growth { until: u32::MAX, per: 10 * MSS });
        let windows: Vec<u32> = (0..20)
            .map(|_| {
                sender.send(30);
                sender.acknowledge(1)
            })
            .collect();
        assert_eq!((windows[8], windows[9], windows[18], windows[19]), (10, 11, 11, 12));
    }

    /// What counts towards a segment at a slow pace is no burst at a fast one.
    #[test]
    fn a_faster_pace_begins_with_one_segment() {
        let mut sender = Sender::new(10, Growth { until: u32::MAX, per: 100 * MSS });
        for _ in 0..90 {
            sender.send(30);
            sender.acknowledge(1);
        }
        sender.limit.set_growth(&mut sender.usage, Growth { until: u32::MAX, per: 2 * MSS });
        sender.send(30);
        assert_eq!(sender.acknowledge(1), 11);
    }

    // Checks RFC 5681: 4.1-a.
    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut sender = Sender::new(10, Growth::slow_start(u32::MAX));
        for _ in 0..20 {
            sender.send(5);
            assert_eq!((sender.acknowledge(4), sender.acknowledge(1)), (10, 10));
        }
        sender.send(6);
        let windows: Vec<u32> = (0..3).map(|_| sender.acknowledge(2)).collect();
        assert_eq!(windows, [12, 12, 12], "to twice what was used");
        sender.send(9);
        let windows: Vec<u32> = [2, 2, 2, 2, 1].map(|segments| sender.acknowledge(segments)).into();
        assert_eq!(windows, [14, 16, 18, 18, 18]);
        sender.send(2);
        assert_eq!(sender.acknowledge(2), 18, "what was used in an earlier round trip does not count");
    }

    #[test]
    fn without_growth_acknowledgements_leave_the_window() {
        let mut sender = Sender::new(10, Growth::NONE);
        sender.send(10);
        assert_eq!(sender.acknowledge(10), 10);
    }

    // Checks RFC 5681: 3.2-e, 3.2-f.
    #[test]
    fn limited_transmit_is_beside_the_congestion_window() {
        let mut limit = FlightLimit::new(10_000, Growth::NONE);
        limit.extend(1000);
        limit.extend(1000);
        assert_eq!((limit.bytes(), limit.cwnd()), (12_000, 10_000));
        limit.set_cwnd(5000);
        assert_eq!(limit.bytes(), 7000);
        limit.reset();
        assert_eq!(limit.bytes(), 5000);
        limit.set_cwnd(u32::MAX);
        limit.extend(1000);
        assert_eq!(limit.bytes(), u32::MAX);
    }
}
