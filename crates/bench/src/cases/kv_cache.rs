//! Transfers of a KV cache between two hosts (SmartNS, section 5.7 and figure 17): Mooncake's own benchmark of its
//! transfer engine, unmodified, over sizes. One transfer is outstanding, as in the paper.
use super::compare::{self, Column};
use crate::arguments::{Common, count, list, listed, numbered};
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan};
use crate::process::Process;
use crate::report::{Report, Run};
use crate::servers::split;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
const SECONDS: f64 = 2.0;
/// What a measurement takes besides its seconds: a daemon, the target's memory, the transfers before.
const AROUND_S: f64 = 4.0;
/// The longest transfer, MiB.
const MOST_MIB: usize = 256;
/// Paths of the ways with several.
const PATHS: u16 = 2;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// What carries transfers: rdma (Mooncake RDMA on the verbs of RoCEv2), rdma-one-path (the same, a network of one
    /// path with a rate), rdma-hashed (two such paths, each queue pair takes the one of its hash), rdma-sprayed (two
    /// such paths, packets take both in turn), flextoe (Mooncake TCP on OpenTOE's sockets), linux (Mooncake TCP on the
    /// kernel's)
    #[arg(long, value_name = "WAY,...", value_parser = listed(way),
        default_value = "rdma,rdma-one-path,rdma-hashed,rdma-sprayed,flextoe,linux")]
    pub way: String,
    /// MiB of a transfer
    #[arg(long, value_name = "N,...", default_value = "1,4,16,64", value_parser = numbered(MOST_MIB))]
    pub size: String,
    /// Threads that submit transfers, each with one outstanding
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub threads: u16,
    /// Rate of each path of the ways that name paths, Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 4000,
        value_parser = clap::value_parser!(u64).range(100..=100_000))]
    pub rate: u64,
}

/// Carrier of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// Verbs; paths of the network where they have a rate, and whether packets take them in turn.
    Rdma(Option<Paths>),
    /// OpenTOE's TCP.
    Flextoe,
    /// The kernel's.
    Linux,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paths {
    One,
    Hashed,
    Sprayed,
}

impl Carrier {
    const ALL: [(&'static str, Carrier); 6] = [
        ("rdma", Carrier::Rdma(None)),
        ("rdma-one-path", Carrier::Rdma(Some(Paths::One))),
        ("rdma-hashed", Carrier::Rdma(Some(Paths::Hashed))),
        ("rdma-sprayed", Carrier::Rdma(Some(Paths::Sprayed))),
        ("flextoe", Carrier::Flextoe),
        ("linux", Carrier::Linux),
    ];

    fn name(self) -> &'static str {
        crate::arguments::name_of(&self, &Carrier::ALL)
    }

    fn stack(self) -> Stack {
        if self == Carrier::Linux { Stack::Linux } else { Stack::Opentoe }
    }

    /// The hosts of OpenTOE's ways; `rate` of each path, bits a second.
    fn plan(self, rate: u64) -> FabricPlan {
        let Carrier::Rdma(paths) = self else { return FabricPlan::default() };
        // Room for packets of 4096 bytes.
        let mut network = FabricConfig { mtu: 9000, ..FabricConfig::default() };
        if let Some(paths) = paths {
            network.rate_bps = rate;
            network.paths = if paths == Paths::One { 1 } else { PATHS };
        }
        // More than the network's, so that a hash that puts two on one path leaves none of its paths empty.
        let rdma_paths = if paths == Some(Paths::Sprayed) { 16 } else { 1 };
        FabricPlan { network, rdma: Some("selective-repeat"), rdma_paths, ..FabricPlan::default() }
    }

