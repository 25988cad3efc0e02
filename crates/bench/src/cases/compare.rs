//! Common part of all cases of speed: points, each measured on every set-up in turn, and the table.
use crate::arguments::{Common, list};
use crate::lab::{FabricPlan, Stack};
use crate::report::{Report, Run, label, table};
use crate::setup::{Setup, Stacks};
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};

/// What a measurement takes besides its seconds: starting daemon, server and client, and ending them.
const AROUND_S: f64 = 1.0;
/// Seconds of a measurement by default.
pub(crate) const SECONDS: f64 = 3.0;

/// Arguments of all cases of speed.
#[derive(Args, Debug)]
pub struct Comparison {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub stacks: Stacks,
}

/// Buffers of a connection.
#[derive(Args, Debug)]
pub struct Buffers {
    /// KiB of each buffer of a connection on OpenTOE (`memory.rx_bytes`, `memory.tx_bytes`), a power of two
    #[arg(long, value_name = "KIB", default_value_t = 256, value_parser = buffer_kib)]
    pub buffer: u32,
}

impl Buffers {
    /// Hosts whose connections have them.
    pub fn plan(&self) -> FabricPlan {
        FabricPlan { buffer: self.buffer << 10, ..FabricPlan::default() }
    }
}

/// A size that buffers can have.
fn buffer_kib(text: &str) -> Result<u32, String> {
    let wanted = "buffers have 4, 8, 16, ... or 65536 KiB";
    let kib: u32 = text.parse().map_err(|_| wanted.to_string())?;
    if kib.is_power_of_two() && (4..=65_536).contains(&kib) { Ok(kib) } else { Err(wanted.into()) }
}

/// A figure in the table: its heading, where it comes from, and how it is written.
pub(crate) struct Column {
    head: &'static str,
    figure: fn(&Run) -> f64,
    write: fn(f64) -> String,
}

/// What is shown of a run, where it is there.
pub(crate) const COLUMNS: &[Column] = &[
    Column { head: "k/s", figure: |run| run.ops_per_s.unwrap_or(f64::NAN) / 1e3, write: three },
    Column { head: "Gbit/s", figure: |run| run.gbit_per_s.unwrap_or(f64::NAN), write: three },
    Column { head: "p50 us", figure: |run| run.latency_us.map_or(f64::NAN, |l| l.p50), write: three },
    Column { head: "p99 us", figure: |run| run.latency_us.map_or(f64::NAN, |l| l.p99), write: three },
    Column { head: "p99.99", figure: |run| run.latency_us.map_or(f64::NAN, |l| l.p9999), write: three },
    Column { head: "CPU us", figure: cpu_us, write: three },
];

/// CPU time of all processes for each request, microseconds. On Linux the kernel's part is in it: its work is done in
/// the processes' own time.
fn cpu_us(run: &Run) -> f64 {
    let requests = run.ops_per_s.unwrap_or(f64::NAN) * run.figure("seconds");
    run.cpu_s.values().sum::<f64>() * 1e6 / requests
}

impl Comparison {
    /// Seconds before each measurement and of it.
    pub fn times(&self) -> (f64, f64) {
        let seconds = self.common.seconds(SECONDS);
        (if self.common.quick { 0.2 } else { (seconds / 4.0).clamp(0.3, 1.0) }, seconds)
    }

    /// Its duration, seconds.
    pub fn estimate(&self, setups: usize, points: usize) -> f64 {
        let (warm_up, seconds) = self.times();
        (warm_up + seconds + AROUND_S) * (setups * points) as f64 * f64::from(self.common.pairs)
    }

    /// A report of it, with the case's own parameters besides.
    pub fn report(&self, case: &str, own: Value) -> Report {
        let (warm_up, seconds) = self.times();
        let mut params = json!({ "seconds": seconds, "warm_up_s": warm_up, "pairs": self.common.pairs });
        if let (Some(params), Value::Object(own)) = (params.as_object_mut(), own) {
            params.extend(own);
        }
        Report::new(case, params)
    }

    /// Measures every point on every set-up, repetition by repetition, so that what else the machine does meets all
    /// alike, points that are compared with each other too. What fails is noted in the report and does not end the
    /// rest.
    pub fn measure(
        &self,
        tools: &Tools,
        case: &str,
        (own, axes): (Value, &[Axis]),
        measure: impl Fn(&Setup, &Value) -> Result<Run, String>,
    ) -> Result<Report, String> {
        let (setups, points) = (self.stacks.all()?, combine(axes));
        let mut report = self.report(case, own);
        let count = setups.len() * points.len() * self.common.pairs as usize;
        let about = self.estimate(setups.len(), points.len());
        tools.print_line(&format!("{case}: {count} measurements, about {about:.0} s"));
        for round in 1..=self.common.pairs {
            for point in &points {
                for setup in &setups {
                    let place = format!("{} on {}", label(point), setup.name());
                    let Some(mut run) = report.measured(tools, &place, measure(setup, point))? else {
                        continue;
                    };
                    run.round = round;
                    run.figures.entry("seconds").or_insert(self.times().1.into());
                    tools.print_line(&format!("{place}: {}", sentence(&run)));
                    report.runs.push(run);
                }
            }
        }
        Ok(report)
    }
}

