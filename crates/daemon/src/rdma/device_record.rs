//! A host's RDMA device, as the attach socket needs it.
use super::users::RdmaUsers;
use crate::domains::Domains;
use ::rdma::ProgramView;
use memory::MemoryTable;
use serde_json::{Value, json};
use std::net::Ipv6Addr;
use std::sync::Arc;
use verbs::attach::Device;

/// A host's RDMA device, for whoever attaches.
#[derive(Clone)]
pub(crate) struct RdmaPlace {
    /// What programs get.
    pub(crate) device: Device,
    /// Whose programs may attach.
    pub(crate) users: RdmaUsers,
    /// Registered memory of all programs of the daemon.
    pub(crate) table: Arc<MemoryTable>,
    /// Numbers of their protection domains.
    pub(crate) domains: Arc<Domains>,
}

impl RdmaPlace {
    /// For `opentoe ls`, with the programs that are attached.
    pub(crate) fn json(&self, programs: &[ProgramView]) -> Value {
        let Device { name, gids, speed, .. } = &self.device;
        let gids: Vec<Ipv6Addr> = gids.iter().map(|gid| gid.0.into()).collect();
        json!({ "device": name, "gids": gids, "speed_gbit": speed, "programs": programs })
    }
}
