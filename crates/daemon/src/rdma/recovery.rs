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

/// Paths that packets of a host's queue pairs take in turn (docs/RDMA.md, "Spraying").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RdmaPaths(u16);

/// At most: the header has three bits for their logarithm.
const MOST_PATHS: u16 = 128;

impl Default for RdmaPaths {
    fn default() -> RdmaPaths {
        RdmaPaths(1)
    }
}

impl RdmaPaths {
    /// The logarithm of their number.
    ///
    /// # Errors
    /// A sentence, where the number is no power of two, too large, or without effect.
    pub(crate) fn spray(self, recovery: RdmaRecovery) -> Result<u8, String> {
        let RdmaPaths(paths) = self;
        if !paths.is_power_of_two() || paths > MOST_PATHS {
            return Err(format!("`rdma_paths` must be 1, 2, 4, ... or {MOST_PATHS}, not {paths}"));
        }
        if paths > 1 && recovery != RdmaRecovery::SelectiveRepeat {
            let why = "packets of several paths come out of order, which go-back-N takes for losses";
            return Err(format!("`rdma_paths` needs `rdma_recovery = \"selective-repeat\"`: {why}"));
        }
        Ok(paths.trailing_zeros() as u8)
    }
}

impl From<RdmaRecovery> for Recovery {
    fn from(recovery: RdmaRecovery) -> Recovery {
        match recovery {
            RdmaRecovery::GoBackN => Recovery::GoBackN,
            RdmaRecovery::SelectiveRepeat => Recovery::SelectiveRepeat,
        }
    }
}
