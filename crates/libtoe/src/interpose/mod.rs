//! The C entry points. Each one looks the descriptor up, passes what is not ours to the next definition, and
//! turns results into what C expects.
//!
//! # Safety
//! The functions are called by C programs under the contracts of POSIX and Linux: pointers are valid for what the calls
//! access. Where a system call's pointer is not, the call returns `EFAULT`, as the kernel does
//! ([`crate::system::user_memory`]).
#![allow(clippy::missing_safety_doc, reason = "stated once, above")]

mod comm;
mod descriptors;
mod dispositions;
mod dma;
mod events;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod handles;
pub(crate) mod hosted;
mod interfaces;
mod io;
mod kernel_half;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod layer;
mod limits;
mod log;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod masks;
mod messages;
mod pipes;
mod process;
mod sockets;
mod system_call;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod threads;
mod toe;
mod volume;
mod zero_copy;
