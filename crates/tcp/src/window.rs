//! The receive window that is advertised, and segments that are worth sending: silly window avoidance at both ends (RFC
//! 9293 section 3.8.6.2).
use crate::Nanos;
use wire::tcp::TIMESTAMPS_LEN;
use wire::{ipv4, tcp};

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

/// The largest window that the header's field can tell with this scale, bytes.
#[inline]
pub fn most_window(shift: u8) -> u32 {
    u32::from(u16::MAX) << shift.min(MOST_SHIFT)
}

/// The largest window that is advertised for a receive buffer of so many bytes: all of it, as far as the field can
/// tell.
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

/// Whether the peer is to be told of a window that can grow by `gain` bytes, while it knows of `open` bytes: a quarter
/// of the largest window, or a step where the peer may be waiting for it (RFC 9293 section 3.8.6.2.2).
#[inline]
pub fn is_worth_telling(gain: u32, open: u32, largest: u32, mss: u32) -> bool {
    gain >= largest / 4 || (open < 2 * mss && gain >= window_step(largest, mss))
}

/// Most payload bytes of a frame that the port cuts into segments: a multiple of the segment size.
#[inline]
pub fn super_segment(most: u32, mss: u32) -> u32 {
    (most.min(MOST_PAYLOAD) / mss * mss).max(mss).min(MOST_PAYLOAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 7323: 2.3-b.
    #[test]
    fn the_largest_window_is_what_the_field_can_tell() {
        assert_eq!(largest_window(8 << 20, 0), 65_535, "no scale");
        assert_eq!(largest_window(65_536, 0), 65_535);
        assert_eq!(largest_window(65_536, 1), 65_536);
        assert_eq!(largest_window(8 << 20, 7), 65_535 << 7);
        assert_eq!(largest_window(8 << 20, 8), 8 << 20);
        assert_eq!(largest_window(u32::MAX, 200), 65_535 << 14);
    }

    // Checks RFC 9293: MUST-39.
    #[test]
    fn small_steps_are_not_told() {
        assert!(!is_worth_telling(0, 0, 8192, 1000));
        assert!(!is_worth_telling(1999, 0, 8192, 1000));
        assert!(is_worth_telling(2000, 1999, 8192, 1000), "two segments, where the window is nearly closed");
        assert!(!is_worth_telling(2000, 2000, 8192, 1000));
        assert!(is_worth_telling(2048, 6000, 8192, 1000), "a quarter");
        assert!(is_worth_telling(25, 0, 100, 1000), "a window smaller than a segment");
    }

    #[test]
    fn super_segments_are_whole_segments() {
        assert_eq!(super_segment(65_535, 1460), 44 * 1460);
        assert_eq!(super_segment(0, 1460), 1460);
        assert_eq!(super_segment(u32::MAX, 65_535), MOST_PAYLOAD);
    }
}
