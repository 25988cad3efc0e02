//! Goals: measurements of `opentoe bench all`, and what each must reach (the table of the project's goals for
//! speed).
use crate::cases::compare::three;
use crate::cases::{incast_rdma, instructions};
use crate::report::{Ratio, Report, Run, middle};
use serde_json::Value;
use std::collections::BTreeMap;

/// Words behind `opentoe bench`, and the name of their report.
pub(crate) struct Part {
    /// Its file is this with `.json`.
    pub name: &'static str,
    /// The words.
    pub words: &'static str,
    /// Repeated as often as the user asks for; a curve is measured once.
    pub repeated: bool,
}

pub(crate) const fn part(name: &'static str, words: &'static str) -> Part {
    Part { name, words, repeated: true }
}

pub(crate) const fn curve(name: &'static str, words: &'static str) -> Part {
    Part { name, words, repeated: false }
}

/// All parts, in the order in which they are measured and a page shows them: sockets first, which most readers need
/// them, then disks, RDMA and ZeroNIC.
pub(crate) const PARTS: &[Part] = &[
    part("echo-1", "echo --conns 1 --linux cubic,polling,one-core"),
    part("echo-128", "echo --conns 128 --engine flextoe,laminar --linux cubic,bbr"),
    part("echo-many", "echo --conns 1024,32000"),
    part("echo-depth", "echo --conns 16 --depth 32"),
    part("echo-batch", "echo --conns 16 --depth 32 --batch"),
    part("echo-tap", "echo --conns 128 --port tap"),
    part("memcached", "kv --server memcached --conns 64 --port fabric,tap"),
    part("redis", "kv --server redis --conns 50 --size 64 --depth 1,16"),
    part("connect", "connect"),
    part("http", "http"),
    part("http-close", "http --close"),
    part("stream", "stream --size 65536,1448 --linux cubic,bbr"),
    part("stream-zero-copy", "stream --zero-copy"),
    part("stream-tap", "stream --port tap --dir up,down"),
    part("idle", "idle --conns 1000"),
    part("isolation", "isolation"),
    curve("instructions", "instructions"),
    curve("load", "echo --conns 32 --rate 25000,50000,100000,200000,400000,800000"),
    curve("connections", "echo --conns 1,4,16,64,256,1024,4096"),
    curve("message-size", "echo --conns 32 --size 16,64,256,1024,4096,16384"),
    curve("write-size", "stream --size 64,256,1448,8192,65536"),
    curve("loss", "loss --loss 0,1e-4,1e-3,0.01,0.02"),
    curve("block", "block"),
    curve("volume", "volume --clients 1,4,12"),
    part("rdma-queue-pairs", "rdma --test write_bw:64 --way smartns --queue-pairs 16,2000"),
    part("rdma-payload", "rdma --test write_bw:6144 --way smartns,smartns-staged"),
    curve("rdma-connections", "rdma --test write_bw:2048 --queue-pairs 1,4,16"),
    curve("working-set", "working-set --mib 1,16,96"),
    curve("notification", "notification"),
    part("offload", "offload --hops 4 --batch 64"),
    part("kv-cache", "kv-cache --size 4,16,64"),
    part("incast-rdma", "incast-rdma"),
    part("zeronic", "zeronic --test rate"),
    part("zeronic-short", "zeronic --test short"),
    curve("zeronic-loss", "zeronic --test loss"),
];

/// Bound of a goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// A row of the table.
pub(crate) struct Goal {
    /// Measured quantity.
    pub what: &'static str,
    /// The goal in words.
    pub goal: &'static str,
    /// Published figures, and those of others on the machine that the goals were made for.
    pub others: &'static str,
    part: &'static str,
    bound: Bound,
    figure: fn(&Report) -> Option<(f64, String)>,
}

/// What came of a goal.
pub(crate) struct Row {
    /// The goal.
    pub goal: &'static Goal,
    /// What was measured, in words; none where it was not.
    pub measured: Option<String>,
    /// It is met.
    pub met: bool,
}

const TOE: &str = "flextoe fabric";
const TAP: &str = "flextoe tap";
const CUBIC: &str = "linux cubic";

/// All goals, with what was measured of them.
pub(crate) fn rows(reports: &BTreeMap<String, Report>) -> Vec<Row> {
    let row = |goal: &'static Goal| {
        let found = reports.get(goal.part).and_then(goal.figure);
        let met = found.as_ref().is_some_and(|(value, _)| match goal.bound {
            Bound::AtLeast(least) => *value >= least,
            Bound::AtMost(most) => *value <= most,
        });
        Row { goal, measured: found.map(|(_, words)| words), met }
    };
    GOALS.iter().map(row).collect()
}

