//! Reports as CSV (RFC 4180): a row for each measurement, a column for each figure, with units in the names.
use crate::report::{Report, Run};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// What every measurement has, and what most have.
const FIXED: [&str; 5] = ["case", "stack", "setup", "engine", "round"];
const FIGURES: [&str; 8] = [
    "ops_per_s",
    "gbit_per_s",
    "latency_p50_us",
    "latency_p99_us",
    "latency_p999_us",
    "latency_p9999_us",
    "latency_max_us",
    "errors",
];

/// Writes all measurements of a report.
pub(crate) fn write(report: &Report, path: &Path) -> Result<(), String> {
    std::fs::write(path, csv(report)).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn csv(report: &Report) -> String {
    let keys = |of: fn(&Run) -> Vec<String>| -> BTreeSet<String> { report.runs.iter().flat_map(of).collect() };
    let points = keys(|run| run.point.keys().cloned().collect());
    let processes = keys(|run| run.cpu_s.keys().cloned().collect());
    let own = keys(|run| run.figures.keys().cloned().collect());
    let named =
        |prefix: &str, keys: &BTreeSet<String>| keys.iter().map(|key| format!("{prefix}{key}")).collect::<Vec<_>>();
    let fixed = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let heading = [fixed(&FIXED), named("", &points), fixed(&FIGURES), named("cpu_s_", &processes), named("", &own)];
    let mut text = line(heading.concat());
    for run in &report.runs {
        let fixed =
            [&report.case, run.stack.name(), &run.setup, run.engine.as_deref().unwrap_or(""), &run.round.to_string()];
        let latency = |pick: fn(&crate::sample::Latency) -> f64| number(run.latency_us.as_ref().map(pick));
        let figures = [
            number(run.ops_per_s),
            number(run.gbit_per_s),
            latency(|latency| latency.p50),
            latency(|latency| latency.p99),
            latency(|latency| latency.p999),
            latency(|latency| latency.p9999),
            latency(|latency| latency.max),
            run.errors.to_string(),
        ];
        let of = |map: &Map<String, Value>, keys: &BTreeSet<String>| -> Vec<String> {
            keys.iter().map(|key| map.get(key).map_or(String::new(), written)).collect()
        };
        let cpu: Vec<String> = processes.iter().map(|name| number(run.cpu_s.get(name).copied())).collect();
        let cells =
            [fixed.map(String::from).to_vec(), of(&run.point, &points), figures.to_vec(), cpu, of(&run.figures, &own)];
        text += &line(cells.concat());
    }
    text
}

fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or(String::new(), |value| value.to_string())
}

fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn line(cells: Vec<String>) -> String {
    let quoted = cells.into_iter().map(|cell| match cell.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    quoted.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Stack;
    use serde_json::json;

    #[test]
    fn each_measurement_is_a_row_with_all_columns() {
        let mut report = Report::new("echo", json!({}));
        let mut run = Run::new(Stack::Opentoe, 1, &json!({ "conns": 128, "name": "a, \"b\"" }));
        run.ops_per_s = Some(2.5);
        run.cpu_s.insert("server".into(), 0.5);
        report.runs.push(run);
        let mut other = Run::new(Stack::Linux, 2, &json!({ "conns": 1 }));
        (other.gbit_per_s, other.errors) = (Some(f64::NAN), 3);
        other.figures.insert("jain".into(), json!(0.9));
        report.runs.push(other);
        let text = csv(&report);
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert!(lines[0].starts_with("case,stack,setup,engine,round,conns,name,ops_per_s,gbit_per_s,latency_p50_us,"));
        assert!(lines[0].contains(",latency_p99_us,latency_p999_us,latency_p9999_us,latency_max_us,"));
        assert!(lines[0].ends_with(",latency_max_us,errors,cpu_s_server,jain"));
        assert_eq!(lines[1], "echo,opentoe,opentoe,flextoe,1,128,\"a, \"\"b\"\"\",2.5,,,,,,,0,0.5,");
        assert_eq!(lines[2], "echo,linux,linux,,2,1,,,,,,,,,3,,0.9");
    }
}
