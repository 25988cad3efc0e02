//! The connection to the daemon: attaching, completions and requests, sharing connections with other processes, the
//! time without one.
pub(crate) mod ask;
pub(crate) mod attach;
pub(crate) mod bumps;
pub(crate) mod drain;
pub(crate) mod reattach;
pub(crate) mod reclaim;
pub(crate) mod share;
