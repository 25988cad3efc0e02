//! Bulk flows: `apps/flows`, through sockets or the zero-copy interface.
use super::bulk::{self, Flows};
use super::compare::{Buffers, Comparison, number, numbers};
use crate::arguments::{list, listed, numbered};
use crate::lab::{FabricPlan, Stack};
use crate::report::{Report, Run};
use crate::setup::Needs;
use crate::tools::Tools;
use clap::Args;
use port::FabricConfig;
use serde_json::{Value, json};

/// What a fabric's packets can be, at least.
const LEAST_MTU: u64 = 576;
/// A loss that does not happen.
const ALMOST_NOTHING: f64 = 1e-12;

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
    /// Bytes of an IP packet; every frame is one segment then, on Linux, too. Where none is named, super-segments of
    /// packets of 1500 bytes pass whole
    #[arg(long, value_name = "BYTES,...", value_parser = numbered(9000))]
    pub mtu: Option<String>,
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
    let mtus = arguments.mtu.as_deref().map(numbers).transpose()?.unwrap_or_default();
    if mtus.iter().any(|mtu| mtu.as_u64() < Some(LEAST_MTU)) {
        return Err(format!("--mtu is {LEAST_MTU} at least"));
    }
    if !mtus.is_empty() && arguments.comparison.stacks.port != "fabric" {
        return Err("--mtu is that of a fabric: --port fabric".into());
    }
    let mut axes = vec![
        ("flows", numbers(&arguments.flows)?),
        ("size", numbers(&arguments.size)?),
        ("dir", list(&arguments.dir, direction)?),
    ];
    if !mtus.is_empty() {
        axes.push(("mtu", mtus));
    }
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
        let lab = setup.lab_as(tools, needs, single_packets(arguments.buffers.plan(), point))?;
        let moved = bulk::run(tools, &*lab, &flows)?;
        let mut run = Run::on(setup, point);
        run.gbit_per_s = Some(moved.gbit_per_s());
        run.errors = moved.lost;
        run.cpu_s.extend(moved.cpu_s);
        Ok(run)
    })
}

/// A plan whose frames are single packets, of as many bytes as the point has.
fn single_packets(plan: FabricPlan, point: &Value) -> FabricPlan {
    let Some(mtu) = point["mtu"].as_u64() else { return plan };
    // Where single frames can be lost, super-segments are cut.
    let network = FabricConfig { mtu: mtu as u16, loss: ALMOST_NOTHING, ..plan.network };
    FabricPlan { network, ..plan }
}

fn direction(text: &str) -> Result<Value, String> {
    match text {
        "up" | "down" => Ok(text.into()),
        _ => Err(format!("there is no direction `{text}`; there are up and down")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_single_where_their_size_is_named() {
        let whole = single_packets(FabricPlan::default(), &json!({ "size": 65536 }));
        assert_eq!((whole.network.mtu, whole.network.loss), (1500, 0.0));
        let single = single_packets(FabricPlan::default(), &json!({ "size": 65536, "mtu": 9000 }));
        assert_eq!((single.network.mtu, single.network.check()), (9000, Ok(())));
        assert!(single.network.loss > 0.0 && single.network.loss < 1e-9);
    }
}
