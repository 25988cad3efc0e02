//! Flexible extensions (FlexTOE table 2, thesis table 4.3): echo throughput with each of them as a ratio to the plain
//! build. One daemon and one load for all: an extension is put on and taken off while the echoes run, in turn with plain
//! moments, so that what else the machine does meets both alike.
use super::compare::three;
use super::extension::Extension;
use super::rpc::{self, Load};
use super::window;
use crate::command::{Common, list};
use crate::lab::{FabricLab, FabricPlan, Stack};
use crate::process::Process;
use crate::report::{Report, Run, table};
use crate::sample::Sample;
use crate::tools::Tools;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::time::Duration;

/// Bytes of a request, and of its reply.
const SIZE: u64 = 64;
/// Seconds of a moment in which it is measured, where nobody says.
const MOMENT: f64 = 0.25;
/// What putting on and taking off takes besides, at most, seconds.
const CHANGE: f64 = 0.4;
const PATIENCE: Duration = Duration::from_secs(30);

/// What to measure.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Extensions: tracepoints (counted), stream (of all tracepoints), capture (everything), null, vlan
    #[arg(long, value_name = "NAME,...", default_value = "tracepoints,stream,capture,null,vlan")]
    pub extensions: String,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=2000))]
    pub conns: u64,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub depth: u64,
}

/// Runs the case.
pub fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let extensions = list(&arguments.extensions, extension)?;
    let (moment, rounds) = (common.duration.unwrap_or(MOMENT).clamp(0.05, 10.0), common.pairs);
    let params = json!({
        "moment_s": moment, "pairs": rounds, "conns": arguments.conns, "depth": arguments.depth, "size": SIZE,
    });
    let mut report = Report::new("extensions", params);
    let all = (moment + CHANGE) * 2.0 * f64::from(rounds) * extensions.len() as f64;
    tools.say(&format!("extensions: about {all:.0} s"));
    let lab = FabricLab::new(tools, &FabricPlan::default())?;
    let load = Load {
        size: SIZE,
        reply: SIZE,
        connections: vec![arguments.conns as usize],
        depth: arguments.depth,
        warm_up: common.warm_up().min(1.0),
        seconds: all,
        ..Load::default()
    };
    let (_servers, clients) = rpc::start(tools, &lab, &load)?;
    tools.stop.until("the echoes", PATIENCE, || Ok(Figures::read(&lab)?.bytes > 0.0))?;
    pause(tools, load.warm_up)?;
    for round in 1..=rounds {
        for extension in &extensions {
            let plain_first = round % 2 == 1;
            let pair = measure(tools, &lab, *extension, moment, plain_first)?;
            tools.say(&sentence(extension.name(), &pair));
            report.runs.extend(pair.map(|run| Run { round, ..run }));
        }
    }
    let printed = finish(tools, clients)?;
    if let Some(run) = report.runs.last_mut() {
        run.errors = Sample::of(&printed)?.errors;
    }
    Ok(report)
}

fn sentence(name: &str, [plain, with]: &[Run; 2]) -> String {
    let ratio = per_cpu(with) / per_cpu(plain);
    format!("{name}: {} k/s, {} k/s without, {ratio:.2} of it", three(with.speed() / 1e3), three(plain.speed() / 1e3))
}

/// The clients run to their end, so that what they lost is known.
fn finish(tools: &Tools, clients: Vec<Process>) -> Result<Vec<String>, String> {
    window::watch(tools, clients, Default::default).map(|(printed, _)| printed)
}

/// A moment with the extension and one without, in one of both orders.
fn measure(
    tools: &Tools,
    lab: &FabricLab,
    extension: Extension,
    moment: f64,
    plain_first: bool,
) -> Result<[Run; 2], String> {
    let point = json!({ "extension": extension.name() });
    let run = |setup: &str| observe(tools, lab, moment, setup, &point);
    let before = if plain_first { Some(run("plain")?) } else { None };
    let on = extension.put_on(tools, lab)?;
    let with = run("with");
    on.take_off(lab)?;
    let plain = match before {
        Some(before) => before,
        None => run("plain")?,
    };
    Ok([plain, with?])
}

/// What the daemon does in a moment.
fn observe(tools: &Tools, lab: &FabricLab, moment: f64, setup: &str, point: &Value) -> Result<Run, String> {
    // What was just changed comes to rest.
    pause(tools, 0.02)?;
    let before = Figures::read(lab)?;
    pause(tools, moment)?;
    let after = Figures::read(lab)?;
    let requests = (after.bytes - before.bytes) / SIZE as f64;
    if requests <= 0.0 {
        return Err("the echoes have ended before the measurement: the machine is too busy, try again".into());
    }
    let mut run = Run::new(Stack::Opentoe, 0, point);
    run.setup = setup.into();
    run.ops_per_s = Some(requests / (after.now - before.now));
    run.cpu_s.insert("data-path".into(), after.cpu - before.cpu);
    let figures = [
        ("seconds", after.now - before.now),
        ("busy_ns_per_request", (after.busy - before.busy) * 1e9 / requests),
        ("cpu_ns_per_request", (after.cpu - before.cpu) * 1e9 / requests),
        ("requests_per_busy_round", requests / (after.rounds - before.rounds).max(1.0)),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), json!(value))));
    Ok(run)
}

