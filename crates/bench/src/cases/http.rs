//! nginx and wrk.
use super::compare::{Comparison, number, numbers};
use super::kv::note_report;
use super::window::server_and_stack;
use crate::arguments::numbered;
use crate::report::{Report, Run};
use crate::servers::{self, split};
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::json;
use std::time::Duration;

const PORT: u16 = 80;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections
    #[arg(long, value_name = "N,...", default_value = "64", value_parser = numbered(3500))]
    pub conns: String,
    /// A connection for each request
    #[arg(long)]
    pub close: bool,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let axes = [("conns", numbers(&arguments.conns)?)];
    let (warm_up, seconds) = arguments.comparison.times();
    // wrk counts whole seconds.
    let (warm_up, seconds) = (warm_up.ceil() as u64, seconds.ceil() as u64);
    let params = json!({ "seconds": seconds, "warm_up_s": warm_up, "keep_alive": !arguments.close, "bytes": 100 });
    arguments.comparison.measure(tools, "http", (params, &axes), |setup, point| {
        let conns = number(point, "conns");
        let lab = setup.lab(tools, Needs { connections: conns as usize, clients: 1, ..Needs::default() })?;
        let address = lab.address().to_string();
        let server = [lab.server(&servers::nginx(&address, PORT, lab.directory(), "bench")?, PORT)?];
        let load = |seconds: u64| {
            let mut words = split(&format!("wrk -t 1 -c {conns} -d {seconds}s --latency"));
            if arguments.close {
                words.extend(["-H".into(), "Connection: close".into()]);
            }
            words.push(format!("http://{address}:{PORT}/"));
            let output = lab.client(0, &words)?.finish(&tools.stop, TIMEOUT + Duration::from_secs(seconds))?;
            servers::wrk_report(&output)
        };
        load(warm_up)?;
        let before = server_and_stack(&server, &*lab);
        let mut run = Run::on(setup, point);
        let report = load(seconds)?;
        note_report(&mut run, report, before, &server, &*lab);
        run.figures.insert("seconds".into(), json!(seconds));
        Ok(run)
    })
}
