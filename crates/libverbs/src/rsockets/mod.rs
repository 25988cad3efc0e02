//! rsockets, as librdmacm offers them. Streams go over a reliable connection, by WRITE with immediate data. Datagrams
//! go between queue pairs of datagrams. What goes over the wire is that of Linux' own rsockets, so either side may be
//! one.
//!
//! Streams: `protocol` is what goes over the wire; `queue` the queue pair; `stream` the two ways of a connection;
//! `socket` its steps. Datagrams: `datagrams`. Both: `registered` is the memory; `waiting` what calls ask of a socket,
//! and waiting threads; `settings` what can be set; `named` addresses; `table` the descriptors; `calls`, `options`,
//! `transfer`, `readiness` and `placement` are what programs call.
mod calls;
mod completions;
mod datagrams;
mod named;
mod options;
mod placement;
mod protocol;
mod queue;
mod readiness;
mod registered;
mod settings;
mod socket;
mod stream;
mod table;
mod transfer;
mod waiting;
