//! Collectives between two ranks of Open MPI, a host each (ZeroNIC section 5.2, figure 10): broadcast and all-reduce
//! over the bytes of a buffer. The paper has NCCL on GPUs; the ranks here are programs on processors.
use super::compare::{self, Column, combine};
use super::zeronic::chart;
use crate::arguments::{Common, count, list, listed};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan, ZERONIC};
use crate::plot::Chart;
use crate::process::Process;
use crate::report::{Report, Run, label};
use crate::sample::Latency;
use crate::servers::split;
use crate::setup::engine;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SECONDS: f64 = 2.0;
/// What a measurement takes besides its seconds: daemon, mpirun, warm-up.
const AROUND_S: f64 = 3.0;
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest buffer.
const MOST: usize = 256 << 20;
/// Open MPI's and UCX' environment where ranks talk over sockets.
const SOCKETS: &str = "OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self";
/// Ranks in another namespace than mpirun reach it over the same link, not over its loopback.
const APART: &str = "PMIX_MCA_ptl_base_remote_connections=1 PMIX_MCA_ptl_base_if_include=veth0";
/// And over verbs, and nothing else.
const VERBS: &str = "OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any \
                     UCX_TLS=rc_verbs,ud_verbs:aux,self";

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Operations: broadcast (from one rank to the other), all-reduce (the sum of floats)
    #[arg(long, value_name = "TEST,...", default_value = "broadcast,all-reduce", value_parser = listed(test))]
    pub test: String,
    /// What ranks talk over: sockets (OpenTOE's TCP), zeronic (verbs of a ZeroNIC host), roce (verbs of RoCEv2), linux
    /// (the kernel's TCP, ranks on a core each), one-core (the same, ranks on one core)
    #[arg(long, value_name = "WAY,...", default_value = "sockets,zeronic,roce,linux", value_parser = listed(way))]
    pub way: String,
    /// Engines below sockets: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME,...", default_value = "flextoe", value_parser = listed(engine))]
    pub engine: String,
    /// What decides on headers below ZeroNIC: flextoe, laminar, linux
    #[arg(long, value_name = "NAME,...", default_value = "flextoe,laminar,linux", value_parser = listed(transport))]
    pub transport: String,
    /// Buffers: pages (whole ones of their own, which the daemon maps), heap (it reaches them through the kernel)
    #[arg(long, value_name = "KIND", default_value = "pages", value_parser = memory)]
    pub memory: String,
    /// Bytes of a buffer, multiples of 4
    #[arg(long, value_name = "N,...", default_value = "1024,65536,1048576,16777216", value_parser = listed(size))]
    pub size: String,
}

