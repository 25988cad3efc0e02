//! Users whose programs may use RDMA.
use serde::Deserialize;

/// Whose programs may use a host's RDMA device (docs/SECURITY.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RdmaUsers {
    /// No user's: the host has none.
    Off,
    /// The daemon's own user's.
    Own,
    /// All users who may attach to the host.
    All,
}

impl RdmaUsers {
    /// Programs of this user may attach to the device, where they may attach to the host.
    pub(crate) fn may_attach(self, uid: u32) -> bool {
        match self {
            RdmaUsers::Off => false,
            RdmaUsers::Own => uid == rustix::process::geteuid().as_raw(),
            RdmaUsers::All => true,
        }
    }
}
