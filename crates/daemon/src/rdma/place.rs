//! What the attach socket needs to know of a host's RDMA device.
use super::domains::Domains;
use super::users::RdmaUsers;
use memory::MemoryTable;
use std::sync::Arc;
use verbs::attach::Device;

/// A host's RDMA device, for whoever attaches.
#[derive(Clone)]
pub(crate) struct RdmaPlace {
    /// What programs are told.
    pub(crate) device: Device,
    /// Whose programs may attach.
    pub(crate) users: RdmaUsers,
    /// Registered memory of all programs of the daemon.
    pub(crate) table: Arc<MemoryTable>,
    /// Numbers of their protection domains.
    pub(crate) domains: Arc<Domains>,
}