/// What was measured, in a few words.
pub(crate) fn sentence(run: &Run) -> String {
    let shown = COLUMNS.iter().take(4).filter(|column| (column.figure)(run).is_finite());
    shown
        .map(|column| format!("{} {}", (column.write)((column.figure)(run)), column.head))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A block for each point, a row for each set-up; figures are medians, the ratio is that of pairs.
pub(crate) fn show(report: &Report) -> String {
    show_with(report, &[])
}

/// The same with further columns.
pub(crate) fn show_with(report: &Report, more: &[Column]) -> String {
    let baseline = report.baseline().unwrap_or_default();
    let mut text = String::new();
    for point in report.points() {
        let columns = COLUMNS.iter().chain(more).filter(|column| {
            report.setups().iter().any(|(_, setup)| report.median_on(setup, &point, column.figure).is_some())
        });
        let columns: Vec<&Column> = columns.collect();
        let heads = columns.iter().map(|column| column.head.to_string());
        let ratio = if baseline.is_empty() { String::new() } else { format!("to {baseline}") };
        let mut rows = vec![std::iter::once(String::new()).chain(heads).chain([ratio]).collect::<Vec<_>>()];
        for (stack, setup) in report.setups() {
            let cell =
                |column: &&Column| report.median_on(&setup, &point, column.figure).map_or("-".into(), column.write);
            let own = stack == Stack::Linux && setup == baseline;
            let ratio = report.ratio(&point, &setup, &baseline, Run::speed).filter(|_| !own);
            let ratio = ratio.map_or(String::new(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
            rows.push(std::iter::once(setup.clone()).chain(columns.iter().map(cell)).chain([ratio]).collect());
        }
        text += &format!("{}\n{}\n", label(&point), table(&rows));
    }
    text
}

impl Column {
    /// A figure that only one case has.
    pub(crate) const fn new(head: &'static str, figure: fn(&Run) -> f64) -> Column {
        Column { head, figure, write: three }
    }
}

/// Three digits that count: 1234, 123, 12.3, 1.23.
pub(crate) fn three(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.01 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// What is varied, by its name in the report, and its values.
pub(crate) type Axis = (&'static str, Vec<Value>);

/// The values of an axis of numbers; the command line has checked their range.
pub(crate) fn numbers(text: &str) -> Result<Vec<Value>, String> {
    list(text, |word| word.parse().map(|number: u64| number.into()).map_err(|_| format!("`{word}` is no number")))
}

/// All combinations of values, the last one varying first: `[("a", [1, 2]), ("b", [3])]`.
pub(crate) fn combine(axes: &[Axis]) -> Vec<Value> {
    let mut points = vec![serde_json::Map::new()];
    for (name, values) in axes {
        let wider = points.iter().flat_map(|point| {
            values.iter().map(|value| {
                let mut point = point.clone();
                point.insert(name.to_string(), value.clone());
                point
            })
        });
        points = wider.collect();
    }
    points.into_iter().map(Value::Object).collect()
}

/// A number of a point; every point of a case has the same ones.
pub(crate) fn number(point: &Value, name: &str) -> u64 {
    point[name].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn points_are_all_combinations() {
        let points = combine(&[("conns", vec![1.into(), 2.into()]), ("size", vec![64.into()])]);
        assert_eq!(points, [json!({ "conns": 1, "size": 64 }), json!({ "conns": 2, "size": 64 })]);
        assert_eq!(number(&points[1], "conns"), 2);
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let mut report = Report::new("echo", json!({}));
        let latency = crate::sample::Latency { p50: 1234.5, p99: 12345.6, p999: 1e5, p9999: 123456.7, max: 1e6 };
        for (stack, setup) in [(Stack::Opentoe, "laminar fabric"), (Stack::Linux, "linux one-core")] {
            let mut run = Run::new(stack, 1, &json!({ "conns": 128 }));
            (run.setup, run.ops_per_s, run.latency_us) = (setup.into(), Some(6_543_210.0), Some(latency));
            run.cpu_s.insert("server".into(), 2.0);
            run.figures.insert("seconds".into(), json!(2.0));
            report.runs.push(run);
        }
        let text = show(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("1.00 (1.00-1.00)") && text.contains("6543"), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([1234.5, 99.96, 12.34, 0.5, 0.0001].map(three), ["1234", "100", "12.3", "0.50", "0.0001"]);
    }
}
