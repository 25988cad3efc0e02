//! Incast (FlexTOE table 4, thesis table 4.5, figure 5.18). Clients on several hosts send 64 KiB requests to one server
//! at once. The switch port to it is slower than all of them together, and its buffer is small.
use super::rpc::{self, Load};
use super::window;
use crate::arguments::{Common, list, listed};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, congestion, congestion_help};
use crate::plot::{Chart, Line, LineStyle, Unit, series};
use crate::report::{Report, Run, table};
use crate::sample::{jain, wire_bytes};
use crate::setup::engine;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};

/// Bytes of a request, and of its reply.
const REQUEST: u64 = 64 << 10;
const REPLY: u64 = 32;

/// A row of FlexTOE table 4, with congestion control and without.
struct Published {
    place: &'static str,
    /// 99.99th percentile, ms.
    tail: [f64; 2],
    jain: [f64; 2],
}

const fn row(place: &'static str, tail: [f64; 2], jain: [f64; 2]) -> Published {
    Published { place, tail, jain }
}

const PUBLISHED: [Published; 5] = [
    row("4/16", [5.98, 11.58], [0.98, 0.95]),
    row("4/64", [10.75, 44.39], [0.96, 0.73]),
    row("4/128", [13.74, 64.25], [0.99, 0.53]),
    row("10/10", [2.50, 18.26], [0.95, 0.78]),
    row("20/20", [7.35, 138.32], [0.95, 0.46]),
];

/// The paper's bars at these places, behind so many others.
fn published(places: &[String], others: usize, figure: fn(&Published) -> [f64; 2]) -> Vec<Line> {
    let line = |(at, name): (usize, &str)| {
        let value = |(number, place): (usize, &String)| {
            let row = PUBLISHED.iter().find(|row| row.place == place)?;
            Some((number as f64, figure(row)[at]))
        };
        let points = places.iter().enumerate().filter_map(value).collect();
        let name = format!("published: {name} (FlexTOE, NSDI table 4)");
        Line { name, points, colour: others + at, stroke: LineStyle::Reference, ..Line::default() }
    };
    let lines = ["dctcp", "no congestion control"].into_iter().enumerate().map(line);
    lines.filter(|line: &Line| !line.points.is_empty()).collect()
}

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Degrees and connections, as the rows of the thesis' table
    #[arg(long, value_name = "DEGREE:CONNECTIONS,...", default_value = "4:16,4:64,4:128,10:10,20:20", value_parser = listed(degree_and_connections))]
    pub points: String,
    #[arg(long, help = congestion_help("Congestion controls"), value_name = "NAME,...", default_value = "dctcp,timely,off", value_parser = listed(congestion))]
    pub congestion: String,
    /// Engines: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME,...", default_value = "flextoe", value_parser = listed(engine))]
    pub engine: String,
    /// Rate of the server's port, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 1000)]
    pub rate: u64,
    /// Backlog above which packets are marked, KiB
    #[arg(long, value_name = "KIB", default_value_t = 64)]
    pub ecn_threshold: u64,
    /// Backlog above which packets are dropped, KiB
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    pub buffer: u64,
}

/// Runs the experiment.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let points = list(&arguments.points, degree_and_connections)?;
    let controls = list(&arguments.congestion, congestion)?;
    let engines = list(&arguments.engine, engine)?;
    let params = json!({
        "request_bytes": REQUEST, "reply_bytes": REPLY, "rate_mbit_per_s": arguments.rate,
        "ecn_threshold_kib": arguments.ecn_threshold, "buffer_kib": arguments.buffer, "seconds": common.seconds(10.0),
        "warm_up_s": common.warm_up(), "pairs": common.pairs,
    });
    let mut report = Report::new("incast", params);
    for round in 1..=common.pairs {
        for (degree, connections) in &points {
            for (control, engine) in controls.iter().flat_map(|c| engines.iter().map(move |e| (c, e))) {
                let point =
                    json!({ "degree": degree, "connections": connections, "congestion": control, "engine": engine });
                let run = measure(tools, arguments, (*degree, *connections), (control, engine), round, &point)?;
                tools.print_line(&sentence(&run));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn measure(
    tools: &Tools,
    arguments: &Arguments,
    (degree, connections): (usize, usize),
    (control, engine): (&'static str, &'static str),
    round: u32,
    point: &Value,
) -> Result<Run, String> {
    let common = &arguments.common;
    let network = FabricConfig {
        rate_bps: arguments.rate * 1_000_000,
        ecn_threshold_bytes: arguments.ecn_threshold << 10,
        buffer_bytes: arguments.buffer << 10,
        ..FabricConfig::default()
    };
    let plan = FabricPlan { network, clients: degree, congestion: Some(control), engine, ..FabricPlan::default() };
    let lab = FabricLab::new(tools, &plan)?;
    let load = Load {
        size: REQUEST,
        reply: REPLY,
        connections: (0..degree)
            .map(|client| connections / degree + usize::from(client < connections % degree))
            .collect(),
        depth: 1,
        together: true,
        warm_up: common.warm_up(),
        seconds: common.seconds(10.0),
        ..Load::default()
    };
    let outcome = rpc::run(tools, &lab, &load)?;
    let sample = &outcome.sample;
    let mut run = Run { engine: Some(engine.into()), ..Run::new(lab.stack(), round, point) };
    window::note(&mut run, sample, outcome.cpu_s.clone());
    run.gbit_per_s = Some(sample.rate() * REQUEST as f64 * 8.0 / 1e9);
    let share = sample.rate() * wire_bytes(REQUEST) as f64 * 8.0 / (arguments.rate as f64 * 1e6);
    let figures = [
        ("share_of_rate", json!(share)),
        ("jain", json!(jain(&sample.per_connection))),
        ("drops", json!(lab.server_drops()?)),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), value)));
    Ok(run)
}

