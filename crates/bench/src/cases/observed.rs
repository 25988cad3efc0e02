//! Moments of a running daemon, measured: what all rows of the case of extensions (`extensions.rs`, `spliced.rs`)
//! share.
use super::extension::Extension;
use super::rpc::Load;
use super::window;
use crate::arguments::{Common, listed};
use crate::lab::{FabricLab, Stack};
use crate::process::Process;
use crate::report::{Report, Run};
use crate::sample::Sample;
use crate::tools::Tools;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::time::Duration;

/// Bytes of a request, and of its reply.
pub(super) const SIZE: u64 = 64;
/// Seconds of a moment in which it is measured, by default.
const MOMENT: f64 = 0.25;
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// The row that is no extension of one host's while it runs.
pub(super) const SPLICE: &str = "splice";

/// Arguments of the case.
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

/// Seconds in which something is measured.
pub(super) fn moment(common: &Common) -> f64 {
    common.duration.unwrap_or(MOMENT).clamp(0.05, 10.0)
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

/// The clients run to their end, so that what they lost is known.
pub(super) fn finish(tools: &Tools, clients: Vec<Process>) -> Result<Vec<String>, String> {
    window::watch(tools, clients, Default::default).map(|(printed, _)| printed)
}

/// What is measured: the thread of a host, which others may share.
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

/// What the daemon has counted: bytes that came to the server's host, and frames that came to the host that is
/// measured. It also has seconds of its data-path thread's clock, of that thread's processor time, and of its rounds
/// with work; and these.
pub(super) struct Figures {
    pub bytes: f64,
    frames: f64,
    now: f64,
    cpu: f64,
    busy: f64,
    rounds: f64,
}

impl Figures {
    pub(super) fn read(lab: &FabricLab, watched: &str) -> Result<Figures, String> {
        let stats = lab.stats()?;
        let host = |name: &str| {
            let mut hosts = stats["hosts"].as_array().into_iter().flatten();
            hosts.find(|host| host["name"] == name).ok_or_else(|| format!("the daemon has no host `{name}`"))
        };
        let flows = host("server")?["flows"].as_array().into_iter().flatten();
        let bytes = flows.filter_map(|flow| flow["figures"]["rx_bytes"].as_f64()).sum();
        let watched = host(watched)?;
        let thread = &stats["threads"][watched["thread"].as_u64().unwrap_or_default() as usize];
        let number =
            |of: &Value, key: &str| of[key].as_f64().ok_or_else(|| format!("the daemon does not report {key}"));
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

/// A row of the table by its name; none for splicing.
pub(super) fn row(text: &str) -> Result<Option<Extension>, String> {
    if text == SPLICE {
        return Ok(None);
    }
    let found = Extension::value_variants().iter().find(|extension| extension.name() == text);
    found.map(|extension| Some(*extension)).ok_or_else(|| {
        let names: Vec<&str> = Extension::value_variants().iter().map(|extension| extension.name()).collect();
        format!("there is no extension `{text}`; there are {}, {SPLICE}", names.join(", "))
    })
}
