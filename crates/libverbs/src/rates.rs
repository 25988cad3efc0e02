//! Rates of InfiniBand: codes of `enum ibv_rate`, multiples of 2.5 Gbit/s, Mbit/s.
use libc::c_int;

/// A rate. Not every one is a multiple.
struct Rate {
    code: c_int,
    multiple: c_int,
    megabits: c_int,
}

const fn rate(code: c_int, multiple: c_int, megabits: c_int) -> Rate {
    Rate { code, multiple, megabits }
}

/// No multiple.
const NONE: c_int = -1;
/// `IBV_RATE_MAX`: as fast as the port.
const ANY: c_int = 0;

const RATES: [Rate; 23] = [
    rate(2, 1, 2_500),
    rate(5, 2, 5_000),
    rate(3, 4, 10_000),
    rate(6, 8, 20_000),
    rate(4, 12, 30_000),
    rate(7, 16, 40_000),
    rate(8, 24, 60_000),
    rate(9, 32, 80_000),
    rate(10, 48, 120_000),
    rate(11, NONE, 14_062),
    rate(12, NONE, 56_250),
    rate(13, NONE, 112_500),
    rate(14, NONE, 168_750),
    rate(15, NONE, 25_781),
    rate(16, NONE, 103_125),
    rate(17, NONE, 206_250),
    rate(18, NONE, 309_375),
    rate(19, NONE, 28_125),
    rate(20, NONE, 53_125),
    rate(21, NONE, 425_000),
    rate(22, NONE, 637_500),
    rate(23, NONE, 850_000),
    rate(24, NONE, 1_275_000),
];

fn by(matches: impl Fn(&Rate) -> bool) -> Option<&'static Rate> {
    RATES.iter().find(|rate| matches(rate))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(code: c_int) -> c_int {
    by(|rate| rate.code == code).map_or(NONE, |rate| rate.multiple)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    by(|rate| rate.multiple == multiple && multiple != NONE).map_or(ANY, |rate| rate.code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(code: c_int) -> c_int {
    by(|rate| rate.code == code).map_or(NONE, |rate| rate.megabits)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
    by(|rate| rate.megabits == megabits).map_or(ANY, |rate| rate.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_come_back() {
        for rate in &RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate.code)), rate.code);
        }
        assert_eq!((ibv_rate_to_mult(5), mult_to_ibv_rate(2), mult_to_ibv_rate(NONE)), (2, 5, ANY));
        assert_eq!((ibv_rate_to_mbps(0), mbps_to_ibv_rate(1)), (NONE, ANY));
    }
}
