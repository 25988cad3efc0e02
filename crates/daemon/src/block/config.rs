//! Configuration sections `[[volume]]` and `[[block]]`.
use crate::config::{Config, PortKind, PortSection};
use serde::Deserialize;
use solar::transport::LEAST_MTU;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// A volume that a host serves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSection {
    /// What clients call it.
    pub name: String,
    /// The host that serves it.
    pub host: String,
    /// The file or block device that has its blocks. Their checksums are beside it, in a file with `.crc` at its end.
    pub file: PathBuf,
    /// Bytes of a file that is not there yet, whole blocks of 4096; without, the file must be there.
    pub size: Option<u64>,
    /// Most bytes of the cache of blocks that were read lately; 0 for none.
    #[serde(default = "cache_bytes")]
    pub cache_bytes: u64,
    /// No client may write to it.
    #[serde(default)]
    pub read_only: bool,
    /// Payload is copied to a buffer in between, and its checksum is computed anew: for comparison.
    #[serde(default)]
    pub staged: bool,
    /// Addresses of hosts that may use it; all where there is none.
    #[serde(default)]
    pub clients: Vec<Ipv4Addr>,
}

/// A volume that a host uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSection {
    /// Its name at its server.
    pub volume: String,
    /// The host that uses it.
    pub host: String,
    /// The server's address.
    pub server: Ipv4Addr,
    /// The NBD socket for programs of the daemon's user.
    pub socket: PathBuf,
    /// It is only read.
    #[serde(default)]
    pub read_only: bool,
    /// Another client that may write to it loses that right.
    #[serde(default)]
    pub take_over: bool,
    /// Payload is copied to a buffer in between, and its checksum is computed anew: for comparison.
    #[serde(default)]
    pub staged: bool,
}

fn cache_bytes() -> u64 {
    64 << 20
}

/// Most volumes that a host uses: each has UDP ports of its own.
const MOST_BLOCKS: usize = 256;

/// A sentence about the first section that cannot be.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let (volumes, blocks) = (&config.volumes, &config.blocks);
    for (at, section) in volumes.iter().enumerate() {
        let refused = |sentence: &str| Err(format!("volume {}: {sentence}", section.name));
        if section.name.is_empty() || section.name.len() > solar::MOST_NAME {
            return refused("its name must have 1 to 64 bytes");
        }
        if volumes[..at].iter().any(|other| other.name == section.name && other.host == section.host) {
            return refused("its host serves another one of this name");
        }
        if volumes[..at].iter().any(|other| other.file == section.file) {
            return refused("another volume has the same file");
        }
        if section.size.is_some_and(|size| size == 0 || size % solar::BLOCK_LEN as u64 != 0) {
            return refused("its size must be a multiple of 4096 bytes");
        }
        on_host(config, &section.host).or_else(|sentence| refused(&sentence))?;
    }
    for (at, section) in blocks.iter().enumerate() {
        let refused = |sentence: &str| Err(format!("block {}: {sentence}", section.volume));
        if section.volume.is_empty() || section.volume.len() > solar::MOST_NAME {
            return refused("the volume's name must have 1 to 64 bytes");
        }
        if blocks[..at].iter().any(|other| other.socket == section.socket) {
            return refused("another one has the same socket");
        }
        if blocks[..at].iter().filter(|other| other.host == section.host).count() >= MOST_BLOCKS {
            return refused("its host uses 256 volumes already");
        }
        if section.read_only && section.take_over {
            return refused("`read_only` and `take_over` exclude each other");
        }
        on_host(config, &section.host).or_else(|sentence| refused(&sentence))?;
    }
    Ok(())
}

/// The host of a section is there, and its ports take blocks, as far as the configuration shows it.
fn on_host(config: &Config, name: &str) -> Result<(), String> {
    let Some(host) = config.hosts.iter().find(|host| host.stack.name == name) else {
        return Err(format!("no host is called `{name}`"));
    };
    host.ports.iter().filter_map(|port| mtu_of(config, port)).try_for_each(takes_blocks)
}

/// The MTU of a port; `None` where only its device has it.
fn mtu_of(config: &Config, port: &PortSection) -> Option<u16> {
    match port.kind {
        PortKind::Fabric => {
            let wanted = |name: &str| port.fabric.as_deref().is_none_or(|fabric| fabric == name);
            config.fabrics.iter().find(|fabric| wanted(&fabric.name)).map(|fabric| fabric.config.mtu)
        }
        PortKind::Tap => port.mtu.or(Some(port::TapConfig::default().mtu)),
        PortKind::Afxdp => None,
    }
}

/// A packet with a block is not longer than this MTU. The error is a sentence.
pub(super) fn takes_blocks(mtu: u16) -> Result<(), String> {
    if mtu < LEAST_MTU {
        return Err(format!(
            "a packet carries a block of 4096 bytes, so the MTU must be at least {LEAST_MTU}, not {mtu}"
        ));
    }
    Ok(())
}
