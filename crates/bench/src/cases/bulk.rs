//! Bulk flows from a client to the server: how many bytes each of them moved.
use crate::lab::Lab;
use crate::tools::Tools;
use serde::Deserialize;
use std::time::Duration;

const PORT: u16 = 7779;
/// What the programs may take longer than they were told: thousands of flows want to be opened.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the receiving program prints.
#[derive(Debug, Clone, Deserialize)]
pub struct Moved {
    /// Seconds measured.
    pub seconds: f64,
    /// Flows that ended too early.
    pub lost: u64,
    /// Bytes that each flow moved.
    pub bytes: Vec<u64>,
    /// CPU seconds of the daemon from the beginning, where there is one.
    #[serde(skip)]
    pub stack_cpu_s: Option<f64>,
}

impl Moved {
    /// 10^9 bits of payload a second, of all flows.
    pub fn gbit_per_s(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 8.0 / self.seconds / 1e9
    }
}

/// Runs the flows.
pub fn run(tools: &Tools, lab: &dyn Lab, flows: usize, warm_up: f64, seconds: f64) -> Result<Moved, String> {
    let (port, flows) = (PORT.to_string(), flows.to_string());
    let (warm_up_text, seconds_text) = (warm_up.to_string(), seconds.to_string());
    let app = tools.app("flows");
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let receive = words(&[&app, "-l", "-p", &port, "-n", &flows, "-w", &warm_up_text, "-t", &seconds_text]);
    let receiver = lab.server(&receive, PORT)?;
    let address = lab.address().to_string();
    let sender = lab.client(0, &words(&[&app, "-c", &address, "-p", &port, "-n", &flows]))?;
    let patience = PATIENCE + Duration::from_secs_f64(warm_up + seconds);
    let printed = receiver.finish(&tools.stop, patience)?;
    let mut moved: Moved = serde_json::from_str(&printed).map_err(|e| format!("flows said {printed}: {e}"))?;
    moved.stack_cpu_s = lab.stack_cpu_s();
    drop(sender);
    Ok(moved)
}
