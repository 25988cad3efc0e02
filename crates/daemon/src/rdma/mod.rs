//! RDMA programs (docs/RDMA.md): who may attach, a service thread for each, and the device's seat on the data-path
//! thread.
mod congestion;
mod domains;
mod maker;
mod pipes;
mod place;
mod programs;
mod queues;
mod recovery;
mod regions;
mod seat;
mod service;
mod users;

pub use congestion::RdmaCongestion;
pub(crate) use maker::{RdmaMaker, ZeronicHost, over_streams};
pub(crate) use place::RdmaPlace;
pub(crate) use programs::{Places, Programs, is_hello};
pub use recovery::RdmaRecovery;
pub(crate) use seat::{DeviceAt, RdmaSeat};
pub use users::RdmaUsers;
