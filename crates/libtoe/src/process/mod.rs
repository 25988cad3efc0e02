//! Process events and sockets: fork, exec, passing of descriptors, confinement.
pub(crate) mod carried;
pub(crate) mod confine;
pub(crate) mod environment;
pub(crate) mod exec;
pub(crate) mod fork;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod image;
pub(crate) mod passing;
pub(crate) mod spawn;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) mod static_host;
