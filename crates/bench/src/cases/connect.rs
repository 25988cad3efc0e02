//! Short connections: open, request, reply, close (`apps/connect_client`, `apps/rpc_server -1`).
use super::compare::{Comparison, number, numbers};
use super::window;
use crate::arguments::numbered;
use crate::lab::Lab;
use crate::report::{Report, Run};
use crate::sample::Sample;
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::json;

const PORT: u16 = 7777;

/// Arguments of the case.
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
        let (conns, size) = (number(point, "conns"), number(point, "size").max(8));
        let lab = setup.lab(tools, Needs { connections: conns as usize, clients: 1, ..Needs::default() })?;
        exchange(tools, &*lab, &Exchange { conns, size, reply: size, warm_up, seconds }, Run::on(setup, point))
    })
}

/// Connections that each carry a request and its reply.
pub(super) struct Exchange {
    /// At a time.
    pub conns: u64,
    /// Bytes of a request, 8 at least.
    pub size: u64,
    /// Bytes of a reply, 8 at least.
    pub reply: u64,
    /// Seconds before measuring begins, and seconds measured.
    pub warm_up: f64,
    /// Seconds measured.
    pub seconds: f64,
}

/// Opens them, one after another ends, and notes in `run` how many there were and how long each took.
pub(super) fn exchange(tools: &Tools, lab: &dyn Lab, plan: &Exchange, mut run: Run) -> Result<Run, String> {
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let [size, reply, conns] = [plan.size, plan.reply, plan.conns].map(|number| number.to_string());
    let (port, address) = (PORT.to_string(), lab.address().to_string());
    let common = ["-p", &port, "-s", &size, "-r", &reply];
    let servers = [lab.server(&words(&[&[&*tools.app("rpc_server"), "-1"], &common[..]].concat()), PORT)?];
    let (warm_up, seconds) = (plan.warm_up.to_string(), plan.seconds.to_string());
    let times = ["-c", &address, "-n", &conns, "-w", &warm_up, "-t", &seconds];
    let client = words(&[&[&*tools.app("connect_client")], &common[..], &times].concat());
    let client = lab.client(0, &client)?;
    let (printed, cpu_s) = window::watch(tools, vec![client], || window::server_and_stack(&servers, lab))?;
    window::note(&mut run, &Sample::of(&printed)?, cpu_s);
    Ok(run)
}
