//! What a case comes to: for machines as one JSON object, for people as a table.
use crate::lab::Stack;
use crate::machine;
use crate::sample::Latency;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Whose TCP.
    pub stack: Stack,
    /// The engine, on OpenTOE.
    pub engine: Option<&'static str>,
    /// Which repetition, from 1.
    pub round: u32,
    /// What was varied: the point of the experiment.
    pub point: Map<String, Value>,
    /// Requests answered a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_s: Option<f64>,
    /// Payload moved, 10^9 bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbit_per_s: Option<f64>,
    /// Latencies, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// CPU seconds of each process during the measurement.
    pub cpu_s: BTreeMap<&'static str, f64>,
    /// Connections lost and wrong replies.
    pub errors: u64,
    /// What only this case measures.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
}

impl Run {
    /// An empty measurement of a point.
    pub fn new(stack: Stack, round: u32, point: &Value) -> Run {
        Run {
            stack,
            engine: (stack == Stack::Opentoe).then_some("flextoe"),
            round,
            point: point.as_object().cloned().unwrap_or_default(),
            ops_per_s: None,
            gbit_per_s: None,
            latency_us: None,
            cpu_s: BTreeMap::new(),
            errors: 0,
            figures: Map::new(),
        }
    }

    /// The figure that stacks are compared by.
    fn speed(&self) -> f64 {
        self.ops_per_s.or(self.gbit_per_s).unwrap_or(0.0)
    }

    /// A figure that only this case measures.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

/// All measurements of a case.
pub struct Report {
    case: &'static str,
    params: Value,
    machine: Value,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

impl Report {
    /// An empty one; the machine is looked at now.
    pub fn new(case: &'static str, params: Value) -> Report {
        Report { case, params, machine: machine::facts(), runs: Vec::new() }
    }

    /// The runs of a point on a stack.
    pub fn at<'a>(&'a self, stack: Stack, point: &'a Value) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.stack == stack && Some(&run.point) == point.as_object())
    }

    /// The median of a figure over the repetitions of a point.
    pub fn median(&self, stack: Stack, point: &Value, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.at(stack, point).map(figure).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Every point once, in order.
    pub fn points(&self) -> Vec<Value> {
        let mut points: Vec<Value> = Vec::new();
        for run in &self.runs {
            let point = Value::Object(run.point.clone());
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }

    /// OpenTOE over Linux, pair by pair: least, median, most.
    fn ratio(&self, point: &Value) -> Option<Value> {
        let pairs = self.at(Stack::Opentoe, point).zip(self.at(Stack::Linux, point));
        let mut ratios: Vec<f64> = pairs.map(|(toe, linux)| toe.speed() / linux.speed()).collect();
        ratios.sort_by(f64::total_cmp);
        let (first, last) = (ratios.first()?, ratios.last()?);
        Some(json!({ "min": first, "median": ratios[ratios.len() / 2], "max": last }))
    }

    /// One object, as DESIGN's "Command line" has it. Where points were varied, `ratio` has one entry for each.
    pub fn json(&self) -> Value {
        let points = self.points();
        let ratios: Vec<(String, Value)> =
            points.iter().filter_map(|point| Some((label(point), self.ratio(point)?))).collect();
        let ratio = match &ratios[..] {
            [] => Value::Null,
            [(_, only)] if points.len() == 1 => only.clone(),
            _ => Value::Object(ratios.into_iter().collect()),
        };
        json!({ "case": self.case, "params": self.params, "machine": self.machine, "runs": self.runs, "ratio": ratio })
    }

    /// Writes the JSON.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, format!("{:#}\n", self.json()))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// An error where something was lost or nothing was done: figures of a broken run mean nothing.
    pub fn verdict(&self) -> Result<(), String> {
        let broken = self.runs.iter().find(|run| run.errors > 0 || run.speed() <= 0.0);
        match broken {
            Some(run) => Err(format!(
                "{} on {} at {}: {} errors, {:.3} done a second",
                self.case,
                run.stack.name(),
                label(&Value::Object(run.point.clone())),
                run.errors,
                run.speed()
            )),
            None => Ok(()),
        }
    }
}

/// A point in words: `degree 4, connections 16`.
pub fn label(point: &Value) -> String {
    let words = point.as_object().into_iter().flatten().map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        value => format!("{key} {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Lines with aligned columns: the first to the left, the others to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, cell)| match at {
            0 => format!("{cell:<0$}", widths[0]),
            at => format!("{cell:>0$}", widths[at]),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stack: Stack, round: u32, speed: f64, point: &Value) -> Run {
        Run { ops_per_s: Some(speed), ..Run::new(stack, round, point) }
    }

    #[test]
    fn ratios_are_pair_by_pair() {
        let mut report = Report::new("echo", json!({}));
        let point = json!({ "connections": 1 });
        for (round, (toe, linux)) in [(300.0, 100.0), (100.0, 100.0), (800.0, 200.0)].into_iter().enumerate() {
            report.runs.push(run(Stack::Opentoe, round as u32 + 1, toe, &point));
            report.runs.push(run(Stack::Linux, round as u32 + 1, linux, &point));
        }
        let json = report.json();
        assert_eq!(json["ratio"], json!({ "min": 1.0, "median": 3.0, "max": 4.0 }));
        assert_eq!(json["runs"][0]["engine"], "flextoe");
        assert_eq!(json["runs"][1]["stack"], "linux");
        report.runs.push(run(Stack::Opentoe, 1, 5.0, &json!({ "connections": 2 })));
        assert_eq!(report.json()["ratio"]["connections 1"]["median"], 3.0);
        assert_eq!(report.median(Stack::Linux, &point, Run::speed), Some(100.0));
    }

    #[test]
    fn a_broken_run_is_no_result() {
        let mut report = Report::new("echo", json!({}));
        report.runs.push(run(Stack::Opentoe, 1, 5.0, &json!({})));
        assert_eq!(report.verdict(), Ok(()));
        report.runs.push(Run { errors: 1, ..run(Stack::Linux, 1, 5.0, &json!({ "loss": 0.1 })) });
        assert!(report.verdict().unwrap_err().contains("linux at loss 0.1"));
    }

    #[test]
    fn tables_align() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "1".into()]];
        assert_eq!(table(&rows), "a     10\nlong   1\n");
    }
}
