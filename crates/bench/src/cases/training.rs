//! A model that two ranks train together, a host each (ZeroNIC section 5.2, table 4): PyTorch's
//! DistributedDataParallel over gloo, which uses sockets. The paper has ResNets on GPUs; the model here is small, and
//! its ranks are programs on processors. The losses are the same on all ways, or bytes were wrong.
use super::compare::{self, Column, combine};
use crate::arguments::{Common, count, list, listed, numbered};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan};
use crate::process::Process;
use crate::report::{Report, Run, label};
use crate::setup::engine;
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The program of each rank.
const PROGRAM: &str = include_str!("../../../../apps/training.py");
/// Debian's, whose package python3-torch has gloo within.
const PYTHON: &str = "/usr/bin/python3";
const PORT: u16 = 29_500;
const TIMEOUT: Duration = Duration::from_secs(300);
/// What a measurement takes besides its epochs: a daemon, two imports of PyTorch.
const AROUND_S: f64 = 8.0;
/// Most parameters in a row of a layer.
const MOST_WIDTH: usize = 4096;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// What carries gradients: sockets (OpenTOE's TCP), linux (the kernel's TCP, ranks on a core each), one-core (the
    /// same, ranks on one core)
    #[arg(long, value_name = "WAY,...", default_value = "sockets,linux,one-core", value_parser = listed(way))]
    pub way: String,
    /// Engines below sockets: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME,...", default_value = "flextoe,zeronic", value_parser = listed(engine))]
    pub engine: String,
    /// Width of the model's four layers: with N, a step exchanges 12 N^2 bytes of gradients
    #[arg(long, value_name = "N,...", default_value = "1024", value_parser = numbered(MOST_WIDTH))]
    pub width: String,
    /// Epochs of eight steps; the first one is not counted
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub epochs: u32,
}

/// Carrier of gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// The kernel's TCP: CUBIC, super-segments over veth.
    Linux { one_core: bool },
    /// OpenTOE's TCP on this engine.
    Sockets(&'static str),
}

impl Carrier {
    fn setup(self) -> String {
        match self {
            Carrier::Linux { one_core } => if one_core { "linux one-core" } else { "linux cubic" }.into(),
            Carrier::Sockets(engine) => format!("{engine} sockets"),
        }
    }

    fn run(self, round: u32, point: &Value) -> Run {
        let (stack, engine) = match self {
            Carrier::Linux { .. } => (Stack::Linux, None),
            Carrier::Sockets(engine) => (Stack::Opentoe, Some(engine.into())),
        };
        Run { setup: self.setup(), engine, ..Run::new(stack, round, point) }
    }
}