/// Carrier between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// The kernel's TCP: CUBIC, super-segments over veth.
    Linux { one_core: bool },
    /// OpenTOE's TCP on this engine.
    Sockets(&'static str),
    /// The verbs of a ZeroNIC host over this transport.
    Zeronic(&'static str),
    /// Those of RoCEv2.
    Roce,
}

impl Carrier {
    fn setup(self) -> String {
        match self {
            Carrier::Linux { one_core } => if one_core { "linux one-core" } else { "linux cubic" }.into(),
            Carrier::Sockets(engine) => format!("{engine} sockets"),
            Carrier::Zeronic(transport) => format!("zeronic0 {transport}"),
            Carrier::Roce => "rocev2 verbs".into(),
        }
    }

    fn run(self, round: u32, point: &Value) -> Run {
        let stack = if matches!(self, Carrier::Linux { .. }) { Stack::Linux } else { Stack::Opentoe };
        let engine = match self {
            Carrier::Linux { .. } => None,
            Carrier::Sockets(engine) => Some(engine.into()),
            Carrier::Zeronic(transport) => Some(format!("zeronic over {transport}")),
            Carrier::Roce => Some("smartns".into()),
        };
        Run { setup: self.setup(), engine, ..Run::new(stack, round, point) }
    }

    fn environment(self) -> String {
        match self {
            Carrier::Linux { .. } => format!("{SOCKETS} {APART}"),
            Carrier::Sockets(_) => SOCKETS.into(),
            Carrier::Zeronic(_) => format!("{VERBS} UCX_NET_DEVICES=zeronic0:1"),
            Carrier::Roce => format!("{VERBS} UCX_NET_DEVICES=toe0:1"),
        }
    }

    fn plan(self) -> FabricPlan {
        let plan = FabricPlan::default();
        match self {
            Carrier::Linux { .. } => plan,
            Carrier::Sockets(engine) => FabricPlan { engine, ..plan },
            Carrier::Zeronic(transport) => FabricPlan { zeronic: Some(transport), ..plan },
            // Room for packets of 4096 bytes.
            Carrier::Roce => {
                let network = FabricConfig { mtu: 9000, ..FabricConfig::default() };
                FabricPlan { network, rdma: Some("selective-repeat"), ..plan }
            }
        }
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    let count = |text: &str| text.split(',').filter(|word| !word.trim().is_empty()).count();
    let ways = ways(arguments).map_or(1, |ways| ways.len());
    (ways * count(&arguments.test) * count(&arguments.size)) as f64 * each * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a point directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let ways = ways(arguments)?;
    let tests = list(&arguments.test, test)?.into_iter().map(Value::from).collect();
    let points = combine(&[("test", tests), ("size", compare::numbers(&arguments.size)?)]);
    let seconds = common.seconds(SECONDS);
    let words = [arguments.memory.clone(), (seconds / 4.0).clamp(0.3, 1.0).to_string(), seconds.to_string()];
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "ranks": 2, "memory": arguments.memory });
    let mut report = Report::new("collectives", params);
    tools.print_line(&format!("collectives: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for point in &points {
            for way in &ways {
                let place = format!("{} on {}", label(point), way.setup());
                let run = measure(tools, *way, &words, point, way.run(round, point));
                let Some(run) = report.measured(tools, &place, run)? else { continue };
                tools.print_line(&format!("{place}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn ways(arguments: &Arguments) -> Result<Vec<Carrier>, String> {
    let (engines, transports) = (list(&arguments.engine, engine)?, list(&arguments.transport, transport)?);
    let of = |way| match way {
        "sockets" => engines.iter().map(|engine| Carrier::Sockets(engine)).collect(),
        "zeronic" => transports.iter().map(|transport| Carrier::Zeronic(transport)).collect(),
        "roce" => vec![Carrier::Roce],
        way => vec![Carrier::Linux { one_core: way == "one-core" }],
    };
    Ok(list(&arguments.way, way)?.into_iter().flat_map(of).collect())
}

/// `words` are what is the same for all measurements: memory, seconds of the warm-up and of the rest.
fn measure(tools: &Tools, way: Carrier, words: &[String], point: &Value, run: Run) -> Result<Run, String> {
    let program = tools.app("collectives");
    if !Path::new(&program).is_file() {
        return Err(format!("there is no {program}: make apps builds it where mpicc is installed (libopenmpi-dev)"));
    }
    let operation = point["test"].as_str().unwrap_or_default();
    let rank = [&[program, operation.into(), point["size"].to_string()], words].concat();
    if let Carrier::Linux { one_core } = way {
        let plan = VethPlan { congestion: Some("cubic".into()), one_core, ..VethPlan::default() };
        let lab = VethLab::new(tools, &plan)?;
        let ranks = [lab.words_of_client(&rank), lab.words_of_server(&rank)];
        let mpirun = lab.client(0, &mpirun(way, &ranks))?;
        return follow(tools, mpirun, None, run);
    }
    let lab = FabricLab::new(tools, &way.plan())?;
    let [receiver, sender] = if matches!(way, Carrier::Zeronic(_)) { ZERONIC } else { ["server", "client0"] };
    let ranks = [sender, receiver].map(|host| lab.words_on(host, &rank));
    let mpirun = lab.plain(&mpirun(way, &ranks))?;
    follow(tools, mpirun, lab.stack_process(), run)
}

/// The command line for two ranks. Each has its own place: its host, its core.
fn mpirun(way: Carrier, ranks: &[Vec<String>; 2]) -> Vec<String> {
    // Ranks that share a core yield it where they find nothing to do.
    let mut words = split(&format!(
        "env {} OMPI_MCA_mpi_yield_when_idle=1 mpirun --allow-run-as-root --oversubscribe --bind-to none",
        way.environment()
    ));
    for (rank, before) in ranks.iter().zip([None, Some(":".to_string())]) {
        words.extend(before.into_iter().chain(["-np", "1"].map(String::from)));
        words.extend_from_slice(rank);
    }
    words
}

/// Waits for the output of rank 0; the daemon's processor time is that between the warm-up's end and the result.
fn follow(tools: &Tools, mut mpirun: Process, stack: Option<&Process>, run: Run) -> Result<Run, String> {
    let mut spent = |mark: &str| {
        tools.stop.until("the ranks", TIMEOUT, || {
            // In this order: where mpirun has ended, all of its output is there.
            let alive = mpirun.alive();
            if mpirun.output().contains(mark) { Ok(true) } else { alive.map(|()| false) }
        })?;
        Ok::<f64, String>(stack.map_or(0.0, Process::cpu_s))
    };
    let (before, after) = (spent("measuring")?, spent("}\n")?);
    let mut run = parse_report(&mpirun.output(), run)?;
    if run.errors == 0 {
        // It fails where numbers were wrong, which the report shows better.
        mpirun.finish(&tools.stop, TIMEOUT)?;
    }
    if stack.is_some() {
        run.cpu_s.insert("toed".into(), after - before);
    }
    Ok(run)
}

/// What rank 0 printed, into its place.
fn parse_report(printed: &str, mut run: Run) -> Result<Run, String> {
    let line = printed.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let report: Value = serde_json::from_str(line).map_err(|e| format!("mpirun printed {printed}: {e}"))?;
    let number = |name: &str| report[name].as_f64().ok_or_else(|| format!("there is no `{name}` in {line}"));
    let (p50, p99, seconds) = (number("us_p50")?, number("us_p99")?, number("seconds")?);
    let nan = f64::NAN;
    for (rank, time) in report["cpu_s"].as_array().into_iter().flatten().enumerate() {
        run.cpu_s.insert(format!("rank{rank}"), time.as_f64().unwrap_or(nan));
    }
    run.figures.insert("seconds".into(), json!(seconds));
    for name in ["us", "elapsed_s"] {
        run.figures.insert(name.into(), json!(number(name)?));
    }
    Ok(Run {
        ops_per_s: Some(number("operations")? / seconds),
        gbit_per_s: Some(number("gbit_per_s")?),
        latency_us: Some(Latency { p50, p99, p999: nan, p9999: nan, max: nan }),
        errors: number("wrong")? as u64,
        ..run
    })
}

const COLUMNS: &[Column] = &[
    Column::new("rank 0", |run| share(run, "rank0")),
    Column::new("rank 1", |run| share(run, "rank1")),
    Column::new("toed", |run| share(run, "toed")),
];

/// Of one core, with what is between rounds.
fn share(run: &Run, process: &str) -> f64 {
    run.cpu_s.get(process).map_or(f64::NAN, |time| time / run.figure("elapsed_s"))
}

/// The table: operations a second, Gbit/s of the buffer, time of an operation, and each process' share of a core.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, COLUMNS)
}

/// Gbit/s over the bytes of a buffer, for each operation.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let rate = |run: &Run| run.gbit_per_s.unwrap_or(f64::NAN);
    let of = |test, title| chart(report, [test, "size"], rate, [title, "bytes of a buffer", "Gbit/s"]);
    let broadcast = of("broadcast", "Broadcast from one rank to another");
    let reduce = of("all-reduce", "All-reduce of two ranks, the sum of floats");
    let named = [("collectives-broadcast", broadcast), ("collectives-all-reduce", reduce)];
    named.into_iter().filter(|(_, chart)| !chart.lines.is_empty()).collect()
}

fn test(text: &str) -> Result<&'static str, String> {
    named("test", text, &["broadcast", "all-reduce"])
}

fn way(text: &str) -> Result<&'static str, String> {
    named("way", text, &["sockets", "zeronic", "roce", "linux", "one-core"])
}

fn transport(text: &str) -> Result<&'static str, String> {
    named("transport", text, &["flextoe", "laminar", "linux"])
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = count(text, MOST)?;
    if bytes % 4 == 0 { Ok(bytes) } else { Err(format!("`{text}` must be a multiple of 4: a float has 4 bytes")) }
}

