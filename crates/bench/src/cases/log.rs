//! A shared log (thesis 5.5.2, docs/SHARED-LOG.md): records of many connections appended to one log. A plain server
//! does it, which receives to the log's end, or the data-path, where the engine can.
use super::bulk::{self, Ends};
use super::compare::{Comparison, combine, number, numbers};
use crate::arguments::{list, listed, numbered};
use crate::lab::{FabricPlan, Lab, Stack};
use crate::report::{Report, Run};
use crate::setup::{Needs, Setup};
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};

const PORT: u16 = 7781;
/// The client's number, for its log.
const CLIENT: usize = 98;
/// Records that the log holds at once, at least.
const RECORDS: u64 = 65_536;
/// Bytes that lie beside each record (`context::LogShape`).
const NOTE: u64 = 16;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections that write records as fast as they can
    #[arg(long, value_name = "N,...", default_value = "32", value_parser = numbered(2000))]
    pub conns: String,
    /// Bytes of a record: powers of two from 16 to 16384
    #[arg(long, value_name = "BYTES,...", default_value = "64,256,1024", value_parser = listed(record))]
    pub size: String,
}

/// Runs the case: each set-up with a plain server, Laminar also with the log in its data-path.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let comparison = &arguments.comparison;
    let axes =
        [("conns", numbers(&arguments.conns)?), ("size", list(&arguments.size, |word| record(word).map(Value::from))?)];
    let mut ways: Vec<(Setup, bool)> = Vec::new();
    for setup in comparison.stacks.all()? {
        ways.push((setup, false));
        if has_log(&setup) {
            ways.push((setup, true));
        }
    }
    let mut report = comparison.report("log", json!({ "records": RECORDS }));
    for point in combine(&axes) {
        for round in 1..=comparison.common.pairs {
            for (setup, shared) in &ways {
                let place = format!("{} on {}", crate::report::label(&point), name(setup, *shared));
                let run = measure(tools, comparison.times(), setup, &point, *shared);
                let Some(mut run) = report.measured(tools, &place, run)? else {
                    continue;
                };
                run.round = round;
                tools.print_line(&format!("{place}: {:.0} k/s", run.ops_per_s.unwrap_or(f64::NAN) / 1e3));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// How many ways each of these set-ups is measured in.
pub(crate) fn ways(setups: &[Setup]) -> usize {
    setups.len() + setups.iter().filter(|setup| has_log(setup)).count()
}

/// Its data-path keeps logs.
fn has_log(setup: &Setup) -> bool {
    setup.stack == Stack::Opentoe && setup.engine == "laminar"
}

/// Records that the log of a point holds: a connection joins a log only where there is room for a whole window of it.
fn records(connections: u64, size: u64) -> u64 {
    let window = u64::from(FabricPlan::default().buffer) / size;
    RECORDS.max((connections * window).next_power_of_two())
}

fn name(setup: &Setup, shared: bool) -> String {
    if shared { format!("{}, data-path", setup.name()) } else { setup.name() }
}

fn measure(tools: &Tools, times: (f64, f64), setup: &Setup, point: &Value, shared: bool) -> Result<Run, String> {
    let (connections, size) = (number(point, "conns"), number(point, "size"));
    let bytes = if shared { (records(connections, size) * (size + NOTE)).next_power_of_two() } else { 0 };
    let log_bytes = u32::try_from(bytes).map_err(|_| "a log for so many connections is too large: take fewer")?;
    let plan = FabricPlan { log_bytes, ..FabricPlan::default() };
    let lab = setup.lab_as(tools, Needs { connections: connections as usize, clients: 1, ..Needs::default() }, plan)?;
    let ends = start(tools, &*lab, connections, size, shared, times)?;
    let moved = bulk::measure(tools, &*lab, ends)?;
    let mut run = Run { setup: name(setup, shared), ..Run::on(setup, point) };
    run.ops_per_s = Some(moved.bytes.iter().sum::<u64>() as f64 / size as f64 / moved.seconds);
    run.gbit_per_s = Some(moved.gbit_per_s());
    run.errors = moved.lost;
    run.cpu_s.extend(moved.cpu_s);
    run.figures.insert("seconds".into(), json!(moved.seconds));
    Ok(run)
}

fn start(
    tools: &Tools,
    lab: &dyn Lab,
    connections: u64,
    size: u64,
    shared: bool,
    (warm_up, seconds): (f64, f64),
) -> Result<Ends, String> {
    let words = |app: &str, options: &[(&str, String)]| {
        let options = options.iter().flat_map(|(key, value)| [key.to_string(), value.clone()]);
        std::iter::once(tools.app(app)).chain(options).collect::<Vec<_>>()
    };
    let common = [("-p", PORT.to_string()), ("-n", connections.to_string())];
    let times = [("-w", warm_up.to_string()), ("-t", seconds.to_string())];
    let own = [("-s", size.to_string()), ("-r", records(connections, size).to_string())];
    let mut server = words("append_server", &[&common[..], &times, &own].concat());
    server.extend(shared.then(|| "-S".into()));
    let receiver = lab.server(&server, PORT)?;
    // Any bytes are records.
    let to = [("-c", lab.address().to_string()), ("-s", "65536".to_string())];
    let sender = lab.client_of(0, CLIENT, &words("flows", &[&common[..], &to].concat()))?;
    Ok(Ends { receiver, sender })
}

fn record(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().filter(|size: &u64| size.is_power_of_two() && (16..=16_384).contains(size));
    size.ok_or_else(|| format!("`{text}` is no size of a record: write a power of two from 16 to 16384"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_powers_of_two() {
        assert_eq!(list("16, 16384", record), Ok(vec![16, 16_384]));
        assert!(list("48", record).unwrap_err().contains("power of two"));
        assert_eq!((records(32, 64), records(32, 1024), records(1, 16)), (131_072, RECORDS, RECORDS));
        assert!(record("8").is_err() && record("131072").is_err());
    }
}
