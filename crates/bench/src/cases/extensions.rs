//! Flexible extensions (FlexTOE table 2, thesis table 4.3): echo throughput with each of them as a ratio to the plain
//! build. One daemon and one load for all: an extension is put on and taken off while the echoes run, in turn with
//! plain moments, so that what else the machine does meets both alike. What one host does is told from what the other
//! one does where it has a data-path thread to itself. Splicing is `spliced.rs`.
use super::compare::three;
use super::extension::Extension;
use super::rpc::{self, Load};
use super::{spliced, window};
use crate::command::{Common, list, listed};
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
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The row that is no extension of one host's while it runs.
pub(super) const SPLICE: &str = "splice";

/// What to measure.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Extensions: tracepoints (counted), stream (of all tracepoints), capture (everything), null, vlan (tags put on
    /// and taken off), strip (the host that takes them off), splice (a proxy that leaves the path)
    #[arg(long, value_name = "NAME,...", default_value = "tracepoints,stream,capture,null,vlan,strip,splice", value_parser = listed(row))]
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
    let rows = list(&arguments.extensions, row)?;
    let params = json!({
        "moment_s": moment(common), "pairs": common.pairs, "conns": arguments.conns, "depth": arguments.depth,
        "size": SIZE,
    });
    let mut report = Report::new("extensions", params);
    let extensions: Vec<Extension> = rows.iter().copied().flatten().collect();
    for alone in [None, Some("server")] {
        let of_lab: Vec<Extension> =
            extensions.iter().copied().filter(|extension| extension.alone() == alone).collect();
        if !of_lab.is_empty() {
            in_turn(tools, arguments, alone, &of_lab, &mut report)?;
        }
    }
    if rows.contains(&None) {
        spliced::measure(tools, arguments, &mut report)?;
    }
    Ok(report)
}

/// Seconds in which something is looked at.
pub(super) fn moment(common: &Common) -> f64 {
    common.duration.unwrap_or(MOMENT).clamp(0.05, 10.0)
}

/// Extensions on one daemon, one after the other, again and again.
fn in_turn(
    tools: &Tools,
    arguments: &Arguments,
    alone: Option<&'static str>,
    extensions: &[Extension],
    report: &mut Report,
) -> Result<(), String> {
    let (moment, rounds) = (moment(&arguments.common), arguments.common.pairs);
    let all = (moment + CHANGE) * 2.0 * f64::from(rounds) * extensions.len() as f64;
    tools.say(&format!("extensions: about {all:.0} s"));
    let lab = FabricLab::new(tools, &FabricPlan { alone, ..FabricPlan::default() })?;
    let load = load(arguments, all);
    let (_servers, clients) = rpc::start(tools, &lab, &load)?;
    tools.stop.until("the echoes", PATIENCE, || Ok(Figures::read(&lab, "server")?.bytes > 0.0))?;
    pause(tools, load.warm_up)?;
    for round in 1..=rounds {
        for extension in extensions {
            let plain_first = round % 2 == 1;
            let pair = measure(tools, &lab, *extension, moment, plain_first)?;
            tools.say(&sentence(extension.name(), &pair));
            report.runs.extend(pair.map(|run| Run { round, ..run }));
        }
    }
    note_errors(report, &finish(tools, clients)?)
}

/// The echoes, for so many seconds.
pub(super) fn load(arguments: &Arguments, seconds: f64) -> Load {
    Load {
        size: SIZE,
        reply: SIZE,
        connections: vec![arguments.conns as usize],
        depth: arguments.depth,
        warm_up: arguments.common.warm_up().min(1.0),
        seconds,
        ..Load::default()
    }
}

/// What clients lost is noted with the last measurement.
pub(super) fn note_errors(report: &mut Report, printed: &[String]) -> Result<(), String> {
    if let Some(run) = report.runs.last_mut() {
        run.errors = Sample::of(printed)?.errors;
    }
    Ok(())
}

fn sentence(name: &str, [plain, with]: &[Run; 2]) -> String {
    let ratio = capacity(with) / capacity(plain);
    format!("{name}: {} k/s, {} k/s without, {ratio:.2} of it", three(with.speed() / 1e3), three(plain.speed() / 1e3))
}

/// The clients run to their end, so that what they lost is known.
pub(super) fn finish(tools: &Tools, clients: Vec<Process>) -> Result<Vec<String>, String> {
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
    let of = Part { lab, host: "server", alone: extension.alone().is_some(), request: SIZE };
    let run = |setup: &str| observe(tools, &of, moment, setup, &point);
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

/// What is looked at: the thread of a host, which others may share.
pub(super) struct Part<'a> {
    pub lab: &'a FabricLab<'a>,
    pub host: &'static str,
    pub alone: bool,
    /// Bytes of a request.
    pub request: u64,
}

