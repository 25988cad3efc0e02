//! Loss (FlexTOE figure 15, thesis figure 4.16): frames are dropped at random, each way. (a) 100 flows of small echoes
//! with 8 in flight; (b) 8 bulk flows.
use super::bulk::{self, Flows};
use super::rpc::{self, Load};
use super::window;
use crate::arguments::{Common, list, listed, stack};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan, congestion, congestion_help};
use crate::plot::{Chart, Line, LineStyle, series};
use crate::report::{Report, Run, table};
use crate::setup::{engine, series_name};
use crate::tools::Tools;
use clap::{Args, ValueEnum};
use port::FabricConfig;
use serde_json::{Value, json};

const ECHO_FLOWS: usize = 100;
const ECHO_BYTES: u64 = 64;
const ECHO_DEPTH: u64 = 8;
const BULK_FLOWS: usize = 8;
/// The fabric forwards super-segments whole where nothing can happen to single frames. Next to nothing makes the
/// point without loss comparable to the others.
const ALMOST_NOTHING: f64 = 1e-12;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Probabilities of a frame's loss, each way
    #[arg(long, value_name = "P,...", default_value = "0,1e-6,1e-5,1e-4,1e-3,0.01,0.02,0.05,0.1", value_parser = listed(probability))]
    pub loss: String,
    /// Loads: echo, bulk
    #[arg(long, value_name = "LOAD,...", default_value = "echo,bulk", value_parser = listed(kind))]
    pub load: String,
    /// Stacks: opentoe, linux
    #[arg(long, value_name = "STACK,...", default_value = "opentoe,linux", value_parser = listed(stack))]
    pub stack: String,
    /// Engines of OpenTOE: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME,...", default_value = "flextoe", value_parser = listed(engine))]
    pub engine: String,
    /// Engine of the hosts that clients are on, where it is to be another one, as in thesis figure 5.17
    #[arg(long, value_name = "NAME")]
    pub client_engine: Option<String>,
    #[arg(long, help = congestion_help("Congestion control on OpenTOE"), value_name = "NAME", default_value = "cubic")]
    pub congestion: String,
    /// Congestion control on Linux
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub linux_congestion: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Echo,
    Bulk,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Bulk => "bulk",
        }
    }
}

/// Runs the experiment.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let rates = list(&arguments.loss, probability)?;
    let stacks = list(&arguments.stack, stack)?;
    let engines = list(&arguments.engine, engine)?;
    let mut setups: Vec<(Stack, &'static str)> = Vec::new();
    for stack in stacks {
        match stack {
            Stack::Opentoe => setups.extend(engines.iter().map(|engine| (stack, *engine))),
            Stack::Linux => setups.push((stack, "linux")),
        }
    }
    let loads = list(&arguments.load, kind)?;
    let params = json!({
        "echo": { "flows": ECHO_FLOWS, "bytes": ECHO_BYTES, "depth": ECHO_DEPTH }, "bulk": { "flows": BULK_FLOWS },
        "congestion": arguments.congestion, "linux_congestion": arguments.linux_congestion,
        "client_engine": arguments.client_engine,
        "seconds": common.seconds(4.0), "warm_up_s": common.warm_up(), "pairs": common.pairs,
    });
    let mut report = Report::new("loss", params);
    for kind in &loads {
        for rate in &rates {
            for round in 1..=common.pairs {
                for setup in &setups {
                    let place = format!("{} with loss {rate} on {}", kind.name(), setup.1);
                    let run = measure(tools, arguments, *setup, *kind, *rate, round);
                    let Some(run) = report.measured(tools, &place, run)? else { continue };
                    tools.print_line(&format!("{place}: {}", shown(*kind, kind_speed(&run))));
                    report.runs.push(run);
                }
            }
        }
    }
    Ok(report)
}

/// A load by its name.
fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_str(text, true).map_err(|_| format!("there is no load `{text}`; there are echo and bulk"))
}

