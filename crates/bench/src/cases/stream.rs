//! Bulk flows: `apps/flows`, through sockets or the zero-copy interface.
use super::bulk::{self, Flows};
use super::compare::{Buffers, Comparison, number, numbers};
use crate::arguments::{list, listed, numbered};
use crate::lab::Stack;
use crate::report::{Report, Run};
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Flows
    #[arg(long, value_name = "N,...", default_value = "1", value_parser = numbered(4000))]
    pub flows: String,
    /// Bytes of a write
    #[arg(long, value_name = "BYTES,...", default_value = "65536", value_parser = numbered(1 << 24))]
    pub size: String,
    /// Direction: up (to the server), down (from it)
    #[arg(long, value_name = "DIRECTION,...", default_value = "up", value_parser = listed(direction))]
    pub dir: String,
    /// On OpenTOE through its zero-copy interface; on Linux through sockets, as always
    #[arg(long)]
    pub zero_copy: bool,
    /// The sender writes every byte anew, and the receiver reads every one
    #[arg(long)]
    pub touch: bool,
    #[command(flatten)]
    pub buffers: Buffers,
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    if arguments.zero_copy && arguments.comparison.stacks.port.contains("tap") {
        return Err("--zero-copy needs both programs on OpenTOE: --port fabric".into());
    }
    let axes = [
        ("flows", numbers(&arguments.flows)?),
        ("size", numbers(&arguments.size)?),
        ("dir", list(&arguments.dir, direction)?),
    ];
    let (warm_up, seconds) = arguments.comparison.times();
    let params = json!({
        "zero_copy": arguments.zero_copy, "touch": arguments.touch, "buffer_kib": arguments.buffers.buffer,
    });
    arguments.comparison.measure(tools, "stream", (params, &axes), |setup, point| {
        let flows = Flows {
            flows: number(point, "flows") as usize,
            size: number(point, "size"),
            down: point["dir"] == "down",
            zero_copy: arguments.zero_copy && setup.stack == Stack::Opentoe,
            touch: arguments.touch,
            ..Flows::new(1, warm_up, seconds)
        };
        let needs = Needs { connections: flows.flows, clients: 1, ..Needs::default() };
        let lab = setup.lab_as(tools, needs, arguments.buffers.plan())?;
        let moved = bulk::run(tools, &*lab, &flows)?;
        let mut run = Run::on(setup, point);
        run.gbit_per_s = Some(moved.gbit_per_s());
        run.errors = moved.lost;
        run.cpu_s.extend(moved.cpu_s);
        Ok(run)
    })
}

fn direction(text: &str) -> Result<Value, String> {
    match text {
        "up" | "down" => Ok(text.into()),
        _ => Err(format!("there is no direction `{text}`; there are up and down")),
    }
}
