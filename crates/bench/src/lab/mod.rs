//! Labs in which programs are measured: a place for the server, and one or more for clients.
mod daemon;
mod fabric;
mod loopback;
mod sockmap;
mod tap;
mod uplinks;
mod veth;

pub(crate) use fabric::{FabricLab, FabricPlan, PUBLISHED, ZERONIC, congestion, congestion_help};
pub(crate) use loopback::{Locally, LoopbackLab};
pub(crate) use tap::{TapEnd, TapLab};
pub(crate) use uplinks::UplinkLab;
pub(crate) use veth::{VethLab, VethPlan};

use crate::process::Process;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// How long something may take to start.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Whose TCP programs are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stack {
    /// Both ends on OpenTOE, over the fabric or loopback, or one of them, over TAP.
    Opentoe,
    /// Both ends on the kernel, over a veth pair or loopback.
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
    /// Starts a client in one of the places for clients; `number` is its own, for its log.
    fn client_of(&self, place: usize, number: usize, words: &[String]) -> Result<Process, String>;
    /// Starts a client that has a place of its own.
    fn client(&self, number: usize, words: &[String]) -> Result<Process, String> {
        self.client_of(number, number, words)
    }
    /// Words for servers and clients of `rpc` where they do not meet at the address.
    fn meeting(&self) -> Vec<String> {
        Vec::new()
    }
    /// The process that the stack is, where it is one.
    fn stack_process(&self) -> Option<&Process>;
    /// A directory of this lab's own.
    fn directory(&self) -> &Path;
}

/// More ports for clients than the usual 28,000: tens of thousands of connections are between two addresses here.
const CLIENT_PORTS: (u16, u16) = (10_000, 65_535);

fn text(path: &Path) -> String {
    path.display().to_string()
}
