//! ZeroNIC in the simulation: hosts of their own beside the others on the same network. Each has a program that posts
//! sends and receives by the product's own queues. A judge has both sides. Each byte sent is the posted one, and each
//! byte placed is in its place, none outside. Each completion comes once, in order, and none before its data.
pub(crate) mod draw;
mod host;
pub(crate) mod judge;
#[cfg(test)]
mod lies;
pub mod plan;
mod program;
pub(crate) mod talk;
