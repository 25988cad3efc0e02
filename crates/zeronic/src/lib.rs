//! ZeroNIC: payload goes straight to its place in registered memory, and a transport decides on headers
//! (docs/ZERONIC.md; the paper's sections 3 and 4).
//!
//! - [`Nic`] is the NIC's half: it places payload before any transport has seen it, and fetches payload for headers
//!   that a transport made. It is pure: no I/O, no clock.
//! - [`Transport`] is what works on headers; [`LinuxTcp`] is the kernel's own TCP as one, [`EngineTcp`] a
//!   stream engine (FlexTOE, Laminar).
//! - [`Stack`] is the control stack between the two and applications.
//! - Verbs are above it, too: an `rdma::Device` whose queue pairs' messages go over connections (`verbs`).
//! - [`Programs`] gives it to programs, by queues in shared memory (`context::comm`).
//! - [`SocketEngine`] is a NIC's half for unmodified socket programs: a stream engine that sees headers only.
#![forbid(unsafe_code)]

mod capture;
mod copy_path;
mod copying;
mod counters;
mod datagram_path;
mod datagrams;
mod engine_tcp;
mod frames;
mod held;
mod linux;
mod listening;
mod marked_copies;
mod marks;
mod merge;
mod nic;
mod programs;
mod sockets;
mod split;
mod stack;
mod transport;
mod unit;
mod verbs;
mod waiting;
mod window;

pub use context::comm::Carries;
pub use counters::Counters;
pub use datagrams::NoDatagrams;
pub use engine_tcp::EngineTcp;
pub use linux::{LinuxConfig, LinuxTcp, Share, serve_linux};
pub use nic::{
    Arrival, Fetch, Finished, FlowId, Guide, Kind, Limits, Mark, Memory, Nic, Outgoing, Payload, Positions, Read,
    Refused, Segment, Started,
};
pub use programs::{NewProgram, ProgramId, ProgramView, Programs};
pub use sockets::SocketEngine;
pub use stack::{Connection, ConnectionView, Event, Stack};
pub use transport::{InOrder, NextHop, Room, Socket, Transport};
pub use unit::{Moved, Shortage};
pub use verbs::VERBS_PORT;
