//! Requests and replies: a server, one or more clients that begin to measure at the same time, and what they say.
use crate::lab::Lab;
use crate::process::Process;
use crate::sample::Sample;
use crate::tools::Tools;
use std::time::Duration;

const PORT: u16 = 7777;
/// How long clients may take to connect before measuring begins.
const CONNECT: Duration = Duration::from_millis(1500);
/// What a client may take longer than it was told.
const PATIENCE: Duration = Duration::from_secs(30);

/// A load.
#[derive(Debug, Clone)]
pub struct Load {
    /// Bytes of a request.
    pub size: u64,
    /// Bytes of a reply.
    pub reply: u64,
    /// Connections of each client.
    pub connections: Vec<usize>,
    /// Requests in flight on each connection.
    pub depth: u64,
    /// Measuring begins at the same time for all clients, whether they are connected or not: one that is late fails. Or
    /// when a client is connected, however long that takes: then the CPU seconds of server and stack are those of the
    /// whole run.
    pub together: bool,
    /// Seconds before measuring begins.
    pub warm_up: f64,
    /// Seconds measured.
    pub seconds: f64,
    /// Further words for the clients, and for the server.
    pub client_options: Vec<String>,
    pub server_options: Vec<String>,
}

/// What came of it.
pub struct Outcome {
    /// All clients together.
    pub sample: Sample,
    /// CPU seconds of the server while it was measured.
    pub server_cpu_s: f64,
    /// The same of the daemon, where there is one.
    pub stack_cpu_s: Option<f64>,
}

/// Runs a load in a lab.
pub fn run(tools: &Tools, lab: &dyn Lab, load: &Load) -> Result<Outcome, String> {
    let server = lab.server(&server_words(tools, load), PORT)?;
    let begin = monotonic() + CONNECT + Duration::from_secs_f64(load.warm_up);
    let clients = load
        .connections
        .iter()
        .enumerate()
        .map(|(number, connections)| lab.client(number, &client_words(tools, lab, load, *connections, begin)));
    let clients = clients.collect::<Result<Vec<Process>, String>>()?;
    let cpu = || (server.cpu_s(), lab.stack_cpu_s());
    let until = |at: Duration| if load.together { wait(tools, at) } else { Ok(()) };
    until(begin)?;
    let before = cpu();
    until(begin + Duration::from_secs_f64(load.seconds))?;
    let mut after = cpu();
    let printed = clients
        .into_iter()
        .map(|client| client.finish(&tools.stop, PATIENCE + Duration::from_secs_f64(load.warm_up + load.seconds)));
    let sample = Sample::of(&printed.collect::<Result<Vec<_>, _>>()?)?;
    if !load.together {
        after = cpu();
    }
    let stack_cpu_s = after.1.zip(before.1).map(|(after, before)| after - before);
    Ok(Outcome { sample, server_cpu_s: after.0 - before.0, stack_cpu_s })
}

fn wait(tools: &Tools, at: Duration) -> Result<(), String> {
    tools.stop.until("the time to pass", PATIENCE * 10, || Ok(monotonic() >= at))
}

fn server_words(tools: &Tools, load: &Load) -> Vec<String> {
    let (size, reply) = (load.size.to_string(), load.reply.to_string());
    let port = PORT.to_string();
    let words = [tools.app("rpc_server"), "-p".into(), port, "-s".into(), size, "-r".into(), reply];
    words.into_iter().chain(load.server_options.iter().cloned()).collect()
}

fn client_words(tools: &Tools, lab: &dyn Lab, load: &Load, connections: usize, begin: Duration) -> Vec<String> {
    let options = [
        ("-c", lab.address().to_string()),
        ("-p", PORT.to_string()),
        ("-n", connections.to_string()),
        ("-s", load.size.to_string()),
        ("-r", load.reply.to_string()),
        ("-d", load.depth.to_string()),
        ("-t", load.seconds.to_string()),
        if load.together { ("-B", begin.as_nanos().to_string()) } else { ("-w", load.warm_up.to_string()) },
    ];
    let words = options.into_iter().flat_map(|(key, value)| [key.to_string(), value]);
    std::iter::once(tools.app("rpc_client")).chain(words).chain(load.client_options.iter().cloned()).collect()
}

/// The clock that the clients look at.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
