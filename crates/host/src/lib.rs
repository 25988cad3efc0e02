//! The parts of every host, whatever it transports: routes, neighbours (ARP, Neighbor Discovery), ICMP, timers,
//! budgets, tables. The demultiplexer gives each transport the frames that it claims. Sans-I/O: frames, time and
//! randomness are passed in.
//!
//! [`Net`] is the network layer that the transports of a host share. A [`Transport`] is a control plane and its engine
//! as one object. [`Host`] owns both, and passes each transport the frames that it claims.
#![forbid(unsafe_code)]

mod arp;
pub mod autoconf;
mod budget;
mod deadlines;
mod demux;
mod discovery;
mod free_numbers;
mod host;
mod icmp;
mod link;
mod membership;
mod mld;
mod neighbours;
mod net;
mod packet;
mod path_mtu;
mod ports;
mod route;
mod router_discovery;
mod routers;
mod slab;
mod timer_queue;
mod transport;
mod unreachable;

pub use budget::Budget;
pub use deadlines::Deadlines;
pub use demux::{Claim, protocol_of};
pub use host::Host;
pub use link::{AddressV6, Link};
pub use neighbours::{Expiry, Found, Learned, NeighbourTable, NeighbourTiming, Neighbours};
pub use net::{Neighbour, Net, NetConfig, Received};
pub use packet::{Ip, MOST_SHORT, Packet};
pub use path_mtu::PathMtus;
pub use ports::Ports;
pub use route::{Hop, RouteConfig, RouteTable, Routes};
pub use slab::Slab;
pub use timer_queue::TimerQueue;
pub use transport::{Io, NetContext, NoBase, Report, Transport, of_control};
pub use unreachable::{Cause, Quote, Unreachable};
