//! Ports in the configuration: the kinds, the keys of each, and opening one.
//!
//! A new kind of port is a variant of [`PortKind`] and of [`PortPlan`] with its keys here, and a file in the crate
//! `port`.
use control::Ipv6Config;
use host::{AddressV6, Link};
use port::{AfXdp, AfXdpConfig, Port, Tap, TapConfig};
use serde::Deserialize;
use std::path::PathBuf;
use wire::{IpAddress, Mac};

/// Characters of an interface's name (IFNAMSIZ, without the zero at its end).
const LONGEST_NAME: usize = 15;
/// Bits of the network part of a port's address by default.
const PREFIX_LEN: u8 = 24;

/// A port of a host or an uplink of a fabric.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// Which sort; the other keys depend on it.
    pub kind: PortKind,
    /// The host's address on it, for ports after the first; the host's own by default.
    pub address: Option<IpAddress>,
    /// Bits of that address's network part; 24 by default.
    pub prefix_len: Option<u8>,
    /// The host's IPv6 address on it, for ports after the first; the host's own by default.
    pub ipv6: Option<PortIpv6>,
    /// `fabric`: which one; the first where there is none.
    pub fabric: Option<String>,
    /// `tap`: name of the device, made where it does not exist. `afxdp`: name of an existing interface.
    pub device: Option<String>,
    /// `tap`, `afxdp`: network namespace of the device, by name or path; the daemon's where there is none.
    pub netns: Option<String>,
    /// `tap`: address and prefix length to give to the kernel's side, as `10.77.0.1/24`.
    pub kernel_address: Option<String>,
    /// The same of IPv6, as `2001:db8::1/64`.
    pub kernel_address6: Option<String>,
    /// `tap`: super-segments and checksum offload; on by default.
    pub offload: Option<bool>,
    /// `afxdp`: receive queue of the interface; 0 by default.
    pub queue: Option<u32>,
    /// `afxdp`: all frames of the queue are the host's; otherwise those that are not to its addresses are the kernel's.
    pub exclusive: Option<bool>,
    /// `tap`: most bytes of an IP packet; 1500 by default.
    pub mtu: Option<u16>,
    /// Hardware address of the host; derived from names where there is none.
    pub mac: Option<String>,
    /// File to which all frames are written, as pcapng.
    pub capture: Option<PathBuf>,
    /// Most MiB of that file; 1024 by default.
    pub capture_mib: Option<u64>,
}

/// An IPv6 address of a host on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortIpv6 {
    /// The address, of global scope.
    pub address: IpAddress,
    /// Bits of its network part; 64 by default.
    pub prefix_len: Option<u8>,
}

/// The sorts of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKind {
    /// A member of an emulated network.
    Fabric,
    /// A Linux TAP device.
    Tap,
    /// An AF_XDP socket on an interface.
    Afxdp,
}

impl PortKind {
    /// The keys that mean something for it, beside those of every port.
    fn keys(self) -> &'static [&'static str] {
        match self {
            PortKind::Fabric => &["fabric"],
            PortKind::Tap => &["device", "netns", "kernel_address", "kernel_address6", "offload", "mtu"],
            PortKind::Afxdp => &["device", "netns", "queue", "exclusive"],
        }
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Fabric => "fabric",
            PortKind::Tap => "tap",
            PortKind::Afxdp => "afxdp",
        }
    }
}

/// A port of one kind, with what this kind needs.
pub(crate) enum PortPlan {
    /// A member of an emulated network: which one, by default the first, and with which hardware address.
    Fabric { fabric: Option<String>, mac: Option<Mac> },
    /// A Linux TAP device.
    Tap(TapConfig),
    /// An AF_XDP socket.
    Afxdp(AfXdpConfig),
}

impl PortPlan {
    /// Opens a device. A fabric is none: its members join it.
    pub(crate) fn open(self, owner: &str) -> Result<Box<dyn Port>, String> {
        Ok(match self {
            PortPlan::Fabric { .. } => return Err(format!("a fabric is no device that {owner} can open")),
            PortPlan::Tap(config) => Box::new(Tap::open(&config)?),
            PortPlan::Afxdp(config) => Box::new(AfXdp::open(&config)?),
        })
    }
}

impl Default for PortSection {
    fn default() -> PortSection {
        PortSection {
            kind: PortKind::Fabric,
            address: None,
            prefix_len: None,
            ipv6: None,
            fabric: None,
            device: None,
            netns: None,
            kernel_address: None,
            kernel_address6: None,
            offload: None,
            queue: None,
            exclusive: None,
            mtu: None,
            mac: None,
            capture: None,
            capture_mib: None,
        }
    }
}

