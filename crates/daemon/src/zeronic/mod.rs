//! ZeroNIC hosts of the daemon (docs/ZERONIC.md): their configuration, their seats on data-path threads, and the
//! places of their programs.
mod config;
mod host_on_thread;
mod kernel;
mod maker;
mod seat;
mod thread;
mod transport;
mod views;

pub(crate) use config::{SHARED_PORTS, Written as WrittenZeronic, check};
pub use config::{ZeronicSection, ZeronicUsers};
pub(crate) use host_on_thread::ThreadZeronic;
pub use kernel::linux_helper;
pub(crate) use maker::{Shared, ZeronicPlace, make};
pub(crate) use seat::{is_hello, seat_of};
