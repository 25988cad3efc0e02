//! The times that an RNR NAK may ask for (IBTA 1.3, table 45).
use crate::Nanos;

/// Codes that there are.
pub const RNR_CODES: usize = 32;

/// In units of 10 us.
const TIMES: [u32; RNR_CODES] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long a requester waits after an RNR NAK with this code, of which the low five bits count.
// Meets IBTA: 9.7.5-g.
pub fn rnr_time(code: u8) -> Nanos {
    Nanos::from(TIMES[usize::from(code) % RNR_CODES]) * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks IBTA: 9.7.5-g.
    #[test]
    fn the_table_is_that_of_the_architecture() {
        assert_eq!([rnr_time(0), rnr_time(1), rnr_time(12), rnr_time(31)], [655_360_000, 10_000, 640_000, 491_520_000]);
        // From code 5 on, each second code doubles the time.
        for code in 5..30 {
            assert_eq!(rnr_time(code + 2), 2 * rnr_time(code), "{code}");
        }
    }
}
