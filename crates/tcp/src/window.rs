//! The advertised receive window, and silly window avoidance at both ends (RFC 9293 section 3.8.6.2).
use crate::Nanos;
use wire::tcp::TIMESTAMPS_LEN;
use wire::{Seq, ipv4, tcp};

/// Longest time that an acknowledgement waits for data to ride on, nanoseconds (RFC 9293 section 3.8.6.3: at most 500
/// ms).
pub const ACK_DELAY: Nanos = 500_000;

/// Most payload bytes of a segment that the port cuts into several: what fits an IPv4 packet with the headers that an
/// engine writes.
pub const MOST_PAYLOAD: u32 = 65_535 - (ipv4::HEADER_LEN + tcp::HEADER_LEN + TIMESTAMPS_LEN) as u32;

/// Largest window scale (RFC 7323 section 2.3).
pub const MOST_SHIFT: u8 = 14;

/// The unit in which the header's window field counts with this scale, as a mask on bytes.
#[inline]
pub fn unit_mask(shift: u8) -> u32 {
    u32::MAX << shift.min(MOST_SHIFT)
}

/// The largest window that the header's field can carry with this scale, bytes.
#[inline]
pub fn most_window(shift: u8) -> u32 {
    u32::from(u16::MAX) << shift.min(MOST_SHIFT)
}

/// The largest window that is advertised for a receive buffer of so many bytes: all of it, as far as the field can
/// express.
#[inline]
pub fn largest_window(buffer: u32, shift: u8) -> u32 {
    buffer.min(most_window(shift)) & unit_mask(shift)
}

/// The step in which an advertised window grows: two full segments, or a quarter of a small window (RFC 9293
/// section 3.8.6.2.2).
#[inline]
pub fn window_step(largest: u32, mss: u32) -> u32 {
    (largest / 4).min(2 * mss)
}

/// Bytes of a buffer that became free, or of a window, that are worth a wake-up or a segment. They are a quarter of it
/// (thesis section 5.3.1.7). Of a large one, a quarter would keep a long path empty for as long.
#[inline]
pub fn worthwhile(buffer: u32) -> u32 {
    (buffer / 4).min(64 << 10)
}

/// Whether to advertise a window that can grow by `gain` bytes, where `open` bytes are advertised. It is so for a
/// worthwhile part of the largest window, or a step where the peer may wait for it (RFC 9293 section 3.8.6.2.2).
#[inline]
pub fn is_worth_advertising(gain: u32, open: u32, largest: u32, mss: u32) -> bool {
    gain >= worthwhile(largest) || (open < 2 * mss && gain >= window_step(largest, mss))
}

/// Most payload bytes of a frame that the port cuts into segments: a multiple of the segment size.
#[inline]
pub fn super_segment(most: u32, mss: u32) -> u32 {
    (most.min(MOST_PAYLOAD) / mss * mss).max(mss).min(MOST_PAYLOAD)
}

/// Data that waits at a sender's next sequence number, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// All of it.
    pub data: u32,
    /// Bytes that both windows leave.
    pub usable: u32,
    /// The most of one frame.
    pub most: u32,
    /// A full segment.
    pub mss: u32,
}

impl Waiting {
    /// Payload of the next frame. Nothing where it is better to wait for a full segment. A small one goes where that is
    /// all there is or it is due (RFC 9293 section 3.8.6.2.1).
    // Meets RFC 9293: MUST-38, SHLD-28, SHLD-27.
    #[inline]
    pub fn cut(&self, is_small_due: impl FnOnce() -> bool) -> Option<u32> {
        let Waiting { data, mss, .. } = *self;
        let len = data.min(self.usable).min(self.most);
        if len == 0 || (len < data && len < mss && !is_small_due()) {
            return None;
        }
        Some(if len < data && len > mss { len - len % mss } else { len })
    }
}

/// The windows of a sender that has less than a full segment to send and more data waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallSegment {
    /// Bytes that both windows leave.
    pub usable: u32,
    /// The peer's window, and the largest that it ever was, bytes.
    pub window: u32,
    /// See there.
    pub largest: u32,
    /// The congestion window, bytes.
    pub cwnd: u32,
    /// Nothing is in flight.
    pub alone: bool,
    /// The persist timer has the window used as it is.
    pub overriding: bool,
}

impl SmallSegment {
    /// It is sent all the same: half of the largest window is open, or nothing is in flight whose acknowledgement could
    /// open a window. For the peer's small window, the persist timer waits for that. Nothing does for what is left of
    /// the congestion window beside full segments.
    #[inline]
    pub fn is_due(&self) -> bool {
        let stuck = self.alone && (self.overriding || self.cwnd <= self.window);
        stuck || self.usable >= self.largest.div_ceil(2)
    }
}

