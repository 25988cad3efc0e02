//! ZeroNIC beside Linux' TCP (paper, section 5): flows from one program's memory to another's by `toe_comm_*`, over
//! each transport that decides on headers, beside flows of ordinary sockets and RoCEv2. Rate, and processor time for
//! each byte (table 2). Rate over the bytes of a frame (figure 9) and while frames are lost (figure 13). Ordinary short
//! messages beside long flows of the same hosts (figure 12).
use super::bulk::{self, Ends, Flows, Moved};
use super::compare::{self, Column};
use super::rpc::{self, Load};
use super::{rdma, window};
use crate::arguments::{Common, list, listed, numbered, within};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan, ZERONIC};
use crate::plot::{Chart, Line, LineStyle, Unit, series};
use crate::report::{Report, Run, label};
use crate::setup::series_name;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};
use std::time::Duration;

const PORT: u16 = 7790;
/// The number of the sender, for its log: beside those of other clients.
const CLIENT: usize = 99;
const TIMEOUT: Duration = Duration::from_secs(15);
const SECONDS: f64 = 3.0;
/// What a measurement takes besides its seconds, the warm-up among it.
const AROUND_S: f64 = 2.5;
/// The longest message, and that of flows beside loss and short messages.
const MOST: usize = 16 << 20;
const MESSAGE: u64 = 64 << 10;
/// Connections with one short message in flight.
const SHORT: usize = 4;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Tests: rate (one flow, over the bytes of a message), mtu (one flow, over the bytes of a packet), loss (one flow,
    /// over the share of frames that are lost), short (64 bytes between ordinary sockets, beside long flows)
    #[arg(long, value_name = "TEST,...", default_value = "rate,mtu,loss,short", value_parser = listed(test))]
    pub test: String,
    /// What moves the bytes: ZeroNIC over a transport (flextoe, laminar, linux), ordinary sockets on Linux' TCP (tcp),
    /// writes of RDMA by selective repeat (roce) or go-back-N (roce-gbn)
    #[arg(long, value_name = "WAY,...", default_value = "flextoe,laminar,linux,tcp,roce,roce-gbn", value_parser = listed(way))]
    pub way: String,
    /// Bytes of a message, and of a write
    #[arg(long, value_name = "N,...", default_value = "4096,65536,1048576", value_parser = numbered(MOST))]
    pub size: String,
    /// Most bytes of an IP packet, where frames are single ones. RDMA takes the largest power of two that fits
    #[arg(long, value_name = "N,...", default_value = "1024,1500,4096,9000", value_parser = listed(|word| within(word, 576..=9000)))]
    pub mtu: String,
    /// Probabilities of a frame's loss, each way. 0 is next to nothing, so that frames are single ones everywhere
    #[arg(long, value_name = "P,...", default_value = "0,0.001,0.01,0.1", value_parser = listed(probability))]
    pub loss: String,
    /// Long flows beside short messages
    #[arg(long, value_name = "N,...", default_value = "0,1,8", value_parser = listed(|word| within(word, 0..=64)))]
    pub long: String,
    /// 10^6 bits a second that each long flow has to send; 0: as much as it can, which no network card's rate bounds
    #[arg(long, value_name = "N,...", default_value = "0", value_parser = listed(|word| within(word, 0..=100_000)))]
    pub long_mbit: String,
}

/// Mover of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// ZeroNIC over this transport.
    Zero(&'static str),
    /// Linux' TCP: CUBIC, super-segments over veth.
    Tcp,
    /// RDMA, with this way to make up for losses.
    Verbs(&'static str),
}

impl Carrier {
    const ALL: [(&'static str, Carrier); 6] = [
        ("flextoe", Carrier::Zero("flextoe")),
        ("laminar", Carrier::Zero("laminar")),
        ("linux", Carrier::Zero("linux")),
        ("tcp", Carrier::Tcp),
        ("roce", Carrier::Verbs("selective-repeat")),
        ("roce-gbn", Carrier::Verbs("go-back-n")),
    ];

    fn setup(self) -> String {
        match self {
            Carrier::Zero(transport) => format!("zeronic {transport}"),
            Carrier::Tcp => "linux cubic".into(),
            Carrier::Verbs(recovery) => format!("rocev2 {recovery}"),
        }
    }

    /// RDMA has no ordinary sockets beside it.
    fn runs(self, test: &str) -> bool {
        test != "short" || !matches!(self, Carrier::Verbs(_))
    }

    fn run(self, round: u32, point: &Value) -> Run {
        let stack = if self == Carrier::Tcp { Stack::Linux } else { Stack::Opentoe };
        let engine = match self {
            Carrier::Zero(transport) => Some(format!("zeronic over {transport}")),
            Carrier::Tcp => None,
            Carrier::Verbs(_) => Some("smartns".into()),
        };
        Run { setup: self.setup(), engine, ..Run::new(stack, round, point) }
    }

    fn fabric<'a>(self, tools: &'a Tools, network: Network) -> Result<FabricLab<'a>, String> {
        let ordinary = FabricConfig::default();
        // A fabric forwards super-segments whole where nothing can happen to single frames.
        let loss = if network.single { network.loss.max(1e-12) } else { network.loss };
        let mtu = match (self, network.mtu) {
            // Room for packets of 4096 bytes.
            (Carrier::Verbs(_), 0) => 9000,
            (_, 0) => ordinary.mtu,
            (_, mtu) => mtu,
        };
        let network = FabricConfig { loss, mtu, ..ordinary };
        let plan = match self {
            Carrier::Zero(transport) => FabricPlan { network, zeronic: Some(transport), ..FabricPlan::default() },
            Carrier::Verbs(recovery) => FabricPlan { network, rdma: Some(recovery), ..FabricPlan::default() },
            Carrier::Tcp => FabricPlan::default(),
        };
        FabricLab::new(tools, &plan)
    }
}

