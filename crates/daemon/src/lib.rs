//! The daemon `toed`: hosts with their engines and ports on data-path threads, the socket that applications attach
//! to, and the management socket. Everything about TCP is in the crates below; this one wires, configures and shows.
#![forbid(unsafe_code)]

mod access;
mod applications;
mod arguments;
mod attaching;
mod autoconf;
pub mod background;
mod block;
mod build;
mod capture;
pub mod client;
mod clock;
pub mod config;
pub mod confine;
mod datapath;
mod domains;
mod journal;
pub mod logging;
mod management;
mod memory_trim;
mod metrics;
mod modules;
mod notify;
mod owners;
mod ports;
mod programs;
pub mod protocol;
mod queue_programs;
mod rdma;
mod registers;
mod returning;
mod secret;
mod service;
mod sockets;
mod splices;
mod takeover;
mod tickets;
mod tracepoints;
mod views;
mod wake;
mod workers;
mod zeronic;

pub use arguments::Arguments;
pub use service::{LINGER, Options, leave_streams, run};
pub use sockets::{default_socket, management_path};
pub use splices::SpliceMaps;
pub use zeronic::linux_helper;
