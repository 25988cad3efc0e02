//! A disk over the network (thesis figure 5.16, with NBD for NVMe-over-TCP): `apps/nbd_ram` and fio.
use super::compare::{Comparison, number, numbers};
use super::kv::note_report;
use super::window::server_and_stack;
use crate::arguments::{list, listed, numbered};
use crate::report::{Report, Run};
use crate::servers::{self, split};
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

const PORT: u16 = 10809;
const TIMEOUT: Duration = Duration::from_secs(30);
const MEGABYTES: u64 = 64;

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// What the disk does with blocks that arrive: in-place (uses them in the receive buffer, on OpenTOE), copy
    /// (receives them into memory first)
    #[arg(long, value_name = "WAY,...", default_value = "in-place", value_parser = listed(disk))]
    pub disk: String,
    /// Commands in flight
    #[arg(long, value_name = "N,...", default_value = "1,4,16,64", value_parser = numbered(1024))]
    pub depth: String,
    /// Bytes of a block
    #[arg(long, value_name = "BYTES,...", default_value = "4096", value_parser = numbered(1 << 20))]
    pub size: String,
    /// Read random blocks instead of writing them
    #[arg(long)]
    pub read: bool,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let axes = [
        ("disk", list(&arguments.disk, disk)?),
        ("depth", numbers(&arguments.depth)?),
        ("size", numbers(&arguments.size)?),
    ];
    let (warm_up, seconds) = arguments.comparison.times();
    let kind = if arguments.read { "read" } else { "write" };
    arguments.comparison.measure(tools, "block", (json!({ "read": arguments.read }), &axes), |setup, point| {
        let lab = setup.lab(tools, Needs { connections: 1, clients: 1, ..Needs::default() })?;
        let address = lab.address();
        let copy = if point["disk"] == "copy" { " -s" } else { "" };
        let line = format!("{} -a {address} -p {PORT} -m {MEGABYTES}{copy}", tools.app("nbd_ram"));
        let server = [lab.server(&split(&line), PORT)?];
        let load = |seconds: f64| {
            let words = servers::fio(&format!("nbd://{address}:{PORT}"), kind, seconds, MEGABYTES, point);
            let client = lab.client(0, &words)?;
            let printed = client.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
            servers::fio_report(&printed, kind)
        };
        load(warm_up)?;
        let before = server_and_stack(&server, &*lab);
        let mut run = Run::on(setup, point);
        let report = load(seconds)?;
        note_report(&mut run, report, before, &server, &*lab);
        run.gbit_per_s = Some(report.ops_per_s * number(point, "size") as f64 * 8.0 / 1e9);
        Ok(run)
    })
}

fn disk(text: &str) -> Result<Value, String> {
    match text {
        "in-place" | "copy" => Ok(text.into()),
        _ => Err(format!("there is no disk `{text}`; there are in-place and copy")),
    }
}