/// What the daemon does in a moment.
pub(super) fn observe(tools: &Tools, of: &Part<'_>, moment: f64, setup: &str, point: &Value) -> Result<Run, String> {
    // What was just changed comes to rest.
    pause(tools, 0.02)?;
    let before = Figures::read(of.lab, of.host)?;
    pause(tools, moment)?;
    let after = Figures::read(of.lab, of.host)?;
    let requests = (after.bytes - before.bytes) / of.request as f64;
    if requests <= 0.0 {
        return Err("the echoes have ended before the measurement: the machine is too busy, try again".into());
    }
    let mut run = Run::new(Stack::Opentoe, 0, point);
    run.setup = setup.into();
    run.ops_per_s = Some(requests / (after.now - before.now));
    run.cpu_s.insert("data-path".into(), after.cpu - before.cpu);
    let (busy, cpu) = (after.busy - before.busy, after.cpu - before.cpu);
    let figures = [
        ("seconds", after.now - before.now),
        ("busy_ns_per_request", busy * 1e9 / requests),
        ("cpu_ns_per_request", cpu * 1e9 / requests),
        ("requests_per_s_of_thread", requests / if of.alone { busy } else { cpu }),
        ("requests_per_busy_round", requests / (after.rounds - before.rounds).max(1.0)),
        ("segments_per_s", (after.frames - before.frames) / (after.now - before.now)),
        ("segments_per_busy_s", (after.frames - before.frames) / busy),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), json!(value))));
    Ok(run)
}

pub(super) fn pause(tools: &Tools, seconds: f64) -> Result<(), String> {
    tools.stop.check()?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    Ok(())
}

/// What the daemon has counted: bytes that came to the server's host; frames that came to the host that is looked at;
/// seconds of its data-path thread's clock, of that thread's processor time, and of its rounds with work; and these.
pub(super) struct Figures {
    pub bytes: f64,
    frames: f64,
    now: f64,
    cpu: f64,
    busy: f64,
    rounds: f64,
}

impl Figures {
    pub fn read(lab: &FabricLab, watched: &str) -> Result<Figures, String> {
        let stats = lab.stats()?;
        let host = |name: &str| {
            let mut hosts = stats["hosts"].as_array().into_iter().flatten();
            hosts.find(|host| host["name"] == name).ok_or_else(|| format!("the daemon has no host `{name}`"))
        };
        let flows = host("server")?["flows"].as_array().into_iter().flatten();
        let bytes = flows.filter_map(|flow| flow["figures"]["rx_bytes"].as_f64()).sum();
        let watched = host(watched)?;
        let thread = &stats["threads"][watched["thread"].as_u64().unwrap_or_default() as usize];
        let number = |of: &Value, key: &str| of[key].as_f64().ok_or_else(|| format!("the daemon does not say {key}"));
        Ok(Figures {
            bytes,
            frames: number(&watched["port"], "rx_frames")?,
            now: number(thread, "now_ns")? / 1e9,
            cpu: number(thread, "cpu_ns")? / 1e9,
            busy: number(thread, "busy_ns")? / 1e9,
            rounds: number(thread, "busy_rounds")?,
        })
    }
}

/// Requests for each second of the data-path thread: of its processor time where it always has something to do, as it
/// polls then and has all of its core but what others take from it; of its rounds with work where it has not.
fn capacity(run: &Run) -> f64 {
    run.figure("requests_per_s_of_thread")
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
        let shown = ratio(capacity).map_or("-".into(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
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
         ns, time: of its rounds with work, for each request{}\n",
        table(&rows),
        spliced::sentence(report).map(|sentence| format!("\n{sentence}")).unwrap_or_default()
    )
}

/// A row of the table by its name; none for splicing.
fn row(text: &str) -> Result<Option<Extension>, String> {
    if text == SPLICE {
        return Ok(None);
    }
    let found = Extension::value_variants().iter().find(|extension| extension.name() == text);
    found.map(|extension| Some(*extension)).ok_or_else(|| {
        let names: Vec<&str> = Extension::value_variants().iter().map(|extension| extension.name()).collect();
        format!("there is no extension `{text}`; there are {}, {SPLICE}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_named() {
        assert_eq!(list("null, splice", row), Ok(vec![Some(Extension::Null), None]));
        assert!(row("splicing").unwrap_err().contains("tracepoints, stream, capture, null, vlan, strip, splice"));
    }

    #[test]
    fn the_table_fits_a_terminal_and_ratios_are_pairs() {
        let mut report = Report::new("extensions", json!({}));
        for (round, (plain, with)) in [(1000.0, 900.0), (500.0, 475.0), (800.0, 800.0)].into_iter().enumerate() {
            for (setup, speed) in [("plain", plain), ("with", with)] {
                let mut run = Run::new(Stack::Opentoe, round as u32 + 1, &json!({ "extension": "tracepoints" }));
                (run.setup, run.ops_per_s) = (setup.into(), Some(speed * 1e3));
                run.figures.insert("busy_ns_per_request".into(), json!(1e6 / speed));
                run.figures.insert("requests_per_s_of_thread".into(), json!(speed * 1e3));
                report.runs.push(run);
            }
        }
        let text = show(&report);
        assert!(text.contains("0.95 (0.90-1.00)") && text.contains("0.76"), "{text}");
        assert!(text.lines().take(2).all(|line| line.chars().count() <= 80), "{text}");
    }
}
