//! Axes of charts: where they begin and end, where numbers stand, and how these are written.
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// Numbers are at least this share of an axis apart, or they would touch each other.
const APART: f64 = 0.06;
/// Most numbers on a vertical axis.
const MOST: usize = 10;

/// Unit of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Unit {
    /// Of any unit, as its title has it.
    #[default]
    Number,
    /// Microseconds, which are written as `5 us`, `10 ms` and so on.
    Time,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    least: f64,
    most: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// Places 0, 1, 2, ... with room for their bars.
    pub(super) fn places(count: usize) -> Axis {
        let ticks = (0..count).map(|at| at as f64).collect();
        Axis { least: -0.5, most: count as f64 - 0.5, log: false, ticks }
    }

    /// From 0 to the first number at or above all values; or to `end`, where values cannot be beyond it.
    pub(super) fn linear(most: f64, end: Option<f64>) -> Axis {
        let step = round_up(most.max(f64::MIN_POSITIVE) / 6.0);
        let most = end.unwrap_or_else(|| (most / step - 1e-9).ceil().max(1.0) * step);
        let ticks = (0..).map(|at| at as f64 * step).take_while(|tick| *tick <= most * 1.000_001).collect();
        Axis { least: 0.0, most, log: false, ticks }
    }

    /// A logarithmic one between round numbers around all values.
    pub(super) fn log(least: f64, most: f64) -> Axis {
        let steps = steps(least, most);
        let ticks = if steps.len() <= MOST { steps } else { decades(least, most) };
        let (least, most) = (ticks[0], ticks[ticks.len() - 1]);
        let every = ticks.len().div_ceil(MOST);
        Axis { least, most, log: true, ticks: ticks.into_iter().step_by(every).collect() }
    }

    /// A logarithmic one with the values themselves as numbers, where they do not touch; else round ones.
    pub(super) fn log_of(mut values: Vec<f64>) -> Axis {
        values.retain(|value| *value > 0.0 && value.is_finite());
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (least, most) = (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
        let mut axis = Axis { least: least / 1.15, most: most * 1.15, log: true, ticks: Vec::new() };
        let touch = values.windows(2).any(|pair| axis.share(pair[1]) - axis.share(pair[0]) < APART);
        let candidates = if touch { steps(least, most) } else { values };
        for tick in candidates.into_iter().filter(|tick| (axis.least..=axis.most).contains(tick)) {
            if axis.ticks.last().is_none_or(|last| axis.share(tick) - axis.share(*last) >= APART) {
                axis.ticks.push(tick);
            }
        }
        axis
    }

    /// Where it begins: bars stand there.
    pub(super) fn base(&self) -> f64 {
        self.least
    }

    /// Where on the axis a value is, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        (at(value) - at(self.least)) / (at(self.most) - at(self.least))
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.least..self.most
    }
}

/// 1, 2 and 5 times each power of ten, from the last one at or below `least` to the first at or above `most`.
fn steps(least: f64, most: f64) -> Vec<f64> {
    let all = exponents(least, most).flat_map(|exponent| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(exponent)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|step| *step <= least * 1.000_001).unwrap_or(0);
    let last = all.iter().position(|step| *step >= most * 0.999_999).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1).min(all.len() - 1)].to_vec()
}

/// Powers of ten around all values.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let last = (most.log10() - 1e-9).ceil() as i32;
    exponents(least, most).take_while(|exponent| *exponent <= last).map(|exponent| 10f64.powi(exponent)).collect()
}

fn exponents(least: f64, most: f64) -> Range<i32> {
    (least.log10() + 1e-9).floor() as i32..(most.log10() - 1e-9).ceil() as i32 + 1
}

/// The next 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|round| *round >= value * 0.999_999)
        .unwrap_or(value)
}

/// A number as short as it can be read.
pub(super) fn written(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Number => short(value),
        Unit::Time if value == 0.0 => "0".into(),
        Unit::Time => {
            let units = [(1e6, "s"), (1e3, "ms"), (1.0, "us"), (1e-3, "ns")];
            let (scale, name) = units.into_iter().find(|(scale, _)| value >= *scale * 0.999_999).unwrap_or(units[3]);
            format!("{} {name}", short(value / scale))
        }
    }
}

/// 0.000001 as 1e-6, 2000000 as 2M.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    let trim = |text: String| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    match magnitude {
        0.0 => "0".into(),
        m if m < 0.001 => {
            let exponent = (m.log10() + 1e-9).floor();
            format!("{}e{exponent}", trim(format!("{:.1}", value / 10f64.powf(exponent))))
        }
        m if m >= 1e6 => format!("{}M", trim(format!("{:.1}", value / 1e6))),
        m if m >= 1e4 => format!("{}k", trim(format!("{:.1}", value / 1e3))),
        m if m >= 100.0 => format!("{value:.0}"),
        _ => trim(format!("{value:.3}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_times_have_units() {
        let numbers = [0.0, 1e-6, 0.02, 1.5, 16.0, 128.0, 25_000.0, 2e6].map(|value| written(value, Unit::Number));
        assert_eq!(numbers, ["0", "1e-6", "0.02", "1.5", "16", "128", "25k", "2M"]);
        let times = [0.0, 0.5, 1.0, 20.0, 1000.0, 5e5, 1e6, 1e7].map(|value| written(value, Unit::Time));
        assert_eq!(times, ["0", "500 ns", "1 us", "20 us", "1 ms", "500 ms", "1 s", "10 s"]);
    }

    #[test]
    fn axes_end_where_values_end() {
        let jain = Axis::linear(0.98, Some(1.0));
        assert_eq!((jain.most, jain.ticks.last().map(|tick| (tick * 10.0).round())), (1.0, Some(10.0)));
        let rate = Axis::linear(2733.0, None);
        assert_eq!((rate.most, rate.ticks.len()), (3000.0, 7));
        assert_eq!(Axis::linear(5.0, None).most, 5.0);
        assert_eq!(Axis::places(3).ticks, [0.0, 1.0, 2.0]);
    }

    #[test]
    fn logarithmic_axes_have_numbers_at_both_ends() {
        let near = Axis::log(120.0, 900.0);
        assert_eq!((near.least, near.most, near.ticks.clone()), (100.0, 1000.0, vec![100.0, 200.0, 500.0, 1000.0]));
        let far = Axis::log(0.013, 40_000.0);
        assert_eq!((far.least, far.most, far.ticks.len()), (0.01, 100_000.0, 8));
        assert_eq!(Axis::log(7.0, 7.0).ticks, [5.0, 10.0]);
    }

    #[test]
    fn numbers_do_not_touch() {
        assert_eq!(Axis::log_of(vec![1.0, 4.0, 16.0, 64.0]).ticks, [1.0, 4.0, 16.0, 64.0]);
        let crowded = Axis::log_of((0..40).map(|at| 90.0 + f64::from(at) * 25.0).collect());
        assert!(crowded.ticks.windows(2).all(|pair| crowded.share(pair[1]) - crowded.share(pair[0]) >= APART));
        assert_eq!(crowded.ticks, [100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn the_ends_of_an_axis_are_the_ends_of_the_picture() {
        let axis = Axis::log(1.0, 1000.0);
        assert_eq!([1.0, 1000.0].map(|value| axis.map(&value, (300, 0))), [300, 0]);
    }
}
