//! RDMA programs beside TCP (SmartNS section 5.2): perftest and UCX on OpenTOE's verbs; flows and echoes of the same
//! sizes, and UCX, on TCP. Latencies are those of a round trip, on all of them.
use super::bulk::{self, Flows};
use super::compare::{self, Column};
use super::rpc::{self, Load};
use crate::arguments::{Common, count, list, listed, numbered};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan};
use crate::process::Process;
use crate::report::{Report, Run};
use crate::sample::Latency;
use crate::servers::split;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::json;
use std::time::Duration;

const PORT: u16 = 18515;
const TIMEOUT: Duration = Duration::from_secs(60);
const SECONDS: f64 = 3.0;
/// Round trips a second that latency is measured over, roughly: the programs take a count.
const ROUND_TRIPS: f64 = 50_000.0;
/// That a program may have.
const MOST_QUEUE_PAIRS: usize = 4096;
/// Of UCX in one second, at most.
const UCX_MESSAGES: f64 = 100_000.0;

/// Messages that a queue pair has outstanding in the paper, and those of all of a program: perftest has one completion
/// queue for them.
const PAPERS_DEPTH: usize = 64;
const MOST_OUTSTANDING: usize = 1 << 18;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Tests, each with bytes of a message: write_bw, send_bw, read_bw, write_lat, send_lat (perftest), tag_bw, tag_lat
    /// (UCX)
    #[arg(long, value_name = "TEST:BYTES,...", value_parser = listed(test),
        default_value = "write_bw:65536,write_bw:4096,write_bw:64,send_bw:64,write_lat:2,send_lat:2,tag_bw:65536,tag_lat:8")]
    pub test: String,
    /// What runs them: smartns (verbs, selective repeat), smartns-spray (the same, packets take 16 paths in turn),
    /// smartns-gbn (verbs, go-back-N), smartns-header-only (as smartns, all payload of 2 KiB and more by reference),
    /// smartns-staged (as smartns, all payload copied into frames), flextoe (OpenTOE's TCP, bulk flows by its zero-copy
    /// interface), linux (the kernel's TCP)
    #[arg(long, value_name = "WAY,...", default_value = "smartns,flextoe,linux", value_parser = listed(way))]
    pub way: String,
    /// Probabilities of a frame's loss, each way. 0 lets trains of packets pass whole; 1e-12 makes single packets of
    /// them, as every loss does
    #[arg(long, value_name = "P,...", default_value = "0", value_parser = listed(probability))]
    pub loss: String,
    /// Paths of equal cost between two hosts; not for linux
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub paths: u16,
    /// Rate of each path, Mbit/s, 0 for no limit; not for linux
    #[arg(long, value_name = "MBIT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub rate: u64,
    /// Queue pairs of the program (perftest), or flows, at once: of tests of bandwidth only
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbered(MOST_QUEUE_PAIRS))]
    pub queue_pairs: String,
    /// Beside each test, WRITEs of so many bytes go the other way, by two more programs; only beside verbs
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub against: Option<u64>,
}

/// A program's test, with bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Test {
    name: &'static str,
    size: u64,
    /// Queue pairs or flows at once.
    queue_pairs: usize,
}

impl Test {
    const NAMES: [&'static str; 7] = ["write_bw", "send_bw", "read_bw", "write_lat", "send_lat", "tag_bw", "tag_lat"];

    fn is_latency(self) -> bool {
        self.name.ends_with("_lat")
    }

    fn is_ucx(self) -> bool {
        self.name.starts_with("tag_")
    }
}

/// Configuration of hosts that carry verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VerbsWay {
    /// How they make up for losses.
    recovery: &'static str,
    /// Paths that packets take in turn.
    paths: u16,
    /// How payload comes into frames.
    payload: &'static str,
}

const SELECTIVE: VerbsWay = VerbsWay { recovery: "selective-repeat", paths: 1, payload: "auto" };