fn memory(text: &str) -> Result<String, String> {
    named("memory", text, &["pages", "heap"]).map(String::from)
}

fn named(what: &str, text: &str, all: &[&'static str]) -> Result<&'static str, String> {
    let known = all.iter().find(|known| **known == text);
    known.copied().ok_or_else(|| format!("there is no {what} `{text}`; there are {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "measuring\n{\"operation\": \"broadcast\", \"ranks\": 2, \"bytes\": 1024, \
                        \"operations\": 4000, \
                        \"seconds\": 2.0, \"us\": 500.0, \"us_p50\": 400.0, \"us_p99\": 900.0, \"gbit_per_s\": 0.0164, \
                        \"cpu_s\": [1.0, 0.5], \"elapsed_s\": 2.0, \"wrong\": 0}\n";

    #[test]
    fn the_output_of_rank_0_is_a_run() {
        let point = json!({ "test": "broadcast", "size": 1024 });
        let run = parse_report(PRINTED, Carrier::Zeronic("laminar").run(1, &point)).unwrap();
        assert_eq!((run.ops_per_s, run.errors, share(&run, "rank1")), (Some(2000.0), 0, 0.25));
        let mut report = Report::new("collectives", json!({}));
        report.runs.push(run);
        assert!(show(&report).contains("zeronic0 laminar"));
        assert_eq!(plots(&report)[0].1.lines[0].points, [(0.0, 0.0164)]);
        assert!(parse_report("measuring\n", Carrier::Roce.run(1, &point)).is_err());
    }

    #[test]
    fn each_rank_has_words_of_its_own() {
        let words = mpirun(Carrier::Roce, &["one", "two"].map(|word| vec![word.to_string()])).join(" ");
        assert!(words.ends_with("-np 1 one : -np 1 two") && words.contains("UCX_NET_DEVICES=toe0:1"), "{words}");
    }

    #[test]
    fn words_have_meanings() {
        assert!(way("tcp").unwrap_err().contains("sockets"));
        assert!(test("reduce").is_err() && transport("zeronic").is_err() && memory("stack").is_err());
        assert_eq!((size("1024"), size("1022").is_err()), (Ok(1024), true));
    }
}
