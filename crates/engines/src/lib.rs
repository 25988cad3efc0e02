//! The only room that names every engine: [`EngineKind`] is the name in configurations, plans and on command lines, and
//! [`EngineKind::make`] the one factory.
//!
//! A new stream engine is a variant here, with a line in each match below; nothing else in the product names it.
#![forbid(unsafe_code)]

use control::HostConfig;
use engine::stream::Stream;
use engine::{Engine, Limits, ProgramSource};

pub use engine::Backend;
use flextoe::FlexToe;
use laminar::{Extensions, Laminar};
use port::FramePool;
use serde::{Deserialize, Serialize};
use zeronic::SocketEngine;

pub use flextoe::Mapping;

/// The stream engines that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[clap(rename_all = "lowercase")]
pub enum EngineKind {
    /// FlexTOE's pipeline of modules.
    #[default]
    Flextoe,
    /// Laminar's P4 program on a match-action pipeline.
    Laminar,
    /// ZeroNIC's split of headers and payload, over FlexTOE.
    Zeronic,
    /// The same over Laminar.
    #[serde(rename = "zeronic-laminar")]
    #[clap(name = "zeronic-laminar")]
    ZeronicLaminar,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: &'static [EngineKind] =
        &[EngineKind::Flextoe, EngineKind::Laminar, EngineKind::Zeronic, EngineKind::ZeronicLaminar];

    /// Those that decide on headers by themselves.
    pub const TRANSPORTS: &'static [EngineKind] = &[EngineKind::Flextoe, EngineKind::Laminar];

    /// Its name in the configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Flextoe => "flextoe",
            EngineKind::Laminar => "laminar",
            EngineKind::Zeronic => "zeronic",
            EngineKind::ZeronicLaminar => "zeronic-laminar",
        }
    }

    /// The engine that decides on TCP's headers: itself, or that below ZeroNIC's split.
    pub const fn transport(self) -> EngineKind {
        match self {
            EngineKind::Flextoe | EngineKind::Zeronic => EngineKind::Flextoe,
            EngineKind::Laminar | EngineKind::ZeronicLaminar => EngineKind::Laminar,
        }
    }

    /// The engine of this name.
    pub fn of_name(name: &str) -> Option<EngineKind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Makes an engine for a host: its sizes, its window shift and the extensions that its configuration asks for.
    /// `mapping` is for engines whose modules can run on threads.
    ///
    /// # Errors
    /// A sentence, where the host's limits are beyond the engine's.
    pub fn make(
        self,
        host: &HostConfig,
        mapping: &Mapping,
        pool: &FramePool,
    ) -> Result<Box<dyn Engine<Stream>>, String> {
        let limits = limits(host);
        Ok(match self {
            EngineKind::Flextoe => Box::new(FlexToe::new(limits, mapping.clone(), pool.clone())),
            EngineKind::Laminar => {
                // Where a policy needs round-trip times, they are the data-path's own (thesis section 5.5.3).
                let timely = host.default_congestion().needs.timestamps;
                let shared_log = host.memory.log_bytes > 0;
                let extensions = Extensions { timely, shared_log, ..Extensions::default() };
                Box::new(Laminar::on(&host.backend, limits, host.window_shift(), extensions)?)
            }
            EngineKind::Zeronic | EngineKind::ZeronicLaminar => {
                // A frame that waits within the engine may outlast the place of its payload.
                let inner = self.transport().make(host, &Mapping::default(), pool)?;
                let geometry = host.memory.geometry();
                let most = geometry.most_rx().max(geometry.tx_bytes);
                let engine = SocketEngine::new(self.name(), inner, most)?;
                Box::new(match host.memory.placed_connections {
                    0 => engine,
                    lines => engine.with_lines(lines),
                })
            }
        })
    }

    /// Most flows that it holds; none where memory is the only limit.
    pub const fn most_flows(self) -> Option<u32> {
        match self.transport() {
            EngineKind::Flextoe => None,
            _ => Some(laminar::MOST_FLOWS),
        }
    }

    /// Its data-path is a program, which any [`Backend`] can run.
    pub const fn has_program(self) -> bool {
        matches!(self.transport(), EngineKind::Laminar)
    }

    /// Its modules can run on threads of their own.
    pub const fn has_mapping(self) -> bool {
        matches!(self, EngineKind::Flextoe)
    }

    /// It receives as a host chooses ([`control::TcpConfig::receiving`]).
    pub const fn receives_as_chosen(self) -> bool {
        matches!(self.transport(), EngineKind::Flextoe)
    }

    /// It can keep shared logs (docs/SHARED-LOG.md).
    pub const fn keeps_logs(self) -> bool {
        matches!(self, EngineKind::Laminar)
    }

    /// Received bytes can land in programs' memory (docs/ZERONIC.md, "Direct receives").
    pub const fn lands_directly(self) -> bool {
        matches!(self, EngineKind::Zeronic | EngineKind::ZeronicLaminar)
    }

    /// Checks and compiles a program for such an engine, as a preparation for [`Engine::load`], which then finds it
    /// compiled.
    ///
    /// # Errors
    /// The places in the program that are wrong, or a sentence where this engine runs no program.
    pub fn prepare(self, host: &HostConfig, source: &ProgramSource) -> Result<(), String> {
        match self.transport() {
            EngineKind::Flextoe => {
                Err(format!("host {} does not run the laminar engine, and so no P4 program", host.name))
            }
            _ if host.backend.kind == Backend::Rtl => Err(format!(
                "host {} runs its program as RTL, whose model is made when it starts: restart it with another program",
                host.name
            )),
            _ => laminar::prepare(&limits(host), host.window_shift(), source),
        }
    }
}

fn limits(host: &HostConfig) -> Limits {
    Limits { flows: host.max_flows, contexts: host.max_contexts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_makes_the_engine_of_its_name() {
        for kind in EngineKind::ALL {
            let most = kind.most_flows().unwrap_or(64).min(64);
            let host = HostConfig { max_flows: most, ..HostConfig::default() };
            let made = kind.make(&host, &Mapping::default(), &FramePool::new(16)).expect("it fits");
            assert_eq!((made.name(), EngineKind::of_name(made.name())), (kind.name(), Some(*kind)));
        }
        assert_eq!(EngineKind::of_name("tofino"), None);
    }

    #[test]
    fn an_engine_offers_the_features_of_its_kind() {
        for kind in EngineKind::ALL {
            let mut host = HostConfig { max_flows: 64, ..HostConfig::default() };
            host.memory.log_bytes = 1 << 16;
            let made = kind.make(&host, &Mapping::default(), &FramePool::new(16)).expect("it fits");
            let offered = made.features().transport;
            assert_eq!((offered.keeps_logs, offered.v6), (kind.keeps_logs(), true), "{}", kind.name());
        }
    }
}
