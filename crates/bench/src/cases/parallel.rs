//! Cores: what each step of a pipeline's parallelism brings (FlexTOE table 3), and how rates grow with the number of
//! programs (figure 8; Laminar, thesis figure 5.10). One host serves several server programs, each with clients of its
//! own on a host of their own, with a data-path thread of its own. Nothing is bound to a core, so the kernel spreads
//! threads and programs over all that the machine has.
use super::compare::{combine, numbers, sentence};
use super::rpc::{self, Load};
use super::window;
use crate::arguments::{Common, list, listed, numbered, stack};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan};
use crate::plot::{Chart, Line, LineStyle, series};
use crate::report::{Report, Run, label};
use crate::setup::engine;
use crate::tools::Tools;
use ::daemon::config::Mapping;
use clap::Args;
use serde_json::{Value, json};

/// Seconds of a measurement by default.
const SECONDS: f64 = 2.0;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// How the server's data-path is divided: one (a thread that does all), pipelined (each module on a thread),
    /// replicated (two of each module but the protocol's), groups-2, groups-4 (with as many flow groups)
    #[arg(long, value_name = "STEP,...", default_value = "one,pipelined,replicated,groups-2,groups-4", value_parser = listed(step))]
    pub steps: String,
    /// Engines of OpenTOE; only flextoe's data-path can be divided, others are one thread
    #[arg(long, value_name = "ENGINE,...", default_value = "flextoe", value_parser = listed(engine))]
    pub engine: String,
    /// Server programs, each with a client program
    #[arg(long, value_name = "N,...", default_value = "1,2,4", value_parser = numbered(64))]
    pub programs: String,
    /// Connections of all programs together
    #[arg(long, value_name = "N,...", default_value = "64", value_parser = numbered(16_000))]
    pub conns: String,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES,...", default_value = "64,2048", value_parser = numbered(1 << 20))]
    pub size: String,
    /// Messages in flight on each connection
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbered(1024))]
    pub depth: String,
    /// Stacks: opentoe, linux
    #[arg(long, value_name = "STACK,...", default_value = "opentoe,linux", value_parser = listed(stack))]
    pub stack: String,
}

/// A step of table 3: its name, and which modules of the server's engine run where.
fn step(text: &str) -> Result<(&'static str, Mapping), String> {
    let pipelined = Mapping { threads: true, ..Mapping::default() };
    let replicated = Mapping { preprocess: 2, postprocess: 2, dma: 2, ..pipelined.clone() };
    let steps = [
        ("one", Mapping::default()),
        ("pipelined", pipelined),
        ("replicated", replicated.clone()),
        ("groups-2", Mapping { flow_groups: 2, ..replicated.clone() }),
        ("groups-4", Mapping { flow_groups: 4, ..replicated }),
    ];
    let names = steps.each_ref().map(|(name, _)| *name).join(", ");
    steps
        .into_iter()
        .find(|(name, _)| *name == text)
        .ok_or_else(|| format!("there is no step `{text}` of parallelism; there are {names}"))
}

/// How long it takes, seconds, roughly.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let count = |text: &str| text.split(',').count();
    let points = [&arguments.programs, &arguments.conns, &arguments.size, &arguments.depth]
        .map(|text| count(text))
        .iter()
        .product::<usize>();
    let setups = count(&arguments.engine) * count(&arguments.steps) + count(&arguments.stack) - 1;
    let (warm_up, seconds) = times(&arguments.common);
    (points * setups) as f64 * f64::from(arguments.common.pairs) * (warm_up + seconds + 1.0)
}

fn times(common: &Common) -> (f64, f64) {
    (if common.quick { 0.2 } else { 0.5 }, common.seconds(SECONDS))
}

/// What is measured in turn: a step of an engine of OpenTOE's, or Linux.
struct Step {
    stack: Stack,
    setup: String,
    engine: &'static str,
    mapping: Mapping,
}

/// The steps of all engines, then Linux.
fn steps(arguments: &Arguments) -> Result<Vec<Step>, String> {
    let mut all = Vec::new();
    for stack in list(&arguments.stack, stack)? {
        if stack == Stack::Linux {
            all.push(Step { stack, setup: "linux cubic".into(), engine: "", mapping: Mapping::default() });
            continue;
        }
        for engine in list(&arguments.engine, engine)? {
            let divided = list(&arguments.steps, step)?;
            let possible = divided.into_iter().filter(|(_, mapping)| engine == "flextoe" || !mapping.threads);
            let named = |name: &str| if engine == "flextoe" { name.into() } else { format!("{engine} {name}") };
            all.extend(possible.map(|(name, mapping)| Step { stack, setup: named(name), engine, mapping }));
        }
    }
    Ok(all)
}

