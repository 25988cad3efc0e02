//! Numbers for people, short enough for a column.
pub(crate) use console::several;

/// At most four characters: `0`, `7.5`, `999`, `1.2k`, `850M`.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() || value < 0.05 {
        return "0".into();
    }
    let (mut value, mut unit) = (value, "");
    for next in ["k", "M", "G", "T", "P"] {
        // What would be rounded to four digits belongs to the next unit.
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    match value < 9.95 && (!unit.is_empty() || value.fract() > 0.0) {
        true => format!("{value:.1}{unit}"),
        false => format!("{value:.0}{unit}"),
    }
}

/// A whole number, as [`short`].
pub(crate) fn count(value: u64) -> String {
    short(value as f64)
}

/// A time in microseconds, at most five characters: `35us`, `1.2ms`, `12s`; nothing measured is `-`.
pub(crate) fn time(micros: u64) -> String {
    match micros {
        0 => "-".into(),
        1..1000 => format!("{micros}us"),
        1000..9950 => format!("{:.1}ms", micros as f64 / 1e3),
        9950..999_500 => format!("{:.0}ms", micros as f64 / 1e3),
        999_500..9_950_000 => format!("{:.1}s", micros as f64 / 1e6),
        _ => format!("{}s", short(micros as f64 / 1e6)),
    }
}

/// A share of 1: `53%`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).clamp(0.0, 999.0))
}

/// How long something runs: `0:00:03`, `2d 01:02:03`.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match days {
        0 => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        _ => format!("{days}d {hours:02}:{minutes:02}:{:02}", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_columns() {
        let each = [(0.0, "0"), (0.3, "0.3"), (7.0, "7"), (7.55, "7.5"), (9.96, "10"), (999.4, "999"), (999.6, "1.0k")];
        each.iter().for_each(|(value, text)| assert_eq!(short(*value), *text));
        let each =
            [(9_940.0, "9.9k"), (9_960.0, "10k"), (1_234_567.0, "1.2M"), (999_600_000.0, "1.0G"), (8.5e15, "8.5P")];
        each.iter().for_each(|(value, text)| assert_eq!(short(*value), *text));
        assert_eq!(short(f64::NAN), "0");
        for exponent in 0..60 {
            let value = 1.37f64 * 1.8f64.powi(exponent);
            assert!(short(value).len() <= 4, "{}", short(value));
            assert!(time(value.min(1e12) as u64).len() <= 5, "{}", time(value as u64));
        }
    }

    #[test]
    fn times_and_shares() {
        let each = [(0, "-"), (35, "35us"), (1_240, "1.2ms"), (12_000, "12ms"), (999_600, "1.0s"), (30_000_000, "30s")];
        each.iter().for_each(|(micros, text)| assert_eq!(time(*micros), *text));
        assert_eq!((percent(0.534), percent(-0.1), percent(1.0)), ("53%".into(), "0%".into(), "100%".into()));
        assert_eq!((duration(3), duration(90_061 + 86_400)), ("0:00:03".into(), "2d 01:01:01".into()));
    }
}
