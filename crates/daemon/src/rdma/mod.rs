//! RDMA programs (docs/RDMA.md): the right to attach, a service thread for each, and the device's seat on the data-path
//! thread.
mod congestion;
mod device_record;
mod host_device;
mod maker;
mod payload;
mod pipes;
mod programs;
mod queues;
mod recovery;
mod regions;
mod service;
mod users;

pub use congestion::RdmaCongestion;
pub(crate) use device_record::RdmaPlace;
pub(crate) use host_device::{DeviceAt, ThreadDevice};
pub(crate) use maker::{RdmaMaker, ZeronicHost, over_streams};
pub use payload::RdmaPayload;
pub(crate) use programs::{Places, Programs, is_hello};
pub use recovery::{RdmaPaths, RdmaRecovery};
pub use users::RdmaUsers;