/// Why it cannot be measured on this machine.
pub(crate) fn lacks() -> Option<String> {
    let mut import = Command::new(PYTHON);
    let import = import.args(["-c", "import torch.distributed"]).stdout(Stdio::null()).stderr(Stdio::null());
    let has = import.status().is_ok_and(|status| status.success());
    (!has).then(|| format!("{PYTHON} has no PyTorch: apt-get install python3-torch"))
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let ways = ways(arguments).map_or(1, |ways| ways.len());
    let widths = list(&arguments.width, |word| count(word, MOST_WIDTH)).unwrap_or_default();
    // A second for 25 MB of gradients, there and back, and for the arithmetic on them.
    let epoch = |width: &usize| 8.0 * 12.0 * (width * width) as f64 / 25e6;
    let each: f64 = widths.iter().map(|width| AROUND_S + f64::from(arguments.epochs) * epoch(width)).sum();
    ways as f64 * each * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a width directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    if let Some(sentence) = lacks() {
        return Err(sentence);
    }
    let common = &arguments.common;
    let ways = ways(arguments)?;
    let points = combine(&[("width", compare::numbers(&arguments.width)?)]);
    let params = json!({ "epochs": arguments.epochs, "pairs": common.pairs, "ranks": 2 });
    let mut report = Report::new("training", params);
    tools.print_line(&format!("training: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for point in &points {
            for way in &ways {
                let place = format!("{} on {}", label(point), way.setup());
                let run = measure(tools, *way, arguments.epochs, way.run(round, point));
                let Some(mut run) = report.measured(tools, &place, run)? else { continue };
                run.errors += report.runs.iter().map(|before| u64::from(differ(before, &run))).max().unwrap_or(0);
                tools.print_line(&format!("{place}: {}", sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn ways(arguments: &Arguments) -> Result<Vec<Carrier>, String> {
    let engines = list(&arguments.engine, engine)?;
    let of = |way| match way {
        "sockets" => engines.iter().map(|engine| Carrier::Sockets(engine)).collect(),
        way => vec![Carrier::Linux { one_core: way == "one-core" }],
    };
    Ok(list(&arguments.way, way)?.into_iter().flat_map(of).collect())
}

/// Both are of one point, and their losses or their parameters are not the same.
fn differ(one: &Run, other: &Run) -> bool {
    let of = |run: &Run| ["losses", "digest"].map(|name| run.figures.get(name).cloned());
    one.point == other.point && of(one) != of(other)
}

fn measure(tools: &Tools, way: Carrier, epochs: u32, run: Run) -> Result<Run, String> {
    match way {
        Carrier::Linux { one_core } => {
            let plan = VethPlan { congestion: Some("cubic".into()), one_core, ..VethPlan::default() };
            let lab = VethLab::new(tools, &plan)?;
            let words = words(lab.directory(), [lab.address(), lab.client_address()], epochs, &run)?;
            follow(tools, [lab.on_server(&words[0])?, lab.client(0, &words[1])?], None, run)
        }
        Carrier::Sockets(engine) => {
            let lab = FabricLab::new(tools, &FabricPlan { engine, ..FabricPlan::default() })?;
            let words = words(lab.directory(), [lab.address(), lab.client_address(0)], epochs, &run)?;
            follow(tools, [lab.on_server(&words[0])?, lab.client(0, &words[1])?], lab.stack_process(), run)
        }
    }
}

/// The words of both ranks, whose program is put into the lab's directory.
fn words(directory: &Path, at: [Ipv4Addr; 2], epochs: u32, run: &Run) -> Result<[Vec<String>; 2], String> {
    let program = directory.join("training.py");
    std::fs::write(&program, PROGRAM).map_err(|error| format!("cannot write {}: {error}", program.display()))?;
    let (program, width) = (program.display().to_string(), run.point["width"].to_string());
    let rank = |rank: usize| {
        let (own, first) = (at[rank].to_string(), at[0].to_string());
        let words = [rank.to_string(), "2".into(), own, first, PORT.to_string(), epochs.to_string(), width.clone()];
        [&[PYTHON.to_string(), program.clone()][..], &words].concat()
    };
    Ok([0, 1].map(rank))
}

/// Waits for both ranks; the daemon's processor time is that of the epochs.
fn follow(tools: &Tools, ranks: [Process; 2], stack: Option<&Process>, run: Run) -> Result<Run, String> {
    let [mut first, second] = ranks;
    tools.stop.until("the ranks to meet", TIMEOUT, || {
        // In this order: where it has ended, all of its output is there.
        let alive = first.alive();
        if first.output().contains("training\n") { Ok(true) } else { alive.map(|()| false) }
    })?;
    let before = stack.map_or(0.0, Process::cpu_s);
    let printed = first.finish(&tools.stop, TIMEOUT)?;
    let after = stack.map_or(0.0, Process::cpu_s);
    second.finish(&tools.stop, TIMEOUT)?;
    let mut run = parse_report(&printed, run)?;
    if stack.is_some() {
        run.cpu_s.insert("toed".into(), after - before);
    }
    Ok(run)
}

/// What rank 0 printed, into its place.
fn parse_report(printed: &str, mut run: Run) -> Result<Run, String> {
    let line = printed.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let report: Value = serde_json::from_str(line).map_err(|e| format!("rank 0 printed {printed}: {e}"))?;
    let missing = |name: &str| format!("there is no `{name}` in {line}");
    let seconds = report["seconds"].as_array().ok_or_else(|| missing("seconds"))?;
    let mut seconds: Vec<f64> = seconds.iter().skip(1).filter_map(Value::as_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let epoch = *seconds.get(seconds.len() / 2).ok_or_else(|| missing("seconds"))?;
    for name in ["losses", "digest", "bytes"] {
        run.figures.insert(name.into(), report.get(name).cloned().ok_or_else(|| missing(name))?);
    }
    run.figures.insert("epoch_s".into(), json!(epoch));
    let same = report["same"].as_bool().ok_or_else(|| missing("same"))?;
    Ok(Run { ops_per_s: Some(1.0 / epoch), errors: u64::from(!same), ..run })
}

fn sentence(run: &Run) -> String {
    let wrong = if run.errors > 0 { ", and other losses or parameters than before" } else { "" };
    format!("{:.3} s an epoch{wrong}", run.figure("epoch_s"))
}

/// The table: epochs a second, and seconds of one.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, &[Column::new("s an epoch", |run| run.figure("epoch_s"))])
}

fn way(text: &str) -> Result<&'static str, String> {
    let all = ["sockets", "linux", "one-core"];
    let known = all.iter().find(|known| **known == text);
    known.copied().ok_or_else(|| format!("there is no way `{text}`; there are {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(digest: &str, same: bool) -> String {
        let report = json!({ "seconds": [9.0, 0.5, 0.4, 0.6], "losses": ["0x1p-1"], "digest": digest, "bytes": 12,
            "same": same });
        format!("training\n{report}\n")
    }

    #[test]
    fn what_rank_0_prints_is_read_and_compared() {
        let point = json!({ "width": 8 });
        let of = |digest, same| {
            let run = Carrier::Sockets("zeronic").run(1, &point);
            parse_report(&printed(digest, same), run).unwrap()
        };
        let run = of("aa", true);
        // The first epoch does not count.
        assert_eq!((run.figure("epoch_s"), run.errors), (0.5, 0));
        assert_eq!(of("aa", false).errors, 1, "the ranks have other parameters than each other");
        assert!(differ(&run, &of("bb", true)) && !differ(&run, &of("aa", true)));
        let elsewhere = Run { point: json!({ "width": 9 }).as_object().cloned().unwrap(), ..of("bb", true) };
        assert!(!differ(&run, &elsewhere), "another model");
        assert!(parse_report("training\n", run.clone()).is_err());
        let mut report = Report::new("training", json!({}));
        report.runs.push(run);
        assert!(show(&report).contains("zeronic sockets"));
    }

    #[test]
    fn ways_have_names() {
        assert!(way("verbs").unwrap_err().contains("one-core"));
        assert_eq!(Carrier::Linux { one_core: true }.run(1, &json!({})).stack, Stack::Linux);
    }
}
