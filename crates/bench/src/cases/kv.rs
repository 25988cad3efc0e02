//! Key-value stores: memcached with `apps/kv_client`, redis with redis-benchmark.
use super::compare::{Buffers, Comparison, number, numbers};
use super::window::{self, server_and_stack};
use crate::arguments::{list, listed, numbered};
use crate::lab::Lab;
use crate::process::Process;
use crate::report::{Report, Run};
use crate::sample::{Latency, Sample};
use crate::servers::{self, ClientReport, split};
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

const MEMCACHED: u16 = 11211;
const REDIS: u16 = 6379;
/// Requests that show how many fit into the time asked for, and bytes that they move at most.
const PROBE: u64 = 20_000;
const PROBE_BYTES: u64 = 1 << 30;
/// The longest value: of memcached's client, of redis-benchmark.
const MOST_MEMCACHED: u64 = 900;
const MOST_REDIS: usize = 1 << 20;
/// What redis-benchmark may take longer than was thought.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    #[command(flatten)]
    pub buffers: Buffers,
    /// Servers: memcached, redis
    #[arg(long, value_name = "SERVER,...", default_value = "memcached,redis", value_parser = listed(server))]
    pub server: String,
    /// Connections
    #[arg(long, value_name = "N,...", default_value = "50", value_parser = numbered(3500))]
    pub conns: String,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbered(64))]
    pub depth: String,
    /// Bytes of a value: up to 900, for redis up to 1 MiB
    #[arg(long, value_name = "BYTES,...", default_value = "32", value_parser = numbered(MOST_REDIS))]
    pub size: String,
    /// Share of sets, percent; redis-benchmark sets where it is 100, and gets otherwise (ZeroNIC's figure 11)
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub sets: u64,
}

/// Workload of clients.
#[derive(Clone, Copy)]
struct Load {
    /// Seconds before the measurement, and of it.
    warm_up: f64,
    seconds: f64,
    /// Share of sets, percent.
    sets: u64,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let axes = [
        ("server", list(&arguments.server, server)?),
        ("conns", numbers(&arguments.conns)?),
        ("depth", numbers(&arguments.depth)?),
        ("size", numbers(&arguments.size)?),
    ];
    for (server, size) in
        list(&arguments.server, server)?.iter().flat_map(|it| axes[3].1.iter().map(move |to| (it, to)))
    {
        if *server == "memcached" && size.as_u64().is_some_and(|size| size > MOST_MEMCACHED) {
            return Err(format!("values of memcached have {MOST_MEMCACHED} bytes at most; --server redis takes more"));
        }
    }
    let (warm_up, seconds) = arguments.comparison.times();
    let load = Load { warm_up, seconds, sets: arguments.sets };
    let params = json!({ "sets_percent": load.sets, "buffer_kib": arguments.buffers.buffer });
    arguments.comparison.measure(tools, "kv", (params, &axes), |setup, point| {
        let needs = Needs { connections: number(point, "conns") as usize, clients: 1, ..Needs::default() };
        let lab = setup.lab_as(tools, needs, arguments.buffers.plan())?;
        let mut run = Run::on(setup, point);
        match point["server"] == "redis" {
            true => redis(tools, &*lab, point, load, &mut run)?,
            false => memcached(tools, &*lab, point, load, &mut run)?,
        }
        Ok(run)
    })
}

fn memcached(tools: &Tools, lab: &dyn Lab, point: &Value, load: Load, run: &mut Run) -> Result<(), String> {
    let Load { warm_up, seconds, sets } = load;
    let address = lab.address();
    let servers = [lab.server(&servers::memcached(&address.to_string(), MEMCACHED), MEMCACHED)?];
    let (conns, depth, size) = (number(point, "conns"), number(point, "depth"), number(point, "size"));
    let line = format!(
        "{} -c {address} -p {MEMCACHED} -n {conns} -d {depth} -s {size} -x {sets} -w {warm_up} -t {seconds}",
        tools.app("kv_client")
    );
    let client = lab.client(0, &split(&line))?;
    let (printed, cpu_s) = window::watch(tools, vec![client], || server_and_stack(&servers, lab))?;
    window::note(run, &Sample::of(&printed)?, cpu_s);
    Ok(())
}

/// The same load on a memcached behind other words, which count what it does; it has ended when this returns.
pub(crate) fn memcached_under(
    tools: &Tools,
    lab: &dyn Lab,
    mut words: Vec<String>,
    (conns, seconds): (u64, f64),
) -> Result<(), String> {
    let address = lab.address();
    words.extend(servers::memcached(&address.to_string(), MEMCACHED));
    let server = lab.server(&words, MEMCACHED)?;
    let line =
        format!("{} -c {address} -p {MEMCACHED} -n {conns} -d 1 -s 32 -x 10 -w 1 -t {seconds}", tools.app("kv_client"));
    lab.client(0, &split(&line))?.finish(&tools.stop, TIMEOUT)?;
    server.end(&tools.stop, TIMEOUT)
}

/// redis-benchmark counts requests, not time: a short run shows how many fit, and warms up.
fn redis(tools: &Tools, lab: &dyn Lab, point: &Value, wanted: Load, run: &mut Run) -> Result<(), String> {
    let address = lab.address();
    let server = [lab.server(&servers::redis(&address.to_string(), REDIS, lab.directory()), REDIS)?];
    let (conns, depth, size) = (number(point, "conns"), number(point, "depth"), number(point, "size"));
    let load = |test: &str, requests: u64| -> Result<ClientReport, String> {
        let line = format!(
            "redis-benchmark -h {address} -p {REDIS} -c {conns} -P {depth} -d {size} -n {requests} -t {test} --csv"
        );
        servers::redis_benchmark_report(&lab.client(0, &split(&line))?.finish(&tools.stop, TIMEOUT)?)
    };
    let (test, probe) = (if wanted.sets == 100 { "set" } else { "get" }, PROBE.min(PROBE_BYTES / size.max(1)));
    load("set", probe)?;
    let report = load(test, probe * 2)?;
    let before = server_and_stack(&server, lab);
    let report = load(test, ((report.ops_per_s * wanted.seconds) as u64).max(probe))?;
    note_report(run, report, before, &server, lab);
    Ok(())
}

/// The report of a program that counts requests: the stretch is how long it must have taken.
pub(crate) fn note_report(
    run: &mut Run,
    report: ClientReport,
    before: window::CpuSeconds,
    servers: &[Process],
    lab: &dyn Lab,
) {
    run.ops_per_s = Some(report.ops_per_s);
    let unknown = f64::NAN;
    run.latency_us =
        Some(Latency { p50: report.p50_us, p99: report.p99_us, p999: unknown, p9999: unknown, max: report.max_us });
    run.cpu_s.extend(window::since(&before, server_and_stack(servers, lab)));
}

fn server(text: &str) -> Result<Value, String> {
    match text {
        "memcached" | "redis" => Ok(text.into()),
        _ => Err(format!("there is no server `{text}` for kv; there are memcached and redis")),
    }
}
