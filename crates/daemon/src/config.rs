//! The daemon's configuration: one TOML file with hosts, fabrics, threads and sockets.
mod addressing;
mod check;
mod machine;
mod read;

pub use crate::block::{BlockSection, VolumeSection};
pub use crate::ports::{PortKind, PortSection};
pub use crate::rdma::{RdmaCongestion, RdmaPaths, RdmaPayload, RdmaRecovery, RdmaUsers};
pub use crate::zeronic::{ZeronicSection, ZeronicUsers};
pub(crate) use addressing::addresses;
pub use engines::{Backend, EngineKind, Mapping};
pub use machine::{cores, machine};
pub use read::{parse, read};

use control::{HostConfig, TcpConfig};
use port::FabricConfig;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Everything that is given to a daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// What concerns the daemon as a whole.
    pub service: ServiceConfig,
    /// Emulated networks.
    pub fabrics: Vec<FabricSection>,
    /// IP stacks; at least one.
    pub hosts: Vec<HostSection>,
    /// ZeroNIC hosts.
    pub zeronics: Vec<ZeronicSection>,
    /// Volumes that hosts serve.
    pub volumes: Vec<VolumeSection>,
    /// Volumes that hosts use.
    pub blocks: Vec<BlockSection>,
}

/// Keys of the daemon as a whole, at the top of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceConfig {
    /// Path of the socket that applications attach to; the management socket is beside it.
    pub socket: Option<PathBuf>,
    /// Permissions of both sockets, octal.
    pub socket_mode: String,
    /// Group of both sockets, by name or number.
    pub socket_group: Option<String>,
    /// Group whose members may change the daemon: load modules, capture, trace, end it; by name or number. It is the
    /// management socket's group then. Root and the daemon's own user always may; others who may open that socket only
    /// read.
    pub manage_group: Option<String>,
    /// Once everything is open, give up all capabilities and most system calls.
    pub confine: bool,
    /// Least level that is logged: `error`, `warn`, `info`, `debug` or `trace`.
    pub log: LogLevel,
    /// Prometheus metrics.
    pub metrics: MetricsConfig,
    /// What a data-path thread does when there is nothing to do.
    pub polling: PollingConfig,
    /// Data-path threads; one where the list is empty. A host names its thread by its place in the list.
    pub thread: Vec<ThreadConfig>,
}

/// Listener of metrics for Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address and port of `GET /metrics`, as `127.0.0.1:9464`; none by default.
    pub listen: Option<SocketAddr>,
}

/// Idle behaviour of a thread: first it polls, then it yields, then it sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollingConfig {
    /// How long it polls without giving the core away, microseconds.
    pub spin_us: u32,
    /// How long it then polls, yielding the core in between, before it sleeps, microseconds.
    pub yield_us: u32,
}

/// A data-path thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThreadConfig {
    /// Core to stay on; none for the system's choice.
    pub core: Option<usize>,
}

/// Least level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What may be wrong.
    Warn,
    /// What an operator reads.
    Info,
    /// What a developer reads.
    Debug,
    /// Everything.
    Trace,
}

/// An emulated network.
#[derive(Debug, Clone)]
pub struct FabricSection {
    /// What hosts call it.
    pub name: String,
    /// Impairments.
    pub config: FabricConfig,
    /// Ports to the world outside.
    pub uplinks: Vec<PortSection>,
}

/// A host: its stack, and what the daemon does with it.
#[derive(Debug, Clone)]
pub struct HostSection {
    /// Addresses, limits, timers.
    pub stack: HostConfig,
    /// Where its frames go; at least one.
    pub ports: Vec<PortSection>,
    /// Its data-path.
    pub engine: EngineKind,
    /// Which modules of the engine run on which threads.
    pub mapping: Mapping,
    /// Cores of those threads, in turn; none: the kernel chooses.
    pub cores: Vec<usize>,
    /// TCP's options, and how it receives.
    pub tcp: TcpConfig,
    /// Index of its thread in [`ServiceConfig::thread`].
    pub thread: usize,
    /// Users whose programs may attach, by name or number.
    pub users: Vec<String>,
    /// Groups whose members' programs may attach. Where no user and no group is named, all may who can open the
    /// attach socket.
    pub groups: Vec<String>,
    /// Whose programs may use its RDMA device. By default: those of the daemon's own user in the private
    /// daemon of a program, nobody's otherwise.
    pub rdma: Option<RdmaUsers>,
    /// Those programs may send and receive whole Ethernet frames. By default: in the private daemon of a
    /// program.
    pub rdma_raw_packets: Option<bool>,
    /// How its RDMA device makes up for lost packets.
    pub rdma_recovery: RdmaRecovery,
    /// Paths that packets of its queue pairs take in turn.
    pub rdma_paths: RdmaPaths,
    /// How payload comes into its frames.
    pub rdma_payload: RdmaPayload,
    /// How its connected queue pairs answer congestion.
    pub rdma_congestion: RdmaCongestion,
    /// Modules that it runs from the start.
    pub modules: Vec<ModuleSection>,
}

impl HostSection {
    /// What runs its engine's program; none where it has no program.
    pub fn backend(&self) -> Option<&'static str> {
        self.engine.has_program().then(|| self.stack.backend.kind.name())
    }
}

/// A module that a host runs from the start, as `opentoe xdp load` loads it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSection {
    /// The eBPF object, or `native:` and the name of a module that is built in.
    pub file: PathBuf,
    /// Its name; its own where there is none.
    pub name: Option<String>,
    /// Which of the object's programs, by its function's name; it may be left out where there is only one.
    pub program: Option<String>,
    /// Modules of a stage run in the order of their positions; last by default.
    pub position: Option<u32>,
}

impl Default for ServiceConfig {
    fn default() -> ServiceConfig {
        ServiceConfig {
            socket: None,
            socket_mode: "0660".into(),
            socket_group: None,
            manage_group: None,
            confine: true,
            log: LogLevel::Info,
            metrics: MetricsConfig::default(),
            polling: PollingConfig::default(),
            thread: Vec::new(),
        }
    }
}

impl Default for PollingConfig {
    fn default() -> PollingConfig {
        PollingConfig { spin_us: 2, yield_us: 50 }
    }
}

impl ServiceConfig {
    /// The permission bits of the sockets.
    pub fn mode(&self) -> Result<u32, String> {
        let bits = u32::from_str_radix(self.socket_mode.trim_start_matches("0o"), 8).ok();
        bits.filter(|bits| *bits <= 0o777).ok_or_else(|| {
            format!("socket_mode is `{}`: it must be octal permissions such as \"0660\"", self.socket_mode)
        })
    }
}
