//! Configuration section `[[zeronic]]`.
use super::transport::TransportKind;
use crate::config::{Config, FabricSection, HostSection};
use control::CongestionName;
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use zeronic::Shortage;

/// Bits of the network part of an address by default.
const PREFIX_LEN: u8 = 24;

/// Where a ZeroNIC host shares an address, its connections begin at these ports.
pub(crate) const SHARED_PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// A ZeroNIC host: an address on a network, for programs that use `toe_comm_*`, and an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeronicSection {
    /// What programs call it.
    pub name: String,
    /// The `[[host]]` whose address and port it shares; programs may use that one's name, too.
    pub host: Option<String>,
    /// Its address.
    pub address: Ipv4Addr,
    /// Bits of the network part of the address.
    pub prefix_len: u8,
    /// Next hop for everything outside that network.
    pub gateway: Option<Ipv4Addr>,
    /// What decides on headers: a stream engine, or Linux' own TCP.
    pub transport: TransportKind,
    /// How its connections control congestion: `cubic`, `dctcp`, `timely` or `none`; Linux' TCP has the first two. As
    /// the engine's hosts do, and Linux' TCP by `cubic` by default.
    pub congestion: Option<CongestionName>,
    /// The fabric; by default the first one. Nothing where it shares a host's port.
    pub fabric: Option<String>,
    /// Whose programs may use it.
    pub users: ZeronicUsers,
    /// Index of its thread among the data-path threads.
    pub thread: usize,
    /// Milliseconds that a copy to or from a program's device memory may take, before the device counts as lost.
    pub device_timeout_ms: u32,
    /// Lines of the flow table: connections, and flows of datagrams, whose payload is placed.
    pub placed_connections: u16,
    /// What becomes of payload that no posted receive has a place for.
    pub no_segment: Shortage,
}

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    name: Option<String>,
    host: Option<String>,
    address: Option<Ipv4Addr>,
    prefix_len: Option<u8>,
    gateway: Option<Ipv4Addr>,
    #[serde(default)]
    transport: TransportKind,
    congestion: Option<CongestionName>,
    fabric: Option<String>,
    #[serde(default)]
    users: ZeronicUsers,
    thread: Option<usize>,
    #[serde(default = "device_timeout_ms")]
    device_timeout_ms: u32,
    #[serde(default)]
    placed_connections: u16,
    #[serde(default = "no_segment")]
    no_segment: NoSegment,
}

impl Written {
    /// With its defaults; a sentence where that cannot be.
    pub(crate) fn complete(self, hosts: &[HostSection]) -> Result<ZeronicSection, String> {
        match self.host.as_deref() {
            Some(name) => {
                let host = hosts.iter().find(|host| host.stack.name == name);
                let host = host.ok_or_else(|| format!("this zeronic shares host `{name}`, which is not there"))?;
                self.sharing(host)
            }
            None => {
                let missing = |key: &str| format!("this zeronic has no `{key}`");
                let name = self.name.clone().ok_or_else(|| missing("name"))?;
                let address = self.address.ok_or_else(|| missing("address"))?;
                let (prefix_len, thread) = (self.prefix_len.unwrap_or(PREFIX_LEN), self.thread.unwrap_or(0));
                Ok(self.section(name, address, prefix_len, thread))
            }
        }
    }

    /// Address, network and thread are the host's.
    fn sharing(self, host: &HostSection) -> Result<ZeronicSection, String> {
        let of_host = [
            ("address", self.address.is_some()),
            ("prefix_len", self.prefix_len.is_some()),
            ("gateway", self.gateway.is_some()),
            ("fabric", self.fabric.is_some()),
            ("thread", self.thread.is_some()),
        ];
        let (stack, conflict) = (&host.stack, of_host.iter().find(|(_, is_set)| *is_set));
        if let Some((key, _)) = conflict {
            return Err(format!("this zeronic shares host `{}`, whose `{key}` it has: leave `{key}` out", stack.name));
        }
        let address = stack.address.as_v4();
        let address = address.ok_or_else(|| format!("a zeronic needs IPv4, and host `{}` has none", stack.name))?;
        let name = self.name.clone().unwrap_or_else(|| format!("{}-zeronic", stack.name));
        Ok(self.section(name, address, stack.prefix_len, host.thread))
    }

