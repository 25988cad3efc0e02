//! iperf3: one flow and four, both directions.
use super::Bench;
use crate::report::Outcome;
use serde_json::Value;

pub(super) fn forward(bench: &Bench) -> Outcome {
    drive(bench, &[])
}

pub(super) fn reverse(bench: &Bench) -> Outcome {
    drive(bench, &["-R"])
}

pub(super) fn parallel(bench: &Bench) -> Outcome {
    drive(bench, &["-P", "4"])
}

pub(super) fn parallel_reverse(bench: &Bench) -> Outcome {
    drive(bench, &["-P", "4", "-R"])
}

fn drive(bench: &Bench, options: &[&str]) -> Outcome {
    let (address, port, family) = (bench.address(), bench.port(), bench.by_family("-4", "-6"));
    let mut server = bench.server(bench.lab.on_server("iperf3"), &[family, "-s", "-1", "-p", &port])?;
    let common = [family, "-c", &address, "-p", &port, "-t", "2", "-J"];
    let printed = bench.client("iperf3", &[&common, options].concat())?;
    server.succeed()?;
    let report: Value = serde_json::from_str(&printed).map_err(|error| format!("iperf3's JSON: {error}"))?;
    if let Some(error) = report.get("error") {
        return Err(format!("iperf3: {error}"));
    }
    judge(&report, if options.contains(&"4") { 4 } else { 1 })
}

fn judge(report: &Value, flows: usize) -> Outcome {
    let end = &report["end"];
    let streams = end["streams"].as_array().ok_or("iperf3 reports no streams")?;
    let moved = |stream: &Value| stream["receiver"]["bytes"].as_u64().unwrap_or(0);
    if streams.len() != flows || streams.iter().any(|stream| moved(stream) == 0) {
        let counts: Vec<u64> = streams.iter().map(moved).collect();
        return Err(format!("{flows} flows were asked for; received bytes of each: {counts:?}"));
    }
    let rate = end["sum_received"]["bits_per_second"].as_f64().ok_or("iperf3 reports no rate")?;
    Ok(format!("{:.1} Gbit/s", rate / 1e9))
}
