//! `opentoe bench`: the same POSIX programs (`apps/`) on OpenTOE and on the kernel's TCP, measured in turn, and the
//! papers' experiments on the emulated network.
//!
//! A *case* (`cases/`) builds *labs* (`lab/`): a daemon with a fabric, or two network namespaces with a veth pair. It
//! runs programs there, and makes a *report* (`report.rs`) of what they print, with *plots* (`plot.rs`).
#![forbid(unsafe_code)]

mod all;
mod arguments;
mod callgrind;
mod cases;
mod charts;
pub mod command;
mod csv;
pub mod directory;
mod goals;
mod lab;
pub mod machine;
mod measurement;
mod memory;
mod page;
mod paper;
mod plot;
pub mod private_daemon;
pub mod process;
mod provenance;
mod published;
mod report;
mod sample;
pub mod servers;
pub mod session;
mod setup;
mod tables;
mod tools;
