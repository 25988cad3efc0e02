//! Epoll sets over any mix of OpenTOE sockets and the kernel's descriptors.
//!
//! A program's set is a real epoll set of the kernel: its kernel descriptors are really in it. OpenTOE sockets are kept
//! beside it, with a list of those that are ready, so a wait costs nothing for those that are not. To sleep on both, a
//! second set of the kernel, the [sleep set](crate::system::sleep_set), holds the program's set and what ends a sleep.
//!
//! What a set is and how members become ready is in [`crate::state::set`], what they are ready for in
//! [`crate::state::members`]. Here [`control()`] adds and removes them, [`wait_events`] waits, and [`kernel_half`]
//! keeps the kernel's set true.
mod control;
pub(crate) mod kernel_half;
mod out;
mod wait;

pub(crate) use control::control;
pub(crate) use out::Out;
pub(crate) use wait::wait_events;