fn measure(
    tools: &Tools,
    arguments: &Arguments,
    (stack, engine): (Stack, &'static str),
    kind: Kind,
    rate: f64,
    round: u32,
) -> Result<Run, String> {
    let common = &arguments.common;
    let lab: Box<dyn Lab> = match stack {
        Stack::Opentoe => {
            let network = FabricConfig { loss: rate.max(ALMOST_NOTHING), ..FabricConfig::default() };
            let control = congestion(&arguments.congestion)?;
            let client_engine = arguments.client_engine.as_deref().map(crate::setup::engine).transpose()?;
            let plan =
                FabricPlan { network, congestion: Some(control), engine, client_engine, ..FabricPlan::default() };
            Box::new(FabricLab::new(tools, &plan)?)
        }
        Stack::Linux => {
            let congestion = Some(arguments.linux_congestion.clone());
            Box::new(VethLab::new(tools, &VethPlan { loss: rate, single: true, congestion, ..VethPlan::default() })?)
        }
    };
    let on = (stack == Stack::Opentoe).then(|| engine.to_string());
    let run = Run::new(stack, round, &json!({ "load": kind.name(), "loss": rate }));
    let mut run = Run { engine: on, setup: engine.into(), ..run };
    let (warm_up, seconds) = (common.warm_up(), common.seconds(4.0));
    match kind {
        Kind::Bulk => {
            let moved = bulk::run(tools, &*lab, &Flows::new(BULK_FLOWS, warm_up, seconds))?;
            run.gbit_per_s = Some(moved.gbit_per_s());
            run.errors = moved.lost;
            run.cpu_s.extend(moved.cpu_s);
        }
        Kind::Echo => {
            let outcome = rpc::run(tools, &*lab, &echo(warm_up, seconds))?;
            window::note(&mut run, &outcome.sample, outcome.cpu_s);
        }
    }
    Ok(run)
}

fn echo(warm_up: f64, seconds: f64) -> Load {
    Load {
        size: ECHO_BYTES,
        reply: ECHO_BYTES,
        connections: vec![ECHO_FLOWS],
        depth: ECHO_DEPTH,
        warm_up,
        seconds,
        ..Load::default()
    }
}

fn kind_speed(run: &Run) -> f64 {
    run.ops_per_s.or(run.gbit_per_s).unwrap_or(f64::NAN)
}

fn shown(kind: Kind, speed: f64) -> String {
    match kind {
        Kind::Echo => format!("{:.1} k/s", speed / 1e3),
        Kind::Bulk => format!("{speed:.3} Gbit/s"),
    }
}

/// The table, a row for each load and loss rate.
pub(crate) fn show(report: &Report) -> String {
    let setups = report.setups();
    let head = ["load", "loss"].into_iter().chain(setups.iter().map(|(_, name)| name.as_str()));
    let mut rows = vec![head.map(String::from).collect::<Vec<_>>()];
    for point in report.points() {
        let kind = if point["load"] == "echo" { Kind::Echo } else { Kind::Bulk };
        let speed = |name: &str| report.median_on(name, &point, kind_speed);
        let linux = setups.iter().find(|(stack, _)| *stack == Stack::Linux).and_then(|(_, name)| speed(name));
        let cell = |(stack, name): &(Stack, String)| match (speed(name), linux) {
            (Some(speed), Some(linux)) if *stack == Stack::Opentoe => {
                format!("{} ({:.2}x)", shown(kind, speed), speed / linux)
            }
            (Some(speed), _) => shown(kind, speed),
            (None, _) => "-".into(),
        };
        let row = [kind.name().into(), point["loss"].to_string()];
        rows.push(row.into_iter().chain(setups.iter().map(cell)).collect());
    }
    table(&rows)
}

/// Throughput over loss, a chart for each load.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let chart = |kind: Kind, name, title: &str, y: &str, scale: f64| {
        let points: Vec<Value> = report.points().into_iter().filter(|point| point["load"] == kind.name()).collect();
        let line = |(colour, (_, setup)): (usize, (Stack, String))| {
            let of = |at: usize| report.on(&setup, &points[at]).map(|run| kind_speed(run) / scale).collect();
            let (points, spread) = series(points.len(), |at| Some(at as f64), of);
            Line { name: series_name(&setup), points, spread, colour, stroke: LineStyle::Full }
        };
        let lines = report.setups().into_iter().enumerate().map(line);
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        let places = points.iter().map(|point| percent(point["loss"].as_f64().unwrap_or(0.0))).collect();
        let (title, x, y) = (title.into(), "loss each way, %".into(), y.into());
        (!lines.is_empty()).then_some((name, Chart { title, x, y, places, log_y: true, lines, ..Chart::default() }))
    };
    let echo =
        chart(Kind::Echo, "loss-echo", "Loss: 100 flows, 64 B echo, 8 in flight", "thousand echoes a second", 1e3);
    let bulk = chart(Kind::Bulk, "loss-bulk", "Loss: 8 bulk flows", "Gbit/s", 1.0);
    echo.into_iter().chain(bulk).collect()
}

/// A probability in percent, as short as it can be read.
fn percent(probability: f64) -> String {
    let text = format!("{:.6}", probability * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// A probability of loss.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=0.5).contains(value));
    value.ok_or_else(|| format!("`{text}` is no probability of loss: write a number from 0 to 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities() {
        assert_eq!(probability("1e-6"), Ok(1e-6));
        assert!(probability("0.9").is_err() && probability("x").is_err());
        assert_eq!([0.0, 1e-6, 0.02].map(percent), ["0", "0.0001", "2"]);
    }
}
