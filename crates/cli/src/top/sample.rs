//! Sample of the daemon's counters at one time, as far as the live view needs them.
use daemon::client;
use daemon::protocol::{Question, Xdp};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Everything at one moment.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    pub version: String,
    pub pid: u32,
    pub hosts: Vec<Host>,
    pub threads: Vec<Thread>,
    /// Sentences about networks that are gone for good.
    pub failures: Vec<String>,
}

/// A host's counters. What older daemons lack is zero.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Host {
    pub name: String,
    pub engine: String,
    /// With its prefix length.
    pub address: String,
    pub port: Port,
    pub drops: BTreeMap<String, u64>,
    /// Counters by name, for each module.
    pub modules: BTreeMap<String, BTreeMap<String, u64>>,
    /// How many connections, by state; `flows` are the first of them.
    pub states: BTreeMap<String, usize>,
    pub flows: Vec<Flow>,
    /// Names of programs by process.
    #[serde(skip)]
    pub programs: HashMap<u32, String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Port {
    pub rx_frames: u64,
    pub rx_bytes: u64,
    pub tx_frames: u64,
    pub tx_bytes: u64,
}

/// A connection. Units as in [`control::FlowView`]: bytes, microseconds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Flow {
    pub flow: Option<u32>,
    pub local: String,
    pub remote: String,
    pub state: String,
    pub pid: Option<u32>,
    pub congestion: Option<String>,
    pub mss: u64,
    pub cwnd: u64,
    pub ssthresh: Option<u64>,
    pub rate: u64,
    pub rtt_us: u64,
    pub rttvar_us: u64,
    pub rto_us: u64,
    pub ecn: bool,
    pub last_drop: Option<String>,
    pub figures: BTreeMap<String, u64>,
}

impl Flow {
    /// One of the engine's counters.
    pub(super) fn figure(&self, name: &str) -> u64 {
        self.figures.get(name).copied().unwrap_or(0)
    }
}

/// A data-path thread.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Thread {
    pub thread: u32,
    /// Since the daemon's start.
    pub now_ns: u64,
    pub cpu_ns: u64,
    pub rounds: u64,
    pub busy_rounds: u64,
    pub busy_ns: u64,
    /// In the kernel; none where that is not known.
    pub system_ns: Option<u64>,
    pub asleep_ns: u64,
}

/// Asks the daemon. The error is a sentence.
pub(super) fn take(socket: &Path) -> Result<Sample, String> {
    let stats = client::ask(socket, &Question::Stats { host: None, flow: None })?;
    let mut sample = combine(stats, &client::ask(socket, &Question::Ls)?)?;
    add_modules(&mut sample, &client::ask(socket, &Question::Xdp(Xdp::Ls { host: None }))?);
    Ok(sample)
}

/// From the answers to both questions.
pub(super) fn combine(stats: Value, ls: &Value) -> Result<Sample, String> {
    let functions: Vec<_> = stats["hosts"].as_array().into_iter().flatten().map(functions).collect();
    let mut sample: Sample =
        serde_json::from_value(stats).map_err(|e| format!("the daemon's statistics are of another version: {e}"))?;
    sample.version = ls["version"].as_str().unwrap_or("?").into();
    sample.pid = ls["pid"].as_u64().unwrap_or(0) as u32;
    for (host, functions) in sample.hosts.iter_mut().zip(functions) {
        host.modules.extend(functions);
    }
    for host in &mut sample.hosts {
        let hosts = ls["hosts"].as_array().into_iter().flatten();
        let Some(known) = hosts.into_iter().find(|known| known["name"] == host.name.as_str()) else { continue };
        host.address = format!("{}/{}", known["address"].as_str().unwrap_or("?"), known["prefix_len"]);
        for context in known["contexts"].as_array().into_iter().flatten() {
            let pid = context["pid"].as_u64().unwrap_or(0) as u32;
            host.programs.insert(pid, program(context["command"].as_str().unwrap_or("?")));
        }
    }
    Ok(sample)
}

/// Offload functions of a host stand among its modules: calls of each library, of all engines, as works.
fn functions(host: &Value) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut modules: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    let engines = host["rdma"]["offload"].as_array().into_iter().flatten();
    for library in engines.flat_map(|engine| engine["libraries"].as_array().into_iter().flatten()) {
        let of = modules.entry(format!("offload/{}", library["name"].as_str().unwrap_or("?"))).or_default();
        for (figure, key) in [("works", "calls"), ("busy_ns", "busy_ns")] {
            let sum = of.entry(figure.into()).or_default();
            *sum = sum.saturating_add(library[key].as_u64().unwrap_or(0));
        }
    }
    modules
}

/// Modules of operators stand among the engine's own, under the stage where they run.
pub(super) fn add_modules(sample: &mut Sample, answer: &Value) {
    for module in answer["modules"].as_array().into_iter().flatten() {
        let word = |key: &str| module[key].as_str().unwrap_or("?");
        let Some(host) = sample.hosts.iter_mut().find(|host| host.name == word("host")) else { continue };
        let runs = module["runs"].as_u64().unwrap_or(0);
        let mut figures = BTreeMap::from([("works".to_string(), runs)]);
        if let Some(nanos) = module["ns_per_frame"].as_f64() {
            figures.insert("busy_ns".into(), (nanos * runs as f64) as u64);
        }
        host.modules.insert(format!("{}/{}", word("stage"), word("name")), figures);
    }
}

/// The program's name without its folder and its arguments.
fn program(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or("?");
    first.rsplit('/').next().unwrap_or(first).trim_end_matches(':').into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn offload_functions_stand_among_the_modules() {
        let library = json!({ "name": "list", "calls": 5, "busy_ns": 700 });
        let engines = json!([{ "libraries": [library] }, { "libraries": [library, { "name": "crc", "calls": 1 }] }]);
        let stats =
            json!({ "hosts": [{ "name": "a", "rdma": { "offload": engines } }, { "name": "b", "rdma": null }] });
        let sample = combine(stats, &json!({})).unwrap();
        let figures = |name: &str| sample.hosts[0].modules[name].values().copied().collect::<Vec<_>>();
        assert_eq!((figures("offload/list"), figures("offload/crc")), (vec![1400, 10], vec![0, 1]));
        assert!(sample.hosts[1].modules.is_empty());
    }

    #[test]
    fn programs_are_called_by_their_names() {
        assert_eq!(program("/usr/bin/redis-server *:6379"), "redis-server");
        assert_eq!(program("nginx: worker process"), "nginx");
        assert_eq!(program(""), "?");
    }
}
