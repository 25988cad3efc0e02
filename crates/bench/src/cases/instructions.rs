//! Instructions for a request: in the FlexTOE engine (thesis table 4.2 has cycles), and in libtoe under a real
//! memcached. They do not depend on time, so they are the same on every machine, however busy.
use super::kv;
use crate::arguments::Common;
use crate::callgrind::{self, Call};
use crate::directory::Directory;
use crate::lab::Stack;
use crate::process::Process;
use crate::report::{Report, Run, table};
use crate::setup::{LinuxMode, Needs, Port, Setup};
use crate::tools::Tools;
use clap::Args;
use port::Netns;
use serde_json::json;
use std::time::Duration;

/// Connections, and requests on each of them in the engine's program.
const CONNECTIONS: u64 = 64;
const ROUNDS: u64 = 200;
/// Seconds under load; a program that is counted is some fifty times slower.
const SECONDS: f64 = 3.0;

/// How long the engine's program may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
}

/// Seconds that it takes.
pub(crate) fn estimate() -> f64 {
    2.0 * SECONDS + 10.0
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, _arguments: &Arguments) -> Result<Report, String> {
    callgrind::is_there()?;
    let params = json!({ "connections": CONNECTIONS, "rounds": ROUNDS, "bytes": 64, "valgrind": "callgrind" });
    let mut report = Report::new("instructions", params);
    tools.print_line(&format!("instructions: about {:.0} s", estimate()));
    let setup = Setup { stack: Stack::Opentoe, engine: "flextoe", port: Port::Fabric, way: LinuxMode::Cubic };
    for (what, count) in [(ENGINE, engine as Count), (LIBRARY, library as Count)] {
        let run = count(tools, &setup).map(|instructions| {
            let mut run = Run::on(&setup, &json!({ "path": what }));
            run.figures.insert("instructions".into(), json!(instructions));
            run
        });
        let Some(run) = report.measured(tools, what, run)? else { continue };
        tools.print_line(&format!("{what}: {:.0} instructions", run.figure("instructions")));
        report.runs.push(run);
    }
    Ok(report)
}

/// A 64-byte request and its response in the engine of the serving host.
pub(crate) const ENGINE: &str = "engine, request and response";
/// What memcached calls in libtoe for a request, and what that calls.
pub(crate) const LIBRARY: &str = "libtoe, memcached request";

type Count = fn(&Tools, &Setup) -> Result<f64, String>;

fn engine(tools: &Tools, _setup: &Setup) -> Result<f64, String> {
    let directory = Directory::new("count")?;
    let file = directory.path().join("engine.callgrind");
    let mut words = callgrind::words(&file);
    words.extend([tools.example("cost")?, "paths".into()]);
    words.extend([CONNECTIONS, 64, ROUNDS].map(|number| number.to_string()));
    let program = Process::start(&Netns::create()?, &words, directory.path().join("log"))?;
    program.finish(&tools.stop, TIMEOUT)?;
    // The example's function whose rounds are requests and responses.
    let of_echo = |call: &&Call| call.function.contains("path_echo") && !call.function.contains("path_echo'");
    let all = callgrind::calls(&file)?;
    let instructions: u64 = all.iter().filter(of_echo).map(|call| call.instructions).sum();
    if instructions == 0 {
        Err("callgrind saw no path_echo".into())
    } else {
        Ok(instructions as f64 / (CONNECTIONS * ROUNDS) as f64)
    }
}

fn library(tools: &Tools, setup: &Setup) -> Result<f64, String> {
    let lab = setup.lab(tools, Needs { connections: CONNECTIONS as usize, clients: 1, ..Needs::default() })?;
    let file = lab.directory().join("memcached.callgrind");
    kv::memcached_under(tools, &*lab, callgrind::words(&file), (CONNECTIONS, SECONDS))?;
    let is_library = |object: &str| object.ends_with("libtoe.so");
    let all = callgrind::calls(&file)?;
    let entered = || all.iter().filter(|call| is_library(&call.to) && !is_library(&call.from));
    // memcached answers each request with one of these.
    let requests: u64 = entered().filter(|call| call.function == "sendmsg").map(|call| call.count).sum();
    let instructions: u64 = entered().map(|call| call.instructions).sum();
    if requests == 0 {
        Err("callgrind saw no reply of memcached's".into())
    } else {
        Ok(instructions as f64 / requests as f64)
    }
}

/// The table.
pub(crate) fn show(report: &Report) -> String {
    let mut rows = vec![["path", "instructions"].map(String::from).to_vec()];
    let row = |run: &Run| {
        let path = run.point.get("path").and_then(|path| path.as_str()).unwrap_or("?");
        vec![path.to_string(), format!("{:.0}", run.figure("instructions"))]
    };
    rows.extend(report.runs.iter().map(row));
    table(&rows)
}
