//! Loss recovery of queue pairs, as the configuration names it.
use serde::Deserialize;
use smartns::Recovery;

/// How a host's RDMA device makes up for lost packets (docs/RDMA.md, "Loss").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RdmaRecovery {
    /// All packets from the lost one on are sent again, as every peer does it.
    #[default]
    GoBackN,
    /// Lost packets only, with peers that do so as well; with others, as above.
    SelectiveRepeat,
}

impl From<RdmaRecovery> for Recovery {
    fn from(recovery: RdmaRecovery) -> Recovery {
        match recovery {
            RdmaRecovery::GoBackN => Recovery::GoBackN,
            RdmaRecovery::SelectiveRepeat => Recovery::SelectiveRepeat,
        }
    }
}