fn pause(tools: &Tools, seconds: f64) -> Result<(), String> {
    tools.stop.check()?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    Ok(())
}

/// What the daemon has counted: bytes that came to the server's host; seconds of the data-path thread's clock, of its
/// processor time, and of its rounds with work; and these.
struct Figures {
    bytes: f64,
    now: f64,
    cpu: f64,
    busy: f64,
    rounds: f64,
}

impl Figures {
    fn read(lab: &FabricLab) -> Result<Figures, String> {
        let stats = lab.stats()?;
        let hosts = stats["hosts"].as_array().cloned().unwrap_or_default();
        let server = hosts.iter().find(|host| host["name"] == "server").ok_or("the daemon has no host `server`")?;
        let flows = server["flows"].as_array().into_iter().flatten();
        let bytes = flows.filter_map(|flow| flow["figures"]["rx_bytes"].as_f64()).sum();
        let thread = &stats["threads"][0];
        let number = |key: &str| thread[key].as_f64().ok_or_else(|| format!("the daemon does not say {key}"));
        Ok(Figures {
            bytes,
            now: number("now_ns")? / 1e9,
            cpu: number("cpu_ns")? / 1e9,
            busy: number("busy_ns")? / 1e9,
            rounds: number("busy_rounds")?,
        })
    }
}

/// Requests for each second of the data-path thread's processor time: the thread polls, so it has all of its core but
/// what others take from it.
fn per_cpu(run: &Run) -> f64 {
    1e9 / run.figure("cpu_ns_per_request")
}

/// The reciprocal of the time that a request takes in rounds with work.
fn per_busy(run: &Run) -> f64 {
    1e9 / run.figure("busy_ns_per_request")
}

/// The table, a row for each extension. Ratios are those of pairs: median, least and most.
pub fn show(report: &Report) -> String {
    let head = ["", "plain", "with", "throughput", "ns plain", "ns with", "time", "thesis"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for point in report.points() {
        let name = point["extension"].as_str().unwrap_or_default();
        let median = |setup: &str, figure: &dyn Fn(&Run) -> f64| {
            report.median_on(setup, &point, figure).map_or("-".into(), three)
        };
        let speed = |run: &Run| run.speed() / 1e3;
        let time = |run: &Run| run.figure("busy_ns_per_request");
        let ratio = |figure: fn(&Run) -> f64| report.ratio(&point, "with", "plain", figure);
        let shown = ratio(per_cpu).map_or("-".into(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
        rows.push(vec![
            name.into(),
            median("plain", &speed),
            median("with", &speed),
            shown,
            median("plain", &time),
            median("with", &time),
            ratio(per_busy).map_or("-".into(), |r| format!("{:.2}", r.median)),
            Extension::published(name).map_or("-".into(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    format!(
        "{}\nplain, with: thousand requests a second; throughput: for each second of the data-path thread;\n\
         ns, time: of its rounds with work, for each request\n",
        table(&rows)
    )
}

fn extension(text: &str) -> Result<Extension, String> {
    let found = Extension::value_variants().iter().find(|extension| extension.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Extension::value_variants().iter().map(|extension| extension.name()).collect();
        format!("there is no extension `{text}`; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_named() {
        assert_eq!(list("null, vlan", extension), Ok(vec![Extension::Null, Extension::Vlan]));
        assert!(extension("splicing").unwrap_err().contains("tracepoints, stream, capture, null, vlan"));
    }

    #[test]
    fn the_table_fits_a_terminal_and_ratios_are_pairs() {
        let mut report = Report::new("extensions", json!({}));
        for (round, (plain, with)) in [(1000.0, 900.0), (500.0, 475.0), (800.0, 800.0)].into_iter().enumerate() {
            for (setup, speed) in [("plain", plain), ("with", with)] {
                let mut run = Run::new(Stack::Opentoe, round as u32 + 1, &json!({ "extension": "tracepoints" }));
                (run.setup, run.ops_per_s) = (setup.into(), Some(speed * 1e3));
                for name in ["busy_ns_per_request", "cpu_ns_per_request"] {
                    run.figures.insert(name.into(), json!(1e6 / speed));
                }
                report.runs.push(run);
            }
        }
        let text = show(&report);
        assert!(text.contains("0.95 (0.90-1.00)") && text.contains("0.76"), "{text}");
        assert!(text.lines().take(2).all(|line| line.chars().count() <= 80), "{text}");
    }
}
