//! librdmacm: connection management. Identifiers and their state are the daemon's; this is the form that programs
//! use, and the steps of queue pairs that go with it.
//!
//! - `service`: the process's context for the identifiers of a device; `seat`: where an identifier is
//! - `address`: socket addresses, read and written
//! - `identifier`: the memory of `struct rdma_cm_id`; `held`: that of an event
//! - `lifetime`: identifiers made and ended; `placement`: the choice of their devices
//! - `events`: events, taken and prepared
//! - `calls`, `connect`, `multicast`, `resources`, `endpoint`, `resolver`: what programs call
//! - `refused`: what is not offered
mod address;
mod calls;
mod connect;
mod device_identifier;
mod endpoint;
mod events;
mod held;
mod identifier;
mod joined;
mod lifetime;
mod membership;
mod multicast;
mod placement;
mod refused;
mod resolver;
mod resources;
mod service;

pub(crate) use address::{plain, read as read_address};
pub(crate) use calls::{rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_resolve_route, rdma_set_option};
pub(crate) use connect::{rdma_accept, rdma_connect, rdma_reject};
pub(crate) use events::next as next_event;
pub(crate) use held::{kind, rdma_ack_cm_event};
pub(crate) use identifier::{Channel, Id, SPACE_TCP};
pub(crate) use lifetime::{create as create_id, destroy as destroy_id, migrate as migrate_id};
pub(crate) use resources::{create as create_queue_pair, rdma_destroy_qp};
pub(crate) use service::{Service, service, service_of};
