//! Small messages there and back: `apps/rpc_client` and `apps/rpc_server`.
use super::compare::{Buffers, Comparison, number, numbers};
use super::rpc::{self, Load};
use super::window;
use crate::arguments::numbered;
use crate::report::{Report, Run};
use crate::setup::{Needs, Setup};
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Connections of one program: descriptors are limited.
const MOST_OF_A_PROGRAM: usize = 16_000;

const CONNECTIONS_WARMED_A_SECOND: f64 = 8000.0;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections
    #[arg(long, value_name = "N,...", default_value = "1,16,128,1024", value_parser = numbered(4 * MOST_OF_A_PROGRAM))]
    pub conns: String,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES,...", default_value = "64", value_parser = numbered(1 << 20))]
    pub size: String,
    /// Bytes of a reply; those of the message where none is named
    #[arg(long, value_name = "BYTES,...", value_parser = numbered(1 << 20))]
    pub reply: Option<String>,
    /// Messages in flight on each connection
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbered(1024))]
    pub depth: String,
    /// Open loop: messages a second, due at fixed times; latencies count from when a message was due
    #[arg(long, value_name = "RATE,...", value_delimiter = ',')]
    pub rate: Vec<u64>,
    /// Cycles that the server computes for each reply
    #[arg(long, value_name = "CYCLES,...", value_delimiter = ',')]
    pub work: Vec<u64>,
    /// Requests that may go at once leave in one write, and so do the replies to one read
    #[arg(long)]
    pub batch: bool,
    /// A program that echoes in the place of apps/rpc_server, with its words: -p PORT -s BYTES -r BYTES (apps/echo.go)
    #[arg(long, value_name = "FILE")]
    pub server: Option<PathBuf>,
    #[command(flatten)]
    pub buffers: Buffers,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let mut axes = vec![
        ("conns", numbers(&arguments.conns)?),
        ("size", numbers(&arguments.size)?),
        ("depth", numbers(&arguments.depth)?),
    ];
    if let Some(reply) = &arguments.reply {
        axes.push(("reply", numbers(reply)?));
    }
    if !arguments.rate.is_empty() {
        axes.push(("rate", arguments.rate.iter().map(|rate| json!(rate)).collect()));
    }
    if !arguments.work.is_empty() {
        axes.push(("work", arguments.work.iter().map(|cycles| json!(cycles)).collect()));
    }
    let (warm_up, seconds) = arguments.comparison.times();
    let params = json!({
        "batch": arguments.batch, "buffer_kib": arguments.buffers.buffer,
        "loop": if arguments.rate.is_empty() { "closed" } else { "open" },
    });
    arguments.comparison.measure(tools, "echo", (params, &axes), |setup, point| {
        let load = load(setup, point, (warm_up, seconds), arguments.batch);
        let load = Load { server: arguments.server.as_ref().map(|file| file.display().to_string()), ..load };
        let unix = load.server.is_none();
        let needs = Needs { connections: load.connections.iter().copied().max().unwrap_or(0), clients: 1, unix };
        let lab = setup.lab_as(tools, needs, arguments.buffers.plan())?;
        let outcome = rpc::run(tools, &*lab, &load)?;
        let mut run = Run::on(setup, point);
        window::note(&mut run, &outcome.sample, outcome.cpu_s);
        Ok(run)
    })
}

/// The load of a point.
fn load(setup: &Setup, point: &Value, (warm_up, seconds): (f64, f64), batch: bool) -> Load {
    let (size, connections) = (number(point, "size"), number(point, "conns") as usize);
    let programs = connections.div_ceil(MOST_OF_A_PROGRAM);
    let share = |at: usize| connections / programs + usize::from(at < connections % programs);
    let flags = [(setup.polls(), "-y"), (batch, "-b")];
    let options: Vec<String> = flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag.to_string()).collect();
    // The first message of a connection touches pages for the first time: let every one have a few.
    let warm_up = warm_up.max(connections as f64 / CONNECTIONS_WARMED_A_SECOND);
    let rate = point["rate"].as_u64().map(|rate| ["-R".to_string(), (rate as f64 / programs as f64).to_string()]);
    let work = point["work"].as_u64().map(|cycles| ["-k".to_string(), cycles.to_string()]);
    Load {
        size,
        reply: point["reply"].as_u64().unwrap_or(size),
        connections: (0..programs).map(share).collect(),
        one_place: true,
        servers: programs,
        depth: number(point, "depth"),
        warm_up,
        seconds,
        client_options: options.iter().cloned().chain(rate.into_iter().flatten()).collect(),
        server_options: options.into_iter().chain(work.into_iter().flatten()).collect(),
        ..Load::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Stacks;

    #[test]
    fn many_connections_are_dealt_to_several_programs() {
        let stacks =
            Stacks { stack: "linux".into(), engine: "flextoe".into(), port: "fabric".into(), linux: "polling".into() };
        let setup = stacks.all().unwrap()[0];
        let point = json!({ "conns": 32_001, "size": 64, "reply": 32, "depth": 1, "rate": 6, "work": 250 });
        let load = load(&setup, &point, (1.0, 2.0), false);
        assert_eq!(load.connections, [10_667, 10_667, 10_667]);
        assert_eq!((load.servers, load.size, load.reply), (3, 64, 32));
        assert_eq!(load.client_options, ["-y", "-R", "2"]);
        assert_eq!(load.server_options, ["-y", "-k", "250"]);
    }
}
