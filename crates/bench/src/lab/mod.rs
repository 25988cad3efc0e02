//! Where programs are measured: one server's place, and one or more of clients.
mod fabric;
mod veth;

pub use fabric::{FabricLab, FabricPlan, congestion};
pub use veth::{VethLab, VethPlan};

use crate::process::Process;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// How long something may take to start.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whose TCP programs are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// Both ends on OpenTOE, over the fabric.
    Opentoe,
    /// Both ends on the kernel, over a veth pair.
    Linux,
}

impl Stack {
    /// Its name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Stack::Opentoe => "opentoe",
            Stack::Linux => "linux",
        }
    }
}

/// A place for a server and its clients.
pub trait Lab {
    /// Whose TCP it is.
    fn stack(&self) -> Stack;
    /// Where the server listens.
    fn address(&self) -> Ipv4Addr;
    /// Starts the server and waits until it listens on the port.
    fn server(&self, words: &[String], port: u16) -> Result<Process, String>;
    /// Starts a client; `number` says which of the places for clients.
    fn client(&self, number: usize, words: &[String]) -> Result<Process, String>;
    /// Seconds of CPU that the stack itself used so far, where it is a process.
    fn stack_cpu_s(&self) -> Option<f64>;
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
