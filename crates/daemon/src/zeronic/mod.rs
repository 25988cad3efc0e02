//! ZeroNIC hosts of the daemon (docs/ZERONIC.md): their configuration, their seats on data-path threads, and the
//! service threads of their programs.
mod config;
mod devices;
mod kernel;
mod place;
mod seat;
mod service;
mod thread;
mod transport;
mod views;

pub(crate) use config::{SHARED_PORTS, Written as WrittenZeronic, check};
pub use config::{ZeronicSection, ZeronicUsers};
pub use kernel::linux_helper;
pub(crate) use place::{Shared, ZeronicPlace, place};
pub(crate) use seat::ZeronicSeat;
pub(crate) use service::{CommPrograms, is_hello};
