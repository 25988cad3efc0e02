//! Fairness (FlexTOE figure 16, thesis figure 4.17): many bulk flows between two hosts, over a link that they fill.
use super::bulk::{self, Flows};
use crate::arguments::{Common, count, list, listed, numbered, stack};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan, congestion, congestion_help};
use crate::plot::{Chart, Line, LineStyle, series};
use crate::report::{Report, Run, label, table};
use crate::sample::{jain, quantile};
use crate::setup::{engine, series_name};
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};

/// Payload's share of the bytes of full frames.
const PAYLOAD: f64 = 1448.0 / 1514.0;

const MOST_FLOWS: usize = 4000;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Numbers of flows
    #[arg(long, value_name = "N,...", default_value = "64,256,1000,2000", value_parser = numbered(MOST_FLOWS))]
    pub flows: String,
    /// Stacks: opentoe, linux
    #[arg(long, value_name = "STACK,...", default_value = "opentoe,linux", value_parser = listed(stack))]
    pub stack: String,
    /// Engine of OpenTOE: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME", default_value = "flextoe")]
    pub engine: String,
    #[arg(long, help = congestion_help("Congestion control on OpenTOE"), value_name = "NAME", default_value = "dctcp")]
    pub congestion: String,
    /// Congestion control on Linux
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub linux_congestion: String,
    /// Rate of the link, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 1000)]
    pub rate: u64,
    /// Backlog above which packets are marked (OpenTOE), KiB
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub ecn_threshold: u64,
    /// Backlog above which packets are dropped, KiB
    #[arg(long, value_name = "KIB", default_value_t = 8192)]
    pub buffer: u64,
}

/// Runs the experiment.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let numbers = list(&arguments.flows, |word| count(word, MOST_FLOWS))?;
    let stacks = list(&arguments.stack, stack)?;
    let params = json!({
        "rate_mbit_per_s": arguments.rate, "ecn_threshold_kib": arguments.ecn_threshold,
        "buffer_kib": arguments.buffer, "engine": arguments.engine, "congestion": arguments.congestion,
        "linux_congestion": arguments.linux_congestion, "seconds": common.seconds(20.0),
        "warm_up_s": warm_up(common), "pairs": common.pairs,
    });
    let mut report = Report::new("fairness", params);
    for flows in &numbers {
        for round in 1..=common.pairs {
            for stack in &stacks {
                let run = measure(tools, arguments, *stack, *flows, round)?;
                tools.print_line(&sentence(&run));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// Thousands of flows need a while to find their shares.
fn warm_up(common: &Common) -> f64 {
    common.warm_up() * 2.5
}

fn lab<'a>(tools: &'a Tools, arguments: &Arguments, stack: Stack) -> Result<Box<dyn Lab + 'a>, String> {
    let (rate_bps, buffer_bytes) = (arguments.rate * 1_000_000, arguments.buffer << 10);
    Ok(match stack {
        Stack::Opentoe => {
            let ecn_threshold_bytes = arguments.ecn_threshold << 10;
            let network = FabricConfig { rate_bps, buffer_bytes, ecn_threshold_bytes, ..FabricConfig::default() };
            let control = congestion(&arguments.congestion)?;
            let (congestion, engine) = (Some(control), engine(&arguments.engine)?);
            let plan = FabricPlan { network, congestion, engine, buffer: 64 << 10, ..FabricPlan::default() };
            Box::new(FabricLab::new(tools, &plan)?)
        }
        Stack::Linux => {
            let congestion = Some(arguments.linux_congestion.clone());
            Box::new(VethLab::new(tools, &VethPlan { rate_bps, buffer_bytes, congestion, ..VethPlan::default() })?)
        }
    })
}

fn measure(tools: &Tools, arguments: &Arguments, stack: Stack, flows: usize, round: u32) -> Result<Run, String> {
    let common = &arguments.common;
    let lab = lab(tools, arguments, stack)?;
    let moved = bulk::run(tools, &*lab, &Flows::new(flows, warm_up(common), common.seconds(20.0)))?;
    let fair = arguments.rate as f64 * 1e6 / 8.0 * PAYLOAD * moved.seconds / flows as f64;
    let on = (stack == Stack::Opentoe).then(|| arguments.engine.clone());
    let mut run = Run { engine: on, ..Run::new(stack, round, &json!({ "flows": flows })) };
    run.gbit_per_s = Some(moved.gbit_per_s());
    run.errors = moved.lost;
    run.cpu_s.extend(moved.cpu_s.clone());
    let figures = [
        ("share_of_rate", moved.gbit_per_s() * 1e3 / PAYLOAD / arguments.rate as f64),
        ("jain", jain(&moved.bytes)),
        ("median_of_fair", quantile(&moved.bytes, 0.5) as f64 / fair),
        ("p1_of_fair", quantile(&moved.bytes, 0.01) as f64 / fair),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), json!(value))));
    Ok(run)
}

