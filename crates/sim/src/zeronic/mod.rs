//! ZeroNIC in the simulation: hosts of their own beside the others on the same network. Each has a program that posts
//! sends and receives by the product's own queues. A judge has both sides. Each byte that leaves is the one that was
//! posted, each byte that is placed is in its place and none outside, each completion comes once, in order, and none
//! before its data.
pub(crate) mod draw;
mod host;
pub(crate) mod judge;
#[cfg(test)]
mod lies;
pub mod plan;
mod program;
pub(crate) mod talk;
