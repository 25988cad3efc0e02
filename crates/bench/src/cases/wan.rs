//! Long and lossy paths: one flow, and transfers from connect to the last byte, through one emulated network whose
//! round trip, rate, loss and buffer vary. Linux' TCP goes through the same network, by TAP uplinks.
use super::bulk::{self, Flows};
use super::connect::{self, Exchange};
use crate::arguments::{Common, list, listed, numbered, within};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, UplinkLab, congestion, congestion_help};
use crate::report::{Ratio, Report, Run, table};
use crate::setup::engine;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};

/// A flow that has just begun is not yet what it will be.
const ROUND_TRIPS_BEFORE: f64 = 20.0;
/// Transfers that a measurement has at least, where the rate alone decides how long one takes.
const LEAST_TRANSFERS: f64 = 5.0;
/// The least buffer of a link: a super-segment of the kernel's, which goes through it whole.
const LEAST_BUFFER: u64 = 64 << 10;
/// Bytes of what asks for a transfer.
const REQUEST: u64 = 8;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Round trips, ms
    #[arg(long, value_name = "MS,...", default_value = "1,10,50,200", value_parser = numbered(1000))]
    pub rtt: String,
    /// Rates of each link, Mbit/s
    #[arg(long, value_name = "MBIT,...", default_value = "10,100,1000", value_parser = numbered(10_000))]
    pub rate: String,
    /// Probabilities of a frame's loss, each way
    #[arg(long, value_name = "P,...", default_value = "0,0.001,0.01", value_parser = listed(super::loss::probability))]
    pub loss: String,
    /// Bytes of a transfer from connect to its end; 0: one flow without end
    #[arg(long, value_name = "BYTES,...", default_value = "0", value_parser = listed(bytes))]
    pub size: String,
    /// Buffer before each link, percent of rate times round trip; 64 KiB at least
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub buffer: u64,
    /// Engines of OpenTOE: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "NAME,...", default_value = "flextoe,laminar", value_parser = listed(engine))]
    pub engine: String,
    #[arg(long, help = congestion_help("Congestion control on OpenTOE"), value_name = "NAME", default_value = "cubic")]
    pub congestion: String,
    /// Congestion controls on Linux, as it calls them; the first is what ratios are to
    #[arg(long, value_name = "NAME,...", default_value = "cubic,bbr")]
    pub linux_congestion: String,
}

/// Whose TCP, and which.
#[derive(Debug, Clone)]
struct Setup {
    stack: Stack,
    /// The engine, or Linux' congestion control.
    kind: String,
}

impl Setup {
    fn name(&self) -> String {
        if self.stack == Stack::Linux { linux(&self.kind) } else { self.kind.clone() }
    }
}

fn linux(congestion: &str) -> String {
    format!("linux {congestion}")
}

/// One network, and what is moved through it.
#[derive(Debug, Clone, Copy)]
struct Point {
    rtt_ms: u64,
    mbit: u64,
    loss: f64,
    size: u64,
}

impl Point {
    fn json(&self) -> Value {
        json!({ "rtt_ms": self.rtt_ms, "mbit": self.mbit, "loss": self.loss, "size": self.size })
    }

    /// Bytes of a round trip at full rate.
    fn in_flight(&self) -> u64 {
        self.mbit * self.rtt_ms * 125
    }

    /// Each round loses other frames, the same for all set-ups: when a flow loses its first one decides on its rate for
    /// seconds.
    fn network(&self, buffer_percent: u64, round: u32) -> FabricConfig {
        FabricConfig {
            seed: round.into(),
            delay_ns: self.rtt_ms * 500_000,
            rate_bps: self.mbit * 1_000_000,
            loss: self.loss,
            buffer_bytes: (self.in_flight() * buffer_percent / 100).max(LEAST_BUFFER),
            ..FabricConfig::default()
        }
    }

    /// Seconds before measuring, and seconds measured.
    fn times(&self, common: &Common) -> [f64; 2] {
        let rtt = self.rtt_ms as f64 / 1e3;
        let transfer = self.size as f64 * 8e-6 / self.mbit as f64 + 2.0 * rtt;
        let seconds = common.seconds(8.0).max(if self.size > 0 { LEAST_TRANSFERS * transfer } else { 0.0 });
        [common.warm_up().max(if self.size > 0 { transfer } else { ROUND_TRIPS_BEFORE * rtt }), seconds]
    }
}

fn points(arguments: &Arguments) -> Result<Vec<Point>, String> {
    let number = |text: &str| within(text, 0..=usize::MAX).map(|number| number as u64);
    let (rtts, rates) = (list(&arguments.rtt, number)?, list(&arguments.rate, number)?);
    let (losses, sizes) = (list(&arguments.loss, super::loss::probability)?, list(&arguments.size, bytes)?);
    let mut all = Vec::new();
    for size in sizes {
        for mbit in &rates {
            for rtt_ms in &rtts {
                all.extend(losses.iter().map(|loss| Point { rtt_ms: *rtt_ms, mbit: *mbit, loss: *loss, size }));
            }
        }
    }
    Ok(all)
}

fn setups(arguments: &Arguments) -> Result<Vec<Setup>, String> {
    let on = |stack: Stack| move |kind: &str| Setup { stack, kind: kind.into() };
    let engines = list(&arguments.engine, engine)?;
    let kernel = list(&arguments.linux_congestion, |name| Ok(name.to_string()))?;
    let ours = engines.into_iter().map(on(Stack::Opentoe));
    Ok(ours.chain(kernel.iter().map(|name| on(Stack::Linux)(name))).collect())
}

