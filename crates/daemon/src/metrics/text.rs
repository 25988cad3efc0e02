//! Prometheus' text format, version 0.0.4: what `promtool check metrics` and scrapers without OpenMetrics read.
use super::families::{Families, Labels, Sample};
use std::fmt::Write;

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format, version 0.0.4: [`write`].
    Classic,
    /// OpenMetrics' text format.
    OpenMetrics,
}

/// The `Content-Type` of [`write`]'s text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All families, whose names get a prefix.
pub(super) fn write(prefix: &str, families: &Families) -> String {
    let mut text = String::new();
    for (name, family) in &families.0 {
        let (kind, suffix) = match family.series.first() {
            Some((_, Sample::Counter(_))) => ("counter", "_total"),
            Some((_, Sample::Histogram { .. })) => ("histogram", ""),
            _ => ("gauge", ""),
        };
        let name = format!("{prefix}_{name}{suffix}");
        // Writing into a string does not fail.
        let _ = writeln!(text, "# HELP {name} {}", escape(&family.help, false));
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for (labels, sample) in &family.series {
            series(&mut text, &name, labels, sample);
        }
    }
    text
}

fn series(text: &mut String, name: &str, labels: &Labels, sample: &Sample) {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escape(value, true))).collect();
    let mut line = |suffix: &str, more: Option<String>, value: f64| {
        let all = pairs.iter().cloned().chain(more).collect::<Vec<_>>().join(",");
        let all = if all.is_empty() { all } else { format!("{{{all}}}") };
        let _ = writeln!(text, "{name}{suffix}{all} {value}");
    };
    match sample {
        Sample::Counter(value) | Sample::Gauge(value) => line("", None, *value),
        Sample::Histogram { sum, count, buckets } => {
            let mut below = 0;
            for (limit, inside) in buckets {
                below += inside;
                let limit = if limit.is_infinite() { "+Inf".into() } else { limit.to_string() };
                line("_bucket", Some(format!("le=\"{limit}\"")), below as f64);
            }
            line("_sum", None, *sum);
            line("_count", None, *count as f64);
        }
    }
}

/// A text in which a line break cannot end a line, nor, where it is `quoted`, a quotation mark end it.
fn escape(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n");
    if quoted { text.replace('"', r#"\""#) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_is_a_block() {
        let mut families = Families::default();
        families.add("frames", "Frames of a \"port\"\nand \\", &[("port", "a \"b\"\\\n")], Sample::Counter(3.0));
        families.add("open", "Open", &[], Sample::Gauge(0.5));
        let buckets = vec![(0.001, 2), (0.002, 1), (f64::INFINITY, 1)];
        families.add("wait_seconds", "Waits", &[("host", "h")], Sample::Histogram { sum: 1.5, count: 4, buckets });
        let expected = r#"# HELP toe_frames_total Frames of a "port"\nand \\
# TYPE toe_frames_total counter
toe_frames_total{port="a \"b\"\\\n"} 3
# HELP toe_open Open
# TYPE toe_open gauge
toe_open 0.5
# HELP toe_wait_seconds Waits
# TYPE toe_wait_seconds histogram
toe_wait_seconds_bucket{host="h",le="0.001"} 2
toe_wait_seconds_bucket{host="h",le="0.002"} 3
toe_wait_seconds_bucket{host="h",le="+Inf"} 4
toe_wait_seconds_sum{host="h"} 1.5
toe_wait_seconds_count{host="h"} 4
"#;
        assert_eq!(write("toe", &families), expected);
    }
}
