//! The servers of the demo and the load on each.
use super::lab::{ClientLocation, Lab, Stack};
use bench::process::Process;
use bench::servers::{self, ClientReport, split};
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// Connections of each load.
const CONNECTIONS: u32 = 64;
/// Payload of memcached and redis, bytes.
const VALUE: u32 = 64;

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Memcached,
    Redis,
    Nginx,
}

/// Result of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Sample {
    /// Requests answered a second.
    pub ops_per_s: f64,
    /// Median time of an answer, microseconds.
    pub p50_us: f64,
    /// 99th percentile of it.
    pub p99_us: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} requests/s, p50 {:.0} us, p99 {:.0} us", self.ops_per_s, self.p50_us, self.p99_us)
    }
}

impl Program {
    /// In the order of the table.
    pub(super) const ALL: &'static [Program] = &[Program::Memcached, Program::Redis, Program::Nginx];

    /// Its name on the command line and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Program::Memcached => "memcached",
            Program::Redis => "redis",
            Program::Nginx => "nginx",
        }
    }

    /// Executables that must be installed.
    pub(super) fn needs(self) -> &'static [&'static str] {
        match self {
            Program::Memcached => &["memcached"],
            Program::Redis => &["redis-server", "redis-benchmark"],
            Program::Nginx => &["nginx", "wrk"],
        }
    }

    /// What the load is, in a few words.
    pub(super) fn load_name(self) -> String {
        match self {
            Program::Memcached => format!("90% get, {VALUE} B, {CONNECTIONS} connections"),
            Program::Redis => format!("redis-benchmark get, {VALUE} B, {CONNECTIONS} connections"),
            Program::Nginx => format!("wrk, keep-alive, 100 B, {CONNECTIONS} connections"),
        }
    }

    fn port(self) -> u16 {
        match self {
            Program::Memcached => 11211,
            Program::Redis => 6379,
            Program::Nginx => 80,
        }
    }

    /// Starts the server, at all addresses.
    pub(super) fn serve(self, lab: &Lab<'_>, stack: Stack) -> Result<Process, String> {
        let (any, port, directory) = ("0.0.0.0", self.port(), lab.file(""));
        let words = match self {
            Program::Memcached => servers::memcached(any, port),
            Program::Redis => servers::redis(any, port, &directory),
            Program::Nginx => servers::nginx(any, port, &directory, stack.name())?,
        };
        lab.server(stack, &words, port)
    }

    /// Loads the server for a while.
    pub(super) fn load(
        self,
        lab: &Lab<'_>,
        place: ClientLocation,
        stack: Stack,
        seconds: u32,
    ) -> Result<Sample, String> {
        let server = SocketAddr::from((place.address(stack), self.port()));
        let limit = Duration::from_secs(u64::from(seconds) * 10 + 20);
        let run = |line: &str| lab.client(place, stack, &split(line), limit);
        match self {
            Program::Memcached => {
                let own = std::env::current_exe().map_err(|e| e.to_string())?;
                let own = own.display();
                let output = run(&format!("{own} memload {server} --connections {CONNECTIONS} --seconds {seconds}"))?;
                serde_json::from_str(&output).map_err(|e| format!("memload printed {output}: {e}"))
            }
            Program::Redis => redis_load(server, seconds, run),
            Program::Nginx => {
                let output = run(&format!("wrk -t 1 -c {CONNECTIONS} -d {seconds}s --latency http://{server}/"))?;
                servers::wrk_report(&output).map(Sample::from)
            }
        }
    }
}

impl From<ClientReport> for Sample {
    fn from(report: ClientReport) -> Sample {
        Sample { ops_per_s: report.ops_per_s, p50_us: report.p50_us, p99_us: report.p99_us }
    }
}

/// redis-benchmark counts requests, not time: a short run shows how many fit.
fn redis_load(
    server: SocketAddr,
    seconds: u32,
    run: impl Fn(&str) -> Result<String, String>,
) -> Result<Sample, String> {
    let (address, port) = (server.ip(), server.port());
    let run = |test: &str, requests: u64| {
        run(&format!(
            "redis-benchmark -h {address} -p {port} -c {CONNECTIONS} -d {VALUE} -n {requests} -t {test} --csv"
        ))
    };
    let probe = servers::redis_benchmark_report(&run("set", 10_000)?)?;
    let report =
        servers::redis_benchmark_report(&run("get", (probe.ops_per_s * f64::from(seconds)).max(1000.0) as u64)?);
    report.map(Sample::from)
}