/// Program of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// Verbs.
    Verbs(VerbsWay),
    /// OpenTOE's TCP.
    Flextoe,
    /// The kernel's.
    Linux,
}

impl Carrier {
    const ALL: [(&'static str, Carrier); 7] = [
        ("smartns", Carrier::Verbs(SELECTIVE)),
        ("smartns-spray", Carrier::Verbs(VerbsWay { paths: 16, ..SELECTIVE })),
        ("smartns-gbn", Carrier::Verbs(VerbsWay { recovery: "go-back-n", ..SELECTIVE })),
        ("smartns-header-only", Carrier::Verbs(VerbsWay { payload: "header-only", ..SELECTIVE })),
        ("smartns-staged", Carrier::Verbs(VerbsWay { payload: "staged", ..SELECTIVE })),
        ("flextoe", Carrier::Flextoe),
        ("linux", Carrier::Linux),
    ];

    fn name(self) -> &'static str {
        crate::arguments::name_of(&self, &Carrier::ALL)
    }

    fn stack(self) -> Stack {
        if self == Carrier::Linux { Stack::Linux } else { Stack::Opentoe }
    }

    /// UCX is on verbs or on the kernel's TCP: OpenTOE's has no device that it could list.
    fn runs(self, test: Test) -> bool {
        let one = test.queue_pairs == 1 || !test.is_ucx() && !test.is_latency();
        one && (self != Carrier::Flextoe || !test.is_ucx())
    }

    fn is_verbs(self) -> bool {
        matches!(self, Carrier::Verbs(_))
    }

