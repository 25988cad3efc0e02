//! What a `[[zeronic]]` section says.
use super::transport::TransportKind;
use control::CongestionName;
use serde::Deserialize;
use std::net::Ipv4Addr;

/// A ZeroNIC host: an address of its own on a fabric, for programs that use `toe_comm_*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZeronicSection {
    /// What programs call it.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of the network part of the address.
    #[serde(default = "prefix_len")]
    pub prefix_len: u8,
    /// Next hop for everything outside that network.
    pub gateway: Option<Ipv4Addr>,
    /// What decides on headers: a stream engine, or Linux' own TCP.
    #[serde(default)]
    pub transport: TransportKind,
    /// How its connections control congestion: `cubic`, `dctcp`, `timely` or `none`; Linux' TCP has the first two. As
    /// the engine's hosts do, and Linux' TCP by `cubic`, where it is not said.
    #[serde(default)]
    pub congestion: Option<CongestionName>,
    /// The fabric; the first one where it is not said.
    pub fabric: Option<String>,
    /// Whose programs may use it.
    #[serde(default)]
    pub users: ZeronicUsers,
    /// Index of its thread among the data-path threads.
    #[serde(default)]
    pub thread: usize,
    /// Milliseconds that a copy to or from a program's device memory may take, before the device counts as lost.
    #[serde(default = "device_timeout_ms")]
    pub device_timeout_ms: u32,
}

/// Whose programs may use a ZeroNIC host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeronicUsers {
    /// The daemon's own user's.
    #[default]
    Own,
    /// All those who may open the attach socket.
    All,
}

impl ZeronicUsers {
    /// Programs of this user may attach.
    pub(crate) fn may_attach(self, uid: u32) -> bool {
        self == ZeronicUsers::All || uid == rustix::process::geteuid().as_raw()
    }
}

fn device_timeout_ms() -> u32 {
    10_000
}

fn prefix_len() -> u8 {
    24
}

/// A sentence about the first section that cannot be.
pub(crate) fn check(sections: &[ZeronicSection], fabrics: &[&str], threads: usize) -> Result<(), String> {
    for (at, section) in sections.iter().enumerate() {
        let said = |sentence: String| format!("zeronic {}: {sentence}", section.name);
        if section.name.is_empty() || sections[..at].iter().any(|other| other.name == section.name) {
            return Err(said("each needs a name of its own".into()));
        }
        if sections[..at].iter().any(|other| other.address == section.address && other.fabric == section.fabric) {
            return Err(said(format!("another one has the address {}", section.address)));
        }
        if let Some(fabric) = section.fabric.as_deref().filter(|fabric| !fabrics.contains(fabric)) {
            return Err(said(format!("no fabric is called `{fabric}`")));
        }
        if fabrics.is_empty() {
            return Err(said("it needs a fabric: a [[fabric]] section".into()));
        }
        let linux = section.transport == TransportKind::Linux;
        if let Some(name) = section.congestion.filter(|of| linux && !["cubic", "dctcp"].contains(&of.name)) {
            return Err(said(format!("Linux' TCP has no congestion control `{}`: cubic and dctcp are", name.name)));
        }
        if section.thread >= threads {
            return Err(said(format!("thread is {}, and there are {threads} (counted from 0)", section.thread)));
        }
    }
    Ok(())
}