fn sentence(run: &Run) -> String {
    format!(
        "{} on {}: {:.1} % of the rate, Jain {:.3}, median {:.2} and 1st percentile {:.2} of the fair share",
        label(&Value::Object(run.point.clone())),
        run.stack.name(),
        run.figure("share_of_rate") * 100.0,
        run.figure("jain"),
        run.figure("median_of_fair"),
        run.figure("p1_of_fair"),
    )
}

const STACKS: [Stack; 2] = [Stack::Opentoe, Stack::Linux];

/// The table, a row for each number of flows and stack.
pub(crate) fn show(report: &Report) -> String {
    let head = ["flows", "stack", "share of rate", "median of fair", "1st percentile of fair", "Jain"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for point in report.points() {
        for stack in STACKS.into_iter().filter(|stack| report.at(*stack, &point).next().is_some()) {
            let median = |name: &str| report.median(stack, &point, |run| run.figure(name)).unwrap_or(f64::NAN);
            rows.push(vec![
                point["flows"].to_string(),
                stack.name().into(),
                format!("{:.1} %", median("share_of_rate") * 100.0),
                format!("{:.2}", median("median_of_fair")),
                format!("{:.2}", median("p1_of_fair")),
                format!("{:.3}", median("jain")),
            ]);
        }
    }
    table(&rows)
}

/// Median and first percentile beside the fair share, and Jain's index.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let places: Vec<String> = report.points().iter().map(|point| point["flows"].to_string()).collect();
    let all = report.points();
    let line = |stack: Stack, name: &str, title: &str, stroke: LineStyle| {
        let of = |at: usize| report.at(stack, &all[at]).map(|run| run.figure(name)).collect();
        let (points, spread) = series(all.len(), |at| Some(at as f64), of);
        Line { name: series_name(stack.name()) + title, points, spread, colour: stack as usize, stroke }
    };
    let present = |lines: Vec<Line>| lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let chart = |title: &str, y: &str, lines: Vec<Line>| Chart {
        title: title.into(),
        x: "flows".into(),
        y: y.into(),
        places: places.clone(),
        lines: present(lines),
        ..Chart::default()
    };
    let (full, second) = (LineStyle::Full, LineStyle::Second);
    let shares = vec![
        line(Stack::Opentoe, "median_of_fair", ", median", full),
        line(Stack::Opentoe, "p1_of_fair", ", 1st percentile", second),
        line(Stack::Linux, "median_of_fair", ", median", full),
        line(Stack::Linux, "p1_of_fair", ", 1st percentile", second),
    ];
    let index = vec![line(Stack::Opentoe, "jain", "", full), line(Stack::Linux, "jain", "", full)];
    let shares = chart("Bulk flows at line rate: throughput of a flow", "of the fair share", shares);
    let index = chart("Bulk flows at line rate: Jain's index", "Jain's index", index);
    vec![("fairness-shares", shares), ("fairness-jain", Chart { end: Some(1.0), ..index })]
}