    /// Mooncake's own names for what it uses.
    fn words(self) -> &'static str {
        if matches!(self, Carrier::Rdma(_)) { "--protocol=rdma --device_name=toe0" } else { "--protocol=tcp" }
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').count() as f64;
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    points(&arguments.way) * points(&arguments.size) * each * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a size directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let program = tools.mooncake()?;
    let ways = list(&arguments.way, way)?;
    let sizes = list(&arguments.size, |word| count(word, MOST_MIB))?;
    let (seconds, rate) = (common.seconds(SECONDS), arguments.rate);
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "threads": arguments.threads, "path_mbit": rate });
    let mut report = Report::new("kv-cache", params);
    tools.print_line(&format!("kv-cache: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for size in &sizes {
            for way in ways.iter().copied() {
                let place = format!("{size} MiB on {}", way.name());
                let run = Run::new(way.stack(), round, &json!({ "mib": size }));
                let run = Run { setup: way.name().into(), engine: None, ..run };
                let transfers = Transfers { program: &program, way, mib: *size, threads: arguments.threads };
                let run = transfers.in_lab(tools, rate * 1_000_000, seconds, run);
                let Some(run) = report.measured(tools, &place, run)? else { continue };
                tools.print_line(&format!("{place}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// What is transferred, and how.
struct Transfers<'a> {
    /// Mooncake's program.
    program: &'a str,
    way: Carrier,
    mib: usize,
    threads: u16,
}

impl Transfers<'_> {
    /// In a lab of its own. Mooncake's threads poll and do not yield: on one core, each transfer would wait for some of
    /// their time slices, 10 ms.
    fn in_lab(&self, tools: &Tools, rate: u64, seconds: f64, run: Run) -> Result<Run, String> {
        if self.way == Carrier::Linux {
            let congestion = Some("cubic".to_string());
            let lab = VethLab::new(tools, &VethPlan { congestion, spread: true, ..VethPlan::default() })?;
            let server = lab.on_server(&self.words("target", lab.address()))?;
            let start = |words: &str| lab.client(0, &self.client(lab.client_address(), words));
            return self.measure(tools, server, start, seconds, run);
        }
        let lab = FabricLab::new(tools, &self.way.plan(rate))?.with_programs_anywhere();
        let server = lab.on_server(&self.words("target", lab.address()))?;
        let start = |words: &str| lab.client(0, &self.client(lab.client_address(0), words));
        self.measure(tools, server, start, seconds, run)
    }

    /// With a target that was started, and what starts an initiator.
    fn measure(
        &self,
        tools: &Tools,
        mut server: Process,
        start: impl Fn(&str) -> Result<Process, String>,
        seconds: f64,
        run: Run,
    ) -> Result<Run, String> {
        let mut at = None;
        tools.stop.until("Mooncake to listen", TIMEOUT, || {
            server.alive()?;
            at = place(&server.output());
            Ok(at.is_some())
        })?;
        let at = at.unwrap_or_default();
        let transfer = |seconds: f64| {
            let own = format!(
                "--segment_id={at} --operation=write --batch_size=1 --threads={} --block_size={} --duration={:.0}",
                self.threads,
                self.mib << 20,
                seconds.ceil()
            );
            let printed = start(&own)?.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
            Completed::of(&printed).ok_or_else(|| format!("Mooncake printed {printed}"))
        };
        // The target listens before it has registered its memory; until then transfers fail.
        let mut last = String::new();
        let first = tools.stop.until("Mooncake's first transfer", TIMEOUT, || {
            server.alive()?;
            last = transfer(1.0).err().unwrap_or_default();
            Ok(last.is_empty())
        });
        first.map_err(|error| format!("{error}: {last}"))?;
        let done = transfer(seconds)?;
        let (each, rate) = (done.seconds / done.transfers, done.transfers / done.seconds);
        let mut run = Run { ops_per_s: Some(rate), gbit_per_s: Some(rate * self.bytes() * 8.0 / 1e9), ..run };
        run.figures.insert("transfer_ms".into(), json!(each * f64::from(self.threads) * 1e3));
        Ok(run)
    }

    /// An initiator's words, which has this address.
    fn client(&self, own: Ipv4Addr, more: &str) -> Vec<String> {
        [self.words("initiator", own), split(more)].concat()
    }

    fn bytes(&self) -> f64 {
        (self.mib << 20) as f64
    }

    /// One of Mooncake's two programs; both have room for a block of each thread.
    fn words(&self, mode: &str, own: Ipv4Addr) -> Vec<String> {
        let bytes = (self.mib << 20) * usize::from(self.threads);
        split(&format!(
            "{} --mode={mode} --metadata_server=P2PHANDSHAKE --local_server_name={own} --buffer_size={bytes} {} \
             --logtostderr",
            self.program,
            self.way.words()
        ))
    }
}

/// Where a target is to be found, as it prints it when it listens.
fn place(printed: &str) -> Option<String> {
    let line = printed.split_once("listening on ")?.1.split_once('\n')?.0;
    line.split_whitespace().next().map(String::from)
}

/// Last output of Mooncake's program.
#[derive(Debug, PartialEq)]
struct Completed {
    seconds: f64,
    transfers: f64,
}

impl Completed {
    fn of(printed: &str) -> Option<Completed> {
        let line = printed.lines().rev().find(|line| line.contains("Test completed: "))?;
        let behind = |name: &str| line.split_once(name)?.1.split(',').next()?.trim().parse().ok();
        let done = Completed { seconds: behind("duration ")?, transfers: behind("batch count ")? };
        (done.seconds > 0.0 && done.transfers > 0.0).then_some(done)
    }
}

/// The table.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, &[Column::new("ms each", |run| run.figure("transfer_ms"))])
}

fn way(text: &str) -> Result<Carrier, String> {
    crate::arguments::way(text, &Carrier::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mooncake_prints_is_read() {
        let line = "I1130 11:30:37.5 1 transfer_engine_bench.cpp:569] Test completed: duration 2.01, batch count 71, \
                    throughput 0.59 GB/s\n";
        assert_eq!(Completed::of(&format!("before\n{line}after")), Some(Completed { seconds: 2.01, transfers: 71.0 }));
        assert_eq!(Completed::of("Test completed: duration 2.01, batch count 0, throughput 0 GB/s"), None);
        assert_eq!(Completed::of("Local segment descriptor not found"), None);
        assert_eq!(place("using P2P handshake, listening on 10.77.0.1:15501\nI1130"), Some("10.77.0.1:15501".into()));
    }

    #[test]
    fn ways_have_networks_of_their_own() {
        let paths = |name| way(name).unwrap().plan(7).network;
        assert_eq!((paths("rdma").rate_bps, paths("rdma").paths), (0, 1));
        assert_eq!((paths("rdma-one-path").rate_bps, paths("rdma-one-path").paths), (7, 1));
        assert_eq!([paths("rdma-hashed").paths, paths("rdma-sprayed").paths], [2, 2]);
        assert!(way("rdma-sprayed").unwrap().plan(7).rdma_paths > way("rdma-hashed").unwrap().plan(7).rdma_paths);
        assert_eq!(way("linux").unwrap().stack(), Stack::Linux);
        assert!(way("nixl").unwrap_err().contains("rdma-one-path"));
    }
}