    /// The hosts of OpenTOE's ways.
    fn plan(self, network: FabricConfig) -> FabricPlan {
        let Carrier::Verbs(VerbsWay { recovery, paths, payload }) = self else {
            return FabricPlan { network, ..FabricPlan::default() };
        };
        // Room for packets of 4096 bytes.
        let network = FabricConfig { mtu: 9000, ..network };
        let rdma = Some(recovery);
        FabricPlan { network, rdma, rdma_paths: paths, rdma_payload: payload, ..FabricPlan::default() }
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').count() as f64;
    let times = arguments.common.seconds(SECONDS) + 3.0;
    points(&arguments.test)
        * points(&arguments.way)
        * points(&arguments.loss)
        * points(&arguments.queue_pairs)
        * times
        * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a point directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let (tests, ways) = (list(&arguments.test, test)?, list(&arguments.way, way)?);
    let rates = list(&arguments.loss, probability)?;
    let queue_pairs = list(&arguments.queue_pairs, |word| count(word, MOST_QUEUE_PAIRS))?;
    let of_test = |test: Test| queue_pairs.iter().map(move |queue_pairs| Test { queue_pairs: *queue_pairs, ..test });
    let tests: Vec<Test> = tests.into_iter().flat_map(of_test).collect();
    let seconds = common.seconds(SECONDS);
    let (paths, rate) = (arguments.paths, arguments.rate);
    if (paths > 1 || rate > 0) && ways.contains(&Carrier::Linux) {
        return Err(
            "--paths and --rate are the fabric's, which Linux' TCP does not go through here: leave out linux".into()
        );
    }
    let against = arguments.against;
    if against.is_some() && !ways.iter().all(|way| way.is_verbs()) {
        return Err("--against is a flow of verbs beside others of verbs: name only such ways with --way".into());
    }
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "paths": paths, "mbit": rate, "against": against });
    let mut report = Report::new("rdma", params);
    tools.print_line(&format!("rdma: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for (test, loss) in tests.iter().flat_map(|test| rates.iter().map(move |loss| (*test, *loss))) {
            for way in ways.iter().copied().filter(|way| way.runs(test)) {
                let Test { name, size, queue_pairs } = test;
                let place = format!("{name} of {size} bytes, {queue_pairs} at once, loss {loss}, on {}", way.name());
                let point = json!({ "test": name, "size": size, "loss": loss, "queue_pairs": queue_pairs });
                let run = Run::new(way.stack(), round, &point);
                let engine = (way != Carrier::Linux).then(|| way.name().into());
                let run = Run { setup: way.name().into(), engine, ..run };
                let run = in_lab(tools, arguments, way, test, network(arguments, loss), run);
                let Some(run) = report.measured(tools, &place, run)? else { continue };
                tools.print_line(&format!("{place}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

fn network(arguments: &Arguments, loss: f64) -> FabricConfig {
    let Arguments { paths, rate, .. } = arguments;
    FabricConfig { loss, paths: *paths, rate_bps: rate * 1_000_000, ..FabricConfig::default() }
}

/// One test on one way, in a lab of its own.
fn in_lab(
    tools: &Tools,
    arguments: &Arguments,
    way: Carrier,
    test: Test,
    network: FabricConfig,
    run: Run,
) -> Result<Run, String> {
    let seconds = arguments.common.seconds(SECONDS);
    if way == Carrier::Linux {
        let (loss, congestion) = (network.loss, Some("cubic".to_string()));
        let lab = VethLab::new(tools, &VethPlan { loss, congestion, ..VethPlan::default() })?;
        return measure(tools, &lab, way, test, seconds, run);
    }
    let lab = FabricLab::new(tools, &way.plan(network))?;
    let Some(size) = arguments.against else { return measure(tools, &lab, way, test, seconds, run) };
    let mut other = OtherWay::start(tools, &lab, size)?;
    let mut run = measure(tools, &lab, way, test, seconds, run)?;
    run.figures.insert("against_gbit_per_s".into(), json!(other.gbit_per_s()?));
    Ok(run)
}

/// A flow of WRITEs from the server's host to the client's; it ends when dropped.
struct OtherWay {
    sender: Process,
    _receiver: Process,
}

impl OtherWay {
    /// Starts it, and waits until it runs.
    fn start(tools: &Tools, lab: &FabricLab<'_>, size: u64) -> Result<OtherWay, String> {
        let port = PORT + 1;
        let line = format!("stdbuf -oL ib_write_bw -p {port} -x 1 -F -s {size} -D 1 --run_infinitely --report_gbits");
        let receiver = lab.proxy(0, &split(&line), port)?;
        let sender = lab.on_server(&split(&format!("{line} {}", lab.client_address(0))))?;
        let mut flow = OtherWay { sender, _receiver: receiver };
        tools.stop.until("the flow the other way", TIMEOUT, || {
            flow.sender.alive()?;
            Ok(last_numbers(&flow.sender.output()).is_some())
        })?;
        Ok(flow)
    }

    /// What it carries, in the last second.
    fn gbit_per_s(&mut self) -> Result<f64, String> {
        self.sender.alive()?;
        let printed = self.sender.output();
        let rate = last_numbers(&printed).and_then(|numbers| numbers.get(3).copied());
        rate.ok_or_else(|| format!("ib_write_bw printed {printed}"))
    }
}

/// One test on one way, in its lab.
fn measure(tools: &Tools, lab: &dyn Lab, way: Carrier, test: Test, seconds: f64, run: Run) -> Result<Run, String> {
    let warm_up = (seconds / 4.0).clamp(0.3, 1.0);
    match (way, test.is_ucx(), test.is_latency()) {
        (_, true, _) => ucx(tools, lab, way, test, seconds, run),
        (Carrier::Verbs(_), ..) => perftest(tools, lab, test, seconds, run),
        (_, _, true) => {
            let connections = [1].into();
            let load =
                Load { size: test.size, reply: test.size, connections, depth: 1, warm_up, seconds, ..Load::default() };
            let sample = rpc::run(tools, lab, &Load { one_place: true, ..load })?.sample;
            Ok(Run { latency_us: Some(sample.latency()), errors: sample.errors, ..run }.of_latency())
        }
        _ => {
            let flows = Flows {
                size: test.size,
                zero_copy: way == Carrier::Flextoe,
                ..Flows::new(test.queue_pairs, warm_up, seconds)
            };
            let moved = bulk::run(tools, lab, &flows)?;
            Ok(Run { errors: moved.lost, ..run }.of_bandwidth(moved.gbit_per_s(), test))
        }
    }
}

impl Run {
    /// A rate for the comparison: that of round trips, at the median.
    fn of_latency(self) -> Run {
        Run { ops_per_s: self.latency_us.map(|latency| 1e6 / latency.p50), ..self }
    }

    fn of_bandwidth(self, gbit_per_s: f64, test: Test) -> Run {
        let ops_per_s = Some(gbit_per_s * 1e9 / 8.0 / test.size as f64);
        Run { gbit_per_s: Some(gbit_per_s), ops_per_s, ..self }
    }
}

/// Writes of this size over one connection, as fast as they go.
pub(super) fn write_bandwidth(tools: &Tools, lab: &dyn Lab, size: u64, seconds: f64, run: Run) -> Result<Run, String> {
    perftest(tools, lab, Test { name: "write_bw", size, queue_pairs: 1 }, seconds, run)
}

/// One of perftest's programs: a second before and one behind what it measures.
fn perftest(tools: &Tools, lab: &dyn Lab, test: Test, seconds: f64, run: Run) -> Result<Run, String> {
    let length = match test.is_latency() {
        true => format!("-n {:.0}", (seconds * ROUND_TRIPS).max(1000.0)),
        // One queue pair has perftest's own depth; several have the paper's 64, or share what that queue can hold.
        false if test.queue_pairs == 1 => format!("-D {:.0} -f 1 --report_gbits", seconds.ceil() + 2.0),
        false => {
            let depth = (MOST_OUTSTANDING / test.queue_pairs).clamp(1, PAPERS_DEPTH);
            format!("-q {} -t {depth} -D {:.0} -f 1 --report_gbits", test.queue_pairs, seconds.ceil() + 2.0)
        }
    };
    // GID index 1 is the host's IPv4 address; -F: no complaint about the frequency of the processor.
    let words = split(&format!("ib_{} -p {PORT} -x 1 -F -s {} {length}", test.name, test.size));
    let server = lab.server(&words, PORT)?;
    let words: Vec<String> = words.into_iter().chain([lab.address().to_string()]).collect();
    let printed = lab.client(0, &words)?.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds * 10.0))?;
    drop(server);
    let numbers = last_numbers(&printed).ok_or_else(|| format!("ib_{} printed {printed}", test.name))?;
    Ok(match (test.is_latency(), &numbers[..]) {
        // Bytes, iterations, least, most, typical, mean, deviation, 99 %, 99.9 %: one way.
        (true, [_, _, _, most, typical, _, _, p99, p999, ..]) => {
            let [p50, p99, p999, max] = [typical, p99, p999, most].map(|us| us * 2.0);
            Run { latency_us: Some(Latency { p50, p99, p999, p9999: f64::NAN, max }), ..run }.of_latency()
        }
        // Bytes, iterations, peak, mean, million messages a second.
        (false, [_, _, _, mean, ..]) => run.of_bandwidth(*mean, test),
        _ => return Err(format!("ib_{} printed {printed}", test.name)),
    })
}

/// The last line that has nothing but numbers.
fn last_numbers(printed: &str) -> Option<Vec<f64>> {
    let numbers = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    printed.lines().rev().find_map(|line| numbers(line).filter(|numbers| numbers.len() > 3))
}

/// UCX' own test, over verbs or TCP.
fn ucx(tools: &Tools, lab: &dyn Lab, way: Carrier, test: Test, seconds: f64, run: Run) -> Result<Run, String> {
    let transport = match way {
        Carrier::Verbs(_) => "UCX_TLS=rc_verbs,ud_verbs:aux UCX_NET_DEVICES=toe0:1",
        _ => "UCX_TLS=tcp",
    };
    let common = format!("env {transport} ucx_perftest -p {PORT}");
    // UCX searches for network devices in sysfs, which shows those of the namespace that mounted it.
    let mount = ["unshare", "-m", "sh", "-c", "mount -t sysfs sysfs /sys && exec \"$@\"", "sh"].map(String::from);
    let own = if way == Carrier::Linux { &mount[..] } else { &[] };
    let words = |line: &str| [own, &split(line)].concat();
    let server = lab.server(&words(&common), PORT)?;
    let count = seconds * if test.is_latency() { ROUND_TRIPS } else { UCX_MESSAGES };
    let line = format!("{common} {} -t {} -s {} -n {count:.0} -w 1000", lab.address(), test.name, test.size);
    let client = lab.client(0, &words(&line))?;
    let printed = client.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds * 10.0))?;
    drop(server);
    // Iterations; microseconds: median, mean, overall; MB/s: mean, overall; messages a second: mean, overall.
    let line = printed.lines().find_map(|line| line.strip_prefix("Final:")).unwrap_or_default();
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [_, median, .., overall, _, _] if test.is_latency() && overall > 0.0 => {
            let (nan, p50) = (f64::NAN, median * 2.0);
            Ok(Run { latency_us: Some(Latency { p50, p99: nan, p999: nan, p9999: nan, max: nan }), ..run }.of_latency())
        }
        [.., rate] if rate > 0.0 => Ok(run.of_bandwidth(rate * test.size as f64 * 8.0 / 1e9, test)),
        _ => Err(format!("ucx_perftest printed {printed}")),
    }
}