/// Network between the two ends.
#[derive(Debug, Clone, Copy, Default)]
struct Network {
    /// Frames are single ones.
    single: bool,
    /// Probability of a frame's loss, each way.
    loss: f64,
    /// Most bytes of an IP packet; 0 where it is not the point.
    mtu: u16,
}

fn veth(tools: &Tools, network: Network) -> Result<VethLab<'_>, String> {
    let Network { single, loss, mtu } = network;
    VethLab::new(tools, &VethPlan { loss, single, mtu, congestion: Some("cubic".into()), ..VethPlan::default() })
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').filter(|word| !word.trim().is_empty()).count();
    let of = |test: &str| match test.trim() {
        "rate" => points(&arguments.size),
        "mtu" => points(&arguments.mtu),
        "loss" => points(&arguments.loss),
        _ => points(&arguments.long) * points(&arguments.long_mbit),
    };
    let all: usize = arguments.test.split(',').map(of).sum();
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    (all * points(&arguments.way)) as f64 * each * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a point directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let ways = list(&arguments.way, way)?;
    let points = points(arguments)?;
    let seconds = common.seconds(SECONDS);
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "message": MESSAGE, "short_connections": SHORT });
    let mut report = Report::new("zeronic", params);
    tools.print_line(&format!("zeronic: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for point in &points {
            for way in ways.iter().filter(|way| way.runs(point["test"].as_str().unwrap_or_default())) {
                let place = format!("{} on {}", label(point), way.setup());
                let run = measure(tools, *way, point, seconds, way.run(round, point));
                let Some(run) = report.measured(tools, &place, run)? else { continue };
                tools.print_line(&format!("{place}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn points(arguments: &Arguments) -> Result<Vec<Value>, String> {
    let mut points = Vec::new();
    for test in list(&arguments.test, test)? {
        match test {
            "rate" => {
                let sizes = compare::numbers(&arguments.size)?;
                points.extend(sizes.into_iter().map(|size| json!({ "test": test, "size": size })));
            }
            "mtu" => {
                let sizes = compare::numbers(&arguments.mtu)?;
                points.extend(sizes.into_iter().map(|mtu| json!({ "test": test, "mtu": mtu })));
            }
            "loss" => {
                let rates = list(&arguments.loss, probability)?;
                points.extend(rates.into_iter().map(|loss| json!({ "test": test, "loss": loss })));
            }
            _ => {
                let (long, mbit) = (compare::numbers(&arguments.long)?, compare::numbers(&arguments.long_mbit)?);
                let pairs = mbit.iter().flat_map(|mbit| long.iter().map(move |long| (long, mbit)));
                points.extend(pairs.map(|(long, mbit)| json!({ "test": test, "long_flows": long, "long_mbit": mbit })));
            }
        }
    }
    Ok(points)
}

fn measure(tools: &Tools, way: Carrier, point: &Value, seconds: f64, run: Run) -> Result<Run, String> {
    let flows = |count: usize, size: u64| Flows { size, ..Flows::new(count, warm_up(seconds), seconds) };
    match point["test"].as_str() {
        Some("short") => {
            let (flows, mbit) = (compare::number(point, "long_flows"), compare::number(point, "long_mbit"));
            // The flows are under way before and until after the messages are measured.
            let long = Flows::new(flows as usize, warm_up(seconds), seconds + warm_up(seconds) + 1.0);
            short(tools, way, &Flows { size: MESSAGE, mbit, ..long }, seconds, run)
        }
        Some("loss") => {
            let network = Network { single: true, loss: point["loss"].as_f64().unwrap_or(0.0), mtu: 0 };
            long(tools, way, network, &flows(1, MESSAGE), run)
        }
        Some("mtu") => {
            let network = Network { single: true, loss: 0.0, mtu: compare::number(point, "mtu") as u16 };
            long(tools, way, network, &flows(1, MESSAGE), run)
        }
        _ => long(tools, way, Network::default(), &flows(1, compare::number(point, "size")), run),
    }
}

/// One flow, as fast as it goes.
fn long(tools: &Tools, way: Carrier, network: Network, flows: &Flows, run: Run) -> Result<Run, String> {
    let moved = match way {
        Carrier::Zero(_) => {
            let lab = way.fabric(tools, network)?;
            let ends = start(tools, &lab, flows)?;
            bulk::measure(tools, &lab, ends)?
        }
        Carrier::Tcp => bulk::run(tools, &veth(tools, network)?, flows)?,
        Carrier::Verbs(_) => {
            let lab = way.fabric(tools, network)?;
            // Bytes are what is compared, not writes.
            let run = rdma::write_bandwidth(tools, &lab, flows.size, flows.seconds, run)?;
            return Ok(Run { ops_per_s: None, ..run });
        }
    };
    Ok(noted(run, moved))
}

/// Short messages between ordinary sockets, beside so many long flows into the same machine.
fn short(tools: &Tools, way: Carrier, flows: &Flows, seconds: f64, run: Run) -> Result<Run, String> {
    let (warm_up, beside) = (warm_up(seconds), flows.flows > 0);
    let load = Load { size: 64, reply: 64, connections: vec![SHORT], depth: 1, warm_up, seconds, ..Load::default() };
    let load = Load { one_place: true, ..load };
    let with = |lab: &dyn Lab, ends: Option<Ends>| -> Result<Run, String> {
        let outcome = rpc::run(tools, lab, &load)?;
        let mut run = run.clone();
        window::note(&mut run, &outcome.sample, outcome.cpu_s);
        if let Some(ends) = ends {
            let moved = bulk::measure(tools, lab, ends)?;
            run.errors += moved.lost;
            run.figures.insert("long_gbit_per_s".into(), json!(moved.gbit_per_s()));
        }
        Ok(run)
    };
    match way {
        Carrier::Tcp => {
            let lab = veth(tools, Network::default())?;
            let ends = if beside { Some(bulk::start(tools, &lab, flows, 0)?) } else { None };
            with(&lab, ends)
        }
        _ => {
            let lab = way.fabric(tools, Network::default())?;
            let ends = if beside { Some(start(tools, &lab, flows)?) } else { None };
            with(&lab, ends)
        }
    }
}

fn warm_up(seconds: f64) -> f64 {
    (seconds / 4.0).clamp(0.3, 1.0)
}

/// Programs that post sends and receives; the receiver reports what it measured.
fn start(tools: &Tools, lab: &FabricLab<'_>, flows: &Flows) -> Result<Ends, String> {
    // Posts of a mebibyte, and at least 16.
    let depth = ((1 << 20) / flows.size).clamp(16, 64);
    let shape = [flows.size, depth, flows.flows as u64].map(|number| number.to_string());
    let words = |first: &[&str], last: &[String]| {
        let program = tools.app("comm_flow");
        let first = first.iter().map(ToString::to_string);
        std::iter::once(program).chain(first).chain(shape.clone()).chain(last.to_vec()).collect::<Vec<String>>()
    };
    let port = PORT.to_string();
    let times = [flows.warm_up, flows.seconds].map(|time| time.to_string());
    let rate: Vec<String> = (flows.mbit > 0).then(|| flows.mbit.to_string()).into_iter().collect();
    let mut receiver = lab.on_server(&words(&["receive", ZERONIC[0], &port], &times))?;
    tools.stop.until("the receiver to listen", TIMEOUT, || {
        receiver.alive()?;
        Ok(receiver.output().contains("listening"))
    })?;
    let sender = lab.client_of(0, CLIENT, &words(&["send", ZERONIC[1], &lab.address().to_string(), &port], &rate))?;
    Ok(Ends { receiver, sender })
}

/// What was moved, into its place; nanoseconds for each byte of each process, and the rate at which the busiest one
/// would have a core full.
fn noted(mut run: Run, moved: Moved) -> Run {
    let bytes = moved.bytes.iter().sum::<u64>() as f64;
    for (name, seconds) in &moved.cpu_s {
        run.figures.insert(format!("{name}_ns_per_byte"), json!(seconds * 1e9 / bytes));
    }
    let busiest = moved.cpu_s.values().copied().fold(f64::MIN_POSITIVE, f64::max);
    run.figures.insert("full_core_gbit_per_s".into(), json!(bytes * 8.0 / busiest / 1e9));
    run.figures.insert("seconds".into(), json!(moved.seconds));
    Run { gbit_per_s: Some(moved.gbit_per_s()), errors: moved.lost, cpu_s: moved.cpu_s, ..run }
}

const COLUMNS: &[Column] = &[
    Column::new("recv ns", |run| run.figure("receiver_ns_per_byte")),
    Column::new("send ns", |run| run.figure("sender_ns_per_byte")),
    Column::new("toed ns", |run| run.figure("toed_ns_per_byte")),
    Column::new("full", |run| run.figure("full_core_gbit_per_s")),
    Column::new("long Gb/s", |run| run.figure("long_gbit_per_s")),
];

/// The table: Gbit/s, nanoseconds for each byte by process, Gbit/s that would fill the core of the busiest one. Of
/// short messages: latencies, and the rate of the long flows.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, COLUMNS)
}

/// Rate over the bytes of a message, rate over loss, latency over long flows.
pub(crate) fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    let p50 = |run: &Run| run.latency_us.map_or(f64::NAN, |latency| latency.p50);
    let rate =
        chart(report, ["rate", "size"], Run::speed, ["One flow from memory to memory", "bytes of a message", "Gbit/s"]);
    let mtu = ["mtu", "mtu"];
    let mtu = chart(report, mtu, Run::speed, ["One flow of single frames", "most bytes of a packet", "Gbit/s"]);
    let loss =
        chart(report, ["loss", "loss"], Run::speed, ["One flow while frames are lost", "loss each way", "Gbit/s"]);
    let short = ["64 B between ordinary sockets beside long flows", "long flows", "p50"];
    let short = Chart { unit: Unit::Time, ..chart(report, ["short", "long_flows"], p50, short) };
    let named = [("zeronic-rate", rate), ("zeronic-mtu", mtu), ("zeronic-loss", loss), ("zeronic-short", short)];
    named.into_iter().filter(|(_, chart)| !chart.lines.is_empty()).collect()
}

/// A line for each way, over the points of a test.
pub(super) fn chart(
    report: &Report,
    [test, axis]: [&str; 2],
    figure: impl Fn(&Run) -> f64 + Copy,
    [title, x, y]: [&str; 3],
) -> Chart {
    let points: Vec<Value> = report.points().into_iter().filter(|point| point["test"] == test).collect();
    let line = |(colour, (_, setup)): (usize, (Stack, String))| {
        let of = |at: usize| report.on(&setup, &points[at]).map(figure).collect();
        let (points, spread) = series(points.len(), |at| Some(at as f64), of);
        Line { name: series_name(&setup), points, spread, colour, stroke: LineStyle::Full }
    };
    let lines: Vec<Line> = report.setups().into_iter().enumerate().map(line).collect();
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let places = points.iter().map(|point| point[axis].to_string()).collect();
    Chart { title: title.into(), x: x.into(), y: y.into(), places, log_y: true, lines, ..Chart::default() }
}

fn test(text: &str) -> Result<&'static str, String> {
    let known = ["rate", "mtu", "loss", "short"].into_iter().find(|known| *known == text);
    known.ok_or_else(|| format!("there is no test `{text}`; there are rate, mtu, loss and short"))
}

fn way(text: &str) -> Result<Carrier, String> {
    crate::arguments::way(text, &Carrier::ALL)
}

fn probability(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=0.5).contains(value));
    value.ok_or_else(|| format!("`{text}` is no probability of loss: write a number from 0 to 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn processor_time_is_for_each_byte() {
        let cpu_s = BTreeMap::from([("receiver".to_string(), 1.0), ("toed".to_string(), 2.0)]);
        let moved = Moved { seconds: 4.0, lost: 0, bytes: vec![1 << 30, 1 << 30], cpu_s };
        let run = noted(Carrier::Zero("laminar").run(1, &json!({ "test": "rate", "size": 65_536 })), moved);
        assert!((run.figure("receiver_ns_per_byte") - 0.4657).abs() < 1e-3);
        assert!((run.figure("full_core_gbit_per_s") - run.speed() * 2.0).abs() < 1e-9);
        let mut report = Report::new("zeronic", json!({}));
        report.runs.push(run);
        assert!(show(&report).contains("zeronic laminar"));
        let plots = plots(&report);
        assert_eq!((plots.len(), plots[0].1.lines[0].points.len()), (1, 1));
    }

    #[test]
    fn words_have_meanings() {
        assert_eq!(way("tcp"), Ok(Carrier::Tcp));
        assert!(way("linux!").unwrap_err().contains("laminar"));
        assert!(test("rates").is_err() && probability("0.9").is_err());
        assert!(!Carrier::Verbs("go-back-n").runs("short") && Carrier::Tcp.runs("short"));
    }
}
