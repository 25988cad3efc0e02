//! Block storage over Solar (docs/SOLAR.md): volumes that hosts serve from files, and volumes that hosts use.
//! Unmodified programs use a volume as an NBD socket, others by queues of their own (`toe_volume_*`).
mod assignment;
mod backend;
mod budget;
mod cache;
mod config;
mod connection;
mod export;
mod files;
mod gate;
mod nbd;
mod seat;
mod spare;
mod views;
mod writer;

pub(crate) use assignment::{BlockThreads, assign};
pub(crate) use config::check;
pub use config::{BlockSection, VolumeSection};
pub(crate) use seat::is_hello;
pub(crate) use views::BlockPlaces;