fn sentence(run: &Run) -> String {
    let latency = run.latency_us.map_or(0.0, |latency| latency.p9999 / 1e3);
    format!(
        "{}: {:.1} % of the rate, 99.99p {latency:.1} ms, Jain {:.3}, {} dropped",
        crate::report::label(&Value::Object(run.point.clone())),
        run.figure("share_of_rate") * 100.0,
        run.figure("jain"),
        run.figure("drops"),
    )
}

/// The table, a row for each degree, number of connections and congestion control.
pub(crate) fn show(report: &Report) -> String {
    let head = [
        "degree",
        "connections",
        "control",
        "engine",
        "share of rate",
        "p50 ms",
        "p99 ms",
        "99.99p ms",
        "Jain",
        "dropped",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for point in report.points() {
        let median = |figure: &dyn Fn(&Run) -> f64| report.median(Stack::Opentoe, &point, figure).unwrap_or(f64::NAN);
        let latency = |pick: fn(crate::sample::Latency) -> f64| {
            format!("{:.2}", median(&move |run| run.latency_us.map_or(f64::NAN, pick)) / 1e3)
        };
        rows.push(vec![
            point["degree"].to_string(),
            point["connections"].to_string(),
            word(&point, "congestion"),
            word(&point, "engine"),
            format!("{:.1} %", median(&|run| run.figure("share_of_rate")) * 100.0),
            latency(|l| l.p50),
            latency(|l| l.p99),
            latency(|l| l.p9999),
            format!("{:.3}", median(&|run| run.figure("jain"))),
            format!("{:.0}", median(&|run| run.figure("drops"))),
        ]);
    }
    table(&rows)
}

/// Tail latency and fairness, a line for each congestion control.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let mut places: Vec<String> = Vec::new();
    let mut controls: Vec<[String; 2]> = Vec::new();
    for point in report.points() {
        let (place, control) = (place(&point), [word(&point, "congestion"), word(&point, "engine")]);
        if !places.contains(&place) {
            places.push(place);
        }
        if !controls.contains(&control) {
            controls.push(control);
        }
    }
    let several = controls.iter().any(|[_, engine]| *engine != controls[0][1]);
    let points = report.points();
    let lines = |figure: fn(&Run) -> f64| -> Vec<Line> {
        let line = |(colour, [control, engine]): (usize, &[String; 2])| {
            let own = |point: &Value| word(point, "congestion") == *control && word(point, "engine") == *engine;
            let place = |at: usize| {
                let place = self::place(&points[at]);
                places.iter().position(|known| own(&points[at]) && *known == place).map(|at| at as f64)
            };
            let of = |at: usize| report.at(Stack::Opentoe, &points[at]).map(figure).collect();
            let (points, spread) = series(points.len(), place, of);
            let name = if control == "none" { "no congestion control" } else { control };
            let name = if several { format!("{name}, {engine}") } else { name.to_string() };
            Line { name, points, spread, colour, stroke: LineStyle::Full }
        };
        controls.iter().enumerate().map(line).collect()
    };
    let others = controls.len();
    let chart = |title: &str, y: &str, figure, of_paper| Chart {
        title: title.into(),
        x: "clients' hosts / connections".into(),
        y: y.into(),
        places: places.clone(),
        lines: lines(figure).into_iter().chain(published(&places, others, of_paper)).collect(),
        ..Chart::default()
    };
    let tail = |run: &Run| run.latency_us.map_or(f64::NAN, |latency| latency.p9999);
    let (latency, fairness) = (
        chart("Incast: 99.99th percentile of a 64 KiB request's latency", "latency", tail, |row| {
            row.tail.map(|ms| ms * 1e3)
        }),
        chart("Incast: Jain's index over connections", "Jain's index", |run| run.figure("jain"), |row| row.jain),
    );
    vec![
        ("incast-latency", Chart { log_y: true, unit: Unit::Time, ..latency }),
        ("incast-fairness", Chart { end: Some(1.0), ..fairness }),
    ]
}

fn word(point: &Value, name: &str) -> String {
    point[name].as_str().unwrap_or_default().to_string()
}

fn place(point: &Value) -> String {
    format!("{}/{}", point["degree"], point["connections"])
}

fn degree_and_connections(text: &str) -> Result<(usize, usize), String> {
    let numbers =
        text.split_once(':').and_then(|(degree, connections)| Some((degree.parse().ok()?, connections.parse().ok()?)));
    let sensible =
        |(degree, connections): &(usize, usize)| (1..=200).contains(degree) && (*degree..=4000).contains(connections);
    numbers.filter(sensible).ok_or_else(|| {
        format!("`{text}` is no point: write DEGREE:CONNECTIONS with a degree from 1 to 200 and at least as many connections")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rows_are_drawn_where_they_were_measured() {
        let places = ["7/7", "10/10"].map(String::from);
        let lines = published(&places, 3, |row| row.tail);
        assert_eq!(lines.iter().map(|line| line.points.clone()).collect::<Vec<_>>(), [[(1.0, 2.5)], [(1.0, 18.26)]]);
        assert!(published(&places[..1], 3, |row| row.jain).is_empty(), "the legend names nothing else");
    }

    #[test]
    fn points_are_read() {
        assert_eq!(list("4:16,20:20", degree_and_connections), Ok(vec![(4, 16), (20, 20)]));
        assert!(list("4", degree_and_connections).is_err());
        assert!(list("20:4", degree_and_connections).is_err());
    }
}
