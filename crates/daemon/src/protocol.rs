//! The management protocol: one JSON object a line, questions one way and answers the other.
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
