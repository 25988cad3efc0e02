//! Idle connections, many of them: memory of each, and what they cost in CPU time.
//!
//! Memory is what `--conns` connections hold beyond what sixteen hold, so that what programs and daemon hold anyway is
//! not counted.
use super::compare::{self, Column, Comparison, number, numbers};
use super::rpc::{self, Load};
use super::window;
use crate::arguments::numbered;
use crate::lab::Lab;
use crate::memory::Memory;
use crate::process::Process;
use crate::report::{Report, Run};
use crate::setup::{Needs, Setup};
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};
use std::cell::Cell;

/// Connections that are compared with.
const FEW: u64 = 16;
/// A quiet connection gives its buffers back after one to two seconds (docs/MEMORY.md).
const SETTLE_S: f64 = 5.0;
const MOST_OF_A_PROGRAM: u64 = 16_000;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections; each has exchanged 64 bytes before it is idle
    #[arg(long, value_name = "N,...", default_value = "1000,10000", value_parser = numbered(MOST_OF_A_PROGRAM as usize))]
    pub conns: String,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let axes = [("conns", numbers(&arguments.conns)?)];
    let (_, seconds) = arguments.comparison.times();
    let settle = if arguments.comparison.common.quick { 0.5 } else { SETTLE_S };
    let params = json!({ "settle_s": settle, "few": FEW });
    arguments
        .comparison
        .measure(tools, "idle", (params, &axes), |setup, point| measure(tools, setup, point, settle, seconds))
}

fn measure(tools: &Tools, setup: &Setup, point: &Value, settle: f64, seconds: f64) -> Result<Run, String> {
    let mut run = Run::on(setup, point);
    let conns = number(point, "conns").max(FEW + 1);
    let (few, _) = hold(tools, setup, FEW, (settle, 0.2), &mut run)?;
    let (many, seconds) = hold(tools, setup, conns, (settle, seconds), &mut run)?;
    // Each connection has two ends, and both are here.
    let each = (many - few).shared_by((conns - FEW) as f64 * 2.0);
    let stack = run.cpu_s.get("toed").copied().unwrap_or(0.0) / seconds;
    let all = run.cpu_s.values().sum::<f64>() / seconds;
    let figures = [
        ("bytes_each", each.total()),
        ("buffers_each", each.regions),
        ("private_each", each.private),
        ("page_tables_each", each.page_tables),
        ("kernel_each", each.kernel),
        ("stack_cpu_percent", stack * 100.0),
        ("all_cpu_percent", all * 100.0),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), json!(value))));
    Ok(run)
}

/// Opens connections and lets them be idle; what is held at the end, and how long it was measured, in seconds.
fn hold(
    tools: &Tools,
    setup: &Setup,
    conns: u64,
    (settle, seconds): (f64, f64),
    run: &mut Run,
) -> Result<(Memory, f64), String> {
    let lab = setup.lab(tools, Needs { connections: conns as usize, clients: 1, ..Needs::default() })?;
    let load = Load {
        size: 64,
        reply: 64,
        connections: vec![conns as usize],
        depth: 1,
        warm_up: settle,
        seconds,
        client_options: vec!["-i".into()],
        ..Load::default()
    };
    let (servers, clients) = rpc::start(tools, &*lab, &load)?;
    let processes = family(&servers, &clients, &*lab);
    let held = Cell::new(Memory::default());
    let used = || {
        held.set(Memory::of(&processes));
        processes.iter().map(|pid| (pid.to_string(), crate::process::cpu_s(*pid))).collect()
    };
    let (printed, by_process) = window::watch(tools, clients, used)?;
    run.errors += crate::sample::Sample::of(&printed)?.errors;
    let stack: Vec<String> =
        lab.stack_process().into_iter().flat_map(Process::family).map(|pid| pid.to_string()).collect();
    let part = |of_stack: bool| -> f64 {
        by_process.iter().filter(|(pid, _)| stack.contains(pid) == of_stack).map(|(_, seconds)| seconds).sum()
    };
    run.cpu_s.insert("programs".into(), part(false));
    if !stack.is_empty() {
        run.cpu_s.insert("toed".into(), part(true));
    }
    Ok((held.get(), seconds))
}

fn family(servers: &[Process], clients: &[Process], lab: &dyn Lab) -> Vec<u32> {
    servers.iter().chain(clients).chain(lab.stack_process()).flat_map(Process::family).collect()
}

/// The table: bytes for one end of a connection, and CPU time as a share of one core.
pub(crate) fn show(report: &Report) -> String {
    let columns = [
        Column::new("bytes/end", |run| run.figure("bytes_each")),
        Column::new("buffers", |run| run.figure("buffers_each")),
        Column::new("private", |run| run.figure("private_each")),
        Column::new("tables", |run| run.figure("page_tables_each")),
        Column::new("kernel", |run| run.figure("kernel_each")),
        Column::new("CPU %", |run| run.figure("all_cpu_percent")),
        Column::new(
            "toed %",
            |run| if run.cpu_s.contains_key("toed") { run.figure("stack_cpu_percent") } else { f64::NAN },
        ),
    ];
    compare::show_with(report, &columns)
}
