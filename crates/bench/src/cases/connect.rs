//! Short connections: open, request, reply, close (`apps/connect_client`, `apps/rpc_server -1`).
use super::compare::{Comparison, number, numbers};
use super::window;
use crate::arguments::numbered;
use crate::report::{Report, Run};
use crate::sample::Sample;
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::json;

const PORT: u16 = 7777;

/// What to measure.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections at a time
    #[arg(long, value_name = "N,...", default_value = "16", value_parser = numbered(2000))]
    pub conns: String,
    /// Bytes of request and reply
    #[arg(long, value_name = "BYTES,...", default_value = "64", value_parser = numbered(32 << 10))]
    pub size: String,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let axes = [("conns", numbers(&arguments.conns)?), ("size", numbers(&arguments.size)?)];
    let (warm_up, seconds) = arguments.comparison.times();
    arguments.comparison.measure(tools, "connect", (json!({}), &axes), |setup, point| {
        let (conns, size) = (number(point, "conns"), number(point, "size").max(8).to_string());
        let lab = setup.lab(tools, Needs { connections: conns as usize, clients: 1, ..Needs::default() })?;
        let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let (port, address) = (PORT.to_string(), lab.address().to_string());
        let server = words(&[&tools.app("rpc_server"), "-1", "-p", &port, "-s", &size, "-r", &size]);
        let servers = [lab.server(&server, PORT)?];
        let (conns, warm_up, seconds) = (conns.to_string(), warm_up.to_string(), seconds.to_string());
        let client = [&tools.app("connect_client"), "-c", &address, "-p", &port, "-n", &conns, "-s", &size];
        let client = lab.client(0, &words(&[&client[..], &["-w", &warm_up, "-t", &seconds]].concat()))?;
        let (printed, cpu_s) = window::watch(tools, vec![client], || window::server_and_stack(&servers, &*lab))?;
        let mut run = Run::on(setup, point);
        window::note(&mut run, &Sample::of(&printed)?, cpu_s);
        Ok(run)
    })
}
