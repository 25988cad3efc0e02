//! Requests and replies: servers, clients, and their reports.
use super::window::{self, CpuSeconds};
use crate::lab::Lab;
use crate::process::Process;
use crate::sample::Sample;
use crate::tools::Tools;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The first server's port.
pub(super) const PORT: u16 = 7777;
/// How long clients may take to connect where all begin to measure together.
const CONNECT: Duration = Duration::from_millis(1500);

/// A load.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    /// Where clients connect to; the server itself by default.
    pub to: Option<Ipv4Addr>,
    /// Bytes of a request.
    pub size: u64,
    /// Bytes of a reply.
    pub reply: u64,
    /// Connections of each client.
    pub connections: Vec<usize>,
    /// All clients are in one place; otherwise each has a place of its own.
    pub one_place: bool,
    /// What serves; apps/rpc_server by default.
    pub server: Option<String>,
    /// Servers; clients are dealt to them in turn. One where it is 0.
    pub servers: usize,
    /// Requests in flight on each connection.
    pub depth: u64,
    /// Measuring begins at the same time for all clients, whether they are connected or not: one that is late fails. Or
    /// for each when it is connected, however long that takes.
    pub together: bool,
    /// Seconds before measuring begins.
    pub warm_up: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Further words for the clients, and for the servers.
    pub client_options: Vec<String>,
    pub server_options: Vec<String>,
}

/// What came of it.
pub(super) struct Outcome {
    /// All clients together.
    pub sample: Sample,
    /// CPU seconds of the server, and of the daemon where there is one, while it was measured.
    pub cpu_s: CpuSeconds,
}

/// Runs a load in a lab.
pub(super) fn run(tools: &Tools, lab: &dyn Lab, load: &Load) -> Result<Outcome, String> {
    let (servers, clients) = start(tools, lab, load)?;
    let (printed, cpu_s) = window::watch(tools, clients, || window::server_and_stack(&servers, lab))?;
    Ok(Outcome { sample: Sample::of(&printed)?, cpu_s })
}

/// Starts servers and clients of a load.
pub(super) fn start(tools: &Tools, lab: &dyn Lab, load: &Load) -> Result<(Vec<Process>, Vec<Process>), String> {
    let count = load.servers.max(1);
    let ports: Vec<u16> = (PORT..).take(count).collect();
    let servers = ports.iter().map(|port| lab.server(&server_words(tools, lab, load, *port), *port));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    let begin = begin(load.warm_up);
    let clients = load.connections.iter().enumerate().map(|(number, connections)| {
        let words = client_words(tools, lab, load, *connections, ports[number % count], begin);
        // Places of clients have a name and a log; a place that clients share has one log for each.
        lab.client_of(if load.one_place { 0 } else { number }, number, &words)
    });
    Ok((servers, clients.collect::<Result<Vec<_>, _>>()?))
}

fn server_words(tools: &Tools, lab: &dyn Lab, load: &Load, port: u16) -> Vec<String> {
    let (size, reply) = (load.size.to_string(), load.reply.to_string());
    let server = load.server.clone().unwrap_or_else(|| tools.app("rpc_server"));
    let words = [server, "-p".into(), port.to_string(), "-s".into(), size, "-r".into(), reply];
    words.into_iter().chain(load.server_options.iter().cloned()).chain(lab.meeting()).collect()
}

fn client_words(
    tools: &Tools,
    lab: &dyn Lab,
    load: &Load,
    connections: usize,
    port: u16,
    begin: Duration,
) -> Vec<String> {
    let options = [
        ("-c", load.to.unwrap_or(lab.address()).to_string()),
        ("-p", port.to_string()),
        ("-n", connections.to_string()),
        ("-s", load.size.to_string()),
        ("-r", load.reply.to_string()),
        ("-d", load.depth.to_string()),
        ("-t", load.seconds.to_string()),
        if load.together { ("-B", begin.as_nanos().to_string()) } else { ("-w", load.warm_up.to_string()) },
    ];
    let words = options.into_iter().flat_map(|(key, value)| [key.to_string(), value]);
    let words = words.chain(load.client_options.iter().cloned()).chain(lab.meeting());
    std::iter::once(tools.app("rpc_client")).chain(words).collect()
}

/// When clients that are started now begin to measure, by their clock: they connect, then warm up.
pub(super) fn begin(warm_up: f64) -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + CONNECT + Duration::from_secs_f64(warm_up)
}