impl PortSection {
    /// What its keys ask for; a sentence where one means nothing for its kind, is missing, or is no value.
    pub(crate) fn plan(&self) -> Result<PortPlan, String> {
        let (mac, kernel_addresses) = (self.mac()?, self.kernel_addresses()?);
        let given = [
            ("fabric", self.fabric.is_some()),
            ("device", self.device.is_some()),
            ("netns", self.netns.is_some()),
            ("kernel_address", self.kernel_address.is_some()),
            ("kernel_address6", self.kernel_address6.is_some()),
            ("offload", self.offload.is_some()),
            ("mtu", self.mtu.is_some()),
            ("queue", self.queue.is_some()),
            ("exclusive", self.exclusive.is_some()),
        ];
        if let Some((key, _)) = given.iter().find(|(key, given)| *given && !self.kind.keys().contains(key)) {
            return Err(format!("`{key}` means nothing for a port of kind {}", self.kind.name()));
        }
        if let Some(name) = self.device.as_ref().filter(|name| name.is_empty() || name.len() > LONGEST_NAME) {
            return Err(format!("device is `{name}`: the name of an interface has 1 to {LONGEST_NAME} characters"));
        }
        Ok(match self.kind {
            PortKind::Fabric => PortPlan::Fabric { fabric: self.fabric.clone(), mac },
            PortKind::Tap => {
                let default = TapConfig::default();
                PortPlan::Tap(TapConfig {
                    name: self.device.clone().unwrap_or(default.name),
                    mtu: self.mtu.unwrap_or(default.mtu),
                    mac,
                    netns: self.netns.clone(),
                    kernel_addresses,
                    offload: self.offload.unwrap_or(default.offload),
                })
            }
            PortKind::Afxdp => {
                let interface = self.device.clone();
                let default = AfXdpConfig::default();
                PortPlan::Afxdp(AfXdpConfig {
                    interface: interface.ok_or("a port of kind afxdp needs `device`: the interface to use")?,
                    queue: self.queue.unwrap_or(default.queue),
                    netns: self.netns.clone(),
                    mac,
                    ..default
                })
            }
        })
    }

    /// It has keys about an address of its own.
    pub(crate) fn has_address(&self) -> bool {
        self.address.is_some() || self.prefix_len.is_some() || self.ipv6.is_some()
    }

    /// A sentence about the first address of its own that cannot be.
    pub(crate) fn check_addresses(&self, host_has_v6: bool) -> Result<(), String> {
        if self.prefix_len.is_some_and(|bits| !(1..=32).contains(&bits)) {
            return Err("prefix_len must be between 1 and 32".into());
        }
        if self.prefix_len.is_some() && self.address.is_none() {
            return Err("it has a `prefix_len`, but no `address`".into());
        }
        if self.address.is_some_and(|address| !address.is_v4()) {
            return Err("address must be an IPv4 address: its IPv6 address is ipv6.address".into());
        }
        let Some(PortIpv6 { address, prefix_len }) = self.ipv6 else { return Ok(()) };
        if prefix_len.is_some_and(|bits| !(1..=128).contains(&bits)) {
            return Err("ipv6.prefix_len must be between 1 and 128".into());
        }
        if address.is_v4() || address.is_link_local() || address.is_multicast() || address.is_loopback() {
            return Err("ipv6.address must be an IPv6 unicast address of global scope".into());
        }
        if !host_has_v6 {
            return Err("it has an `ipv6.address`, but the host has none: write the first one as the host's".into());
        }
        Ok(())
    }

    /// Its own address and prefix length, where it has one.
    pub(crate) fn network(&self) -> Option<(IpAddress, u8)> {
        self.address.map(|address| (address, self.prefix_len.unwrap_or(PREFIX_LEN)))
    }

    /// The same of IPv6.
    pub(crate) fn network6(&self) -> Option<(IpAddress, u8)> {
        self.ipv6.map(|ipv6| (ipv6.address, ipv6.prefix_len.unwrap_or(Ipv6Config::PREFIX_LEN)))
    }

    /// Makes of the host's own link the one of this port.
    pub(crate) fn link(&self, own: Link) -> Link {
        let (address, prefix_len) = self.network().unwrap_or((own.address, own.prefix_len));
        let v6 = self.network6().map(|(address, prefix_len)| AddressV6 { address, prefix_len });
        Link { address, prefix_len, v6: v6.or(own.v6), ..own }
    }

    /// The kernel side's addresses and prefix lengths.
    pub(crate) fn kernel_addresses(&self) -> Result<Vec<(IpAddress, u8)>, String> {
        let keys = [
            ("kernel_address", &self.kernel_address, true, "10.77.0.1/24"),
            ("kernel_address6", &self.kernel_address6, false, "2001:db8::1/64"),
        ];
        let mut all = Vec::new();
        for (key, text, is_v4, like) in keys {
            let Some(text) = text else { continue };
            let parsed = text.split_once('/').and_then(|(address, bits)| {
                let address: IpAddress = address.parse().ok().filter(|address: &IpAddress| address.is_v4() == is_v4)?;
                Some((address, bits.parse().ok().filter(|bits| (1..=address.width()).contains(bits))?))
            });
            all.push(parsed.ok_or_else(|| {
                format!("{key} is `{text}`: it must be an address with its prefix length, such as {like}")
            })?);
        }
        Ok(all)
    }

    /// The hardware address that was asked for.
    fn mac(&self) -> Result<Option<Mac>, String> {
        let Some(text) = &self.mac else { return Ok(None) };
        let parts: Vec<Option<u8>> = text
            .split(':')
            .map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None })
            .collect();
        let bytes: Option<Vec<u8>> = parts.into_iter().collect();
        let mac = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok()).filter(|bytes| bytes[0] & 1 == 0);
        mac.map(|bytes| Some(Mac(bytes)))
            .ok_or_else(|| format!("mac is `{text}`: it must be a unicast hardware address such as 02:00:00:00:00:01"))
    }
}
