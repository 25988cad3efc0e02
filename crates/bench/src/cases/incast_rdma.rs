//! Incast of RDMA (Zhu et al., SIGCOMM '15; SmartNS section 4 has their DCQCN). A program on each of many hosts WRITEs
//! to one host, as fast as it goes. The port there is slower than all of them together. One more host writes a few
//! bytes now and then: what that takes is what a short message waits at the port.
use super::offload::ready;
use super::{rpc, window};
use crate::arguments::{Common, list, listed, numbered};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack};
use crate::report::{Report, Run, table};
use crate::sample::{Sample, jain};
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::json;

const PORT: u16 = 7777;
/// Messages of the senders that fill the port, and of the one that shows what waits. Each has bytes, how many are
/// outstanding, and microseconds between the end of the last one and the next one.
const LONG: [u64; 3] = [32 << 10, 8, 0];
const SHORT: [u64; 3] = [64, 1, 100];
/// DCQCN has its mark at 13 us (65 KB at 40 Gbit/s). Here it is at three times that time, nanoseconds: hosts of one
/// data-path thread send in one round, and so some of their packets come together.
const MARK_NS: u64 = 39_000;
const SECONDS: f64 = 5.0;
/// What starting a program takes at most, where others are at work as well, seconds.
const START_S: f64 = 0.1;
/// Hosts that send, at most.
const MOST: usize = 200;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Hosts that send, a program each
    #[arg(long, value_name = "N,...", default_value = "10,20", value_parser = numbered(MOST))]
    pub senders: String,
    /// Congestion controls: dcqcn, none
    #[arg(long, value_name = "NAME,...", default_value = "dcqcn,none", value_parser = listed(control))]
    pub congestion: String,
    /// Rate of the receiver's port, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 6000)]
    pub rate: u64,
    /// Most bytes of an IP packet; 9000 has packets with 4096 bytes of payload, 2200 with 2048, 1500 with 1024
    #[arg(long, value_name = "BYTES", default_value_t = 9000)]
    pub mtu: u16,
    /// Backlog above which packets are marked, bytes; by default, what leaves in 39 us
    #[arg(long, value_name = "BYTES")]
    pub ecn_threshold: Option<u64>,
    /// Backlog above which packets are dropped, KiB. The default is more than all senders have outstanding: a network
    /// that loses nothing, for which DCQCN was made
    #[arg(long, value_name = "KIB", default_value_t = 65_536)]
    pub buffer: u64,
}

impl Arguments {
    fn mark(&self) -> u64 {
        self.ecn_threshold.unwrap_or(self.rate * MARK_NS / 8000)
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').count() as f64;
    let common = &arguments.common;
    let each = common.seconds(SECONDS) + common.warm_up() + 3.0;
    points(&arguments.senders) * points(&arguments.congestion) * each * f64::from(common.pairs)
}

/// Runs the experiment: both ways of a point directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let numbers = list(&arguments.senders, |word| crate::arguments::count(word, MOST))?;
    let controls = list(&arguments.congestion, control)?;
    let params = json!({
        "message_bytes": LONG[0], "outstanding": LONG[1], "short_bytes": SHORT[0], "pause_us": SHORT[2],
        "mtu": arguments.mtu, "rate_mbit_per_s": arguments.rate, "ecn_threshold_bytes": arguments.mark(),
        "buffer_kib": arguments.buffer, "seconds": common.seconds(SECONDS), "warm_up_s": common.warm_up(), "pairs": common.pairs,
    });
    let mut report = Report::new("incast-rdma", params);
    tools.print_line(&format!("incast-rdma: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for (senders, control) in numbers.iter().flat_map(|n| controls.iter().map(move |c| (*n, *c))) {
            let point = json!({ "senders": senders });
            let run = Run { setup: control.into(), engine: None, ..Run::new(Stack::Opentoe, round, &point) };
            let place = format!("{senders} senders, {control}");
            let run = measure(tools, arguments, senders, control, run);
            let Some(run) = report.measured(tools, &place, run)? else { continue };
            tools.print_line(&format!("{place}: {}", sentence(&run)));
            report.runs.push(run);
        }
    }
    Ok(report)
}

fn measure(
    tools: &Tools,
    arguments: &Arguments,
    senders: usize,
    control: &'static str,
    run: Run,
) -> Result<Run, String> {
    let network = FabricConfig {
        mtu: arguments.mtu,
        rate_bps: arguments.rate * 1_000_000,
        ecn_threshold_bytes: arguments.mark(),
        buffer_bytes: arguments.buffer << 10,
        ..FabricConfig::default()
    };
    let (rdma, clients) = (Some("go-back-n"), senders + 1);
    let plan = FabricPlan { network, clients, rdma, rdma_congestion: control, ..FabricPlan::default() };
    let lab = FabricLab::new(tools, &plan)?;
    let mut server = lab.on_server(&[tools.app("write_load"), "serve".into(), PORT.to_string()])?;
    ready(tools, "the program that is written to", &mut server)?;
    let (warm_up, seconds) = (arguments.common.warm_up(), arguments.common.seconds(SECONDS));
    let begin = rpc::begin(warm_up + clients as f64 * START_S).as_nanos() as u64;
    let start = |number: usize| {
        let [bytes, outstanding, pause] = if number < senders { LONG } else { SHORT };
        let numbers = [u64::from(PORT), bytes, outstanding, pause, begin].map(|number| number.to_string());
        let front = [tools.app("write_load"), lab.address().to_string()];
        lab.client(number, &[&front[..], &numbers, &[warm_up, seconds].map(|time| time.to_string())].concat())
    };
    let programs = (0..clients).map(start).collect::<Result<Vec<_>, _>>()?;
    let (printed, cpu_s) = window::watch(tools, programs, || window::server_and_stack(&[], &lab))?;
    let (long, short) = printed.split_at(senders);
    let mut run = noted(run, arguments.rate, &Sample::of(long)?, &Sample::of(short)?);
    run.figures.insert("drops".into(), json!(lab.server_drops()?));
    run.cpu_s = cpu_s;
    Ok(run)
}

