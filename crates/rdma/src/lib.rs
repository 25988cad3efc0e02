//! The control plane of RDMA (docs/RDMA.md). Sans-I/O: frames, time and randomness are passed in.
//!
//! It has two halves, on two threads. [`Objects`] is the bookkeeping of one program: which objects it has, what uses
//! what, how many there may be. The daemon's service thread of that program owns it, and asks the data-path thread for
//! the rest: [`Device`] is a transport of a host around the engine. It draws numbers of queue pairs, passes received
//! frames to the program that owns the queue pair, and finds the ways to peers.
#![forbid(unsafe_code)]

mod address_resolution;
pub mod cm;
mod config;
mod device;
mod failure;
mod flows;
mod gid;
mod groups;
mod gsi;
mod limits;
mod memberships;
mod numbers;
mod objects;
mod posted;
mod raw;
mod stream_binding;
mod streams;
mod udp;
mod udp_calls;
mod user_context;
mod view;

pub use address_resolution::Reach;
pub use config::{Config, LIMITS};
pub use device::Device;
pub use failure::Failure;
pub use objects::{Kind, Most, Needs, Object, Objects};
pub use smartns::{CnpCounts, Congestion, LowerLayer, Recovery, TransmitPath};
pub use stream_binding::Change;
pub use streams::{Letter, Naming};
pub use user_context::{EventPipe, NewProgram, ProgramId, Who};
pub use view::{CongestionView, IdView, ProgramView, QpView};
