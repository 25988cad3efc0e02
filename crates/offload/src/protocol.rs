//! Protocol of an offload engine's socket: one message each way, as JSON. The same messages go from the
//! supervisor to the worker, which is the process of the functions.
use crate::limits::Settings;
use memory::Description;
use serde::{Deserialize, Serialize};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A library of functions, which comes along as a descriptor. One of the same name is replaced.
    Load {
        /// Its name.
        name: String,
    },
    /// A library goes. Calls that are under way end in it.
    Unload {
        /// Its name.
        name: String,
    },
    /// [`Answer::View`].
    Ls,
    /// A host program: clients of this port reach its memory. It is gone when its socket is closed.
    Open {
        /// The port.
        port: u16,
    },
    /// The host program's address space comes along, once, before regions that need it.
    Space,
    /// A DMA region of the host program; the files of the description come along.
    Region(Description),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// Not done: an error number, and a sentence for people.
    Refused {
        /// The number.
        errno: i32,
        /// The sentence.
        why: String,
    },
    /// What there is.
    View(View),
}

/// From the supervisor to the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one; the region of [`crate::status::Status`] comes along.
    Begin {
        /// What the operator chose.
        settings: Settings,
        /// Workers that there were before.
        restarts: u32,
        /// Why the last one ended.
        last_end: Option<String>,
    },
    /// A library, by a number that no other one had.
    Load {
        /// Its name.
        name: String,
        /// Its number.
        number: u64,
    },
    /// A request of a host program, by the program's number.
    Host(u32, Request),
    /// A host program has gone.
    Leave(u32),
    /// Any other request.
    Request(Request),
}

/// What an offload engine has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct View {
    /// Its worker.
    pub worker: Option<u32>,
    /// How often a worker ended and another one was started.
    pub restarts: u32,
    /// Why the last one ended.
    pub last_end: Option<String>,
    /// Libraries of functions.
    pub libraries: Vec<Library>,
    /// Host programs.
    pub hosts: Vec<Program>,
}

/// A library of functions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Its number: a library that replaces another one has a higher one.
    pub number: u64,
    /// Opcodes, with the port of their queue pairs; 0 for all.
    pub opcodes: Vec<Opcode>,
    /// Calls that were begun.
    pub calls: u64,
    /// Calls that ended with a negative number, or at their time limit.
    pub failed: u64,
    /// Of these, those at their time limit.
    pub timed_out: u64,
    /// Nanoseconds in which functions ran, without what they waited.
    pub busy_ns: u64,
    /// DMA operations of calls that have ended.
    pub dma: u64,
    /// Why it runs no longer.
    pub stopped: Option<String>,
}

/// An opcode that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opcode {
    /// The opcode.
    pub opcode: u16,
    /// Of queue pairs of this port; 0 for all.
    pub port: u16,
}

/// A program with DMA regions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its process.
    pub pid: u32,
    /// The port of its clients.
    pub port: u16,
    /// DMA regions.
    pub regions: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Connections of clients.
    pub connections: usize,
}

/// A refusal.
pub(crate) fn refused(errno: i32, why: impl Into<String>) -> Answer {
    Answer::Refused { errno, why: why.into() }
}
