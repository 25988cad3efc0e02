//! Report of a case: for machines as one JSON object, for people as a table.
use crate::lab::Stack;
use crate::machine;
use crate::provenance::Provenance;
use crate::sample::Latency;
use crate::setup::Setup;
use crate::tools::Tools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Whose TCP.
    pub stack: Stack,
    /// The engine, on OpenTOE.
    pub engine: Option<String>,
    /// Stack, engine, port and what else was chosen, in two words: `flextoe fabric`, `linux cubic`.
    #[serde(default)]
    pub setup: String,
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
    pub cpu_s: BTreeMap<String, f64>,
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
            engine: (stack == Stack::Opentoe).then(|| "flextoe".into()),
            setup: stack.name().into(),
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

    /// An empty measurement on a set-up; the caller numbers its repetitions.
    pub fn on(setup: &Setup, point: &Value) -> Run {
        let engine = (setup.stack == Stack::Opentoe).then(|| setup.engine.into());
        Run { engine, setup: setup.name(), ..Run::new(setup.stack, 0, point) }
    }

    /// The figure that stacks are compared by.
    pub fn speed(&self) -> f64 {
        self.ops_per_s.or(self.gbit_per_s).unwrap_or(0.0)
    }

    /// A figure that only this case measures.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

/// All measurements of a case.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    /// Its name on the command line.
    pub case: String,
    /// What was the same for all of them.
    pub params: Value,
    /// Where they were made.
    pub machine: Value,
    /// By which OpenTOE, when and how.
    #[serde(default)]
    pub provenance: Provenance,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
    /// What could not be measured, in sentences.
    #[serde(default)]
    pub failures: Vec<String>,
}

impl Report {
    /// An empty one; the machine is examined now.
    pub fn new(case: &str, params: Value) -> Report {
        let provenance = Provenance::now();
        let machine = machine::facts();
        Report { case: case.into(), params, machine, provenance, runs: Vec::new(), failures: Vec::new() }
    }

    /// Notes what could not be measured; the rest goes on.
    pub fn fail(&mut self, tools: &Tools, sentence: String) {
        tools.print_line(&format!("failed: {sentence}"));
        self.failures.push(sentence);
    }

    /// A measurement at `place`; where it failed, that is noted, and there is none. An error only where the user asked
    /// to end.
    pub fn measured(&mut self, tools: &Tools, place: &str, run: Result<Run, String>) -> Result<Option<Run>, String> {
        tools.stop.check()?;
        run.map(Some).or_else(|sentence| {
            self.fail(tools, format!("{place}: {sentence}"));
            Ok(None)
        })
    }

    /// An error where there is nothing but failures.
    pub fn unless_empty(self) -> Result<Report, String> {
        if self.runs.is_empty() { Err(self.failures.join("; ")) } else { Ok(self) }
    }

