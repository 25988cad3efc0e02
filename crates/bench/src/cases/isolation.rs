//! Isolation (thesis figure 5.19): connections that need answers quickly, alone and beside bulk flows into the same
//! host.
use super::bulk::{self, Flows};
use super::compare::{self, Comparison, number, numbers};
use super::rpc::{self, Load};
use super::window;
use crate::arguments::{listed, numbered, within};
use crate::report::{Report, Run};
use crate::setup::{Needs, Setup};
use crate::tools::Tools;
use clap::Args;
use serde_json::{Value, json};

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Connections with one 64-byte message in flight
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=2000))]
    pub conns: u64,
    /// Bulk flows beside them
    #[arg(long, value_name = "N,...", default_value = "4", value_parser = numbered(1000))]
    pub flows: String,
    /// 10^6 bits a second that each bulk flow has to send, as the paper's had 5,000; 0: as much as it can. Beside a
    /// second, small rate it is seen what the bulk programs cost by sharing a core, whatever they send
    #[arg(long, value_name = "N,...", default_value = "0", value_parser = listed(|word| within(word, 0..=100_000)))]
    pub bulk_mbit: String,
    /// Messages are due at this rate in all, whatever the answers take
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
}

/// Runs the case: without bulk flows, then with each number of them.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let mut flows = numbers(&arguments.flows)?;
    flows.insert(0, 0.into());
    let params = json!({ "conns": arguments.conns, "size": 64, "rate": arguments.rate });
    let axes = [("bulk_mbit", numbers(&arguments.bulk_mbit)?), ("bulk_flows", flows)];
    arguments
        .comparison
        .measure(tools, "isolation", (params, &axes), |setup, point| measure(tools, arguments, setup, point))
}

fn measure(tools: &Tools, arguments: &Arguments, setup: &Setup, point: &Value) -> Result<Run, String> {
    let (beside, mbit) = (number(point, "bulk_flows") as usize, number(point, "bulk_mbit"));
    let (warm_up, seconds) = arguments.comparison.times();
    let connections = arguments.conns as usize;
    let lab = setup.lab(tools, Needs { connections: connections + beside, clients: 2, ..Needs::default() })?;
    // The flows are under way before and until after the messages are measured.
    let size = if mbit > 0 { 16 << 10 } else { 64 << 10 };
    let flows = Flows::new(beside, warm_up, seconds + warm_up + 1.0);
    let flows = Flows { size, mbit, ..flows };
    let ends = if beside > 0 { Some(bulk::start(tools, &*lab, &flows, 1)?) } else { None };
    let load =
        Load { size: 64, reply: 64, connections: vec![connections], depth: 1, warm_up, seconds, ..Load::default() };
    let rate = |rate: f64| vec!["-R".to_string(), rate.to_string()];
    let load = Load { client_options: arguments.rate.map(rate).unwrap_or_default(), ..load };
    let outcome = rpc::run(tools, &*lab, &load)?;
    let mut run = Run::on(setup, point);
    window::note(&mut run, &outcome.sample, outcome.cpu_s);
    if let Some(ends) = ends {
        let moved = bulk::measure(tools, &*lab, ends)?;
        run.errors += moved.lost;
        run.figures.insert("bulk_gbit_per_s".into(), json!(moved.gbit_per_s()));
    }
    Ok(run)
}

/// The table; the bulk flows' rate beside.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, &[compare::Column::new("bulk Gb/s", |run| run.figure("bulk_gbit_per_s"))])
}
