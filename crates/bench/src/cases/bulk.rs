//! Bulk flows between a client and the server: how many bytes each of them moved.
use super::window::{self, CpuSeconds};
use crate::lab::Lab;
use crate::process::{self, Process};
use crate::tools::Tools;
use serde::Deserialize;

const PORT: u16 = 7779;
/// The client's number, for its log: beside those of other loads in the same lab.
const CLIENT: usize = 99;

/// Programs of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flows {
    /// How many.
    pub flows: usize,
    /// Bytes of a write.
    pub size: u64,
    /// The server sends; otherwise it receives.
    pub down: bool,
    /// Through OpenTOE's zero-copy interface.
    pub zero_copy: bool,
    /// Every byte is written anew before it is sent, and read where it arrives.
    pub touch: bool,
    /// 10^6 bits a second that each flow has to send; as much as it can where 0.
    pub mbit: u64,
    /// Seconds before measuring begins, and seconds measured.
    pub warm_up: f64,
    /// Seconds measured.
    pub seconds: f64,
}

impl Flows {
    /// To the server, 64 KiB a write.
    pub(super) fn new(flows: usize, warm_up: f64, seconds: f64) -> Flows {
        Flows { flows, size: 64 << 10, down: false, zero_copy: false, touch: false, mbit: 0, warm_up, seconds }
    }
}

/// Output of the receiving program.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Moved {
    /// Seconds measured.
    pub seconds: f64,
    /// Flows that ended too early.
    pub lost: u64,
    /// Bytes that each flow moved.
    pub bytes: Vec<u64>,
    /// CPU seconds of each process while it was measured.
    #[serde(skip)]
    pub cpu_s: CpuSeconds,
}

impl Moved {
    /// 10^9 bits of payload a second, of all flows.
    pub(super) fn gbit_per_s(&self) -> f64 {
        self.bytes.iter().sum::<u64>() as f64 * 8.0 / self.seconds / 1e9
    }
}

/// A program that receives and one that sends.
pub(super) struct Ends {
    /// The program that reports what it measured.
    pub receiver: Process,
    /// It ends when the receiver does.
    pub sender: Process,
}

/// Runs the flows.
pub(super) fn run(tools: &Tools, lab: &dyn Lab, plan: &Flows) -> Result<Moved, String> {
    measure(tools, lab, start(tools, lab, plan, 0)?)
}

/// Starts both ends; the client is in one of the places for clients.
pub(super) fn start(tools: &Tools, lab: &dyn Lab, plan: &Flows, place: usize) -> Result<Ends, String> {
    let mut common: Vec<String> = [tools.app("flows"), "-p".into(), PORT.to_string()].into();
    let numbers = [("-n", plan.flows.to_string()), ("-s", plan.size.to_string())];
    let times = [("-w", plan.warm_up.to_string()), ("-t", plan.seconds.to_string())];
    common.extend(numbers.into_iter().chain(times).flat_map(|(key, value)| [key.to_string(), value]));
    if plan.mbit > 0 {
        common.extend(["-b".into(), plan.mbit.to_string()]);
    }
    let flags = [(plan.down, "-r"), (plan.zero_copy, "-z"), (plan.touch, "-T")];
    common.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag.to_string()));
    let with = |last: &[String]| common.iter().chain(last).cloned().collect::<Vec<_>>();
    let server = lab.server(&with(&["-l".into()]), PORT)?;
    let client = lab.client_of(place, CLIENT, &with(&["-c".into(), lab.address().to_string()]))?;
    Ok(match plan.down {
        true => Ends { receiver: client, sender: server },
        false => Ends { receiver: server, sender: client },
    })
}

/// Lets the receiver measure.
pub(super) fn measure(tools: &Tools, lab: &dyn Lab, ends: Ends) -> Result<Moved, String> {
    let Ends { receiver, sender } = ends;
    let receiver_pid = receiver.pid();
    let used = || {
        let stack = lab.stack_process().map(|process| ("toed".into(), process.cpu_s()));
        let ends = [("sender".into(), sender.cpu_s()), ("receiver".into(), process::cpu_s(receiver_pid))];
        stack.into_iter().chain(ends).collect()
    };
    let (printed, cpu_s) = window::watch(tools, vec![receiver], used)?;
    let moved = read(&printed[0], cpu_s)?;
    drop(sender);
    Ok(moved)
}

fn read(printed: &str, cpu_s: CpuSeconds) -> Result<Moved, String> {
    let last = printed.trim().lines().last().unwrap_or_default();
    let moved: Moved = serde_json::from_str(last).map_err(|e| format!("flows printed {printed}: {e}"))?;
    Ok(Moved { cpu_s, ..moved })
}