/// The point of a report with this value.
fn at(report: &Report, name: &str, value: u64) -> Option<Value> {
    report.points().into_iter().find(|point| point[name] == value)
}

/// One set-up over the best of others, pair by pair, and the rates behind it.
fn times(report: &Report, point: &Value, of: &str, to: &[&str]) -> Option<(f64, String)> {
    let rate = |setup: &str| report.median_on(setup, point, Run::speed);
    let best = to.iter().copied().filter(|setup| rate(setup).is_some());
    let best = best.max_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)))?;
    let ratio = report.ratio(point, of, best, Run::speed)?;
    let unit =
        |value: f64| if value > 1000.0 { format!("{} k/s", three(value / 1e3)) } else { three(value) + " Gbit/s" };
    let (ours, theirs) = (unit(rate(of)?), unit(rate(best)?));
    Some((ratio.median, format!("{}: {ours} to {theirs}", spread(&ratio))))
}

/// A ratio, and the least and the most of it with as many decimals: `18.3x (18.2-18.4)`.
fn spread(ratio: &Ratio) -> String {
    let median = three(ratio.median);
    let decimals = median.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    format!("{median}x ({:.decimals$}-{:.decimals$})", ratio.min, ratio.max)
}

fn first(report: &Report, of: &str, to: &[&str]) -> Option<(f64, String)> {
    times(report, report.points().first()?, of, to)
}

fn p50(run: &Run) -> f64 {
    run.latency_us.map_or(f64::NAN, |latency| latency.p50)
}

fn p9999(run: &Run) -> f64 {
    run.latency_us.map_or(f64::NAN, |latency| latency.p9999)
}

fn latency(report: &Report, setup: &str, figure: fn(&Run) -> f64) -> Option<f64> {
    report.median_on(setup, report.points().first()?, figure)
}

/// The least figure of all points, and words about each.
fn least(report: &Report, of: impl Fn(&Value) -> Option<(f64, String)>) -> Option<(f64, String)> {
    let found: Vec<(f64, String)> = report.points().iter().filter_map(of).collect();
    let least = found.iter().map(|(value, _)| *value).min_by(f64::total_cmp)?;
    Some((least, found.into_iter().map(|(_, words)| words).collect::<Vec<_>>().join(", ")))
}

/// The least rate of OpenTOE in a report, Gbit/s.
fn slowest(report: &Report, setup: &str) -> Option<(f64, String)> {
    least(report, |point| {
        let rate = report.median_on(setup, point, Run::speed)?;
        Some((rate, format!("{} {} Gbit/s", point["dir"].as_str().unwrap_or(""), three(rate))))
    })
}

/// The least figure of RDMA's incast with DCQCN, over numbers of senders.
fn congested(report: &Report, name: &str) -> Option<(f64, String)> {
    least(report, |point| {
        let value = report.median_on("dcqcn", point, |run| run.figure(name))?;
        Some((value, format!("{} senders {value:.3}", point["senders"])))
    })
}

/// Transfers of 16 MiB and more, one way beside another: the least.
fn transfers(report: &Report, of: &str, to: &str) -> Option<(f64, String)> {
    least(report, |point| {
        let mib = point["mib"].as_u64().filter(|mib| *mib >= 16)?;
        let ratio = report.ratio(point, of, to, Run::speed)?;
        Some((ratio.median, format!("{mib} MiB {}", spread(&ratio))))
    })
}

fn figure(report: &Report, name: &str, unit: &str) -> Option<(f64, String)> {
    let value = middle(report.runs.iter().filter(|run| run.setup == TOE).map(|run| run.figure(name)).collect())?;
    Some((value, format!("{} {unit}", three(value))))
}

/// Instructions on a path.
fn counted(report: &Report, path: &str) -> Option<(f64, String)> {
    let of = |run: &&Run| run.point.get("path").is_some_and(|name| name == path);
    let value = middle(report.runs.iter().filter(of).map(|run| run.figure("instructions")).collect())?;
    Some((value, format!("{value:.0} instructions")))
}

macro_rules! goal {
    ($what:literal, $goal:literal, $bound:expr, $part:literal, $others:literal, $figure:expr) => {
        Goal { what: $what, goal: $goal, others: $others, part: $part, bound: $bound, figure: $figure }
    };
}

