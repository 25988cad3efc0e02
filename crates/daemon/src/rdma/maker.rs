//! Construction of the RDMA devices of a daemon's hosts.
use super::device_record::RdmaPlace;
use super::users::RdmaUsers;
use crate::config::HostSection;
use crate::datapath::DataPath;
use crate::domains::Domains;
use crate::secret::secret;
use memory::{Limits, MemoryTable};
use rdma::{Config, Congestion, Device, LIMITS, LowerLayer, Recovery, TransmitPath};
use std::net::Ipv4Addr;
use std::sync::Arc;
use wire::Mac;

/// Name of a host's RDMA device: a program sees that of one host only.
const NAME: &str = "toe0";
/// The speed that the device reports, Gbit/s. Congestion control begins with it, where the port has no limit.
const SPEED: u32 = 100;
/// Programs of a device at once.
const PROGRAMS: u32 = 128;

/// Name of a ZeroNIC host's device.
const ZERONIC: &str = "zeronic0";

/// What a ZeroNIC host's device is made for: its name, its hardware address, its address, the bytes of an IP packet,
/// and whose programs may use it.
pub(crate) struct ZeronicHost<'h> {
    pub(crate) name: &'h str,
    pub(crate) mac: Mac,
    pub(crate) address: Ipv4Addr,
    pub(crate) ip_mtu: u16,
    pub(crate) users: RdmaUsers,
}

/// The device of a ZeroNIC host, whose programs' memory this table has.
///
/// # Errors
/// A sentence.
pub(crate) fn over_streams(host: &ZeronicHost<'_>, table: &Arc<MemoryTable>) -> Result<(Device, RdmaPlace), String> {
    let device = Device::new(Config {
        host: host.name.into(),
        name: ZERONIC.into(),
        mac: host.mac,
        address: host.address,
        ip_mtu: host.ip_mtu,
        speed: SPEED,
        limits: LIMITS,
        programs: PROGRAMS,
        recovery: Recovery::default(),
        spray: 0,
        transmit_path: TransmitPath::default(),
        raw_packets: false,
        congestion: Congestion::None,
        lower_layer: LowerLayer::Stream,
        table: Arc::clone(table),
        secret: secret()?,
    })?;
    let (stated, users) = (device.stated().clone(), host.users);
    Ok((device, RdmaPlace { device: stated, users, table: Arc::clone(table), domains: Arc::default() }))
}

/// Makes the devices of a daemon's hosts, which share what is registered.
#[derive(Default)]
pub(crate) struct RdmaMaker {
    shared: Option<(Arc<MemoryTable>, Arc<Domains>)>,
}

impl RdmaMaker {
    /// Gives a host its device, where its configuration has one; `line_rate`: bits a second of its port, where that has
    /// a limit. The error is a sentence.
    pub(crate) fn place(
        &mut self,
        path: &mut DataPath,
        index: usize,
        section: &HostSection,
        line_rate: Option<u64>,
    ) -> Result<Option<RdmaPlace>, String> {
        let Some(users) = section.rdma.filter(|users| *users != RdmaUsers::Off) else { return Ok(None) };
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => {
                let table = MemoryTable::new(Limits::default()).map_err(|e| format!("no random numbers: {e}"))?;
                (Arc::new(table), Arc::default())
            }
        };
        let (table, domains) = self.shared.insert(shared).clone();
        let seat = &path.hosts[index];
        let stack = seat.host.base().config();
        // The device has one port, and it is the host's first.
        let link = seat.host.net().links()[0];
        let config = Config {
            host: stack.name.clone(),
            name: NAME.into(),
            mac: link.mac,
            address: link.address.as_v4().ok_or("RDMA needs an IPv4 address")?,
            ip_mtu: link.caps.mtu,
            speed: SPEED,
            limits: LIMITS,
            programs: PROGRAMS,
            recovery: section.rdma_recovery.into(),
            spray: section.rdma_paths.spray(section.rdma_recovery)?,
            transmit_path: section.rdma_payload.into(),
            raw_packets: section.rdma_raw_packets == Some(true),
            lower_layer: LowerLayer::Packets,
            congestion: section.rdma_congestion.on(line_rate.unwrap_or(u64::from(SPEED) * 1_000_000_000)),
            table: Arc::clone(&table),
            secret: secret()?,
        };
        let device = rdma::Device::new(config)?;
        let stated = device.stated().clone();
        path.add_rdma(index, device)?;
        Ok(Some(RdmaPlace { device: stated, users, table, domains }))
    }
}
