//! Solar as a transport of a host: packets in UDP datagrams, beside whatever else the host transports.
mod client;
mod programs;
mod queue;
mod report;
mod server;
mod udp;

pub use client::{VolumeAddress, VolumeClient};
pub use programs::{ProgramId, Programs};
pub use queue::{Queue, Submission, View};
pub use report::{ClientReport, RequestCounts, ServerReport, SessionReport};
pub use server::{Backend, Peer, VolumeServer};
pub use udp::LEAST_MTU;
