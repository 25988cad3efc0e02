//! Reads of a volume over clients, 4 KiB each (SmartNS figure 16): Solar into a program's memory, the same with staging
//! buffers, and by its NBD socket, beside NBD over TCP. All serve the same file, which is in memory.
use super::compare;
use crate::arguments::{Common, list, listed, numbered};
use crate::directory::Directory;
use crate::lab::{FabricLab, FabricPlan, Lab, Stack, VethLab, VethPlan};
use crate::process::Process;
use crate::report::{Report, Run};
use crate::sample::{Latency, Sample};
use crate::servers::{self, split};
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

const PORT: u16 = 10809;
const WAYS: &str = "solar,solar-staged,solar-nbd,nbd-opentoe,nbd-linux";
const TIMEOUT: Duration = Duration::from_secs(30);
const MEGABYTES: u64 = 64;
const SECONDS: f64 = 3.0;
/// What a measurement takes besides its seconds.
const AROUND_S: f64 = 2.0;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// What carries the blocks: solar (into the program's memory, apps/volume_load), solar-staged (the same with copies
    /// in between and checksums anew), solar-nbd (NBD on a UNIX socket, Solar from there), nbd-opentoe (nbdkit over
    /// OpenTOE's TCP), nbd-linux (nbdkit over the kernel's)
    #[arg(long, value_name = "WAY,...", default_value = WAYS, value_parser = listed(way))]
    pub way: String,
    /// Clients, each a use of the volume of its own, or a thread of fio with a connection of its own
    #[arg(long, value_name = "N,...", default_value = "1,2,4,8,12", value_parser = numbered(16))]
    pub clients: String,
    /// Requests that each client has in flight
    #[arg(long, value_name = "N,...", default_value = "32", value_parser = numbered(1024))]
    pub depth: String,
    /// Write random blocks instead of reading them
    #[arg(long)]
    pub write: bool,
}

/// Carrier of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Solar,
    SolarStaged,
    SolarNbd,
    NbdOpentoe,
    NbdLinux,
}

impl Carrier {
    const ALL: [(&'static str, Carrier); 5] = [
        ("solar", Carrier::Solar),
        ("solar-staged", Carrier::SolarStaged),
        ("solar-nbd", Carrier::SolarNbd),
        ("nbd-opentoe", Carrier::NbdOpentoe),
        ("nbd-linux", Carrier::NbdLinux),
    ];

    fn name(self) -> &'static str {
        crate::arguments::name_of(&self, &Carrier::ALL)
    }

    fn stack(self) -> Stack {
        if self == Carrier::NbdLinux { Stack::Linux } else { Stack::Opentoe }
    }
}

