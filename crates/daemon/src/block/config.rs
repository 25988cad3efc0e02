//! What `[[volume]]` and `[[block]]` sections say.
use serde::Deserialize;
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
    /// Nobody may write to it.
    #[serde(default)]
    pub read_only: bool,
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
}

/// A sentence about the first section that cannot be.
pub(crate) fn check(volumes: &[VolumeSection], blocks: &[BlockSection], hosts: &[&str]) -> Result<(), String> {
    for (at, section) in volumes.iter().enumerate() {
        let said = |sentence: &str| Err(format!("volume {}: {sentence}", section.name));
        if section.name.is_empty() || section.name.len() > solar::MOST_NAME {
            return said("its name must have 1 to 64 bytes");
        }
        if volumes[..at].iter().any(|other| other.name == section.name && other.host == section.host) {
            return said("its host serves another one of this name");
        }
        if volumes[..at].iter().any(|other| other.file == section.file) {
            return said("another volume has the same file");
        }
        if section.size.is_some_and(|size| size == 0 || size % solar::BLOCK_LEN as u64 != 0) {
            return said("its size must be a multiple of 4096 bytes");
        }
        if !hosts.contains(&section.host.as_str()) {
            return said(&format!("no host is called `{}`", section.host));
        }
    }
    for (at, section) in blocks.iter().enumerate() {
        let said = |sentence: &str| Err(format!("block {}: {sentence}", section.volume));
        if section.volume.is_empty() || section.volume.len() > solar::MOST_NAME {
            return said("the volume's name must have 1 to 64 bytes");
        }
        if blocks[..at].iter().any(|other| other.socket == section.socket) {
            return said("another one has the same socket");
        }
        if section.read_only && section.take_over {
            return said("`read_only` and `take_over` exclude each other");
        }
        if !hosts.contains(&section.host.as_str()) {
            return said(&format!("no host is called `{}`", section.host));
        }
    }
    Ok(())
}
