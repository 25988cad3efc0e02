//! librdmacm: connection management. Identifiers and their state are the daemon's; this is the form that programs
//! know, and the steps of queue pairs that go with it.
//!
//! `service` is the process's one context for all identifiers; `address` reads and writes socket addresses;
//! `identifier` is what stands behind `struct rdma_cm_id`, `held` what stands behind an event; `lifetime` makes and
//! ends identifiers; `events` takes events and prepares them; `calls`, `connect`, `resources`, `endpoint` and
//! `resolver` are what programs call; `refused` is what is not offered.
mod address;
mod calls;
mod connect;
mod endpoint;
mod events;
mod held;
mod identifier;
mod lifetime;
mod refused;
mod resolver;
mod resources;
mod service;
