//! One host in virtual time, behind the table of callbacks by which packet-script runners drive a stack.
//!
//! The library exports `packetdrill_interface_init`, so that the packetdrill program, where somebody has it, runs its
//! scripts against OpenTOE (`--so_filename=libtoe_script.so`). Written from that interface; nothing of packetdrill is
//! in it. What runs is the product's control plane and an engine; only time, the port and the application are made here.
//!
//! | file | what |
//! |---|---|
//! | `interface` | the table, and what stands between C and the rest |
//! | `memory` | the runner's memory |
//! | `flags` | what the runner's `--so_flags` may say |
//! | `stack` | the host, its clock, frames in and out |
//! | `sockets` | socket calls in terms of a context |
//! | `options` | socket options |

mod flags;
pub mod interface;
mod memory;
mod options;
pub mod sockets;
pub mod stack;

pub use flags::{EngineName, Flags};
pub use interface::{Interface, packetdrill_interface_init};