/// Runs the experiment.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let ways = steps(arguments)?;
    let points = combine(&[
        ("programs", numbers(&arguments.programs)?),
        ("conns", numbers(&arguments.conns)?),
        ("size", numbers(&arguments.size)?),
        ("depth", numbers(&arguments.depth)?),
    ]);
    let (warm_up, seconds) = times(common);
    let params = json!({ "seconds": seconds, "warm_up_s": warm_up, "pairs": common.pairs });
    let mut report = Report::new("parallel", params);
    tools.print_line(&format!("parallel: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for point in &points {
            for way in &ways {
                let place = format!("{} on {}", label(point), way.setup);
                let run = measure(tools, common, way, point);
                let Some(mut run) = report.measured(tools, &place, run)? else { continue };
                run.round = round;
                tools.print_line(&format!("{place}: {}", sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn measure(tools: &Tools, common: &Common, step: &Step, point: &Value) -> Result<Run, String> {
    let number = |name: &str| point[name].as_u64().unwrap_or(0);
    let (programs, connections, size) = (number("programs") as usize, number("conns") as usize, number("size"));
    let (warm_up, seconds) = times(common);
    let load = Load {
        size,
        reply: size,
        connections: (0..programs)
            .map(|at| connections / programs + usize::from(at < connections % programs))
            .collect(),
        servers: programs,
        depth: number("depth"),
        together: true,
        warm_up,
        seconds,
        ..Load::default()
    };
    if load.connections.contains(&0) {
        return Err("there are fewer connections than programs".into());
    }
    let lab: Box<dyn Lab> = match step.stack {
        Stack::Opentoe => {
            let spread = Some(step.mapping.clone());
            let plan = FabricPlan { clients: programs, engine: step.engine, spread, ..FabricPlan::default() };
            Box::new(FabricLab::new(tools, &plan)?)
        }
        Stack::Linux => {
            let congestion = Some("cubic".to_string());
            Box::new(VethLab::new(tools, &VethPlan { congestion, spread: true, ..VethPlan::default() })?)
        }
    };
    let outcome = rpc::run(tools, &*lab, &load)?;
    let mut run = Run { setup: step.setup.clone(), ..Run::new(step.stack, 0, point) };
    window::note(&mut run, &outcome.sample, outcome.cpu_s);
    run.gbit_per_s = Some(outcome.sample.rate() * size as f64 * 8.0 / 1e9);
    run.figures.insert("seconds".into(), seconds.into());
    Ok(run)
}

/// Rate over programs, a line for each step, for the first of what else was varied.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let points = report.points();
    let Some(first) = points.first() else { return Vec::new() };
    let alike = |point: &&Value| ["size", "conns", "depth"].iter().all(|name| point[name] == first[name]);
    let shown: Vec<&Value> = points.iter().filter(alike).collect();
    let line = |(colour, (_, setup)): (usize, (Stack, String))| {
        let place = |at: usize| shown[at]["programs"].as_f64();
        let of = |at: usize| report.on(&setup, shown[at]).map(|run| run.speed() / 1e3).collect();
        let (points, spread) = series(shown.len(), place, of);
        let name = if setup.starts_with("linux") { "Linux".into() } else { format!("OpenTOE, {setup}") };
        Line { name, points, spread, colour, stroke: LineStyle::Full }
    };
    let chart = Chart {
        title: format!("Echo of {} bytes, {} connections, over programs", first["size"], first["conns"]),
        x: "server programs, and client programs".into(),
        y: "thousand messages a second".into(),
        lines: report.setups().into_iter().enumerate().map(line).collect(),
        ..Chart::default()
    };
    vec![("parallel", chart)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flextoe_is_divided() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let line = clap::Parser::try_parse_from(["parallel", "--engine", "flextoe,laminar", "--steps", "one,groups-2"]);
        let Line { arguments } = line.unwrap();
        let setups: Vec<String> = steps(&arguments).unwrap().into_iter().map(|step| step.setup).collect();
        assert_eq!(setups, ["one", "groups-2", "laminar one", "linux cubic"]);
    }

    #[test]
    fn each_step_adds_to_the_one_before() {
        let [one, pipelined, replicated, groups] =
            ["one", "pipelined", "replicated", "groups-4"].map(|name| step(name).unwrap().1);
        assert!(!one.threads && pipelined.threads && replicated.threads);
        assert_eq!((pipelined.preprocess, replicated.preprocess, replicated.flow_groups), (1, 2, 1));
        assert_eq!((groups.dma, groups.flow_groups, groups.check()), (2, 4, Ok(())));
        assert!(step("eight").unwrap_err().contains("groups-2"));
    }
}
