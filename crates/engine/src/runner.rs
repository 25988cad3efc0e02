//! Back-ends that run an engine's program, as the configuration names them.
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::PathBuf;

/// What runs the program of an engine that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The processor, which runs the program compiled to its own code.
    #[default]
    Native,
    /// The program as RTL, simulated (docs/RTL.md).
    Rtl,
}

impl Backend {
    /// Every backend.
    pub const ALL: &'static [Backend] = &[Backend::Native, Backend::Rtl];

    /// Its name in the configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Native => "native",
            Backend::Rtl => "rtl",
        }
    }
}

/// A backend, with what it is asked for. In the configuration it is the backend's name, or a table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runner {
    /// What runs the program.
    pub kind: Backend,
    /// A file for the waveform (VCD) of simulated RTL: each change of each signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waveform: Option<PathBuf>,
}

impl<'de> Deserialize<'de> for Runner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Runner, D::Error> {
        deserializer.deserialize_any(NameOrTable)
    }
}

/// Reads a [`Runner`]: the error names the key that is wrong, as serde's untagged enumerations do not.
struct NameOrTable;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    kind: Backend,
    waveform: Option<PathBuf>,
}

impl<'de> Visitor<'de> for NameOrTable {
    type Value = Runner;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"native\", \"rtl\", or a table with `kind` and `waveform`")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Runner, E> {
        Ok(Runner { kind: Backend::deserialize(StrDeserializer::new(name))?, waveform: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Runner, A::Error> {
        let Table { kind, waveform } = Table::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Runner { kind, waveform })
    }
}
