//! Offload functions beside one-sided verbs (SmartNS, section 5.6 and figure 15): a linked list that is traversed, over
//! its hops, and reads of 64 bytes by batches. Both ways reach the same memory of the same program.
use super::compare;
use crate::arguments::{Common, list, listed, numbered};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack};
use crate::process::Process;
use crate::report::{Report, Run};
use crate::sample::Sample;
use crate::tools::Tools;
use ::offload::client;
use clap::Args;
use port::FabricConfig;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

const PORTS: [u16; 2] = [7000, 7001];
const TIMEOUT: Duration = Duration::from_secs(30);
const SECONDS: f64 = 3.0;
/// What a measurement takes besides its seconds.
const AROUND_S: f64 = 1.5;
/// The longest list, and the largest batch.
const MOST: usize = 512;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// What reads the memory: offload (an offload function), verbs (one-sided READs)
    #[arg(long, value_name = "WAY,...", default_value = "offload,verbs", value_parser = listed(way))]
    pub way: String,
    /// Elements of the list that are visited, the last of which has the key
    #[arg(long, value_name = "N,...", default_value = "1,2,4,8,16", value_parser = numbered(MOST))]
    pub hops: String,
    /// Reads of 64 bytes in a request; verbs have 16 outstanding, whatever it is
    #[arg(long, value_name = "N,...", default_value = "64", value_parser = numbered(MOST))]
    pub batch: String,
}

/// A point of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    /// Latency over hops.
    List(usize),
    /// Throughput over the batch.
    Reads(usize),
}

impl Test {
    fn name(self) -> &'static str {
        if matches!(self, Test::List(_)) { "list" } else { "reads" }
    }

    fn number(self) -> usize {
        let (Test::List(number) | Test::Reads(number)) = self;
        number
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').count() as f64;
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    (points(&arguments.hops) + points(&arguments.batch))
        * points(&arguments.way)
        * each
        * f64::from(arguments.common.pairs)
}

/// Runs the case: both ways of a point directly after each other, in one lab.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let ways = list(&arguments.way, way)?;
    let numbers = |text: &str| list(text, |word| crate::arguments::count(word, MOST));
    let hops = numbers(&arguments.hops)?.into_iter().map(Test::List);
    let tests: Vec<Test> = hops.chain(numbers(&arguments.batch)?.into_iter().map(Test::Reads)).collect();
    let seconds = common.seconds(SECONDS);
    let mut report = Report::new("offload", json!({ "seconds": seconds, "pairs": common.pairs }));
    tools.print_line(&format!("offload: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        let place = OffloadLab::new(tools)?;
        for test in &tests {
            for way in ways.iter().copied() {
                let point = match test {
                    Test::List(hops) => json!({ "test": "list", "hops": hops }),
                    Test::Reads(batch) => json!({ "test": "reads", "batch": batch, "size": 64 }),
                };
                let what = format!("{} of {} by {way}", test.name(), test.number());
                let run = Run { setup: way.into(), engine: None, ..Run::new(Stack::Opentoe, round, &point) };
                let Some(run) = report.measured(tools, &what, place.measure(tools, *test, way, seconds, run))? else {
                    continue;
                };
                tools.print_line(&format!("{what}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// A lab with an offload engine, and a program whose memory is read.
struct OffloadLab<'a> {
    // In the order in which they end.
    _host: Process,
    _engine: Process,
    lab: FabricLab<'a>,
}

impl<'a> OffloadLab<'a> {
    fn new(tools: &'a Tools) -> Result<OffloadLab<'a>, String> {
        let network = FabricConfig { mtu: 9000, ..FabricConfig::default() };
        let rdma = Some("selective-repeat");
        let lab = FabricLab::new(tools, &FabricPlan { network, rdma, ..FabricPlan::default() })?;
        let [socket, daemon] = ["offload.sock", "toed.sock"].map(|name| lab.directory().join(name));
        let [own, to] = [&socket, &daemon].map(|path| path.display().to_string());
        let program = beside("opentoe-offload")?;
        let words = [&*program, "--daemon", &to, "--host", "server", "--socket", &own, "--announce"];
        let mut engine = lab.plain(&words.map(String::from))?;
        ready(tools, "the offload engine", &mut engine)?;
        for library in ["list", "reads"] {
            client::load(&socket, library, &tools.functions(library)?)?;
        }
        let ports = PORTS.map(|port| port.to_string());
        let words = [&tools.app("offload_host"), &own, &ports[0], &ports[1], "stay"].map(String::from);
        let mut host = lab.on_server(&words)?;
        ready(tools, "the program with memory", &mut host)?;
        Ok(OffloadLab { _host: host, _engine: engine, lab })
    }

    fn measure(&self, tools: &Tools, test: Test, way: &str, seconds: f64, run: Run) -> Result<Run, String> {
        let [address, number, seconds_] =
            [self.lab.address().to_string(), test.number().to_string(), format!("{seconds}")];
        let [port, verbs] = PORTS.map(|port| port.to_string());
        let program = tools.app("offload_client");
        let words = [&program, &address, &port, &verbs, test.name(), way, &number, &seconds_].map(String::from);
        let client = self.lab.client(0, &words)?;
        let printed = client.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
        let sample = Sample::of(&[printed])?;
        let latency_us = Some(sample.latency());
        Ok(Run { ops_per_s: Some(sample.rate()), latency_us, errors: sample.errors, ..run })
    }
}

/// Waits until a program prints that it is ready.
pub(super) fn ready(tools: &Tools, what: &str, program: &mut Process) -> Result<(), String> {
    tools.stop.until(what, TIMEOUT, || {
        program.alive()?;
        Ok(program.output().contains("ready"))
    })
}

/// A program that stands beside this one.
fn beside(name: &str) -> Result<String, String> {
    let own: PathBuf = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name).display().to_string())
}

fn way(text: &str) -> Result<&'static str, String> {
    let known = ["offload", "verbs"].into_iter().find(|known| *known == text);
    known.ok_or_else(|| format!("there is no way `{text}`; there are offload and verbs"))
}