use Bound::{AtLeast, AtMost};

/// The goals.
pub(crate) const GOALS: &[Goal] = &[
    goal!(
        "64 B echo, 128 connections",
        ">= 13x Linux",
        AtLeast(13.0),
        "echo-128",
        "Laminar 10x Linux, 1.8x TAS (thesis fig. 5.11); FlexTOE 3.3x (NSDI fig. 13); TAS 1.0 M/s on the test machine",
        |r| first(r, TOE, &[CUBIC, "linux bbr"])
    ),
    goal!(
        "64 B echo, 1,024 connections",
        ">= 6x Linux",
        AtLeast(6.0),
        "echo-many",
        "Laminar 10x Linux (thesis fig. 5.11); TAS 1.06 M/s on the test machine",
        |r| times(r, &at(r, "conns", 1024)?, TOE, &[CUBIC])
    ),
    goal!(
        "64 B echo, 32,000 connections",
        ">= 85% of our 1,024",
        AtLeast(0.85),
        "echo-many",
        "Laminar: no loss up to 32 K (thesis fig. 5.11); FlexTOE -24% at 8 K (NSDI fig. 13)",
        |r| {
            let rate = |conns| r.median_on(TOE, &at(r, "conns", conns)?, Run::speed);
            let (many, few) = (rate(32_000)?, rate(1024)?);
            Some((many / few, format!("{:.0}%: {} k/s", many / few * 100.0, three(many / 1e3))))
        }
    ),
    goal!(
        "64 B echo, 1 connection: p50",
        "<= 3.5 us",
        AtMost(3.5),
        "echo-1",
        "Laminar 18 us (thesis fig. 5.9), FlexTOE 20 us, TAS 16 us (NSDI fig. 11); TAS 19 us on the test machine",
        |r| latency(r, TOE, p50).map(|us| (us, format!("{} us", three(us))))
    ),
    goal!(
        "64 B echo, 1 connection: p99.99",
        "<= 1/10 of Linux",
        AtMost(0.1),
        "echo-1",
        "Laminar 25.6x shorter than Linux at the tail (thesis fig. 5.8)",
        |r| {
            let (ours, theirs) = (latency(r, TOE, p9999)?, latency(r, CUBIC, p9999)?);
            Some((ours / theirs, format!("{}x: {} to {} us", three(ours / theirs), three(ours), three(theirs))))
        }
    ),
    goal!("same, beside polling and same-core Linux: p50", "<= 0.6x the better", AtMost(0.6), "echo-1", "", |r| {
        let ours = latency(r, TOE, p50)?;
        let theirs = ["linux polling", "linux one-core"].iter().filter_map(|setup| latency(r, setup, p50));
        let better = theirs.min_by(f64::total_cmp)?;
        Some((ours / better, format!("{}x: {} to {} us", three(ours / better), three(ours), three(better))))
    }),
    goal!("64 B echo, 16 connections, 32 in flight", ">= 8x Linux", AtLeast(8.0), "echo-depth", "", |r| first(
        r,
        TOE,
        &[CUBIC]
    )),
    goal!(
        "same, replies batched into one write",
        ">= 1.5x Linux",
        AtLeast(1.5),
        "echo-batch",
        "TAS 8.2 M/s on the test machine",
        |r| first(r, TOE, &[CUBIC])
    ),
    goal!(
        "memcached -t 1, 64 connections",
        ">= 8x Linux",
        AtLeast(8.0),
        "memcached",
        "FlexTOE 5.5x Linux, 1.6x TAS (NSDI fig. 8); TAS 737 k/s on the test machine",
        |r| first(r, TOE, &[CUBIC])
    ),
    goal!("memcached, Linux clients over tap", ">= 1.4x Linux", AtLeast(1.4), "memcached", "", |r| first(
        r,
        TAP,
        &[CUBIC]
    )),
    goal!(
        "redis, 50 connections",
        ">= 6x Linux",
        AtLeast(6.0),
        "redis",
        "TAS 320 k/s on the test machine; libtpa 5.4x",
        |r| times(r, &at(r, "depth", 1)?, TOE, &[CUBIC])
    ),
    goal!("redis -P 16", ">= 1.5x Linux", AtLeast(1.5), "redis", "TAS 0.93-1.23 M/s on the test machine", |r| times(
        r,
        &at(r, "depth", 16)?,
        TOE,
        &[CUBIC]
    )),
    goal!("connect, request, close", ">= 4x Linux", AtLeast(4.0), "connect", "", |r| first(r, TOE, &[CUBIC])),
    goal!(
        "nginx without keep-alive",
        ">= 3.5x Linux",
        AtLeast(3.5),
        "http-close",
        "Onload: 3x the kernel's connections",
        |r| first(r, TOE, &[CUBIC])
    ),
    goal!("one flow, 64 KiB writes, sockets", ">= 1.5x Linux at its best", AtLeast(1.5), "stream", "", |r| times(
        r,
        &at(r, "size", 65_536)?,
        TOE,
        &[CUBIC, "linux bbr"]
    )),
    goal!("same, zero-copy", ">= 1.8x Linux", AtLeast(1.8), "stream-zero-copy", "", |r| first(r, TOE, &[CUBIC])),
    goal!(
        "one flow, 1,448 B messages",
        ">= 5x Linux",
        AtLeast(5.0),
        "stream",
        "FlexTOE 4x receiving, 7.6x sending (NSDI fig. 10)",
        |r| times(r, &at(r, "size", 1448)?, TOE, &[CUBIC, "linux bbr"])
    ),
    goal!(
        "one flow to and from Linux over tap",
        ">= 30 Gbit/s each way",
        AtLeast(30.0),
        "stream-tap",
        "gVisor over tap with GRO 9.1 Gbit/s",
        |r| slowest(r, TAP)
    ),
    goal!(
        "echo, Linux clients over tap, 128 connections",
        ">= 1.0x Linux",
        AtLeast(1.0),
        "echo-tap",
        "TAS 220 k/s on the test machine",
        |r| first(r, TAP, &[CUBIC])
    ),
    goal!(
        "libtoe, for a memcached request",
        "<= 450 instructions",
        AtMost(450.0),
        "instructions",
        "14.9 k in Linux",
        |r| { counted(r, instructions::LIBRARY) }
    ),
    goal!(
        "FlexTOE engine, request and response",
        "<= 600 instructions",
        AtMost(600.0),
        "instructions",
        "TAS 1.44 kilocycles",
        |r| counted(r, instructions::ENGINE)
    ),
    goal!(
        "4 KiB reads of a volume, 1 client",
        ">= 8x NBD on Linux",
        AtLeast(8.0),
        "volume",
        "SmartNS 2.5x Solar on a host's processor (fig. 16)",
        |r| times(r, &at(r, "clients", 1)?, "solar", &["nbd-linux"])
    ),
    goal!(
        "4 KiB reads of a volume, 12 clients",
        ">= 2.2x staged",
        AtLeast(2.2),
        "volume",
        "SmartNS 2.2x on a host's processor (fig. 16)",
        |r| times(r, &at(r, "clients", 12)?, "solar", &["solar-staged"])
    ),
    goal!(
        "64 B WRITEs by 2,000 queue pairs",
        ">= 80% of 16",
        AtLeast(0.8),
        "rdma-queue-pairs",
        "SmartNS section 3.2: a loop over 2,000 queues takes 50 us",
        |r| {
            let speed = |queue_pairs| r.median_on("smartns", &at(r, "queue_pairs", queue_pairs)?, Run::speed);
            let (few, many) = (speed(16)?, speed(2000)?);
            Some((many / few, format!("{:.0}%: {:.0} k/s", 100.0 * many / few, many / 1e3)))
        }
    ),
    goal!(
        "6 KiB WRITEs, header-only TX",
        ">= 1.5x staged",
        AtLeast(1.5),
        "rdma-payload",
        "SmartNS 1.5x and 2.7x below 8 KiB (fig. 11)",
        |r| first(r, "smartns", &["smartns-staged"])
    ),
    goal!(
        "list of 4, offload function: 1/p50",
        ">= 1.7x READs",
        AtLeast(1.7),
        "offload",
        "SmartNS 1.7x beside a card (fig. 15)",
        |r| {
            let ratio = r.ratio(&at(r, "hops", 4)?, "verbs", "offload", p50)?;
            Some((ratio.median, spread(&ratio)))
        }
    ),
    goal!(
        "64 B, 64 in a request: offloaded",
        ">= 3.5x READs",
        AtLeast(3.5),
        "offload",
        "SmartNS 3.5x beside a card (fig. 15)",
        |r| times(r, &at(r, "batch", 64)?, "offload", &["verbs"])
    ),
    goal!(
        "KV cache of 16 MiB and more: Mooncake RDMA",
        ">= 3.2x TCP of Linux",
        AtLeast(3.2),
        "kv-cache",
        "SmartNS 3.2x Mooncake TCP (fig. 17)",
        |r| transfers(r, "rdma", "linux")
    ),
    goal!(
        "same, sprayed over two paths",
        ">= 1.3x one path",
        AtLeast(1.3),
        "kv-cache",
        "SmartNS 1.3x Mooncake RDMA (fig. 17)",
        |r| transfers(r, "rdma-sprayed", "rdma-one-path")
    ),
    goal!(
        "DCQCN incast, 10 and 20 senders: payload",
        ">= 95% of the rate",
        AtLeast(0.95),
        "incast-rdma",
        "98.6% of a rate can be payload",
        |r| congested(r, "share_of_rate")
    ),
    goal!("same: Jain's index", ">= 0.97", AtLeast(0.97), "incast-rdma", "", |r| congested(r, "jain")),
    goal!("same: a short message's 99p", "1/10 of without", AtLeast(10.0), "incast-rdma", "", |r| least(r, |point| {
        let ratio = r.ratio(point, "none", "dcqcn", incast_rdma::tail)?;
        Some((ratio.median, format!("{} senders {}", point["senders"], spread(&ratio))))
    })),
    goal!(
        "ZeroNIC over FlexTOE, 64 KiB messages",
        ">= 2.5x Linux",
        AtLeast(2.5),
        "zeronic",
        "ZeroNIC over Linux' TCP: 2.3x Linux, bound by its link (table 2)",
        |r| times(r, &at(r, "size", 65_536)?, "zeronic flextoe", &[CUBIC])
    ),
    goal!(
        "memory of an idle connection's end",
        "<= 1 KiB",
        AtMost(1024.0),
        "idle",
        "FlexTOE 108 B of state in the NIC",
        |r| figure(r, "bytes_each", "B, all that process and kernel hold for it")
    ),
    goal!("daemon with 1,000 idle connections", "<= 0.5% of a core", AtMost(0.5), "idle", "", |r| figure(
        r,
        "stack_cpu_percent",
        "% of a core"
    )),
];

