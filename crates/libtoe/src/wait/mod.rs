//! Waiting: take completions in, check, yield for a while, then sleep.
//!
//! All calls wait in the same way: [`rounds`] of checks, yields ([`spin`]) and sleeps ([`sleep`]). Those that wait for
//! sockets or sets claim them before they sleep ([`crate::calls::waiting`]).
pub(crate) mod follower;
pub(crate) mod rounds;
pub(crate) mod signals;
mod sleep;
mod spin;
pub(crate) mod target;
pub(crate) mod thread;
mod time;

pub(crate) use spin::{forget_others, yield_between};
pub(crate) use target::{Target, WaitOptions};
