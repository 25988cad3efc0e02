//! The management protocol: one JSON object a line, questions one way and answers the other.
use port::capture::{Direction, Instruction};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of a question.
pub const MAX_QUESTION: u64 = 64 * 1024;
/// Most bytes of a module's object.
pub const MAX_OBJECT: u64 = 4 << 20;
/// Most connections of a host in one answer.
pub const FLOWS: usize = 1000;
/// What the name of a module that is built in begins with, where a file could be named as well.
pub const NATIVE: &str = "native:";

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// The daemon: version, process, names and addresses of hosts. Of a daemon that ends by itself also the processes
    /// that keep it (`owners`), and whether others may join them (`shared`).
    Hello,
    /// The asker's process keeps the daemon from now on. The answer is that of [`Question::Hello`].
    Join,
    /// Everything that `opentoe ls` shows: hosts, contexts, flows, listeners, fabrics. A host has how many connections
    /// it has in each state (`states`) and lists the first [`FLOWS`] (`flows`); where there are more, `next` is where
    /// [`Question::Flows`] goes on.
    Ls,
    /// More of a host's connections: `flows` and `next` as in [`Question::Ls`].
    Flows {
        /// The host.
        host: String,
        /// Where to go on: the last answer's `next`; 0 for the first connection.
        from: u64,
    },
    /// Counters: of hosts, drops, modules, ports, and of flows: their `states` and `totals`, and the first ones as in
    /// [`Question::Ls`].
    Stats {
        /// Only this host.
        host: Option<String>,
        /// Only this flow, by its number.
        flow: Option<u32>,
    },
    /// What was dropped, by reason, with a sentence each.
    Drops,
    /// What an attached process reported of its descriptors, also of those that it has closed (`descriptors`). Its
    /// `context`; the connections (`flows`, [`FLOWS`] at most) and local addresses (`bindings`) that they name.
    Descriptors {
        /// The process.
        pid: i32,
        /// Only of this descriptor.
        #[serde(default)]
        fd: Option<u32>,
    },
    /// Capture frames as they pass. After the answer, which names the interfaces, the connection carries a capture in
    /// pcapng until the client shuts its side down or the count is reached. Its last blocks have what was lost.
    Capture(Capture),
    /// Stream tracepoints. After the answer, which has how many are on, the connection carries one JSON object a line
    /// until the client shuts its side down. The last one has how many records were missed.
    Trace(Trace),
    /// What tracepoints counted, after some have been turned on or off.
    Tracepoints {
        /// Only of this host.
        host: Option<String>,
        /// Patterns of those that are counted from now on.
        enable: Vec<String>,
        /// Patterns of those that are not.
        disable: Vec<String>,
    },
    /// Modules of operators.
    Xdp(Xdp),
    /// Run another P4 program on a host whose engine runs one. The answer is the host's name.
    Program {
        /// On this host; it may be left out where there is only one.
        host: Option<String>,
        /// So many bytes follow the line, [`MAX_OBJECT`] at most: a [`ProgramFiles`] as JSON.
        bytes: u64,
    },
    /// Registers of the P4 program that a host runs.
    Registers {
        /// On this host; it may be left out where there is only one.
        host: Option<String>,
        /// What is asked for.
        wish: RegisterWish,
    },
    /// End the daemon as SIGTERM does.
    Stop,
}

/// What is asked for of a program's registers, which have the names that the program gives them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegisterWish {
    /// Name, entries and words of each.
    List,
    /// Entries that are not all zero; or one, whatever it is.
    Get {
        /// Which register.
        name: String,
        /// Which entry.
        index: Option<u32>,
    },
    /// Set an entry.
    Set {
        /// Which register.
        name: String,
        /// Which entry.
        index: u32,
        /// Its words, as many as an entry has.
        words: Vec<u32>,
    },
}

/// The texts of a P4 program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFiles {
    /// The main file, one of `files`.
    pub main: String,
    /// Names as other files include them, and texts.
    pub files: Vec<(String, String)>,
    /// Names for the preprocessor, and their values.
    pub defines: Vec<(String, String)>,
}

/// Which tracepoints are streamed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Patterns of names; all points where there is none.
    pub points: Vec<String>,
    /// Only of this host; otherwise of all, and of the threads.
    pub host: Option<String>,
    /// Only of this flow.
    pub flow: Option<u32>,
}

/// About modules of operators. A module is named by its name on its host; the host may be left out where only one runs
/// a module of that name. Keys and values of maps are texts, as `opentoe xdp map` takes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Xdp {
    /// Load a module. The answer is the module as in `Ls`.
    Load {
        /// On this host; it may be left out where there is only one.
        host: Option<String>,
        /// Under this name; otherwise its own.
        name: Option<String>,
        /// Modules of a stage run in the order of their positions; otherwise it runs last.
        position: Option<u32>,
        /// Name of a module that is built in, instead of an object.
        native: Option<String>,
        /// Which of an object's programs, by its function's name; it may be left out where there is only one.
        #[serde(default)]
        program: Option<String>,
        /// So many bytes of the object follow the line, [`MAX_OBJECT`] at most.
        bytes: u64,
    },
    /// All modules, with their figures.
    Ls {
        /// Only of this host.
        host: Option<String>,
    },
    /// Unload a module; answered when it is gone.
    Unload {
        /// Its host.
        host: Option<String>,
        /// Its name.
        module: String,
    },
    /// A module's maps.
    Maps {
        /// Its host.
        host: Option<String>,
        /// Its name.
        module: String,
    },
    /// All entries of a map.
    Dump {
        /// Its module's host.
        host: Option<String>,
        /// Its module.
        module: String,
        /// Its name.
        map: String,
    },
    /// One entry of a map.
    Get {
        /// Its module's host.
        host: Option<String>,
        /// Its module.
        module: String,
        /// Its name.
        map: String,
        /// The entry's key.
        key: String,
    },
    /// Add or replace an entry.
    Set {
        /// Its module's host.
        host: Option<String>,
        /// Its module.
        module: String,
        /// Its name.
        map: String,
        /// The entry's key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Remove an entry.
    Delete {
        /// Its module's host.
        host: Option<String>,
        /// Its module.
        module: String,
        /// Its name.
        map: String,
        /// The entry's key.
        key: String,
    },
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The sentence about a host that a daemon does not have, for the daemon and for clients that check first.
pub fn no_host(name: &str, names: &[&str]) -> String {
    format!("this daemon has no host `{name}`; it has {}", names.join(", "))
}
