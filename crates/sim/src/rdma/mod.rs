//! RDMA in the simulation: devices beside TCP on the same hosts, programs with the contract of `crates/verbs`
//! over real pipes and registered memory, and a judge that sees both sides. Each byte is in its place and none outside,
//! each completion comes once, in order, with the right status, and none before its data.
pub(crate) mod device;
pub(crate) mod draw;
pub(crate) mod judge;
#[cfg(test)]
mod lies;
pub(crate) mod link;
pub(crate) mod memory;
mod network;
pub mod plan;
mod program;
mod raw;
mod windows;
mod work;