/// Where the volume is served and used.
enum VolumeLab<'a> {
    /// By the daemon itself; clients are programs beside it.
    Solar(FabricLab<'a>),
    /// By a program.
    Nbd { lab: Box<dyn Lab + 'a>, _server: Process },
}

impl<'a> VolumeLab<'a> {
    fn new(tools: &'a Tools, way: Carrier, directory: &Path) -> Result<VolumeLab<'a>, String> {
        let lab: Box<dyn Lab + 'a> = match way {
            Carrier::Solar | Carrier::SolarStaged | Carrier::SolarNbd => {
                let network = FabricConfig { mtu: 9000, ..FabricConfig::default() };
                let (volume, volume_staged) = (Some(directory.into()), way == Carrier::SolarStaged);
                let plan = FabricPlan { network, volume, volume_staged, ..FabricPlan::default() };
                return Ok(VolumeLab::Solar(FabricLab::new(tools, &plan)?));
            }
            Carrier::NbdOpentoe => Box::new(FabricLab::new(tools, &FabricPlan::default())?),
            Carrier::NbdLinux => {
                let congestion = Some("cubic".into());
                Box::new(VethLab::new(tools, &VethPlan { congestion, ..VethPlan::default() })?)
            }
        };
        let words = split(&format!("nbdkit -f -p {PORT} file {}", directory.join("v").display()));
        let server = lab.server(&words, PORT)?;
        Ok(VolumeLab::Nbd { lab, _server: server })
    }

    fn uri(&self, directory: &Path) -> String {
        match self {
            VolumeLab::Solar(_) => format!("nbd+unix:///?socket={}", directory.join("v.sock").display()),
            VolumeLab::Nbd { lab, .. } => format!("nbd://{}:{PORT}", lab.address()),
        }
    }

    fn client(&self, words: &[String]) -> Result<Process, String> {
        match self {
            VolumeLab::Solar(lab) => lab.plain(words),
            VolumeLab::Nbd { lab, .. } => lab.client(0, words),
        }
    }
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = |text: &str| text.split(',').count() as f64;
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    let points = points(&arguments.way) * points(&arguments.clients) * points(&arguments.depth);
    points * each * f64::from(arguments.common.pairs)
}

/// Runs the case: all ways of a point directly after each other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let ways = list(&arguments.way, way)?;
    let numbers = |text: &str| list(text, |word| crate::arguments::count(word, 1024));
    let (clients, depths) = (numbers(&arguments.clients)?, numbers(&arguments.depth)?);
    let kind = if arguments.write { "write" } else { "read" };
    let seconds = common.seconds(SECONDS);
    let own = json!({ "seconds": seconds, "pairs": common.pairs, "kind": kind, "size": 4096, "megabytes": MEGABYTES });
    let mut report = Report::new("volume", own);
    tools.print_line(&format!("volume: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for (clients, depth) in clients.iter().flat_map(|clients| depths.iter().map(move |depth| (*clients, *depth))) {
            for way in ways.iter().copied() {
                let point = json!({ "clients": clients, "depth": depth, "size": 4096 });
                let place = format!("{clients} clients, {depth} in flight each, on {}", way.name());
                let run = Run::new(way.stack(), round, &point);
                let run = Run { setup: way.name().into(), engine: None, ..run };
                let load = Load { way, kind, seconds };
                let Some(run) = report.measured(tools, &place, load.measure(tools, run))? else { continue };
                tools.print_line(&format!("{place}: {}", compare::sentence(&run)));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// What fio does, in which way.
struct Load {
    way: Carrier,
    kind: &'static str,
    seconds: f64,
}

impl Load {
    fn measure(&self, tools: &Tools, run: Run) -> Result<Run, String> {
        let directory = Directory::new("volume")?;
        fill(&directory.path().join("v")).map_err(|error| format!("cannot make a volume: {error}"))?;
        let place = VolumeLab::new(tools, self.way, directory.path())?;
        match (&place, self.way) {
            (VolumeLab::Solar(lab), Carrier::Solar | Carrier::SolarStaged) => self.by_program(tools, lab, run),
            _ => self.by_fio(tools, &place, directory.path(), run),
        }
    }

    /// By a program that has the blocks in its memory.
    fn by_program(&self, tools: &Tools, lab: &FabricLab<'_>, run: Run) -> Result<Run, String> {
        let (point, size) = (json!(run.point), 4096.to_string());
        let [clients, depth] = ["clients", "depth"].map(|key| point[key].to_string());
        let [warm_up, seconds] = [(self.seconds / 4.0).clamp(0.3, 1.0), self.seconds].map(|time| time.to_string());
        let program = tools.app("volume_load");
        let words = [&*program, "v", self.kind, &size, &depth, &clients, &warm_up, &seconds].map(String::from);
        let printed = lab.client(0, &words)?.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(self.seconds))?;
        let sample = Sample::of(&[printed])?;
        let latency_us = Some(sample.latency());
        let gbit_per_s = Some(sample.rate() * 4096.0 * 8.0 / 1e9);
        Ok(Run { ops_per_s: Some(sample.rate()), gbit_per_s, latency_us, errors: sample.errors, ..run })
    }

    fn by_fio(&self, tools: &Tools, place: &VolumeLab<'_>, directory: &Path, run: Run) -> Result<Run, String> {
        let (uri, point) = (place.uri(directory), json!(run.point));
        let load = |seconds: f64| {
            let mut words = servers::fio(&uri, self.kind, seconds, MEGABYTES, &point);
            words.extend([format!("--numjobs={}", point["clients"]), "--group_reporting".into()]);
            let printed = place.client(&words)?.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
            servers::fio_report(&printed, self.kind)
        };
        load((self.seconds / 4.0).clamp(0.3, 1.0))?;
        let report = load(self.seconds)?;
        let [p50, p99, max, unknown] = [report.p50_us, report.p99_us, report.max_us, f64::NAN];
        // CPU seconds are not known: threads that serve a connection end with it.
        Ok(Run {
            ops_per_s: Some(report.ops_per_s),
            gbit_per_s: Some(report.ops_per_s * 4096.0 * 8.0 / 1e9),
            latency_us: Some(Latency { p50, p99, p999: unknown, p9999: unknown, max }),
            ..run
        })
    }
}

/// Random bytes: blocks of zeros may be cheaper somewhere.
fn fill(path: &Path) -> io::Result<()> {
    let mut bytes = File::open("/dev/urandom")?.take(MEGABYTES << 20);
    io::copy(&mut bytes, &mut File::create(path)?)?;
    fs::File::open(path)?.sync_all()
}

fn way(text: &str) -> Result<Carrier, String> {
    crate::arguments::way(text, &Carrier::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_known_by_name() {
        assert_eq!(way("nbd-linux"), Ok(Carrier::NbdLinux));
        assert!(way("nvme").unwrap_err().contains("nbd-opentoe"));
        assert_eq!(Carrier::Solar.stack(), Stack::Opentoe);
    }
}