/// Nagle's algorithm (RFC 896, RFC 9293 section 3.7.4) in Minshall's variant, as Linux has it. A segment that is not
/// full waits for the acknowledgement of the last one that was not full, rather than of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nagle {
    /// After the last segment that was not full.
    pub short_end: Seq,
    /// First byte that is not acknowledged.
    pub una: Seq,
    /// After the last one that was sent.
    pub max: Seq,
}

impl Nagle {
    /// What of the last `len` bytes that there are to send goes now: all, or whole segments of `mss` bytes.
    // Meets RFC 9293: SHLD-7.
    pub fn allows(&self, len: u32, mss: u32) -> u32 {
        let waits = self.una.before(self.short_end) && self.short_end.at_or_before(self.max);
        if waits { len - len % mss } else { len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 9293: SHLD-7.
    #[test]
    fn one_short_segment_is_under_way() {
        let una = Seq(u32::MAX - 99);
        let nagle = Nagle { short_end: una + 150, una, max: una + 1150 };
        assert_eq!((nagle.allows(100, 1000), nagle.allows(2500, 1000), nagle.allows(2000, 1000)), (0, 2000, 2000));
        assert_eq!(Nagle { una: una + 150, ..nagle }.allows(100, 1000), 100, "it is acknowledged; others are not");
        assert_eq!(Nagle { short_end: una + 2000, ..nagle }.allows(100, 1000), 100, "long ago");
    }

    // Checks RFC 7323: 2.3-b.
    #[test]
    fn the_largest_window_is_what_the_field_can_express() {
        assert_eq!(largest_window(8 << 20, 0), 65_535, "no scale");
        assert_eq!(largest_window(65_536, 0), 65_535);
        assert_eq!(largest_window(65_536, 1), 65_536);
        assert_eq!(largest_window(8 << 20, 7), 65_535 << 7);
        assert_eq!(largest_window(8 << 20, 8), 8 << 20);
        assert_eq!(largest_window(u32::MAX, 200), 65_535 << 14);
    }

    // Checks RFC 9293: MUST-39.
    #[test]
    fn small_steps_are_not_advertised() {
        assert!(!is_worth_advertising(0, 0, 8192, 1000));
        assert!(!is_worth_advertising(1999, 0, 8192, 1000));
        assert!(is_worth_advertising(2000, 1999, 8192, 1000), "two segments, where the window is nearly closed");
        assert!(!is_worth_advertising(2000, 2000, 8192, 1000));
        assert!(is_worth_advertising(2048, 6000, 8192, 1000), "a quarter");
        assert!(is_worth_advertising(25, 0, 100, 1000), "a window smaller than a segment");
        assert!(is_worth_advertising(65_536, 1 << 20, 4 << 20, 1000), "a large one, in smaller parts");
    }

    // Checks RFC 9293: MUST-38, SHLD-28, SHLD-27.
    #[test]
    fn a_sender_waits_for_full_segments() {
        let waiting = Waiting { data: 5000, usable: 3500, most: 8000, mss: 1000 };
        assert_eq!(waiting.cut(|| false), Some(3000));
        assert_eq!(Waiting { most: 2000, ..waiting }.cut(|| false), Some(2000));
        assert_eq!(Waiting { data: 400, ..waiting }.cut(|| false), Some(400), "all there is");
        let narrow = Waiting { usable: 600, ..waiting };
        assert_eq!((narrow.cut(|| false), narrow.cut(|| true)), (None, Some(600)));
        assert_eq!(Waiting { usable: 0, ..waiting }.cut(|| true), None);

        let closed =
            SmallSegment { usable: 600, window: 600, largest: 60_000, cwnd: 10_000, alone: true, overriding: false };
        assert!(!closed.is_due(), "the persist timer comes first");
        assert!(SmallSegment { overriding: true, ..closed }.is_due());
        assert!(!SmallSegment { overriding: true, alone: false, ..closed }.is_due());
        assert!(SmallSegment { cwnd: 600, ..closed }.is_due(), "the congestion window opens by acknowledgements only");
        assert!(SmallSegment { largest: 1200, alone: false, ..closed }.is_due(), "half of the largest");
    }

    #[test]
    fn super_segments_are_whole_segments() {
        assert_eq!(super_segment(65_535, 1460), 44 * 1460);
        assert_eq!(super_segment(0, 1460), 1460);
        assert_eq!(super_segment(u32::MAX, 65_535), MOST_PAYLOAD);
    }
}