/// One word for a row.
pub(crate) fn verdict(row: &Row) -> &'static str {
    match (row.met, &row.measured) {
        (true, _) => "met",
        (false, Some(_)) => "not met",
        (false, None) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Stack;
    use serde_json::json;

    #[test]
    fn every_goal_has_its_part() {
        for goal in GOALS {
            assert!(PARTS.iter().any(|part| part.name == goal.part), "{}", goal.what);
        }
    }

    #[test]
    fn sockets_come_before_disks_and_rdma() {
        let place = |name: &str| PARTS.iter().position(|part| part.name == name).unwrap();
        let last = ["echo-1", "redis", "connections", "write-size", "loss"].map(place).into_iter().max().unwrap();
        let others = [
            "block",
            "volume",
            "rdma-queue-pairs",
            "offload",
            "kv-cache",
            "incast-rdma",
            "zeronic",
            "zeronic-short",
            "zeronic-loss",
        ];
        assert!(others.map(place).into_iter().all(|place| place > last));
    }

    #[test]
    fn a_spread_has_the_decimals_of_its_ratio() {
        let words = |min, median, max| spread(&Ratio { min, median, max });
        assert_eq!(words(9.96, 18.26, 18.31), "18.3x (10.0-18.3)");
        assert_eq!(words(0.9, 1.5, 12.0), "1.50x (0.90-12.00)");
        assert_eq!(words(99.0, 120.4, 130.0), "120x (99-130)");
    }

    #[test]
    fn goals_are_met_or_not() {
        let mut report = Report::new("echo", json!({}));
        for (stack, setup, speed) in [(Stack::Opentoe, TOE, 1_500_000.0), (Stack::Linux, CUBIC, 100_000.0)] {
            let mut run = Run::new(stack, 1, &json!({ "conns": 128 }));
            (run.setup, run.ops_per_s) = (setup.into(), Some(speed));
            report.runs.push(run);
        }
        let rows = rows(&BTreeMap::from([("echo-128".to_string(), report)]));
        assert!(rows[0].met && rows[0].measured.as_deref() == Some("15.0x (15.0-15.0): 1500 k/s to 100 k/s"));
        assert!(!rows[1].met && rows[1].measured.is_none());
    }
}