/// What long messages got of the rate, and how long short ones took.
fn noted(run: Run, rate: u64, long: &Sample, short: &Sample) -> Run {
    let gbit_per_s = long.rate() * LONG[0] as f64 * 8.0 / 1e9;
    let mut run = Run {
        ops_per_s: Some(long.rate()),
        gbit_per_s: Some(gbit_per_s),
        latency_us: Some(short.latency()),
        errors: long.errors + short.errors,
        ..run
    };
    let whole = long.latency();
    let figures = [
        ("share_of_rate", gbit_per_s * 1e3 / rate as f64),
        ("jain", jain(&long.per_connection)),
        ("long_p50_us", whole.p50),
        ("long_p99_us", whole.p99),
    ];
    run.figures.extend(figures.map(|(name, value)| (name.to_string(), json!(value))));
    run
}

/// The 99th percentile of a short message's time, which is what it waits, microseconds.
pub(crate) fn tail(run: &Run) -> f64 {
    run.latency_us.map_or(f64::NAN, |latency| latency.p99)
}

fn sentence(run: &Run) -> String {
    format!(
        "{:.1} % of the rate, Jain {:.3}, short messages 99p {:.0} us, {} dropped",
        run.figure("share_of_rate") * 100.0,
        run.figure("jain"),
        tail(run),
        run.figure("drops"),
    )
}

/// The table, a row for each number of senders and congestion control.
pub(crate) fn show(report: &Report) -> String {
    let head = [
        "senders",
        "control",
        "share of rate",
        "Jain",
        "short p50 us",
        "short 99p us",
        "long p50 us",
        "long 99p us",
        "dropped",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (point, (_, control)) in report.points().iter().flat_map(|p| report.setups().into_iter().map(move |s| (p, s))) {
        let median = |figure: &dyn Fn(&Run) -> f64| report.median_on(&control, point, figure).unwrap_or(f64::NAN);
        let own = |name: &'static str| median(&move |run| run.figure(name));
        rows.push(vec![
            point["senders"].to_string(),
            control.clone(),
            format!("{:.1} %", own("share_of_rate") * 100.0),
            format!("{:.3}", own("jain")),
            format!("{:.0}", median(&|run| run.latency_us.map_or(f64::NAN, |latency| latency.p50))),
            format!("{:.0}", median(&tail)),
            format!("{:.0}", own("long_p50_us")),
            format!("{:.0}", own("long_p99_us")),
            format!("{:.0}", own("drops")),
        ]);
    }
    table(&rows)
}

fn control(text: &str) -> Result<&'static str, String> {
    let known = ["dcqcn", "none"].into_iter().find(|known| *known == text);
    known.ok_or_else(|| format!("there is no congestion control `{text}` of RDMA; there are dcqcn and none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(ops: u64, nanos: u64) -> String {
        format!(
            "{{\"seconds\":2.0,\"ops\":{ops},\"cpu_s\":0.5,\"errors\":0,\"wrong\":0,\"per_connection\":[{ops}],\
             \"histogram\":[[{nanos},{ops}]],\"max_ns\":{nanos}}}"
        )
    }

    #[test]
    fn a_share_is_payload_and_a_tail_is_that_of_short_messages() {
        let long = Sample::of(&[printed(30_000, 900_000), printed(10_000, 900_000)]).unwrap();
        let short = Sample::of(&[printed(5_000, 20_000)]).unwrap();
        let run = noted(Run::new(Stack::Opentoe, 1, &json!({ "senders": 2 })), 10_000, &long, &short);
        // 20,000 messages a second of 2^18 bits.
        assert!((run.figure("share_of_rate") - 0.524288).abs() < 1e-9);
        assert_eq!(run.figure("jain"), 0.8);
        assert!((tail(&run) - 20.0).abs() < 0.1 && (run.figure("long_p99_us") - 900.0).abs() < 2.0);
        let mut report = Report::new("incast-rdma", json!({}));
        report.runs.push(Run { setup: "dcqcn".into(), ..run });
        assert!(show(&report).contains("52.4 %"));
    }

    #[test]
    fn controls_are_known_by_name() {
        assert_eq!(control("dcqcn"), Ok("dcqcn"));
        assert!(control("timely").unwrap_err().contains("none"));
    }
}
