//! Payload transfer of queue pairs into frames, as the configuration names it.
use rdma::TransmitPath;
use serde::Deserialize;

/// How payload comes into the frames of a host's RDMA device (docs/RDMA.md, "The path of payload").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RdmaPayload {
    /// Frames refer to it in the program's memory, but for short messages, which travel together.
    #[default]
    Auto,
    /// Only messages below 2 KiB travel together: for experiments.
    HeaderOnly,
    /// All of it is copied into frames: for experiments.
    Staged,
}

impl From<RdmaPayload> for TransmitPath {
    fn from(payload: RdmaPayload) -> TransmitPath {
        match payload {
            RdmaPayload::Auto => TransmitPath::Auto,
            RdmaPayload::HeaderOnly => TransmitPath::HeaderOnly,
            RdmaPayload::Staged => TransmitPath::Staged,
        }
    }
}
