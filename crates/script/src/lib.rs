//! One host in virtual time, behind the table of callbacks by which packet-script runners drive a stack.
//!
//! The library exports `packetdrill_interface_init`, so that the packetdrill program, where somebody has it, runs its
//! scripts against OpenTOE (`--so_filename=libtoe_script.so`). Written from that interface; nothing of packetdrill is
//! in it. What runs is the product's control plane and an engine; only time, the port and the application are made
//! here.
//!
//! | file | what |
//! |---|---|
//! | `interface` | the table, and what stands between C and the rest |
//! | `instance` | calls of several threads, and the time between them |
//! | `threads` | which of the runner's threads stand still |
//! | `preload` | `getsockopt` for runners that ask the kernel |
//! | `memory` | the runner's memory |
//! | `flags` | what the runner's `--so_flags` may have |
//! | `changes`, `settings` | settings that change while a script runs |
//! | `stack` | the host, its clock, frames in and out |
//! | `sockets` | socket calls in terms of a context |
//! | `connection` | an open connection |
//! | `options` | socket options |
//! | `epoll`, `event_set` | sets of descriptors |
//! | `error_queue` | notifications of `MSG_ZEROCOPY` |
//! | `early`, `fast_open` | data that goes with a SYN |

mod changes;
mod connection;
mod early;
mod epoll;
mod error_queue;
pub mod event_set;
mod fast_open;
mod flags;
mod instance;
pub mod interface;
mod memory;
mod options;
pub mod preload;
mod settings;
pub mod sockets;
pub mod stack;
mod threads;

pub use flags::Flags;
pub use interface::{Interface, packetdrill_interface_init};