    fn section(self, name: String, address: Ipv4Addr, prefix_len: u8, thread: usize) -> ZeronicSection {
        let Written { host, gateway, transport, congestion, fabric, users, .. } = self;
        let Written { device_timeout_ms, placed_connections, no_segment, .. } = self;
        ZeronicSection {
            name,
            host,
            address,
            prefix_len,
            gateway,
            transport,
            congestion,
            fabric,
            users,
            thread,
            device_timeout_ms,
            placed_connections,
            no_segment: no_segment.into(),
        }
    }
}

impl ZeronicSection {
    /// Programs call it so, or by the name of the host whose address it shares.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.host.as_deref() == Some(name)
    }
}

/// [`Shortage`] as it is written.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NoSegment {
    Drop,
    Buffer,
    Defer,
}

/// The choice without which a receive may come late at no cost.
fn no_segment() -> NoSegment {
    NoSegment::Defer
}

impl From<NoSegment> for Shortage {
    fn from(choice: NoSegment) -> Shortage {
        match choice {
            NoSegment::Drop => Shortage::Drop,
            NoSegment::Buffer => Shortage::Buffer,
            NoSegment::Defer => Shortage::Defer,
        }
    }
}

/// Whose programs may use a ZeroNIC host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZeronicUsers {
    /// The daemon's own user's.
    #[default]
    Own,
    /// All users who may open the attach socket.
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

/// A sentence about the first section that cannot be.
pub(crate) fn check(config: &Config, threads: usize) -> Result<(), String> {
    let (sections, fabrics) = (&config.zeronics, &config.fabrics);
    for (at, section) in sections.iter().enumerate() {
        let with_context = |sentence: String| format!("zeronic {}: {sentence}", section.name);
        let is_hosts = config.hosts.iter().any(|host| host.stack.name == section.name);
        if section.name.is_empty() || is_hosts || sections[..at].iter().any(|other| other.name == section.name) {
            return Err(with_context("each needs a name of its own".into()));
        }
        match &section.host {
            Some(name) => {
                if sections[..at].iter().any(|other| other.host.as_ref() == Some(name)) {
                    return Err(with_context(format!("another one shares host `{name}`")));
                }
                let host = config.hosts.iter().find(|host| host.stack.name == *name);
                host.map_or(Ok(()), may_be_shared).map_err(with_context)?;
            }
            None => on_a_fabric(section, &sections[..at], fabrics).map_err(with_context)?,
        }
        let linux = section.transport == TransportKind::Linux;
        if let Some(name) = section.congestion.filter(|of| linux && !["cubic", "dctcp"].contains(&of.name)) {
            return Err(with_context(format!(
                "Linux' TCP has no congestion control `{}`: cubic and dctcp are",
                name.name
            )));
        }
        if section.thread >= threads {
            return Err(with_context(format!(
                "thread is {}, and there are {threads} (counted from 0)",
                section.thread
            )));
        }
    }
    Ok(())
}

/// A section with an address of its own.
fn on_a_fabric(section: &ZeronicSection, before: &[ZeronicSection], fabrics: &[FabricSection]) -> Result<(), String> {
    let is_same = |other: &ZeronicSection| {
        other.host.is_none() && other.address == section.address && other.fabric == section.fabric
    };
    if before.iter().any(is_same) {
        return Err(format!("another one has the address {}", section.address));
    }
    let is_there = |wanted: &&str| fabrics.iter().any(|fabric| fabric.name == **wanted);
    if let Some(fabric) = section.fabric.as_deref().filter(|wanted| !is_there(wanted)) {
        return Err(format!("no fabric is called `{fabric}`"));
    }
    if fabrics.is_empty() {
        return Err("it needs a fabric: a [[fabric]] section".into());
    }
    Ok(())
}

/// A host whose address a ZeroNIC host shares.
fn may_be_shared(host: &HostSection) -> Result<(), String> {
    let (stack, name) = (&host.stack, &host.stack.name);
    if host.ports.len() > 1 {
        return Err(format!("host `{name}` has {} ports: only one port can be shared", host.ports.len()));
    }
    if stack.ephemeral_last >= *SHARED_PORTS.start() {
        return Err(format!(
            "ephemeral_last of host `{name}` is {}: ports from {} on are the ZeroNIC host's",
            stack.ephemeral_last,
            SHARED_PORTS.start()
        ));
    }
    Ok(())
}