    /// The runs of a point on a stack.
    pub fn at<'a>(&'a self, stack: Stack, point: &'a Value) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.stack == stack && Some(&run.point) == point.as_object())
    }

    /// The median of a figure over the repetitions of a point.
    pub fn median(&self, stack: Stack, point: &Value, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        middle(self.at(stack, point).map(figure).collect())
    }

    /// The runs of a point on a set-up.
    pub fn on<'a>(&'a self, setup: &'a str, point: &'a Value) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.setup == setup && Some(&run.point) == point.as_object())
    }

    /// The median of a figure over the repetitions of a point on a set-up.
    pub fn median_on(&self, setup: &str, point: &Value, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        middle(self.on(setup, point).map(figure).collect())
    }

    /// How often each measurement was repeated, at most; 1 where there is only one of each.
    pub(crate) fn repetitions(&self) -> u32 {
        self.runs.iter().map(|run| run.round).max().unwrap_or(1).max(1)
    }

    /// Every set-up once, in order.
    pub fn setups(&self) -> Vec<(Stack, String)> {
        let mut setups: Vec<(Stack, String)> = Vec::new();
        for run in &self.runs {
            if !setups.iter().any(|(_, name)| *name == run.setup) {
                setups.push((run.stack, run.setup.clone()));
            }
        }
        setups
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

    /// One set-up over another, pair by pair: least, median, most.
    pub fn ratio(&self, point: &Value, of: &str, to: &str, figure: impl Fn(&Run) -> f64) -> Option<Ratio> {
        // A round that failed on one of them has no pair.
        let other = |run: &Run| self.on(to, point).find(|other| other.round == run.round);
        let pairs = self.on(of, point).filter_map(|run| Some((run, other(run)?)));
        let ratios = pairs.map(|(of, to)| figure(of) / figure(to)).filter(|ratio| ratio.is_finite());
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let (min, max) = (*ratios.first()?, *ratios.last()?);
        Some(Ratio { min, median: middle(ratios)?, max })
    }

    /// What stacks are compared with: the first set-up on Linux.
    pub fn baseline(&self) -> Option<String> {
        self.setups().into_iter().find(|(stack, _)| *stack == Stack::Linux).map(|(_, name)| name)
    }

    /// One object, as DESIGN's "Command line" has it: `ratio` is OpenTOE's first set-up over Linux' first one. Where
    /// points were varied, `ratio` has one entry for each. `ratios` has them for all set-ups.
    pub fn json(&self) -> Value {
        let (points, setups, baseline) = (self.points(), self.setups(), self.baseline().unwrap_or_default());
        let toe: Vec<&String> =
            setups.iter().filter(|(stack, _)| *stack == Stack::Opentoe).map(|(_, name)| name).collect();
        let of = |setup: &str| -> Vec<(String, Value)> {
            let at = |point: &Value| {
                self.ratio(point, setup, &baseline, Run::speed).map(|ratio| (label(point), json!(ratio)))
            };
            points.iter().filter_map(at).collect()
        };
        let ratio = match &toe.first().map(|first| of(first)).unwrap_or_default()[..] {
            [] => Value::Null,
            [(_, only)] if points.len() == 1 => only.clone(),
            all => Value::Object(all.iter().cloned().collect()),
        };
        let ratios: Map<String, Value> =
            toe.iter().map(|setup| (setup.to_string(), Value::Object(of(setup).into_iter().collect()))).collect();
        json!({
            "case": self.case, "provenance": self.provenance, "params": self.params, "machine": self.machine,
            "units": units(), "runs": self.runs,
            "failures": self.failures, "ratio": ratio,
            "ratios": { "to": baseline, "of": ratios },
        })
    }

    /// Reads what [`Report::write`] wrote.
    pub fn read(path: &Path) -> Result<Report, String> {
        let failed = |e: String| format!("cannot read {}: {e}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| failed(format!("it is no report of opentoe bench: {e}")))
    }

    /// Writes the JSON.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        std::fs::write(path, format!("{:#}\n", self.json()))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// An error where something was lost or nothing was done: figures of a broken run mean nothing.
    pub fn verdict(&self) -> Result<(), String> {
        let idle = |run: &Run| run.ops_per_s.or(run.gbit_per_s).is_some_and(|speed| speed <= 0.0);
        let broken = self.runs.iter().find(|run| run.errors > 0 || idle(run));
        match broken {
            _ if !self.failures.is_empty() => Err(self.failures.join("; ")),
            Some(run) => Err(format!(
                "{} on {} at {}: {} errors, {:.3} done a second",
                self.case,
                run.setup,
                label(&Value::Object(run.point.clone())),
                run.errors,
                run.speed()
            )),
            None => Ok(()),
        }
    }
}

/// What the figures of a run are in; those that only one case has end with their unit.
fn units() -> Value {
    json!({
        "ops_per_s": "requests a second",
        "gbit_per_s": "10^9 bits of payload a second",
        "latency_us": "microseconds",
        "cpu_s": "seconds of processor time of each process during the measurement",
        "ratio": "OpenTOE's rate over that of Linux, pair by pair",
        "memory_bytes": "bytes",
        "took_s": "seconds",
    })
}

/// Pair by pair: least, median, most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The least.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The most.
    pub max: f64,
}

/// The median of what is a number: of an even count, the mean of the two in the middle.
pub(crate) fn middle(values: Vec<f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(if values.len() % 2 == 0 { (values[values.len() / 2 - 1] + upper) / 2.0 } else { upper })
}

/// A point in words: `degree 4, connections 16`.
pub(crate) fn label(point: &Value) -> String {
    let words = point.as_object().into_iter().flatten().map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        value => format!("{key} {value}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Lines with aligned columns: the first to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
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

    #[test]
    fn the_median_of_two_favours_neither() {
        assert_eq!(middle(vec![3.0, f64::NAN, 1.0]), Some(2.0));
        assert_eq!((middle(vec![5.0, 1.0, 2.0]), middle(vec![])), (Some(2.0), None));
    }

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
        report.failures.push("nginx is missing".into());
        assert_eq!(report.verdict(), Err("nginx is missing".into()));
    }

    #[test]
    fn a_round_that_failed_on_one_stack_is_left_out_of_the_ratio() {
        let (mut report, point) = (Report::new("echo", json!({})), json!({}));
        report.runs = vec![run(Stack::Opentoe, 1, 9.0, &point), run(Stack::Opentoe, 2, 6.0, &point)];
        report.runs.push(run(Stack::Linux, 2, 3.0, &point));
        let ratio = report.ratio(&point, "opentoe", "linux", Run::speed).unwrap();
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
    }

    #[test]
    fn tables_align() {
        let rows = [vec!["a".into(), "10".into()], vec!["long".into(), "1".into()]];
        assert_eq!(table(&rows), "a     10\nlong   1\n");
    }
}
