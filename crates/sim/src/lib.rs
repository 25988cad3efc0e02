//! Deterministic simulation, in virtual time and from one seed. It has several hosts with the product's own control
//! planes and engines, and the emulated network. Applications use the context protocol over real shared memory.
//!
//! The simulation sees both sides of each connection. So it checks at each step what neither side could. Each byte
//! arrives at its place, and nothing is acknowledged that was not delivered. No window is exceeded or shrunk. Nothing
//! stalls that could go on, and nothing is left over at the end.
#![forbid(unsafe_code)]

mod app;
mod caller;
mod calls;
pub mod command;
mod connection;
pub mod generate;
mod host;
mod inspect;
mod killed;
mod pair;
pub mod plan;
mod random;
pub mod rdma;
mod replies;
pub mod runner;
mod scene;
mod schedule;
pub mod shrink;
mod takeover;
mod world;
pub mod zeronic;

pub use plan::Plan;
pub use runner::run_caught;
pub use scene::Figures;
pub use world::{Failure, Record, run, run_recorded, run_watched};