/// How long it takes, seconds, roughly.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let (Ok(points), Ok(setups)) = (points(arguments), setups(arguments)) else { return 0.0 };
    let each = points.iter().map(|point| point.times(&arguments.common).iter().sum::<f64>() + 1.0);
    each.sum::<f64>() * f64::from(arguments.common.pairs) * setups.len() as f64
}

/// Runs the experiment.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let (points, setups) = (points(arguments)?, setups(arguments)?);
    let params = json!({
        "congestion": arguments.congestion, "buffer_percent": arguments.buffer, "pairs": arguments.common.pairs,
    });
    let mut report = Report::new("wan", params);
    for point in points {
        for round in 1..=arguments.common.pairs {
            for setup in &setups {
                let Point { rtt_ms, mbit, loss, .. } = point;
                let place = format!("{rtt_ms} ms, {mbit} Mbit/s, loss {loss} on {}", setup.name());
                let run = measure(tools, arguments, setup, point, round);
                let Some(run) = report.measured(tools, &place, run)? else { continue };
                tools.print_line(&format!("{place}: {}", shown(&point.json(), speed(&run))));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn measure(tools: &Tools, arguments: &Arguments, setup: &Setup, point: Point, round: u32) -> Result<Run, String> {
    let network = point.network(arguments.buffer, round);
    let lab: Box<dyn Lab> = match setup.stack {
        Stack::Opentoe => {
            let (congestion, engine) = (Some(congestion(&arguments.congestion)?), engine(&setup.kind)?);
            Box::new(FabricLab::new(tools, &FabricPlan { network, congestion, engine, ..FabricPlan::default() })?)
        }
        Stack::Linux => Box::new(UplinkLab::new(tools, &network, &setup.kind)?),
    };
    let on = (setup.stack == Stack::Opentoe).then(|| setup.kind.clone());
    let mut run = Run { engine: on, setup: setup.name(), ..Run::new(setup.stack, round, &point.json()) };
    let [warm_up, seconds] = point.times(&arguments.common);
    if point.size == 0 {
        let moved = bulk::run(tools, &*lab, &Flows::new(1, warm_up, seconds))?;
        run.gbit_per_s = Some(moved.gbit_per_s());
        run.errors = moved.lost;
        run.cpu_s.extend(moved.cpu_s);
        return Ok(run);
    }
    let plan = Exchange { conns: 1, size: REQUEST, reply: point.size, warm_up, seconds };
    connect::exchange(tools, &*lab, &plan, run)
}

/// More is better: Gbit/s of a flow, transfers a second of the median one.
fn speed(run: &Run) -> f64 {
    run.gbit_per_s.or(run.latency_us.as_ref().map(|latency| 1e6 / latency.p50)).unwrap_or(f64::NAN)
}

fn shown(point: &Value, speed: f64) -> String {
    match point["size"].as_u64() {
        Some(0) => format!("{:.2} Mbit/s", speed * 1e3),
        _ => format!("{:.1} ms", 1e3 / speed),
    }
}

/// The table, a row for each network. Ratios are to the first of Linux' set-ups, and more is better.
pub(crate) fn show(report: &Report) -> String {
    let setups = report.setups();
    let base = setups.iter().find(|(stack, _)| *stack == Stack::Linux).map(|(_, name)| name);
    let head = ["bytes", "Mbit/s", "RTT ms", "loss"].into_iter().chain(setups.iter().map(|(_, name)| name.as_str()));
    let mut rows = vec![head.map(String::from).collect::<Vec<_>>()];
    for point in report.points() {
        let cell = |(stack, name): &(Stack, String)| {
            let Some(median) = report.median_on(name, &point, speed) else { return "-".into() };
            let ratio = base.filter(|_| *stack == Stack::Opentoe);
            match ratio.and_then(|base| report.ratio(&point, name, base, speed)) {
                Some(Ratio { min, median: of, max }) if min < max => {
                    format!("{} {of:.2}x ({min:.2}-{max:.2})", shown(&point, median))
                }
                Some(ratio) => format!("{} {:.2}x", shown(&point, median), ratio.median),
                None => shown(&point, median),
            }
        };
        let size = point["size"].as_u64().filter(|size| *size > 0).map_or("a flow".into(), |size| size.to_string());
        let network = ["mbit", "rtt_ms", "loss"].map(|key| point[key].to_string());
        rows.push([size].into_iter().chain(network).chain(setups.iter().map(cell)).collect());
    }
    table(&rows)
}

fn bytes(text: &str) -> Result<u64, String> {
    within(text, 0..=1 << 30).map(|bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_round_trip_and_a_buffer_for_it() {
        let point = Point { rtt_ms: 50, mbit: 100, loss: 0.001, size: 0 };
        let network = point.network(100, 1);
        assert_eq!((network.delay_ns, network.rate_bps, network.buffer_bytes), (25_000_000, 100_000_000, 625_000));
        assert_eq!(Point { rtt_ms: 1, mbit: 10, ..point }.network(100, 1).buffer_bytes, LEAST_BUFFER);
    }

    #[test]
    fn what_takes_long_is_measured_for_longer() {
        let common = Common { duration: None, pairs: 1, quick: false, json: None, csv: None, plots: None, lib: None };
        let point = Point { rtt_ms: 200, mbit: 10, loss: 0.0, size: 0 };
        assert_eq!(point.times(&common), [4.0, 8.0]);
        assert_eq!(Point { size: 10_000_000, ..point }.times(&common), [8.4, 42.0]);
        assert_eq!(Point { size: 10_000, rtt_ms: 1, ..point }.times(&common), [2.0, 8.0]);
    }
}