/// The table.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, &[Column::new("other way Gbit/s", |run| run.figure("against_gbit_per_s"))])
}

/// A test by its name and its bytes.
fn test(text: &str) -> Result<Test, String> {
    let wrong =
        || format!("there is no test `{text}`; there are, with bytes behind a colon: {}", Test::NAMES.join(", "));
    let (name, size) = text.split_once(':').ok_or_else(wrong)?;
    let name = Test::NAMES.into_iter().find(|known| *known == name).ok_or_else(wrong)?;
    let size = crate::arguments::count(size, 1 << 20)? as u64;
    Ok(Test { name, size, queue_pairs: 1 })
}

fn way(text: &str) -> Result<Carrier, String> {
    crate::arguments::way(text, &Carrier::ALL)
}

fn probability(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|value| (0.0..0.5).contains(value));
    found.ok_or_else(|| format!("`{text}` is no probability below 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_bytes() {
        let known = |name, size| Test { name, size, queue_pairs: 1 };
        assert_eq!(test("send_bw:64"), Ok(known("send_bw", 64)));
        assert!(test("send_bw").unwrap_err().contains("write_lat"));
        assert!(test("recv_bw:64").is_err() && test("send_bw:0").is_err());
        assert_eq!(way("smartns-gbn"), Ok(Carrier::Verbs(VerbsWay { recovery: "go-back-n", ..SELECTIVE })));
        assert!(way("smartns-staged").unwrap().is_verbs() && !Carrier::Flextoe.is_verbs());
        assert!(way("laminar").unwrap_err().contains("flextoe"));
        assert!(Carrier::Linux.runs(known("tag_bw", 8)) && !Carrier::Flextoe.runs(known("tag_bw", 8)));
        let several = |name| Test { queue_pairs: 4, ..known(name, 8) };
        assert!(Carrier::Linux.runs(several("write_bw")) && !Carrier::Linux.runs(several("tag_bw")));
        assert!(!Carrier::Linux.runs(several("write_lat")));
    }

    #[test]
    fn the_last_line_of_numbers_counts() {
        let printed =
            " #bytes  #iterations  BW peak  BW average\n 64 1000 0.00 1.25 2.5\n 65536 900 0.00 40.5 0.077\n---\n";
        assert_eq!(last_numbers(printed), Some(vec![65536.0, 900.0, 0.0, 40.5, 0.077]));
        assert_eq!(last_numbers("nothing"), None);
    }
}
