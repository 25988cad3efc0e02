//! Whole-system tests: unmodified programs on OpenTOE and on the kernel (`grid`), bad input and killed processes
//! (`faults`), and the rules of the house (`tests/tidy.rs`).
//!
//! A driver makes its own network namespaces, devices and daemon ([`lab`]), runs programs in them ([`process`]),
//! and searches afterwards for anything that was left behind ([`leaks`]).
#![forbid(unsafe_code)]

mod capture;
pub mod cases;
mod comm;
pub mod daemon;
mod descriptors;
mod direct;
mod early;
pub mod endurance;
mod exhaustion;
pub mod experiments;
pub mod faults;
mod few_lines;
pub mod guest;
pub mod hostile;
pub mod jobs;
pub mod lab;
pub mod leaks;
pub mod logs;
mod modules;
pub mod network;
mod one_address;
mod over_tcp;
mod ports;
pub mod process;
mod rdma;
mod referred;
pub mod refusals;
pub mod report;
mod restart;
pub mod splicing;
pub mod suites;
mod takeover;
mod turnover;
mod unknown_peers;
mod volumes;
