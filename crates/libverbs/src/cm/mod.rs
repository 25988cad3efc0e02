//! librdmacm: connection management. Identifiers and their state are the daemon's; this is the form that programs
//! use, and the steps of queue pairs that go with it.
//!
//! `service` is the process's context for the identifiers of a device; `seat` is where an identifier is; `address`
//! reads and writes socket addresses; `identifier` is what stands behind `struct rdma_cm_id`, `held` what stands behind
//! an event; `lifetime` makes and ends identifiers, `placement` chooses their devices; `events` takes events and
//! prepares them; `calls`, `connect`, `multicast`, `resources`, `endpoint` and `resolver` are what programs call;
//! `refused` is what is not offered.
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
