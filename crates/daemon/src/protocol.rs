//! The management protocol: one JSON object a line, questions one way and answers the other.
use port::capture::{Direction, Instruction};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of a question.
pub const MAX_QUESTION: u64 = 64 * 1024;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// Who is there: version, process, names and addresses of hosts.
    Hello,
    /// Everything that `toe ls` shows: hosts, contexts, flows, listeners, fabrics.
    Ls,
    /// Counters: of hosts, drops, modules, ports, and of flows.
    Stats {
        /// Only this host.
        host: Option<String>,
        /// Only this flow, by its number.
        flow: Option<u32>,
    },
    /// What was dropped, by reason, with a sentence each.
    Drops,
    /// Whether a descriptor of an attached process is accelerated, and why.
    Descriptor {
        /// The process.
        pid: i32,
        /// Its descriptor.
        fd: u32,
    },
    /// Capture frames as they pass. After the answer, which names the interfaces, the connection carries a capture in
    /// pcapng until the asker shuts its side down or the count is reached; its last blocks say what was lost.
    Capture(Capture),
    /// End the daemon as SIGTERM does.
    Stop,
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The question was answered.
    Ok(Value),
    /// It was not; a sentence.
    Error(String),
}

/// Which frames to capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Only of this host; otherwise of all hosts, and what the fabrics drop.
    pub host: Option<String>,
    /// Only of the flow with this number.
    pub flow: Option<u32>,
    /// Only those that were dropped.
    pub dropped: bool,
    /// Only those that went this way.
    pub direction: Option<Direction>,
    /// End after so many.
    pub count: Option<u64>,
    /// Most bytes to keep of each.
    pub snaplen: u32,
    /// The filter as the asker wrote it, to be noted in the capture.
    pub filter: String,
    /// The same, compiled by libpcap.
    pub program: Vec<Instruction>,
}
