//! Connection management (IBTA 1.3, chapter 12): the general services interface of a device.
//!
//! `connection` and `lookup` are state machines, one for each connection and each question for a queue pair of
//! datagrams. `manager` owns them, and the identifiers of programs: `commands` is what programs ask for, `input` what
//! peers send. Everything here takes the time as an argument, and leaves what is to be sent in an outbox.
mod commands;
mod connection;
mod ids;
mod input;
mod lookup;
mod manager;
mod outbox;
mod ports;
mod reopening;
mod timing;

pub(crate) use commands::Context;
pub(crate) use manager::{DeviceIdentity, Manager};
pub use outbox::{Letter, Outbox};

#[doc(hidden)]
pub use connection::{Connection, Facts, Input, News, State, Step};
